"""Shooting: fix one time of the path, redraw everything on one side of it with the walk (the paper's algorithm 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_settings, pick, windowed
from tiltwalk.pytree import pytree, static
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class Shoot:
    """Redraws one end of the path, as far as a time chosen at random; forwards or backwards with equal chance.

    `reach=None`: from 1 to `length - 1` models, each number as likely as any other (the paper's choice of a time, without
    those that change nothing). `reach=r`: always the last `r` or the first `r` models; the paper uses 1 for long paths.
    A path of one model has no time to fix: that model is drawn from the start, or, where that is flat, moved by one step.
    """

    step: Any = 1.0
    fraction: float = static(default=1.0)
    reach: int | None = static(default=None)

    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("Shoot", self.step, self.fraction)
        if self.reach is not None:
            check.whole("Shoot.reach", self.reach, low=1)

    @property
    def name(self) -> str:
        return "shoot" if self.reach is None else f"shoot_{self.reach}"

    def check(self, measure: PathMeasure) -> None:
        if self.reach is not None and self.reach > max(1, measure.length - 1):
            raise ValueError(f"Shoot.reach must be between 1 and length - 1 = {measure.length - 1}; got {self.reach}.")

    def parts(self, length: int) -> tuple[Shoot, ...]:
        return (self,)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return 1, (max(1, length - 1) if self.reach is None else self.reach)

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        length, width = measure.length, noise.normal.shape[1]
        forwards = noise.choice[0] < 0.5
        if width == 1 and length <= 2:
            count, live = None, jnp.asarray(1, jnp.int32)
        elif self.reach is None:
            count = live = 1 + pick(noise.choice[1], length - 1)
        else:
            count, live = None, jnp.asarray(self.reach, jnp.int32)
        first = jnp.where(forwards, length - live, 0)
        return windowed(noise, state.path, measure, first, count, self.step, self.fraction)
