"""Checkpoints: where a run stands, whole or absent. The last two are kept.

    checkpoints/NUMBER.safetensors   arrays: the chains (path, losses, gradients, step sizes), the tails of the draws
    checkpoints/NUMBER.json          the manifest, written last: digests of all that the run stands on, what was decided, counts

A manifest holds no paths: files are found by its number, so that nothing leads out of the folder.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tiltwalk import check
from tiltwalk.runs import files, forms

VERSION = 1
KEPT = 2
FORMAT = "tiltwalk checkpoint"
MOST_MANIFEST = 2**26
MOST_UNKNOWN = 2**30


class Damaged(ValueError):
    """A checkpoint, or something that it stands on, is not what was written."""


class Newer(ValueError):
    """Written by a version of Tiltwalk that knows more than this one."""


@dataclasses.dataclass
class Checkpoint:
    """One checkpoint in memory: the manifest's content, and the arrays."""

    number: int
    content: dict[str, Any]
    arrays: dict[str, np.ndarray]


def folder_of(run: Path) -> Path:
    return run / "checkpoints"


def paths(run: Path, number: int) -> tuple[Path, Path]:
    """State and manifest."""
    return folder_of(run) / f"{number:08d}.safetensors", folder_of(run) / f"{number:08d}.json"


def numbers(run: Path) -> list[int]:
    """The numbers of the manifests that are there, newest first."""
    try:
        names = [path.name for path in folder_of(run).iterdir()]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise Damaged(f"{folder_of(run)} must be a folder.") from None
    return sorted((int(name[:8]) for name in names if re.fullmatch(r"\d{8}\.json", name)), reverse=True)


def save(run: Path, point: Checkpoint) -> None:
    """Writes the state, then the manifest, then removes all but the last two."""
    state, manifest = paths(run, point.number)
    packed = pack(point.arrays)
    files.write_whole(state, packed)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "number": point.number,
        "state": {"bytes": len(packed), "sha256": files.sha256(packed)},
    } | point.content
    files.write_whole(manifest, sealed(content))
    for number in numbers(run):
        if number <= point.number - KEPT or number > point.number:
            # the manifest first: one without its state would be a checkpoint that is damaged
            for path in reversed(paths(run, number)):
                files.remove(path)
    for path in folder_of(run).glob("*.safetensors"):
        if re.fullmatch(r"\d{8}", path.stem) and not point.number - KEPT < int(path.stem) <= point.number:
            files.remove(path)


def load(run: Path, number: int) -> Checkpoint:
    """A checkpoint, held against its digests; raises `Damaged` or `Newer`."""
    state, manifest = paths(run, number)
    content = opened(manifest)
    if content.get("format") != FORMAT or content.get("number") != number:
        raise Damaged(f"{manifest.name} must be the manifest of checkpoint {number}; it is of something else.")
    wrong = forms.fault(forms.Manifest, content)
    if wrong is not None:
        raise Damaged(f"{manifest.name} must hold what a checkpoint holds; {wrong}.")
    return Checkpoint(number, content, unpack(state.name, stored(state, content["state"])))


def claimed(run: Path, number: int) -> int:
    """The number that a manifest gives itself: another one than its name's where somebody renamed it."""
    try:
        found = opened(paths(run, number)[1]).get("number")
    except Damaged:
        return number
    return found if isinstance(found, int) else number


def stored(path: Path, described: dict[str, Any]) -> bytes:
    """A file as `described`: of these `bytes`, where they are known, with this `sha256`."""
    size = described["bytes"]
    content = _read(path, MOST_UNKNOWN if size is None else size)
    if size not in (None, len(content)) or files.sha256(content) != described["sha256"]:
        raise Damaged(f"{path.name} is damaged: it does not have the digest that it was written with.")
    return content


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save as packed

    return bytes(packed({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def unpack(name: str, content: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    try:
        return dict(unpacked(content))
    except (SafetensorError, ValueError, KeyError, OverflowError) as error:
        raise Damaged(f"{name} must be a whole safetensors file ({error}).") from None


def sealed(content: dict[str, Any]) -> bytes:
    """A JSON object with a checksum over the rest of it."""
    text = json.dumps(content, allow_nan=False, sort_keys=True)
    return (json.dumps(content | {"checksum": files.sha256(text.encode())}, indent=1, sort_keys=True) + "\n").encode()


def opened(path: Path) -> dict[str, Any]:
    """What `sealed` made, if it still is that."""
    try:
        content = json.loads(_read(path, MOST_MANIFEST))
        if not isinstance(content, dict):
            raise ValueError
        checksum = content.pop("checksum", None)
        text = json.dumps(content, allow_nan=False, sort_keys=True)
    except Damaged:
        raise
    except (ValueError, RecursionError):
        raise Damaged(f"{path.name} is damaged: it is not the JSON that was written.") from None
    if checksum != files.sha256(text.encode()):
        raise Damaged(f"{path.name} is damaged: its checksum does not hold.")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise Newer(f"{path.name} was written by a newer Tiltwalk: format {version}; this one reads {VERSION}.")
    if version != VERSION:
        raise Damaged(f"{path.name} must be of format {VERSION}; got {check.shown(version)}.")
    return content


def _read(path: Path, most: int) -> bytes:
    try:
        return files.read(path, most)
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing.") from None
    except ValueError as error:
        raise Damaged(str(error)) from None
    except PermissionError:
        raise
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror}).") from None
