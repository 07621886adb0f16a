"""Sweeps: all odd models of a path at once, then all even ones, each with its own decision.

Given the rest, models that are not neighbours are independent, under the walk and under the tilt. So a half sweep is exact,
changes each of its models with its own accept or reject, and evaluates them in one batch.

The step of parameter `p` of model `t` is `min(1, step * sites[t] * parameters[p])`: the refresh is reversible with respect to
the walk for any step of each parameter, since the walk moves parameters independently.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_settings, only_some, refresh
from tiltwalk.pytree import pytree, static
from tiltwalk.shapes import Scale, like_models
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class HalfSweep:
    """Redraws models `first, first + 2, ...` given those between them."""

    first: int = static()
    step: Any = 1.0
    fraction: float = static(default=1.0)
    sites: Any = None
    parameters: Any = None

    def noise_shape(self, length: int) -> tuple[int, int]:
        return (length - self.first + 1) // 2, 1

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        path = state.path
        old = path[self.first :: 2]
        mean, deviation = measure.walk.sites(path, self.first, noise.normal[:, 0])
        new = only_some(refresh(old, mean, deviation, self._steps(old)), old, noise, self.fraction)
        blocks = old.shape[0]
        correction = jnp.zeros((blocks, *path.shape[2:]), path.dtype)
        if self.first == 0:
            of_start = measure.walk.log_correction(old[0], new[0])
            if of_start is not None:
                correction = correction.at[0].set(of_start)
        sites = self.first + 2 * jnp.arange(blocks, dtype=jnp.int32)
        return Proposal(sites[:, None], new[:, None], correction, first=self.first, stride=2)

    def _steps(self, old: Float[Array, "n d"]) -> Any:
        """One step for all, or one for each parameter of each model."""
        if self.sites is None and self.parameters is None:
            return self.step
        step = jnp.asarray(self.step, old.dtype)
        if self.parameters is not None:
            step = step * like_models(jnp.asarray(self.parameters, old.dtype), old)
        if self.sites is not None:
            each = jnp.asarray(self.sites, old.dtype)[self.first :: 2]
            step = step * each.reshape(len(each), *[1] * (old.ndim - 1))
        return jnp.minimum(step, 1)


@pytree
class Sweep:
    """One update of every model: odd times (the first, third, ...) at once, then even times.

    `sites`, one number a model, and `parameters`, one each (0 leaves it as it is), multiply `step`: `tuned_sweep` finds them.
    """

    step: Any = 1.0
    fraction: float = static(default=1.0)
    sites: Any = None
    parameters: Scale | None = None

    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("Sweep", self.step, self.fraction)
        for name, allowed in (("sites", "(length,)"), ("parameters", "(d,)")):
            value = getattr(self, name)
            if (
                value is not None
                and check.concrete(value)
                and check.finite_array(f"Sweep.{name}", value, (1,), allowed).min() < 0
            ):
                raise ValueError(f"Sweep.{name} must be at least 0; got {value}.")

    @property
    def name(self) -> str:
        return "sweep"

    def check(self, measure: PathMeasure) -> None:
        if self.sites is not None and len(self.sites) != measure.length:
            raise ValueError(f"Sweep.sites must have one number for each of {measure.length} models; got {len(self.sites)}.")
        check.entries("Sweep.parameters", 1.0 if self.parameters is None else self.parameters, measure.dim)

    def parts(self, length: int) -> tuple[HalfSweep, ...]:
        first_models = (0,) if length == 1 else (0, 1)
        return tuple(HalfSweep(first, self.step, self.fraction, self.sites, self.parameters) for first in first_models)
