"""MNIST: LeNets trained by sampling paths, loss and accuracy against the tilt (the paper's sixth figure).

For each length `tau` a path starts from the walk at the least `s`, and goes on from each value of `s` to the next, at each
until its mean loss has settled or its budget is spent. The best sampler does so for the shortest paths, and grows the others
from them: at the same `s`, each model of the shorter path several times over, which is nearer to equilibrium than the walk.
The measure is the paper's, with a Gaussian start at initialisation scale in place of the flat one, which cannot be
normalised. Beside it: paths at `s = 0`, which are drawn and need no sampling; two points made again by the other sampler; and
what a flat start does. Whether the paper's claims hold is in `_claims`.

Every point is kept in a file as soon as it is made, where a folder is given, and read back when the figure is made again; one
that is under way is kept after each round.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import tiltwalk as tw
from tiltwalk import check
from tiltwalk.experiments import _claims, _climb, _mnist_data, _mnist_panels, _parts
from tiltwalk.experiments._common import Record, Report, cores, key_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGMA = 0.05
SAMPLERS = _climb.SAMPLERS
UNDER_WAY = "_under_way"


def settings(quick: bool, sampler: str = "best") -> dict[str, Any]:
    check.one_of("reproduce.sampler", sampler, _climb.SAMPLERS)
    chosen: dict[str, Any] = {
        "data": "mnist2048",
        "images": 2048,
        "test_images": 10_000,
        "network": "lenet",
        "sigma": SIGMA,
        "start": "Normal(network.scale())",
        **_by(sampler),
        "lengths": [2, 4, 8, 16, 32],
        "tilts": [5, 8, 12, 16, 22, 30, 40, 50],
        "most_sweeps": [12_000, 5_000, 3_000, 2_500, 2_300],
        "first_round": 1 / 4,
        "enough": 20,
        "most_seconds": None,
        "free_paths": 64,
        "agreement": [[2, 12], [8, 12]],
        "drift": {"length": 2, "s": 5, "sweeps": 8_000, "thin": 20},
    }
    if quick:
        chosen |= {
            "images": 512,
            "test_images": 2_000,
            "lengths": [2, 8, 32],
            "tilts": [5, 12, 25, 50],
            "most_sweeps": [4_000, 2_400, 1_200],
            "first_round": 1 / 4,
            "most_seconds": 210,
            "free_paths": 16,
            "drift": {"length": 2, "s": 5, "sweeps": 1_500, "thin": 10},
        }
    return chosen


def compute(settings: dict[str, Any], seed: int, report: Report, folder: Path | None = None) -> dict[str, Any]:
    """All numbers of the figure; `folder` is where the parts are kept, and looked for."""
    return _Figure(settings, seed, report, folder).numbers()


class _Figure:
    """The work in hand: data, how much is done, and until when."""

    def __init__(self, settings: dict[str, Any], seed: int, report: Report, folder: Path | None) -> None:
        self.settings, self.seed, self.report, self.folder = settings, seed, report, folder
        self.began, self.cpu = time.perf_counter(), _cpu_seconds()
        self.X, self.y, self.test_X, self.test_y = _mnist_data.images(settings)
        self.network = _mnist_data.network(settings["network"])
        self.loss = tw.losses.Supervised(self.network, self.X, self.y)
        self.total, self.done = float(sum(self.cost(n) for n in settings["lengths"]) * len(settings["tilts"])), 0.0
        self.read_back = 0
        self.last: dict[float, _climb.Place] = {}  # where the last path at each s ended
        self.rate = np.inf  # evaluations a second, once it is known

    def numbers(self) -> dict[str, Any]:
        chosen = self.settings
        paths = chosen["free_paths"]
        free = [self.part(f"free_tau{n}", {"length": n, "paths": paths}, self.free)[0] for n in chosen["lengths"]]
        drift = self.part("drift", chosen["drift"], self.drift)[0]
        again = [self.other_sampler(length, s) for length, s in chosen["agreement"]]
        points = [point for length in chosen["lengths"] for point in self.line(length)]
        found: dict[str, Any] = {
            "plateau": float(np.log(self.network.n_out)),
            "digits": _mnist_data.digits(self.X, self.y),
            "free": free,
            "points": points,
            "agreement": [_compared(points, other) for other in again],
            "drift": drift,
            "kernel": _kernel(),
            "cores": cores(),
            "parts_read_back": self.read_back,
            "cpu_seconds": round(_cpu_seconds() - self.cpu, 1),
            "wall_seconds": round(time.perf_counter() - self.began, 1),
        }
        return found | {"claims": _claims.verdicts(found, chosen)}

    # ---- parts ----

    def part(self, name: str, own: dict[str, Any], make: Callable[[dict[str, Any]], _parts.Part]) -> _parts.Part:
        """The part of that name, read back or made and kept."""
        full = self.full(own)
        found = _parts.read(self.folder, name, full)
        if found is not None:
            self.read_back += 1
            return found
        made = make(own)
        _parts.write(self.folder, name, full, made)
        _parts.remove(self.folder, f"{name}{UNDER_WAY}")
        return made

    def full(self, own: dict[str, Any]) -> dict[str, Any]:
        """All settings that a part depends on."""
        common = {key: self.settings[key] for key in ("data", "images", "test_images", "network", "sigma", "start")}
        return {**common, "seed": self.seed, **own}

    def line(self, length: int) -> list[dict[str, Any]]:
        """The points of one length, each from where another one ended: at the `s` before, or of the shorter path."""
        points: list[dict[str, Any]] = []
        sampler, tilts, place = self.settings["sampler"], self.settings["tilts"], None
        shorter = self.shorter(length)
        for i, s in enumerate(tilts):
            after = {"after_lengths": shorter} if shorter else {"after": tilts[:i]}
            own = {"length": length, "s": s, **after, **_by(sampler), **self.effort(length)}
            self.report(self.done / self.total, f"tau = {length}, s = {s:g}")
            if shorter:
                place = self.last[s].grown(length)
            name = f"{sampler}_tau{length}_s{s:g}"
            record, arrays = self.part(name, own, partial(self.point, name, place))
            steps = {name: float(step) for name, step in record["steps"].items()}
            place = self.last[s] = _climb.Place(arrays["path"], steps)
            points.append(record)
            self.done += self.cost(length)
        return points

    def shorter(self, length: int) -> list[int]:
        """The lengths that a path of this length has grown through."""
        lengths = self.settings["lengths"]
        return lengths[: lengths.index(length)] if _climb.SAMPLERS[self.settings["sampler"]].grows else []

    def other_sampler(self, length: int, s: float) -> dict[str, Any]:
        """A point made by the sampler that the figure does not use, from a path of the walk."""
        other = "best" if self.settings["sampler"] == "paper" else "paper"
        own = {"length": length, "s": s, "after": [], **_by(other), **self.effort(length)}
        self.report(self.done / self.total, f"tau = {length}, s = {s:g}, by the sampler {other}")
        name = f"check_{other}_tau{length}_s{s:g}"
        return self.part(name, own, partial(self.point, name, None))[0]

    def point(self, name: str, place: _climb.Place | None, own: dict[str, Any]) -> _parts.Part:
        length, s = own["length"], float(own["s"])
        measure = self.measure(length)
        part = 1 + 1000 * length + round(10 * s) + (500_000 if own["sampler"] == "paper" else 0)
        if place is None:
            place = _climb.Place(np.asarray(measure.draw(self.key(part))), {})
        first = max(1, round(own["first_round"] * own["most_sweeps"]))
        budget = _climb.Budget(first, own["most_sweeps"], self.until(length), self.rate / length, own["enough"])
        kept = _parts.read(self.folder, f"{name}{UNDER_WAY}", self.full(own))
        point = _climb.sample_until_settled(
            measure, s, own["sampler"], place, budget, self.seed, part,
            so_far=None if kept is None else _climb.from_part(kept),
            keep=lambda point: _parts.write(self.folder, f"{name}{UNDER_WAY}", self.full(own), _climb.as_part(point)),
        )  # fmt: skip
        self.rate = (point.evaluations + (_climb.GRADIENT - 1) * point.gradients) / point.seconds
        judged = point.settling
        record = {
            "length": length,
            "s": own["s"],
            "sampler": own["sampler"],
            "loss": judged.mean,
            "standard_error": judged.standard_error if judged.settled else None,
            "settled": judged.settled,
            "why": judged.why,
            "z_of_halves": round(judged.z, 3),
            "effective_draws": round(judged.effective, 1),
            "stopped_by": point.stopped_by,
            "rounds": point.rounds,
            "sweeps": point.sweeps,
            "evaluations": point.evaluations,
            "gradients": point.gradients,
            "seconds": round(point.seconds, 2),
            "acceptance": {name: round(rate, 4) for name, rate in point.acceptance.items()},
            "steps": point.place.steps,
            "accuracy": _mnist_data.accuracies(self.network, point.place.path, self.X, self.y),
            "test_accuracy": _mnist_data.accuracies(self.network, point.place.path, self.test_X, self.test_y),
        }
        return record, {"path": point.place.path, "series": point.series}

    def free(self, own: dict[str, Any]) -> _parts.Part:
        """The loss per model at `s = 0`, over independent paths of the walk."""
        measure = self.measure(own["length"])
        keys = jax.random.split(self.key(1000 * own["length"]), own["paths"])
        means = np.array([float(np.mean(np.asarray(self.loss(measure.draw(key))))) for key in keys])
        error = float(means.std(ddof=1) / np.sqrt(len(means)))
        return {"length": own["length"], "loss": float(means.mean()), "standard_error": error, "paths": len(means)}, {}

    def drift(self, own: dict[str, Any]) -> _parts.Part:
        """A flat start beside the Gaussian one, from the same path, with the paper's moves: how large `theta_1` grows."""
        self.report(0.0, "a flat start")
        length, thin = own["length"], own["thin"] * own["length"]
        path = self.measure(length).draw(self.key(0))
        bias = self.network.parameters[-1].slice

        def seen(state: tw.ChainState) -> Any:
            first = state.path[0]
            return jax.numpy.stack([jax.numpy.sqrt(jax.numpy.mean(first**2)), first[bias].mean(), state.losses.mean()])

        record: dict[str, Any] = {"length": length, "s": own["s"]}
        for name, start in (("flat", tw.Flat()), ("gaussian", tw.Normal(self.network.scale()))):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "PathMeasure: a flat start")  # which is the point here
                measure = tw.PathMeasure(tw.RandomWalk(self.settings["sigma"], start), self.loss, length)
            run = tw.sample(
                measure, float(own["s"]), steps=own["sweeps"] * length, thin=thin, moves=tw.moves.paper(length), init=path,
                key=key_of(self.seed, 1), keep=seen, progress=False,
            )  # fmt: skip
            self.rate = run.evaluations / run.seconds
            size, offset, loss = np.asarray(run.kept[0], np.float64).T
            record[name] = {
                "sweep": (own["thin"] * (1 + np.arange(len(size)))).tolist(),
                "size": np.round(size, 5).tolist(),
                "offset": np.round(offset, 5).tolist(),
                "loss": float(loss[len(loss) // 2 :].mean()),
                "acceptance": {move: round(rate, 4) for move, rate in run.acceptance.items()},
            }
        return record, {}

    # ---- budgets ----

    def key(self, part: int) -> Any:
        return jax.random.fold_in(jax.random.key(self.seed), part)

    def measure(self, length: int) -> tw.PathMeasure:
        return tw.PathMeasure(tw.RandomWalk(self.settings["sigma"], tw.Normal(self.network.scale())), self.loss, length)

    def effort(self, length: int) -> dict[str, Any]:
        most = self.settings["most_sweeps"][self.settings["lengths"].index(length)]
        return {"most_sweeps": most, **{key: self.settings[key] for key in ("first_round", "most_seconds", "enough")}}

    def cost(self, length: int) -> float:
        return float(length * self.effort(length)["most_sweeps"])

    def until(self, length: int) -> float:
        """When a point must end: its share of what is left of the time."""
        if self.settings["most_seconds"] is None:
            return np.inf
        now = time.perf_counter()
        left = self.settings["most_seconds"] - (now - self.began)
        return now + max(0.0, float(left)) * self.cost(length) / max(self.total - self.done, self.cost(length))


def _by(sampler: str) -> dict[str, Any]:
    return {"sampler": sampler, "moves": _climb.SAMPLERS[sampler].what}


def _compared(points: list[dict[str, Any]], other: dict[str, Any]) -> dict[str, Any]:
    """Two samplers at one setting: their difference in standard errors, where both have settled."""
    main = next((p for p in points if (p["length"], p["s"]) == (other["length"], other["s"])), None)
    if main is None:
        raise ValueError(f"settings.agreement must be among the points; got {[other['length'], other['s']]}.")
    both = bool(main["settled"] and other["settled"])
    z = (main["loss"] - other["loss"]) / np.hypot(main["standard_error"], other["standard_error"]) if both else None
    short = [
        {key: p[key] for key in ("sampler", "loss", "standard_error", "settled", "why", "acceptance", "evaluations")}
        for p in (main, other)
    ]
    found = {"length": other["length"], "s": other["s"], "both_settled": both}
    return found | {"z": None if z is None else round(float(z), 3), "samplers": short}


def _kernel() -> str:
    try:
        from tiltwalk import native
    except ImportError:
        return "none: plain JAX"
    return native.reason()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def caption(record: Record) -> str:
    return _mnist_panels.caption(record)


def summary(record: Record) -> list[str]:
    return _claims.lines(record["numbers"])


def draw(record: Record) -> Figure:
    return _mnist_panels.draw(record)
