"""What the adapters share: a module of another library becomes a `Network`, or an error says why it cannot.

A module must be a function of its weights and of one sample at a time. Dropout and batch statistics in training mode are
not, and shapes that depend on the data cannot be compiled; both are found by trying, with a few samples, when it is built.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk import check
from tiltwalk.networks.network import BIAS_SCALE, Adapted, Network, Parameter
from tiltwalk.networks.recognise import Follower, recognised

EVALUATION = {
    "from_flax": "build linen modules with deterministic=True and use_running_average=True, and call .eval() on NNX ones",
    "from_equinox": "use equinox.nn.inference_mode(module)",
    "from_torch": "call module.eval()",
}


def library(name: str) -> Any:
    """The optional library `name`, or an ImportError that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        extra = name.split(".")[0]
        raise ImportError(f'from_{extra} needs {extra}: pip install "tiltwalk[{extra}]".') from None


def x64() -> bool:
    """Whether JAX computes in double precision."""
    return bool(jnp.zeros(0).dtype == jnp.float64)


def samples(where: str, example: Any) -> Any:
    """A few samples to try the module on, from the example."""
    found = np.asarray(example)
    if found.dtype.kind not in "fiub" or found.ndim < 1 or found.shape[0] < 1:
        raise ValueError(
            f"{where}.example must be an array of samples, samples first, such as X[:2]; got {check.shown(example)}."
        )
    if found.dtype.kind == "f":
        found = found.astype(jnp.zeros(0).dtype)
        if len(found) < 2 or not np.any(found):  # something that tells samples apart
            found = np.random.default_rng(0).standard_normal((2, *found.shape[1:])).astype(found.dtype)
    return np.concatenate([found[:2], found[:1]])[:3]


def changing(where: str, found: Any) -> ValueError:
    """The error for modules whose outputs are not a function of weights and sample."""
    return ValueError(
        f"{where}.module must give the same outputs for the same weights and sample, so without dropout or batch "
        f"statistics in training mode: {EVALUATION[where]}; got {found}."
    )


def unshaped(where: str, error: Exception) -> ValueError:
    """The error for modules that cannot be traced."""
    return ValueError(
        f"{where}.module must have shapes and branches that do not depend on the values of the data; "
        f"got {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    )


def parameters(where: str, named: Sequence[tuple[str, Any]]) -> tuple[Parameter, ...]:
    """Where each leaf lies. Its scale is the spread of the values that it has, or 0.1 where they are all equal."""
    out, start = [], 0
    for name, leaf in named:
        dtype = str(leaf.dtype).removeprefix("torch.")
        if dtype not in ("float16", "bfloat16", "float32") and not (dtype == "float64" and x64()):
            needed = "float32, bfloat16 or float16 (float64 with JAX's x64 enabled)"
            raise TypeError(f"{where}.module must have weights of type {needed}; got {name} of type {dtype}.")
        spread = float(np.std(_values(leaf))) if np.prod(leaf.shape) > 1 else 0.0
        out.append(Parameter(name, start, tuple(leaf.shape), spread if spread > 0 else BIAS_SCALE))
        start += out[-1].size
    if not start:
        raise ValueError(f"{where}.module must have weights; got none.")
    return tuple(out)


def around(parts: Sequence[Parameter], named: Sequence[tuple[str, Any]]) -> Callable[[Any], Any]:
    """Random parameters for modules that come with weights: each leaf Gaussian with the spread that it has, around zero,
    or around its value where all its values are equal (a normalisation's gain stays near 1)."""
    centres, scales = [], []
    for part, (_, leaf) in zip(parts, named, strict=True):
        values = _values(leaf)
        equal = values.size > 0 and bool(np.all(values == values.flat[0]))
        centres.append(np.full(part.size, values.flat[0] if equal else 0.0))
        scales.append(np.full(part.size, part.scale))
    centre, scale = np.concatenate(centres), np.concatenate(scales)
    return lambda key: jnp.asarray(centre) + jnp.asarray(scale) * jax.random.normal(key, (len(centre),))


def _values(leaf: Any) -> np.ndarray:
    # bfloat16 is no NumPy type of its own: both libraries convert
    return np.asarray(leaf.detach().double() if hasattr(leaf, "detach") else leaf).astype(float)


def network(
    where: str, adapted: Adapted, parts: tuple[Parameter, ...], theta: Any, few: Any, follow: Callable[[Follower], None]
) -> Network:
    """The network, once it has been tried: outputs `(n, k)`, one sample's not changed by the others in its batch. `follow` goes
    through the module and finds the row of layers that it is, if it is one.
    """
    outputs = np.asarray(adapted.forward(theta, few))
    if outputs.ndim != 2 or outputs.shape[0] != len(few):
        raise ValueError(
            f"{where}.module must give one vector of outputs a sample, shape (n, k) or (n,); "
            f"for n = {len(few)} it gave {outputs.shape}."
        )
    again, alone = np.asarray(adapted.forward(theta, few)), np.asarray(adapted.forward(theta, few[:1]))
    if not np.array_equal(outputs, again, equal_nan=True):
        raise changing(where, "different outputs at each call")
    size = np.nanmax(np.abs(outputs)) + 1e-6 if outputs.size else 1.0
    if alone.shape != (1, outputs.shape[1]) or np.nanmax(np.abs(alone[0] - outputs[0])) > 1e-2 * size:
        raise changing(where, "outputs of a sample that depend on the other samples of its batch")
    made = Network(tuple(few.shape[1:]), int(outputs.shape[1]), parts, adapted=adapted)
    row, why = recognised(follow, made, theta) if few.dtype.kind == "f" else (None, "samples of whole numbers")
    return dataclasses.replace(made, row=row, unknown=why)


def columns(outputs: Any) -> Any:
    """Outputs `(n,)` as `(n, 1)`."""
    return outputs[:, None] if outputs.ndim == 1 else outputs
