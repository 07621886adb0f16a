"""An ensemble as one safetensors file: the members as a tensor, the network's description beside it as JSON.

    tensor "thetas"         (m, d), float32 or float64
    metadata "tiltwalk"     {"format": "ensemble", "version": 1, "network": ..., "task": ..., "classes": ..., "sha256": ...}

The digest is of the rest of the description and of the members: a bit that flipped anywhere is noticed. Nothing in the file
is ever run. A network of our own layers is described by them and built again from that; one made from another library's
module is described by its parameters' names and shapes, and must be given again.
"""

import hashlib
import json
import math
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tiltwalk import check
from tiltwalk.networks import layers, network

KEY = "tiltwalk"
TENSOR = "thetas"
VERSION = 1
TASKS = ("classification", "regression")
LAYERS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (layers.Conv, layers.MaxPool, layers.AvgPool, layers.Dense, layers.Flatten, layers.Activation)
}
MOST_LAYERS = 10_000
MOST_PARAMETERS = 2**40  # of what a file may describe: more could not be held against its members anyway


def packed(thetas: Float[np.ndarray, "m d"], made_with: Any, *, task: str, classes: tuple[Any, ...] | None) -> bytes:
    """The content of the file."""
    from safetensors.numpy import save

    head = {"format": "ensemble", "version": VERSION, "network": to_dict(made_with), "task": task, "classes": classes}
    text = json.dumps(head, allow_nan=False, default=int)
    metadata = {KEY: json.dumps(json.loads(text) | {"sha256": _digest(json.loads(text), thetas)})}
    return bytes(save({TENSOR: np.ascontiguousarray(thetas)}, metadata=metadata))


def _digest(head: dict[str, Any], thetas: Float[np.ndarray, "m d"]) -> str:
    """Of a description and of members."""
    found = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    found.update(np.ascontiguousarray(thetas).data)
    return found.hexdigest()


def save(path: str | Path, content: bytes) -> None:
    """Writes the file beside its place and moves it there, so that it is whole or absent."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load(path: str | Path, given: Any = None) -> tuple[Float[np.ndarray, "m d"], Any, Any, tuple[Any, ...] | None]:
    """Members, network, task and classes. What is damaged, of another kind or newer is refused with a ValueError."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Ensemble.load.path must be a file; {path} is not there or is a folder.")
    try:
        with safe_open(path, framework="np") as stored:
            metadata, names = stored.metadata() or {}, list(stored.keys())
            if KEY not in metadata or names != [TENSOR]:
                raise ValueError(f"{path.name} must be an ensemble of Tiltwalk; it is another kind of safetensors file.")
            kind, shape = stored.get_slice(TENSOR).get_dtype(), stored.get_slice(TENSOR).get_shape()
            if kind not in ("F32", "F64") or len(shape) != 2 or 0 in shape:
                raise ValueError(f"{path.name} must hold members as float32 or float64 (m, d); got {kind} {shape}.")
            head = _head(path, metadata[KEY])
            found = _network(path, head.get("network"), given)
            if found.dim != shape[1]:
                raise ValueError(f"{path.name} must hold members of {found.dim} parameters, as its network; got {shape[1]}.")
            thetas = stored.get_tensor(TENSOR)
    except SafetensorError as error:
        raise ValueError(f"{path.name} must be a whole safetensors file; it is damaged or cut short ({error}).") from None
    digest = head.pop("sha256", None)  # files of before have none
    if digest is not None and digest != _digest(head, thetas):
        raise ValueError(f"{path.name} is damaged: it does not have the digest that it was written with.")
    if not np.isfinite(thetas).all():
        raise ValueError(f"{path.name} must hold finite members; got NaN or infinity.")
    classes = head.get("classes")
    return thetas, found, head["task"], None if classes is None else tuple(classes)


def to_dict(made_with: Any) -> dict[str, Any]:
    """A network's description: its layers, or the sizes of a network whose layers we do not know."""
    if not isinstance(made_with, network.Network) or made_with.program is None:
        adapted = getattr(made_with, "adapted", None)
        named = [[part.name, list(part.shape)] for part in getattr(made_with, "parameters", ())]
        return {
            "library": getattr(adapted, "library", type(made_with).__name__),
            "dim": int(made_with.dim),
            "n_out": int(made_with.n_out),
            "parameters": named,
        }
    program = [{"layer": type(layer).__name__} | asdict(layer) for layer in made_with.program]
    return {"input_shape": list(made_with.input_shape), "initialiser": made_with.initialiser, "layers": program}


def from_dict(described: Any) -> network.Network:
    """The network of a description with layers, checked as one that a person builds."""
    try:
        parts = [dict(part) for part in described["layers"]]
        if not 1 <= len(parts) <= MOST_LAYERS:
            raise ValueError(f"the number of layers must be between 1 and {MOST_LAYERS}; got {len(parts)}")
        program = [LAYERS[part.pop("layer")](**part) for part in parts]
        _bounded(program)
        return network.sequential(described["input_shape"], program, initialiser=described["initialiser"])
    except KeyError as error:
        raise ValueError(f"a network's description must have known layers and all parts; {error} is not so.") from None
    except (TypeError, ValueError, OverflowError, AttributeError, AssertionError) as error:
        raise ValueError(f"a network's description must be one that can be built; {error}") from None


def _compared(described: dict[str, Any]) -> dict[str, Any]:
    """What decides the outputs: how weights are first drawn does not."""
    return {name: value for name, value in described.items() if name != "initialiser"}


def _bounded(program: list[Any]) -> None:
    total = 0
    for layer in program:
        total += sum(math.prod(shape) for shape in layers.parameter_shapes(layer))
        if total > MOST_PARAMETERS:
            raise ValueError(f"the number of parameters must be at most {MOST_PARAMETERS}; got more.")


def _head(path: Path, text: str) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} must describe its network in JSON; what it holds cannot be read.") from None
    if not isinstance(head, dict) or head.get("format") != "ensemble":
        raise ValueError(f"{path.name} must be an ensemble of Tiltwalk; it says that it is something else.")
    version = head.get("version")
    if version != VERSION:
        raise ValueError(
            f"{path.name} must be of format version {VERSION}; got {check.shown(version)}. A newer Tiltwalk may read it."
        )
    if head.get("task") not in TASKS:
        raise ValueError(f"{path.name} must name its task, one of {', '.join(TASKS)}; got {check.shown(head.get('task'))}.")
    classes = head.get("classes")
    if classes is not None and not (
        isinstance(classes, list) and all(isinstance(label, str | int | float | bool) for label in classes)
    ):
        raise ValueError(f"{path.name} must name its classes in a list, or none; got {check.shown(classes)}.")
    return head


def _network(path: Path, described: Any, given: Any) -> Any:
    """The network that was given, if it is the one described; else the one that the description builds."""
    if not isinstance(described, dict):
        raise ValueError(f"{path.name} must describe its network; got {check.shown(described)}.")
    if given is not None:
        if _compared(to_dict(given)) != _compared(described):
            raise ValueError(f"Ensemble.load.network must be the one that {path.name} was saved with; it differs.")
        return given
    if "layers" not in described:
        raise ValueError(
            f"{path.name} was saved with a network made from {check.shown(described.get('library'))}, which no file can "
            "hold; make it again and pass it: Ensemble.load(path, network)."
        )
    try:
        return from_dict(described)
    except ValueError as error:
        raise ValueError(f"{path.name} must hold a network that can be built; {error}") from None
