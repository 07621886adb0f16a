"""Warm starts: a path to start from, sooner than the sampler would find one. Nothing is kept, so nothing is in equilibrium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from tiltwalk import schedules
from tiltwalk.measure import PathMeasure
from tiltwalk.moves import Sweep
from tiltwalk.run import Run
from tiltwalk.sampling import sample

ACCEPTANCE = 0.25
"""What step sizes are tuned to: near the best for many parameters, where the theory of random-walk proposals gives 0.234."""


def warm_start(
    measure: PathMeasure,
    *,
    s: float,
    steps: int,
    first_s: float | None = None,
    chains: int = 1,
    init: Any = None,
    key: Any = 0,
    progress: bool = True,
    sampler: Callable[..., Run] = sample,
) -> Run:
    """Single models under the measure's start and loss, at a tilt that rises from `first_s` (default `s / 100`) to `s`.

    Gradient-free: Metropolis moves whose step size is tuned to an acceptance of 0.25. Returns a run of one-model paths;
    `grow(run, measure)` makes paths of them.
    """
    single = PathMeasure(measure.walk, measure.loss, 1)
    first_s = s / 100 if first_s is None else first_s
    return sampler(
        single, schedules.geometric(first_s, s, steps), steps=0, burn_in=steps, chains=chains, key=key, init=init,
        moves=Sweep(step=0.1), target_acceptance=ACCEPTANCE, progress=progress,
    )  # fmt: skip


def grow(run: Run, length: int) -> Float[np.ndarray, "chains tau d"]:
    """Paths of `length` equal models from a run's last models: a path to start from."""
    return np.repeat(np.asarray(run.state.path[:, -1:]), length, axis=1)
