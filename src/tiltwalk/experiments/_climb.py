"""One point of a figure: a path at one `s`, sampled in growing rounds until its mean loss has settled or its budget is spent.

Of each round the first quarter is burn-in, where a sampler with a target acceptance tunes its step; the rest is made with
frozen settings and judged by `settling.judge`. Rounds double, so that what the last one says rests on more than half of the
work.

`SAMPLERS` says how the steps are made. Every sampler is exact, so that they differ in what they need and not in what they find.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

import tiltwalk as tw
from tiltwalk.experiments._common import key_of, mean_loss
from tiltwalk.experiments._parts import Part
from tiltwalk.settling import Settling, judge

FEWEST = 24
"""Sweeps in a round that a lack of time may leave."""

TOGETHER = 100
"""Draws a call of `sample`: the same number each time, so that rounds of every size are one compiled program."""


@dataclass(frozen=True)
class Sampler:
    """How a sweep is made: `moves` of a measure, where `steps` are the step sizes so far, by move, and how many of them.

    `what` says it in words. It is kept with each part of a figure: change it with the sampler, and parts that another one made
    are not taken for its own.
    """

    what: str
    moves: Callable[[tw.PathMeasure, dict[str, float]], list[tuple[Any, float]]]
    steps_in_a_sweep: Callable[[int], int]
    target_acceptance: float | None = None


SAMPLERS = {
    "best": Sampler(
        "sweeps with a partial refresh, tuned to an acceptance of 0.3",
        moves=lambda measure, steps: [(tw.moves.Sweep(step=steps.get("sweep", 1.0)), 1.0)],
        steps_in_a_sweep=lambda length: 1,
        target_acceptance=0.3,
    ),
    "paper": Sampler(
        "the paper's moves: shooting, and bridges of one model",
        moves=lambda measure, steps: tw.moves.paper(measure.length),
        steps_in_a_sweep=lambda length: length,  # each of its moves changes about one model
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a chain is: its path, and the step sizes by move."""

    path: Float[np.ndarray, "tau d"]
    steps: dict[str, float]


@dataclass(frozen=True)
class Budget:
    """Sweeps in the first round, sweeps at most, the time on `clock` to end by, if any, and what is known of the sweeps a
    second: nothing, if it is infinite."""

    first: int
    most: int
    until: float = np.inf
    rate: float = np.inf
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Point:
    """What came of a point: how its mean loss was judged, where the chain is, and what it took."""

    settling: Settling
    series: Float[np.ndarray, " n"]
    place: Place
    acceptance: dict[str, float]
    rounds: int
    sweeps: int
    evaluations: int
    gradients: int
    seconds: float
    stopped_by: str


def as_part(point: Point) -> Part:
    """The point as a record and arrays, to be kept."""
    record = {field.name: getattr(point, field.name) for field in dataclasses.fields(point)}
    del record["series"], record["place"]
    record |= {"settling": dataclasses.asdict(point.settling), "steps": point.place.steps}
    return record, {"path": point.place.path, "series": point.series}


def from_part(part: Part) -> Point:
    """The point that `as_part` was given."""
    record, arrays = dict(part[0]), part[1]
    place = Place(arrays["path"], record.pop("steps"))
    return Point(**record | {"settling": Settling(**record["settling"])}, place=place, series=arrays["series"])


def rounds(first: int, most: int) -> list[int]:
    """Sweeps of each round: doubling, the last one enlarged to use all that is left."""
    sizes: list[int] = []
    size = min(first, most)
    while most - sum(sizes) > 0:
        left = most - sum(sizes)
        sizes.append(left if left < 3 * size else size)
        size *= 2
    return sizes


def sample_until_settled(
    measure: tw.PathMeasure,
    s: float,
    sampler: str,
    place: Place,
    budget: Budget,
    seed: int,
    part: int,
    so_far: Point | None = None,
    keep: Callable[[Point], None] = lambda point: None,
) -> Point:
    """The chain from `place` on, at `s`, or from what `keep` was given after a round, which makes no difference."""
    point = Point(judge(np.zeros(0)), np.zeros(0), place, {}, 0, 0, 0, 0, 0.0, "budget") if so_far is None else so_far
    began = budget.clock() - point.seconds
    for number, planned in enumerate(rounds(budget.first, budget.most)):
        if number < point.rounds:
            continue
        now = budget.clock()
        rate = point.sweeps / (now - began) if number else budget.rate
        allowed = rate * max(0.0, budget.until - now)
        if number and allowed < max(FEWEST, planned // 8):
            return dataclasses.replace(point, stopped_by="time")
        size = int(min(planned, max(FEWEST, allowed)))
        run, series = _round(measure, s, sampler, point.place, size, key_of(seed, 64 * part + number))
        judged = judge(series)
        point = Point(
            settling=judged,
            series=series,
            place=Place(np.asarray(run.state.path[0]), {name: float(step[0]) for name, step in run.steps.items()}),
            acceptance={name: float(rate) for name, rate in run.acceptance.items() if np.isfinite(rate)},
            rounds=number + 1,
            sweeps=point.sweeps + size,
            evaluations=point.evaluations + run.evaluations,
            gradients=point.gradients + run.gradients,
            seconds=budget.clock() - began,
            stopped_by="settled" if judged.settled else "budget",
        )
        if judged.settled:
            return point
        keep(point)
    return point


def _round(
    measure: tw.PathMeasure, s: float, sampler: str, place: Place, sweeps: int, key: int
) -> tuple[tw.Run, Float[np.ndarray, " n"]]:
    """A quarter of the sweeps as burn-in, or a little more; the mean loss after each of the others. The run counts them all."""
    chosen = SAMPLERS[sampler]
    each, moves = chosen.steps_in_a_sweep(measure.length), chosen.moves(measure, place.steps)
    kept = max(1, 3 * sweeps // 4)
    together = min(TOGETHER, kept)
    kept -= kept % together
    burn_in = max(0, sweeps - kept)

    def go_on(init: Any, steps: int, burn_in: int) -> tw.Run:
        return tw.sample(
            measure, s, steps=steps * each, burn_in=burn_in * each, thin=each, moves=moves, init=init, key=key, keep=mean_loss,
            target_acceptance=chosen.target_acceptance if burn_in else None, progress=False,
        )  # fmt: skip

    run = go_on(place.path, 0, burn_in)
    evaluations, gradients = run.evaluations, run.gradients
    parts: list[Float[np.ndarray, " n"]] = []
    accepted: list[dict[str, float]] = []
    for _ in range(kept // together):
        run = go_on(run, together, 0)
        evaluations, gradients = evaluations + run.evaluations, gradients + run.gradients
        accepted.append(run.acceptance)
        parts.append(np.asarray(run.kept[0], np.float64))
    mean = {name: float(np.nanmean([rates[name] for rates in accepted])) for name in run.acceptance}
    found = dataclasses.replace(run, acceptance=mean, evaluations=evaluations, gradients=gradients)
    return found, np.concatenate(parts)
