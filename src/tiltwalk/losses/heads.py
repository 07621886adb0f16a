"""Losses of one sample from a network's outputs, for samples last `(k, n)` and samples first `(n, k)`.

mse            |out - y|^2 / 2                                the paper's convention, with the half
cross_entropy  log sum_c exp(out_c) - out_y                   from logits, at any size of logit
gaussian       |out - y|^2 / (2 noise^2) + k log noise + k/2 log(2 pi)
zero_one       1 where the largest output is not y, else 0    NaN where an output is
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CLASSES = ("cross_entropy", "zero_one")
VALUES = ("mse", "gaussian")
KINDS = CLASSES + VALUES


class Named:
    """A built-in head; equal to another of the same kind and layout, so that equal losses share compiled code."""

    def __init__(self, kind: str, last: bool) -> None:
        self.kind, self.last = kind, last

    def __repr__(self) -> str:
        return self.kind

    def __hash__(self) -> int:
        return hash((self.kind, self.last))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (self.kind, self.last) == (other.kind, other.last)

    def __call__(self, outputs: Any, y: Any, log_noise: Any) -> Any:
        if not self.last:  # few values: the layout does not matter here
            outputs = outputs.T
            y = y.T if y.ndim == 2 else y
        return _FUNCTIONS[self.kind](outputs, y, log_noise)


class PerSample:
    """A user's `(outputs (n, k), y) -> (n,)`."""

    def __init__(self, function: Callable[[Any, Any], Any], last: bool) -> None:
        self.function, self.last = function, last

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def __hash__(self) -> int:
        return hash((id(self.function), self.last))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerSample) and self.function is other.function and self.last == other.last

    def __call__(self, outputs: Any, y: Any, log_noise: Any) -> Any:
        if self.last:
            outputs = outputs.T
            y = y.T if y.ndim == 2 else y
        return self.function(outputs, y)


def _chosen(outputs: Any, y: Any) -> Any:
    """The output of the right class, without a gather, which would not run along samples."""
    right = jnp.arange(outputs.shape[0])[:, None] == y
    return jnp.sum(jnp.where(right, outputs, 0), 0)


def _cross_entropy(outputs: Any, y: Any, log_noise: Any) -> Any:
    top = jax.lax.stop_gradient(jnp.max(outputs, 0))
    away = outputs - top
    return jnp.log(jnp.sum(jnp.exp(away), 0)) - _chosen(away, y)


def _zero_one(outputs: Any, y: Any, log_noise: Any) -> Any:
    wrong = (jnp.argmax(outputs, 0) != y).astype(outputs.dtype)
    return jnp.where(jnp.any(jnp.isnan(outputs), 0), jnp.nan, wrong)


def _mse(outputs: Any, y: Any, log_noise: Any) -> Any:
    return jnp.sum((outputs - y) ** 2, 0) / 2


def _gaussian(outputs: Any, y: Any, log_noise: Any) -> Any:
    k = outputs.shape[0]
    return _mse(outputs, y, None) * jnp.exp(-2 * log_noise) + k * (log_noise + np.log(2 * np.pi) / 2)


_FUNCTIONS = {"mse": _mse, "cross_entropy": _cross_entropy, "gaussian": _gaussian, "zero_one": _zero_one}
