"""Langevin sweeps: a sweep whose proposals are drawn towards lower loss, for losses with a gradient.

Given its neighbours, a model is `N(m, v)` under the walk and weighted by `exp(-Phi)`, `Phi = s * L`, under the tilt. With
`rho = sqrt(1 - step^2)`,

    new = m + rho (old - m) - (1 - rho) v Phi'(old) + step sqrt(v) * noise

is the Crank-Nicolson-Langevin proposal (Cotter, Roberts, Stuart, White 2013; Beskos and others 2017): without the gradient it
leaves the walk as it is, however small the step, so that what is left for the acceptance is small in every dimension:

    sum (new - old)(Phi'(old) + Phi'(new)) / 2
      + delta/4 sum [(old + new - 2m)(Phi'(old) - Phi'(new)) + v (Phi'(old)^2 - Phi'(new)^2)]

beside `-(Phi(new) - Phi(old))`, with `delta = 2 (1 - rho)/(1 + rho)`. A known curvature `h` of the loss moves to where it can
be drawn exactly: `v` becomes `1/(1/v + s h)`, and `Phi` loses `s h (theta - m)^2 / 2`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_curvature, check_settings
from tiltwalk.pytree import pytree, static
from tiltwalk.shapes import Scale, like_models
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class HalfLangevin:
    """Moves models `first, first + 2, ...` given those between them."""

    first: int = static()
    step: Any = 1.0
    curvature: Scale = 0.0

    def noise_shape(self, length: int) -> tuple[int, int]:
        return (length - self.first + 1) // 2, 1

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        assert state.grads is not None
        path, dtype = state.path, state.path.dtype
        old, slope = path[self.first :: 2], s * state.grads[self.first :: 2]
        step = jnp.asarray(self.step, dtype)
        rho = jnp.sqrt(1 - step * step)
        quarter_delta = (1 - rho) / (1 + rho) / 2

        # a deviation of one standard normal is the standard deviation
        mean, deviation = measure.walk.sites(path, self.first, jnp.ones_like(old))
        free = measure.walk.free_single_model(measure.length)
        variance = deviation**2
        bend = jnp.zeros((), dtype) if free else s * like_models(jnp.asarray(self.curvature, dtype), path)
        variance = variance / (1 + variance * bend)
        slope = slope - bend * (old - mean)
        new = mean + rho * (old - mean) - (1 - rho) * variance * slope + step * jnp.sqrt(variance) * noise.normal[:, 0]

        losses, grads = (x.astype(dtype) for x in measure.value_and_grad(new))
        end = s * grads - bend * (new - mean)
        away = (new - old) * (slope + end) if free else (old + new - 2 * mean) * (slope - end)
        gained = (new - old) * (slope + end) / 2 + quarter_delta * (away + variance * (slope * slope - end * end))
        gained = gained + bend / 2 * ((new - mean) ** 2 - (old - mean) ** 2)
        correction = jnp.sum(gained, 1)
        if self.first == 0:
            of_start = measure.walk.log_correction(old[0], new[0])
            if of_start is not None:
                correction = correction.at[0].add(of_start.astype(dtype))
        sites = self.first + 2 * jnp.arange(len(old), dtype=jnp.int32)
        return Proposal(
            sites[:, None], new[:, None], correction, first=self.first, stride=2,
            losses=losses[:, None], grads=grads[:, None], evaluations=jnp.asarray(len(old), dtype),
        )  # fmt: skip


@pytree
class LangevinSweep:
    """One update of every model along its gradient: odd times (the first, third, ...) at once, then even times.

    `curvature` is the second derivative of the loss in each parameter, one number or one each: a preconditioner, which may be
    wrong without harm to what is sampled. Tune `step` to an acceptance of 0.57, where a Langevin step moves farthest.
    """

    step: Any = 0.5
    curvature: Scale = 0.0

    trailing: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("LangevinSweep", self.step)
        check_curvature("LangevinSweep", self.curvature)

    @property
    def name(self) -> str:
        return "langevin_sweep"

    def check(self, measure: PathMeasure) -> None:
        measure.check_gradient("LangevinSweep")
        check.entries("LangevinSweep.curvature", self.curvature, measure.dim)

    def parts(self, length: int) -> tuple[HalfLangevin, ...]:
        first_models = (0,) if length == 1 else (0, 1)
        return tuple(HalfLangevin(first, self.step, self.curvature) for first in first_models)
