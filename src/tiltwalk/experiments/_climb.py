"""One point of a figure: a path at one `s`, sampled in growing rounds until its mean loss has settled or its budget is spent.

Of each round the first quarter is burn-in, where a sampler with a target acceptance tunes its step; the rest is made with
frozen settings and judged by `settling.judge`. Rounds double, so that what the last one says rests on more than half of the
work.

`SAMPLERS` says how the steps are made. Every sampler is exact, so that they differ in what they need and not in what they find.
Work is counted in sweeps: the losses of all models of the path, once. A gradient counts as `GRADIENT` losses.
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
from tiltwalk.settling import ENOUGH, Settling, judge

FEWEST = 24
"""Sweeps in a round that a lack of time may leave."""

FEWEST_DRAWS = 8
"""Draws in a round, however few sweeps there are for it."""

GRADIENT = 3.5
"""What a loss with its gradient takes, in losses."""

LEAPS = 10


@dataclass(frozen=True)
class Sampler:
    """How the draws of a point are made.

    - `moves` of a measure, with the step sizes so far, by move, and the curvature of the loss where `informed`.
    - `steps_a_draw` of a path of some length, and what a draw costs in sweeps.
    - `together`: draws a call of `sample`, always the same number, so that rounds of every size are one compiled program.
    - `grows`: points of a longer path start from the shorter path at the same `s`, and not from the one at the `s` before.

    `what` says it in words. It is kept with each part of a figure: change it with the sampler, and parts that another one made
    are not taken for its own.
    """

    what: str
    moves: Callable[[tw.PathMeasure, dict[str, float], Any], list[tuple[Any, float]]]
    steps_a_draw: Callable[[int], int] = lambda length: 1
    sweeps_a_draw: float = 1.0
    together: int = 100
    target_acceptance: float | None = None
    informed: bool = False
    grows: bool = False


SAMPLERS = {
    "best": Sampler(
        f"Hamiltonian moves of {LEAPS} leaps, tuned to an acceptance of 0.8; longer paths grown from shorter ones",
        moves=lambda measure, steps, curvature: [
            (tw.moves.Hamiltonian(LEAPS, step=steps.get("hamiltonian", 0.03), curvature=curvature), 1.0)
        ],
        sweeps_a_draw=GRADIENT * LEAPS,
        together=8,
        target_acceptance=0.8,
        informed=True,
        grows=True,
    ),
    "sweeps": Sampler(
        "sweeps with a partial refresh, tuned to an acceptance of 0.3",
        moves=lambda measure, steps, curvature: [(tw.moves.Sweep(step=steps.get("sweep", 1.0)), 1.0)],
        target_acceptance=0.3,
    ),
    "paper": Sampler(
        "the paper's moves: shooting, and bridges of one model",
        moves=lambda measure, steps, curvature: tw.moves.paper(measure.length),
        steps_a_draw=lambda length: length,  # each of its moves changes about one model
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a chain is: its path, and the step sizes by move."""

    path: Float[np.ndarray, "tau d"]
    steps: dict[str, float]

    def grown(self, length: int) -> Place:
        """A path of `length` models, each of this path's several times over."""
        return Place(self.path[np.arange(length) * len(self.path) // length], self.steps)


@dataclass(frozen=True)
class Budget:
    """Sweeps in the first round, sweeps at most, the time on `clock` to end by, if any, what is known of the sweeps a
    second: nothing, if it is infinite; and how many independent values it takes to have settled."""

    first: int
    most: int
    until: float = np.inf
    rate: float = np.inf
    enough: float = ENOUGH
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
        judged = judge(series, enough=budget.enough)
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
    """A quarter of the draws as burn-in, or a little more; the mean loss at each of the others. The run counts them all."""
    chosen = SAMPLERS[sampler]
    curvature = curvature_at(measure, place.path, key) if chosen.informed else None
    thin, moves = chosen.steps_a_draw(measure.length), chosen.moves(measure, place.steps, curvature)
    draws = max(FEWEST_DRAWS, round(sweeps / chosen.sweeps_a_draw))
    kept = max(1, 3 * draws // 4)
    together = min(chosen.together, kept)
    kept -= kept % together
    burn_in = max(0, draws - kept)

    def go_on(init: Any, draws: int, burn_in: int) -> tw.Run:
        return tw.sample(
            measure, s, steps=draws * thin, burn_in=burn_in * thin, thin=thin, moves=moves, init=init, key=key, keep=mean_loss,
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


def curvature_at(measure: tw.PathMeasure, path: Float[np.ndarray, "tau d"], key: int) -> Float[np.ndarray, " d"]:
    """What Hamiltonian moves are preconditioned by: a value for the weights, and for the biases, of each layer of a network."""
    network = getattr(measure.loss, "network", None)
    if network is None:
        return tw.moves.estimate_curvature(measure, path, key=key)
    groups = [p.slice for p in network.parameters]
    return tw.moves.estimate_curvature(measure, path, groups=groups, scale=network.scale(), times=4.0, key=key)
