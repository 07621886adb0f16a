"""Warm-up by Metropolis moves of single models at a rising tilt: the paper's limit of neuroevolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiltwalk import schedules
from tiltwalk.measure import PathMeasure
from tiltwalk.moves import Sweep
from tiltwalk.run import Run
from tiltwalk.warm import paths

ACCEPTANCE = 0.25
"""What step sizes are tuned to: near the best for many parameters, where the theory of random-walk proposals gives 0.234."""


def train(
    measure: PathMeasure, steps: int, s: float, first_s: float | None, chains: int, init: Any, key: Any, progress: bool,
    sampler: Callable[..., Run],
) -> Run:  # fmt: skip
    """A run without draws, whose chains are at paths of equal models."""
    first_s = s / 100 if first_s is None else first_s
    one_model = isinstance(init, Run) and init.state.path.shape[1] == 1
    if init is not None and not one_model:  # a run of single models brings its step size too
        init = paths.given(measure, init, chains)[:, -1:]
    run = sampler(
        paths.single(measure), schedules.geometric(first_s, s, steps), steps=0, burn_in=steps, chains=chains, key=key,
        init=init, moves=Sweep(step=0.1), target_acceptance=ACCEPTANCE, progress=progress,
    )  # fmt: skip
    return paths.grown(run, measure)
