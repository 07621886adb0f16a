"""The linear perceptron: loss per model against the tilt, exact and sampled (the paper's second figure).

(a, b) exact lines for paths of `tau` models at two values of `sigma`; (c) sampled points on them; (d) how far off the points
are, in standard errors. Each sampled line is a set of independent chains. They start from exact draws at the least `s`, climb
to the next value and burn in there, and so on; the standard error is that of the mean over chains.
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

SIGMAS = (0.1, 1.0)
LENGTHS = (1, 2, 4, 8, 16, 32, 64)
TILTS = (0.1, 1.0, 10.0, 100.0, 1000.0)


def settings(quick: bool) -> dict[str, Any]:
    sizes = {"lengths_sampled": [1, 4, 16], "chains": 256, "updates": 32_000, "draws": 1_000}
    if not quick:
        sizes = {"lengths_sampled": [1, 4, 16, 64], "chains": 512, "updates": 128_000, "draws": 2_000}
    return {
        "data": "y = 0.5 x - 0.3 + 0.1 noise, 100 samples, x and noise standard normal",
        "sigmas": list(SIGMAS),
        "lengths": list(LENGTHS),
        "tilts": np.geomspace(0.1, 1000.0, 81).tolist(),
        "tilts_sampled": list(TILTS),
        "moves": "Sweep with weight 0.9, Shoot with weight 0.1, steps tuned to an acceptance of 0.4 during burn-in",
        **sizes,
    }


def compute(settings: dict[str, Any], seed: int, report: Report) -> dict[str, Any]:
    X, Y = line_data()
    oracle = tw.exact.LinearPerceptron(X, Y)
    tilts = np.asarray(settings["tilts"])
    lines = [
        {"sigma": sigma, "length": length, "loss": oracle.expected_loss(tilts, sigma, length).tolist()}
        for sigma in settings["sigmas"]
        for length in settings["lengths"]
    ]
    pairs = [(sigma, length) for sigma in settings["sigmas"] for length in settings["lengths_sampled"]]
    points: list[dict[str, Any]] = []
    for part, (sigma, length) in enumerate(pairs):
        report(part / len(pairs), f"sampling σ = {sigma:g}, τ = {length}")
        points += climb(oracle, tw.losses.least_squares(X, Y), sigma, length, settings, seed, part)
    report(1.0, "drawing")
    return {"least_loss": oracle.minimum, "lines": lines, "points": points}


def climb(
    oracle: tw.exact.LinearPerceptron, loss: Any, sigma: float, length: int, settings: dict[str, Any], seed: int, part: int
) -> list[dict[str, Any]]:
    """One point for each sampled `s`, all from the same chains."""
    measure = tw.PathMeasure(tw.RandomWalk(sigma), loss, length)
    tilts, chains = settings["tilts_sampled"], settings["chains"]
    # as many updates of single models for each length: short paths need more steps, since one step moves them less
    steps = settings["updates"] // length
    state: Any = oracle.draw(np.random.default_rng([seed, part]), chains, tilts[0], sigma, length)
    points = []
    for s in tilts:
        run = tw.sample(
            measure,
            s,
            steps=steps,
            burn_in=steps,
            thin=max(1, steps // settings["draws"]),
            chains=chains,
            moves=[(tw.moves.Sweep(), 0.9), (tw.moves.Shoot(), 0.1)],
            target_acceptance=0.4,
            key=key_of(seed, part),
            init=state,
            keep=mean_loss,
            progress=False,
        )
        mean, error = mean_and_error(run.kept.astype(float).mean(1))
        exact = float(oracle.expected_loss(s, sigma, length))
        points.append({"sigma": sigma, "length": length, "s": s, "loss": mean, "standard_error": error, "exact": exact})
        state = run
    return points


def deviations(points: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """`(sampled - exact) / standard error` of each point."""
    return np.array([(p["loss"] - p["exact"]) / p["standard_error"] for p in points])


def relative_errors(points: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    return np.array([abs(p["loss"] / p["exact"] - 1) for p in points])


def summary(record: Record) -> list[str]:
    points = record["numbers"]["points"]
    far, off = np.abs(deviations(points)), relative_errors(points)
    worst = points[int(off.argmax())]
    return [
        f"{int(np.sum(far <= 3))} of {len(points)} sampled points are within 3 standard errors of the exact loss; "
        f"the largest deviation is {far.max():.2f} standard errors.",
        f"The worst relative error is {off.max():.2%}, at σ = {worst['sigma']:g}, τ = {worst['length']}, s = {worst['s']:g}, "
        f"where the standard error is {worst['standard_error'] / worst['exact']:.2%}.",
    ]


def caption(record: Record) -> str:
    chosen, points = record["settings"], record["numbers"]["points"]
    within, worst = int(np.sum(np.abs(deviations(points)) <= 3)), relative_errors(points).max()
    return (
        "Linear perceptron, d + 1 = 2, flat start. (a, b) Exact loss per model, E[Σ L]/τ, against the tilt s; dashed: the "
        f"least loss that any model has. (c) Points: means over {chosen['chains']} independent chains of "
        f"{chosen['updates']:,} / τ steps after a burn-in of as many at each s, started from exact draws at the least s; "
        "error bars (3 standard errors of the mean over chains) are mostly smaller than the symbols. (d) The same points, "
        f"sampled minus exact, in standard errors: {within} of {len(points)} within 3; worst relative error {worst:.2%}.\n"
        "Corrections to the paper that apply: the precision matrix has blocks 2/σ² + sA inside and 1/σ² + sA at the ends; "
        "in the partition sum both traces have the other sign and the log determinant the factor k/2; the least loss is ½ "
        "tr C - ½ tr(B'A⁻¹B), and the loss lies above it, by a sum over modes that has three regimes; the first factor of "
        "the bridge's kernel has a minus sign in its exponent. The start is flat, so that shooting needs no p(θ₁)."
    )


def draw(record: Record) -> Figure:
    numbers, chosen = record["numbers"], record["settings"]
    figure, panels = _plots.canvas(10.0, 7.6, record["caption"])
    axes = panels.subplots(2, 2)
    colour = dict(zip(chosen["lengths"], _plots.colours(len(chosen["lengths"])), strict=True))
    for place, letter, sigma in zip(axes[0], "ab", chosen["sigmas"], strict=True):
        for line in numbers["lines"]:
            if line["sigma"] == sigma:
                place.plot(chosen["tilts"], line["loss"], color=colour[line["length"]], label=f"τ = {line['length']}")
        loss_axis(place, record)
        _plots.title(place, letter, f"exact, $\\sigma$ = {sigma:g}")
    axes[0, 1].legend(title="models in a path", ncols=2, frameon=False)
    _draw_points(axes[1, 0], record, colour)
    _draw_deviations(axes[1, 1], record, colour)
    return figure


MARKS = ("o", "^")


def loss_axis(axes: Axes, record: Record) -> None:
    axes.set_yscale("log")
    least = record["numbers"]["least_loss"]
    axes.axhline(least, color=_plots.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_ylim(least / 1.5, 20)
    axes.set_ylabel("loss per model")
    _plots.tilt_axis(axes, record["settings"]["tilts"])


def _draw_points(axes: Axes, record: Record, colour: dict[int, Any]) -> None:
    chosen = record["settings"]
    for mark, style, sigma in zip(MARKS, ("-", (0, (5, 1.5))), chosen["sigmas"], strict=True):
        for line in record["numbers"]["lines"]:
            if line["sigma"] == sigma and line["length"] in chosen["lengths_sampled"]:
                axes.plot(chosen["tilts"], line["loss"], color=colour[line["length"]], linewidth=1.1, linestyle=style)
        for length in chosen["lengths_sampled"]:
            some = [p for p in record["numbers"]["points"] if (p["sigma"], p["length"]) == (sigma, length)]
            axes.errorbar(
                [p["s"] for p in some], [p["loss"] for p in some], [3 * p["standard_error"] for p in some],
                fmt=mark, color=colour[length], markersize=5.5, markeredgecolor="white", markeredgewidth=0.6, capsize=2,
            )  # fmt: skip
    loss_axis(axes, record)
    _plots.title(axes, "c", "sampled points on the exact lines")
    _legend(axes, record, colour)


def _draw_deviations(axes: Axes, record: Record, colour: dict[int, Any]) -> None:
    chosen, points = record["settings"], record["numbers"]["points"]
    series = [(sigma, length) for length in chosen["lengths_sampled"] for sigma in chosen["sigmas"]]
    axes.axhspan(-3, 3, color=_plots.INK, alpha=0.06, linewidth=0)
    axes.axhline(0, color=_plots.INK, linewidth=1.0)
    for point, far in zip(points, deviations(points), strict=True):
        # side by side, since all series share the same few values of s
        aside = series.index((point["sigma"], point["length"])) - (len(series) - 1) / 2
        axes.errorbar(
            point["s"] * 1.22**aside, far, 1.0, fmt=MARKS[chosen["sigmas"].index(point["sigma"])],
            color=colour[point["length"]], markersize=5.5, elinewidth=1.0, markeredgecolor="white", markeredgewidth=0.6,
        )  # fmt: skip
    _plots.tilt_axis(axes, chosen["tilts"])
    axes.set_xlim(min(chosen["tilts"]) / 2.6, max(chosen["tilts"]) * 2.6)
    reach = max(4.5, float(np.abs(deviations(points)).max()) + 1.5)
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("(sampled − exact) / standard error")
    worst = relative_errors(points).max()
    _plots.title(axes, "d", "how far off")
    axes.text(0.98, 0.97, f"worst relative error {worst:.2%}", transform=axes.transAxes, ha="right", va="top", fontsize=9)
    axes.text(0.98, 0.03, "grey: within 3 standard errors", transform=axes.transAxes, ha="right", va="bottom", fontsize=9)


def _legend(axes: Axes, record: Record, colour: dict[int, Any]) -> None:
    from matplotlib.lines import Line2D

    chosen = record["settings"]
    entries = [Line2D([], [], color=colour[n], linewidth=3, label=f"τ = {n}") for n in chosen["lengths_sampled"]]
    entries += [
        Line2D([], [], color=_plots.INK, marker=mark, linestyle=style, linewidth=1.1, label=f"σ = {sigma:g}")
        for mark, style, sigma in zip(MARKS, ("-", (0, (5, 1.5))), chosen["sigmas"], strict=True)
    ]
    axes.legend(handles=entries, ncols=2, frameon=False)
