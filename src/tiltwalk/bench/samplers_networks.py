"""Networks on the 2,048 images of `mnist2048`: seconds until the mean training loss of a path, or its accuracy, is at a mark.

Every sampler starts from the same path, one initialised model repeated, and is called in pieces until it is past the last
mark or its time is up. Steps are tuned all along, inside the clock: this is burn-in, and settings freeze before draws count.
Compilation and accuracies are outside the clock; the loss is that of the chain's own state.

`mlp` and `lenet` are tilted so far that the measure itself goes below a loss of 0.1. `mnist32` is the measure of long paths
at a low tilt: there a chain also starts from a trained model, and where the two meet is where the measure is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tiltwalk as tw
from tiltwalk.bench.minibatch import warm_model

Row = dict[str, Any]
FREE, INFORMED, APPROXIMATE, CHECK = "gradient-free", "gradient", "approximate", "check"
PIECES = 40
"""A run is looked at about this many times."""


@dataclass(frozen=True)
class Setting:
    """What is sampled, and the marks: mean training losses, from high to low, and an accuracy of the ensemble, where asked."""

    network: str
    length: int
    s: float
    sigma: float
    relative: bool
    marks: tuple[float, ...]
    accuracy: float | None = None
    seconds: float = 90.0
    quick_seconds: float = 3.0


SETTINGS = {
    "mlp": Setting("mlp", 16, 3000.0, 0.1, True, (0.3, 0.1)),
    "lenet": Setting("lenet", 16, 3000.0, 0.1, True, (0.3, 0.1)),
    "mnist32": Setting("lenet", 32, 50.0, 0.05, False, (0.5,), 0.99, 600.0),
}


@dataclass(frozen=True)
class Sampler:
    """`advance(measure, s, run or path, steps)` goes on by that many steps; `trained` starts from a trained model."""

    name: str
    kind: str
    advance: Callable[[Any, float, Any, int], tw.Run]
    trained: bool = False


def _exact(moves: Callable[[int], Any], rule: Any = None, target: float | None = None) -> Callable[..., tw.Run]:
    def advance(measure: Any, s: float, init: Any, steps: int) -> tw.Run:
        # all is burn-in, which is one program for any number of steps
        return tw.sample(
            measure, s, steps=0, burn_in=steps, init=init, key=0, moves=moves(measure.length), rule=rule,
            target_acceptance=target, progress=False,
        )  # fmt: skip

    return advance


def _approximate(sample: Callable[..., tw.Run]) -> Callable[..., tw.Run]:
    def advance(measure: Any, s: float, init: Any, steps: int) -> tw.Run:
        return sample(
            measure, s, steps=0, burn_in=steps, step=0.1, curvature=CURVATURE, batch=256, init=init, key=0, progress=False
        )  # fmt: skip

    return advance


CURVATURE = 0.1
"""Of the mean loss in a parameter, about: it sets the mass. In most directions the loss of a network has far less than 1."""

HAMILTONIAN = _exact(lambda _: tw.moves.Hamiltonian(leaps=20, step=0.1, curvature=CURVATURE), target=0.8)
SAMPLERS = (
    Sampler("the paper's mixture", FREE, _exact(tw.moves.paper)),
    Sampler("sweeps, tuned", FREE, _exact(lambda _: tw.moves.Sweep(step=0.1), target=0.3)),
    Sampler("sweeps, early reject", FREE, _exact(lambda _: tw.moves.Sweep(step=0.1), tw.rules.EarlyReject(), target=0.3)),
    Sampler("Langevin sweeps", INFORMED, _exact(lambda _: tw.moves.LangevinSweep(step=0.1), target=0.57)),
    Sampler("Hamiltonian", INFORMED, HAMILTONIAN),
    Sampler("SGLD, approximate", APPROXIMATE, _approximate(tw.sgld)),
    Sampler("SGHMC, approximate", APPROXIMATE, _approximate(tw.sghmc)),
)
FROM_TRAINED = Sampler("Hamiltonian, from a trained model", CHECK, HAMILTONIAN, trained=True)


@dataclass(frozen=True)
class Problem:
    """A setting with its data: the measure, where chains start, and how good a path is on the training images."""

    setting: Setting
    measure: tw.PathMeasure
    first: Any
    trained: Callable[[], Any]
    accuracies: Callable[[Any], tuple[float, float]]


def problem(setting: Setting, samples: int = 2048) -> Problem:
    """The measure of a setting, on the first images of `mnist2048`."""
    data = tw.data.mnist2048()
    network = tw.networks.lenet() if setting.network == "lenet" else tw.networks.mlp([784, 32, 10])
    X, y = data.X_train[:samples], data.y_train[:samples]
    X = X if setting.network == "lenet" else X.reshape(len(X), -1)
    scale = network.scale()
    sigma = setting.sigma * scale if setting.relative else setting.sigma
    loss = tw.losses.Supervised(network, X, y)
    measure = tw.PathMeasure(tw.RandomWalk(sigma, start=tw.Normal(scale)), loss, setting.length)

    def repeated(theta: Any) -> Any:
        return jnp.broadcast_to(theta, (setting.length, network.dim))

    @jax.jit
    def probabilities(path: Any) -> Any:
        return jax.lax.map(lambda theta: jax.nn.softmax(network.apply(theta, jnp.asarray(X))), path)

    def accuracies(path: Any) -> tuple[float, float]:
        """Of the mean of the models' probabilities, and the mean over models of their own."""
        each = probabilities(jnp.asarray(path))
        right = np.asarray(jnp.argmax(each, -1)) == y
        return float(np.mean(np.asarray(jnp.argmax(jnp.mean(each, 0), -1)) == y)), float(np.mean(right))

    return Problem(setting, measure, repeated(network.init(0)), lambda: repeated(warm_model(network, loss, 400)), accuracies)


def reached(curve: list[Row], marks: tuple[float, ...], accuracy: float | None) -> Row:
    """Seconds to each mark, or None: of the loss, and of the accuracy of the ensemble and of its models."""
    found: Row = {f"seconds_to_{mark:g}": _first(curve, "loss", -mark, -1) for mark in marks}
    if accuracy is not None:
        for name in ("ensemble", "model"):
            found[f"seconds_to_{name}_accuracy"] = _first(curve, f"{name}_accuracy", accuracy)
    return found


def _first(curve: list[Row], key: str, mark: float, sign: int = 1) -> float | None:
    return next((point["seconds"] for point in curve if sign * point[key] >= mark), None)


def timed(problem: Problem, sampler: Sampler, limit: float, note: Callable[[Row], None]) -> Row:
    """A sampler until it is past the last mark or its time is up; `note` gets the row as it grows."""
    setting = problem.setting
    start = problem.trained() if sampler.trained else problem.first

    def piece(init: Any, steps: int) -> tuple[tw.Run, float]:
        began = time.perf_counter()
        run = sampler.advance(problem.measure, setting.s, init, steps)
        jax.block_until_ready(run.state.path)  # type: ignore[no-untyped-call]
        return run, time.perf_counter() - began

    compiled, _ = piece(start, 1)
    _, rough = piece(compiled, 1)  # how long a step takes
    now, seconds, steps, evaluations = start, 0.0, 1, 0
    curve: list[Row] = []
    row: Row = {"name": sampler.name, "kind": sampler.kind, "limit": limit, "setting": asdict(setting)}
    each = max(rough, 1e-4)
    while seconds < limit:
        steps = int(max(1, min(limit / PIECES, limit - seconds) / each))
        run, taken = piece(now, steps)
        now, each = run, taken / steps
        seconds, evaluations = seconds + taken, evaluations + run.evaluations
        point: Row = {"seconds": seconds, "evaluations": evaluations, "loss": float(np.mean(np.asarray(run.state.losses)))}
        if setting.accuracy is not None:
            point["ensemble_accuracy"], point["model_accuracy"] = problem.accuracies(run.state.path[0])
        curve.append(point)
        if not sampler.trained:  # which begins beyond the marks
            row |= reached(curve, setting.marks, setting.accuracy)
        row |= {
            "seconds": seconds, "evaluations": evaluations, "loss": point["loss"], "curve": curve,
            "steps": {name: float(np.mean(step)) for name, step in run.steps.items()},
        }  # fmt: skip
        note(row)
        if not sampler.trained and all(row[name] is not None for name in row if name.startswith("seconds_to_")):
            break
    return row


def measure(
    name: str,
    quick: bool,
    limit: float | None,
    known: list[Row],
    note: Callable[[list[Row]], None],
    show: Callable[[str], None],
) -> list[Row]:
    """The rows of a setting, one sampler after another; those of `known` that had the same settings and time are kept."""
    setting = SETTINGS[name]
    seconds = limit if limit is not None else setting.quick_seconds if quick else setting.seconds
    this = problem(setting, 256 if quick else 2048)
    about = {"images": 256 if quick else 2048, "whole": True}
    samplers = SAMPLERS if setting.accuracy is None else (*(x for x in SAMPLERS if x.kind != APPROXIMATE), FROM_TRAINED)
    rows: list[Row] = []
    for sampler in samplers:
        wanted = {"name": sampler.name, "limit": seconds, "setting": _plain(asdict(setting)), **about}
        before = next((row for row in known if all(row.get(key) == value for key, value in wanted.items())), None)
        if before is None:

            def grown(row: Row) -> None:
                note([*rows, {**row, **about, "whole": False}])

            before = _plain({**timed(this, sampler, seconds, grown), **about})
        rows.append(before)
        note(rows)
        show(line(before))
    return rows


def _plain(row: Row) -> Row:
    """As JSON gives it back: lists for tuples."""
    return {k: list(v) if isinstance(v, tuple) else _plain(v) if isinstance(v, dict) else v for k, v in row.items()}


def title(name: str) -> str:
    """What a table is of."""
    it = SETTINGS[name]
    network = "LeNet" if it.network == "lenet" else "MLP 784-32-10"
    unit = " of the initialisation scale" if it.relative else ""
    return f"{name}: {network}, mnist2048, tau = {it.length}, s = {it.s:g}, sigma = {it.sigma:g}{unit}; seconds to a mean loss"


def line(row: Row) -> str:
    """A row of a table: the marks, and where it ended."""
    text = f"{row['name']:36s}"
    for key, value in row.items():
        if key.startswith("seconds_to_"):
            what = key.removeprefix("seconds_to_").replace("_", " ")
            text += f"{what + ': ' + ('not reached' if value is None else f'{value:.2f} s'):36s}"[: 36 if "acc" in what else 20]
    last = row["curve"][-1]
    text += f"  loss {row['loss']:.3f} after {row['seconds']:.1f} s"
    if "ensemble_accuracy" in last:
        text += f", accuracy {last['ensemble_accuracy']:.3f}, of a model {last['model_accuracy']:.3f}"
    return text


def comparison(rows: list[Row], mark: float) -> str:
    """How much sooner the best move with a gradient is at a mark than the best without one."""
    best: dict[str, Row] = {}
    for kind in (FREE, INFORMED):
        those = [row for row in rows if row["kind"] == kind and row.get(f"seconds_to_{mark:g}") is not None]
        if those:
            best[kind] = min(those, key=lambda row: row[f"seconds_to_{mark:g}"])
    if INFORMED not in best:
        return f"no sampler with a gradient came to {mark:g}"
    with_gradient = best[INFORMED][f"seconds_to_{mark:g}"]
    if FREE not in best:
        given = max(row["seconds"] for row in rows if row["kind"] == FREE)
        times = f"without not in {given:.0f} s: more than {given / with_gradient:.1f} times sooner"
    else:
        without = best[FREE][f"seconds_to_{mark:g}"]
        times = f"without in {without:.2f} s: {without / with_gradient:.1f} times sooner"
    return f"to {mark:g}: with gradients in {with_gradient:.2f} s, {times}"
