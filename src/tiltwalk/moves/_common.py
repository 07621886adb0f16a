"""What all moves share: the partial refresh, the random subset of parameters, and the parts of a windowed proposal.

Partial refresh (Crank-Nicolson): from a conditional law of the walk with mean `m` and a draw of the deviation `e`,

    new = m + sqrt(1 - step^2) (old - m) + step * e,

which is reversible with respect to the walk for every `step` in (0, 1]; `step = 1` draws afresh, as the paper does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.shapes import like_models
from tiltwalk.types import Noise, Proposal


def check_settings(name: str, step: Any, fraction: Any = 1.0) -> None:
    """Raises unless `step` and `fraction` are in (0, 1]."""
    check.number(f"{name}.step", step, low=0, high=1, low_open=True)
    check.number(f"{name}.fraction", fraction, low=0, high=1, low_open=True)


def check_curvature(name: str, curvature: Any) -> None:
    """Raises unless `curvature` is zero or positive: a preconditioner must not turn hills into wells."""
    if not check.concrete(curvature):
        return
    values = check.finite_array(f"{name}.curvature", curvature, (0, 1), "() or (d,)")
    if np.any(values < 0):
        raise ValueError(f"{name}.curvature must be at least 0; got {values.min():g}.")


def refresh(
    old: Float[Array, "n d"], mean: Float[Array, "n d"], deviation: Float[Array, "n d"], step: Any
) -> Float[Array, "n d"]:
    """`m + sqrt(1 - step^2)(old - m) + step * e`."""
    step = jnp.asarray(step, old.dtype)
    new: Array = mean + jnp.sqrt(1 - step * step) * (old - mean) + step * deviation
    return new


def only_some(new: Float[Array, "n d"], old: Float[Array, "n d"], noise: Noise, fraction: float) -> Float[Array, "n d"]:
    """`new` in a random subset of parameters, `old` in the others: exact, since the walk moves parameters independently."""
    if fraction == 1:
        return new
    chosen = jax.random.uniform(noise.shared_key(), (new.shape[1],)) < fraction
    return jnp.where(like_models(chosen, new), new, old)


def windowed(
    noise: Noise,
    path: Float[Array, "tau d"],
    measure: PathMeasure,
    first: Int[Array, ""],
    count: Int[Array, ""] | None,
    step: Any,
    fraction: float,
) -> Proposal:
    """New values for `count` (or all `w`) consecutive models from `first`, given all others."""
    width = noise.normal.shape[1]
    first = jnp.asarray(first, jnp.int32)
    mean, deviation = measure.walk.window(path, first, noise.normal[0], count)
    sites = first + jnp.arange(width, dtype=jnp.int32)
    fixed = count is None
    old = jax.lax.dynamic_slice_in_dim(path, first, width) if fixed else jnp.take(path, sites, axis=0, mode="clip")
    new = only_some(refresh(old, mean, deviation, step), old, noise, fraction)
    of_start = measure.walk.log_correction(path[0], new[0])
    correction = jnp.zeros(path.shape[2:], path.dtype)
    if of_start is not None:
        correction = jnp.where(first == 0, of_start, correction)
    return Proposal(sites[None], new[None], correction[None].astype(path.dtype), count, stride=1 if fixed else None)


def pick(number: Float[Array, ""], among: Any) -> Int[Array, ""]:
    """A whole number from 0 to `among - 1` from a uniform one in (0, 1)."""
    return jnp.minimum((number * among).astype(jnp.int32), among - 1)
