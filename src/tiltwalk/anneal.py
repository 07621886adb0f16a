"""`anneal`: chains whose tilt climbs in stages, each chosen from the draws of the one before and made until its loss settles.

Draws at `s` say what a tilt `s + ds` would give by the weights `w = exp(-ds Lsum)`, and how well: as `share` of them would,

    share(ds) = (sum w)^2 / (n sum w^2)         (Kish's effective sample size, over n).

The next stage is the farthest tilt that keeps a share of at least `overlap`, so that neighbouring stages know of each other,
whatever the loss (the same choice as that of adaptive sequential Monte Carlo: Jasra, Stephens, Doucet, Tsagaris 2011).

Sigma anneals by the same rule. The density of a walk with sigma `r` times as large is that of a path with `Q = sum |step|^2 /
sigma^2` weighted by `exp(-Q / (2 r^2))`: so `1 / (2 r^2)` is a tilt, and `Q` its loss.

A stage at `s = 0` is drawn from the walk itself. Any other is `burn_in` steps, in which step sizes are tuned and after which
they are frozen, and then draws, judged by `settling.judge` after every `steps`: too few independent draws, and it goes on; a
drift, and the first half of its draws is forgotten; settled, and the next stage begins. One that has made `most_steps` ends
unsettled, which its curve and verdict say.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tiltwalk import check, noise, sampling, schedules, settling
from tiltwalk.anneal_run import AnnealRun, Found, LossCurve
from tiltwalk.anneal_stages import Climb, Keeper, Score, Settings, tilt_of
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.rules import Metropolis
from tiltwalk.run import Run
from tiltwalk.types import Move, Rule

ACCEPTANCE = 0.3
"""What step sizes are tuned to where nothing is said."""

LOWEST = 1e-3
"""Where a flat start begins, in units of `s_max`: it has no law at `s = 0`."""


def anneal(
    measure: PathMeasure,
    s_max: float | None = None,
    *,
    s_min: float | None = None,
    sigma: tuple[Any, Any] | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    tolerance: float = 0.02,
    overlap: float = 0.5,
    steps: int = 256,
    most_steps: int | None = None,
    burn_in: int = 128,
    stages: int = 200,
    evaluations: int | None = None,
    moves: Move | Sequence[tuple[Move, float]] | None = None,
    rule: Rule | None = None,
    chains: int = 4,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str = "losses",
    progress: bool = True,
    target_acceptance: float | None = ACCEPTANCE,
    workers: int | None = None,
) -> AnnealRun:
    """Anneals paths of `measure` from a low tilt to `s_max`, or to the smallest tilt that meets a target.

    - `s_min`: where to begin, by default 0, or `s_max / 1000` for a flat start, which has no law at 0.
    - `target_loss`, `target_accuracy`: mean loss per model, or mean accuracy on the data per model (of `losses.Supervised` with
      classes). The tilt climbs until it is met, or to `s_max` if that is given; then stages between the last two tilts
      close in on where it begins to be met, until `s` is known to a share `tolerance` of itself. The run ends there:
      `run.found`.
    - `sigma`: a start and an end, numbers or one number per parameter, in a common proportion. They take the place of the
      walk's sigma, and the tilt is `s_max` all along.
    - `overlap`: the share of a stage's draws that count, in effect, at the next.
    - `steps`: draws of a stage are judged after every so many steps; `most_steps`, by default 32 times that, are its budget.
      `burn_in` steps go before.
    - `stages`, `evaluations`: budgets of the whole; where one is spent the run ends early, and its verdict says so.
    - `target_acceptance`: step sizes are tuned to it in the burn-in of each stage; None: they stay.

    All else is as in `sample`; `keep` is "losses" or "paths".

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(2.0)), tw.losses.double_well(), length=4)
    >>> run = tw.anneal(measure, 4.0, chains=8, progress=False)
    >>> [float(s) for s in run.curve.s[[0, -1]]]
    [0.0, 4.0]
    """
    began = time.perf_counter()
    mixture = sampling.mixture_of("anneal", measure, moves)
    rule = Metropolis() if rule is None else rule
    _check(rule, steps, most_steps, burn_in, stages, evaluations, chains, thin, keep, tolerance, overlap, target_acceptance)
    low, high = _ends(measure, s_max, s_min, sigma, target_loss, target_accuracy)
    score = _score(measure, target_loss, target_accuracy)
    factor, measure = _sigmas(measure, sigma)
    words = noise.seed(key)
    with surfaced():
        carry, number = sampling._begin(measure, mixture, words, chains, init)
    last = sampling.chains_last(measure, rule, mixture)
    runner = sampling.Runner(
        measure, mixture, rule, words, schedules.constant(low), chains, last, sampling.workers_for(workers, chains, measure)
    )
    climb = Climb(
        runner=runner,
        groups=runner.split(carry),
        words=words,
        number=number,
        keeper=Keeper(sampling.keeper_of("anneal", keep), None if sigma is None else measure.walk),
        settings=Settings(
            overlap, steps, 32 * steps if most_steps is None else most_steps, burn_in, thin, stages,
            np.inf if evaluations is None else evaluations, target_acceptance if burn_in else None,
        ),
        score=score,
        started=time.perf_counter(),
    )  # fmt: skip
    found = None
    with surfaced(), Progress(None, progress) as bar:
        runner.bar = bar
        if sigma is not None:
            climb.widen(high, factor)
        elif score is None:
            climb.rise(low, high)
        else:
            found = climb.close_in(low, high, tolerance)
    return _as_run(climb, found, began)


# ---- what is returned ----


def _as_run(climb: Climb, found: Found | None, began: float) -> AnnealRun:
    stages, runner = climb.stages, climb.runner
    last = stages[-1].run
    s = np.asarray([tilt_of(stage) for stage in stages])
    each = [stage.steps for stage in stages]
    paths = [stage.run.paths for stage in stages if stage.run.paths is not None]
    curve = LossCurve(
        s=s,
        loss=np.asarray([stage.judged.mean for stage in stages]),
        error=np.asarray([stage.judged.standard_error for stage in stages]),
        settled=np.asarray([stage.judged.settled for stage in stages]),
        why=tuple(stage.judged.why for stage in stages),
        sigma=np.asarray([stage.factor for stage in stages]),
        accuracy=np.asarray([stage.accuracy[0] for stage in stages]),
        accuracy_error=np.asarray([stage.accuracy[1] for stage in stages]),
    )
    whole = {field.name: getattr(last, field.name) for field in dataclasses.fields(Run)}
    whole |= {
        "losses": np.concatenate([stage.run.losses for stage in stages if stage.run.losses is not None], 1),
        "paths": np.concatenate(paths, 1) if paths else None,
        "s": np.concatenate([stage.run.s for stage in stages]),
        "evaluations": round(runner.evaluations),
        "gradients": round(runner.gradients),
        "seconds": time.perf_counter() - began,
        "first_draw_seconds": (runner.first_draw or time.perf_counter()) - began,
    }
    return AnnealRun(
        **whole,
        curve=curve,
        stages=tuple(stage.run for stage in stages),
        schedule=schedules.staircase(s.tolist(), each),
        schedule_steps=sum(each),
        found=found,
        stopped=climb.stopped,
    )


# ---- input ----


def _check(
    rule: Any, steps: Any, most_steps: Any, burn_in: Any, stages: Any, evaluations: Any, chains: Any, thin: Any, keep: Any,
    tolerance: Any, overlap: Any, target: Any,
) -> None:  # fmt: skip
    check.whole("anneal.thin", thin, low=1)
    check.whole("anneal.steps", steps, low=settling.FEWEST * thin)
    if most_steps is not None:
        check.whole("anneal.most_steps", most_steps, low=steps)
    check.whole("anneal.burn_in", burn_in, low=0)
    check.whole("anneal.stages", stages, low=1)
    if evaluations is not None:
        check.whole("anneal.evaluations", evaluations, low=1)
    check.whole("anneal.chains", chains, low=1)
    if keep not in ("losses", "paths"):
        raise ValueError(f'anneal.keep must be "losses" or "paths"; got {check.shown(keep)}.')
    check.number("anneal.tolerance", tolerance, low=0, high=1, low_open=True)
    check.number("anneal.overlap", overlap, low=0, high=0.99, low_open=True)
    if target is not None:
        check.number("anneal.target_acceptance", target, low=0, high=1, low_open=True)
    if isinstance(rule, type) or not hasattr(rule, "decide"):
        raise TypeError(f"anneal.rule must be a rule such as rules.Metropolis(); got {check.shown(rule)}.")


def _ends(
    measure: PathMeasure, s_max: Any, s_min: Any, sigma: Any, target_loss: Any, target_accuracy: Any
) -> tuple[float, float]:
    """The tilts to begin and to end with."""
    targets = [x for x in (target_loss, target_accuracy) if x is not None]
    if len(targets) > 1:
        raise ValueError("anneal.target_loss and anneal.target_accuracy must not both be given.")
    if s_max is not None:
        check.number("anneal.s_max", s_max, low=0, low_open=True)
    elif not targets:
        raise ValueError("anneal.s_max must be given, or a target_loss or target_accuracy in its place; got neither.")
    if sigma is not None:
        if targets or s_max is None or s_min is not None:
            raise ValueError(
                "anneal.sigma must stand beside s_max alone, at which sigma is annealed; got a target or an s_min."
            )
        return float(s_max), float(s_max)
    if s_min is None:
        if measure.walk.proper:
            s_min = 0.0
        elif s_max is None:
            raise ValueError("anneal.s_min must be given for a flat start where a target takes the place of s_max; got None.")
        else:
            s_min = LOWEST * s_max
    high = np.inf if s_max is None else float(s_max)
    check.number("anneal.s_min", s_min, low=0)
    if s_min == 0 and not measure.walk.proper:
        raise ValueError("anneal.s_min must be above 0 for a flat start, whose law cannot be normalised at s = 0; got 0.")
    if s_min > high:
        raise ValueError(f"anneal.s_min must be at most s_max = {high:g}; got {s_min:g}.")
    return float(s_min), high


def _score(measure: PathMeasure, target_loss: Any, target_accuracy: Any) -> Score | None:
    if target_loss is not None:
        check.number("anneal.target_loss", target_loss)
        return Score("loss", float(target_loss), None)
    if target_accuracy is None:
        return None
    check.number("anneal.target_accuracy", target_accuracy, low=0, high=1)
    loss: Any = measure.loss
    if not hasattr(loss, "zero_one") or not getattr(loss, "needs_start", False):
        raise TypeError(
            "anneal.target_accuracy needs losses.Supervised with classes, such as kind='cross_entropy'; "
            f"got {check.shown(measure.loss)}."
        )
    return Score("accuracy", float(target_accuracy), loss.zero_one())


def _sigmas(measure: PathMeasure, sigma: Any) -> tuple[float, PathMeasure]:
    """By what factor sigma changes in all, and the measure with the first one."""
    if sigma is None:
        return 1.0, measure
    if not isinstance(sigma, list | tuple) or len(sigma) != 2:
        raise TypeError(f"anneal.sigma must be a start and an end, (from, to); got {check.shown(sigma)}.")
    if not hasattr(measure.walk, "sigma"):
        raise TypeError(f"anneal.sigma must be None for a walk without sigma; got {check.shown(measure.walk)}.")
    for value in sigma:
        check.positive("anneal.sigma", value)
    start, end = (np.asarray(value, float) for value in sigma)
    ratio = end / start
    if not np.allclose(ratio, ratio.flat[0], rtol=1e-6):
        raise ValueError(
            f"anneal.sigma must change by one factor for all parameters; got factors from {ratio.min():g} to {ratio.max():g}."
        )
    walk: Any = measure.walk
    return float(ratio.flat[0]), dataclasses.replace(measure, walk=dataclasses.replace(walk, sigma=jnp.asarray(start, float)))
