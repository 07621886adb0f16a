"""Corrections that make a normal number logistic: the table that `scripts/make_barker_table.py` computes."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True)
class Correction:
    """A law on `atoms` and their mirror images which, with a normal number of `deviation` added, is logistic within `error`.

    `probabilities` are those of an atom and its mirror image together; `error` is of the distribution function.
    """

    deviation: float
    error: float
    atoms: np.ndarray
    probabilities: np.ndarray

    def quantile(self, uniform: Float[Array, " b"]) -> Float[Array, " b"]:
        """The number that belongs to a uniform one."""
        x = np.concatenate([-self.atoms[::-1], self.atoms])
        p = np.concatenate([self.probabilities[::-1], self.probabilities]) / 2
        edges: Any = jnp.asarray(np.cumsum(p)[:-1], uniform.dtype)
        return jnp.asarray(x, uniform.dtype)[jnp.searchsorted(edges, uniform)]


@functools.cache
def table() -> tuple[Correction, ...]:
    """All corrections, by rising deviation: the error rises with it."""
    text = importlib.resources.files("tiltwalk.rules").joinpath("barker.json").read_text()
    rows = [
        Correction(r["deviation"], r["error"], np.asarray(r["atoms"]), np.asarray(r["probabilities"])) for r in json.loads(text)
    ]
    return tuple(sorted(rows, key=lambda c: c.deviation))


def widest(error: float) -> Correction:
    """The correction that leaves most of the work to the normal part with no more than this error."""
    return max((c for c in table() if c.error <= error), key=lambda c: c.deviation)
