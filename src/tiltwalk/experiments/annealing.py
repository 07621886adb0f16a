"""Annealing: the loss of paths of linear perceptrons while `s` climbs a staircase (the paper's fourth figure).

Chains start from paths of the walk, which know nothing of the data, and make the paper's moves. On each stair the loss falls
to the exact mean of that `s` and stays there. `s` increases; it is the temperature `1/s` that decreases.
"""

# ruff: noqa: RUF001 (captions hold mathematics)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tiltwalk as tw
from tiltwalk.experiments import _plots
from tiltwalk.experiments._common import Record, Report, key_of, line_data, mean_and_error, mean_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTH = 8
SIGMA = 1.0
STAIRS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "data": "y = 0.5 x - 0.3 + 0.1 noise, 100 samples, x and noise standard normal",
        "sigma": SIGMA,
        "length": LENGTH,
        "stairs": list(STAIRS),
        "steps_each": 2_000 if quick else 4_000,
        "thin": 10,
        "chains": 64 if quick else 256,
        "moves": "the paper's: one end with probability 2/τ, else a bridge of one model",
    }


def compute(settings: dict[str, Any], seed: int, report: Report) -> dict[str, Any]:
    X, Y = line_data()
    oracle = tw.exact.LinearPerceptron(X, Y)
    length, sigma, each, thin = (settings[name] for name in ("length", "sigma", "steps_each", "thin"))
    measure = tw.PathMeasure(tw.RandomWalk(sigma), tw.losses.least_squares(X, Y), length)
    schedule = tw.schedules.staircase(settings["stairs"], steps_each=each)
    report(0.0, "annealing")
    run = tw.sample(
        measure,
        schedule,
        steps=each * len(settings["stairs"]),
        thin=thin,
        chains=settings["chains"],
        moves=tw.moves.paper(length),
        key=key_of(seed, 0),
        keep=mean_loss,
        progress=False,
    )
    report(1.0, "drawing")
    losses = run.kept.astype(float)
    stairs = []
    for i, s in enumerate(settings["stairs"]):
        # the second half of a stair, by when the chains have forgotten the one before
        draws = losses[:, (2 * i + 1) * each // (2 * thin) : (i + 1) * each // thin]
        mean, error = mean_and_error(draws.mean(1))
        exact = float(oracle.expected_loss(s, sigma, length))
        stairs.append({"s": s, "loss": mean, "standard_error": error, "exact": exact})
    return {
        "step": (np.arange(run.draws) * thin + thin).tolist(),
        "s": run.s.tolist(),
        "mean": losses.mean(0).tolist(),
        "low": np.quantile(losses, 0.05, axis=0).tolist(),
        "high": np.quantile(losses, 0.95, axis=0).tolist(),
        "one_chain": losses[0].tolist(),
        "stairs": stairs,
        "least_loss": oracle.minimum,
    }


def summary(record: Record) -> list[str]:
    stairs = record["numbers"]["stairs"]
    far = [abs(stair["loss"] - stair["exact"]) / stair["standard_error"] for stair in stairs]
    last = stairs[-1]
    return [
        f"On the second half of each of {len(stairs)} stairs the mean loss is at most {max(far):.2f} standard errors from the "
        "exact one.",
        f"At the last, s = {last['s']:g}: sampled {last['loss']:.5f} ± {last['standard_error']:.5f}, "
        f"exact {last['exact']:.5f}.",
    ]


def caption(record: Record) -> str:
    chosen = record["settings"]
    return (
        f"Annealing paths of τ = {chosen['length']} linear perceptrons, σ = {chosen['sigma']:g}, with the paper's moves "
        f"from paths that know nothing of the data. (a) The staircase, {chosen['steps_each']:,} steps for each s. (b) Loss "
        f"per model: mean over {chosen['chains']} chains, the range that holds nine tenths of them, one chain, and the "
        "exact mean at each s.\n"
        "Corrections to the paper that apply: s increases in steps, and the temperature 1/s decreases (the paper's "
        "caption says that s decreases); the exact mean is from the corrected precision matrix, least loss and sum over "
        "modes; the first factor of the bridge's kernel has a minus sign in its exponent. The start is flat, so that "
        "shooting needs no p(θ₁)."
    )


def draw(record: Record) -> Figure:
    numbers = record["numbers"]
    figure, panels = _plots.canvas(8.0, 5.4, record["caption"])
    top, bottom = panels.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    _draw_staircase(top, record)
    steps = numbers["step"]
    dark, bright = _plots.colours(4)[1], _plots.colours(4)[2]
    bottom.fill_between(
        steps, numbers["low"], numbers["high"], color=bright, alpha=0.25, linewidth=0, label="nine tenths of the chains"
    )
    bottom.plot(steps, numbers["one_chain"], color=bright, linewidth=0.7, label="one chain")
    bottom.plot(steps, numbers["mean"], color=dark, linewidth=1.8, label="mean over chains")
    each = record["settings"]["steps_each"]
    for i, stair in enumerate(numbers["stairs"]):
        label = "exact mean at this s" if i == 0 else None
        bottom.plot(
            [i * each, (i + 1) * each], [stair["exact"]] * 2, color=_plots.WARM, linewidth=2.0, dashes=(3, 1.2), label=label
        )
    bottom.set_yscale("log")
    bottom.set_xlabel("step (one move of one or the other end, or of one model)")
    bottom.set_ylabel("loss per model")
    bottom.legend(ncols=2, frameon=False)
    _plots.title(bottom, "b", "the loss falls to the exact mean of each $s$")
    return figure


def _draw_staircase(axes: Axes, record: Record) -> None:
    chosen = record["settings"]
    edges = np.arange(len(chosen["stairs"]) + 1) * chosen["steps_each"]
    axes.stairs(chosen["stairs"], edges, baseline=None, color=_plots.INK, linewidth=1.8)
    for s, left in zip(chosen["stairs"], edges, strict=False):
        axes.annotate(
            f"{s:g}", (left + chosen["steps_each"] / 2, s), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_yscale("log")
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(min(chosen["stairs"]) / 1.6, max(chosen["stairs"]) * 4)
    axes.set_ylabel("tilt $s$")
    right = axes.secondary_yaxis("right", functions=(_inverse, _inverse))
    right.set_ylabel("temperature $1/s$")
    _plots.title(axes, "a", "$s$ climbs, the temperature falls")


def _inverse(x: Any) -> Any:
    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(x, dtype=float)
