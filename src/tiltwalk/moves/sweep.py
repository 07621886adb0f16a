"""Sweeps: all odd models of a path at once, then all even ones, each with its own decision.

Given the rest, models that are not neighbours are independent, under the walk and under the tilt. So a half sweep is exact,
changes each of its models with its own accept or reject, and evaluates them in one batch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_settings, only_some, refresh
from tiltwalk.pytree import pytree, static
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class HalfSweep:
    """Redraws models `first, first + 2, ...` given those between them."""

    first: int = static()
    step: Any = 1.0
    fraction: float = static(default=1.0)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return (length - self.first + 1) // 2, 1

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        path = state.path
        old = path[self.first :: 2]
        mean, deviation = measure.walk.sites(path, self.first, noise.normal[:, 0])
        new = only_some(refresh(old, mean, deviation, self.step), old, noise, self.fraction)
        blocks = old.shape[0]
        correction = jnp.zeros((blocks, *path.shape[2:]), path.dtype)
        if self.first == 0:
            of_start = measure.walk.log_correction(old[0], new[0])
            if of_start is not None:
                correction = correction.at[0].set(of_start)
        sites = self.first + 2 * jnp.arange(blocks, dtype=jnp.int32)
        return Proposal(sites[:, None], new[:, None], correction, first=self.first, stride=2)


@pytree
class Sweep:
    """One update of every model: odd times (the first, third, ...) at once, then even times."""

    step: Any = 1.0
    fraction: float = static(default=1.0)

    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("Sweep", self.step, self.fraction)

    @property
    def name(self) -> str:
        return "sweep"

    def check(self, measure: PathMeasure) -> None:
        pass

    def parts(self, length: int) -> tuple[HalfSweep, ...]:
        first_models = (0,) if length == 1 else (0, 1)
        return tuple(HalfSweep(first, self.step, self.fraction) for first in first_models)
