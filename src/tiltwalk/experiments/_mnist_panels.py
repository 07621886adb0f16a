"""How the MNIST figure is drawn, from its record and nothing else, and its caption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tiltwalk.experiments import _plots
from tiltwalk.experiments._common import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANCE = 0.1


def draw(record: Record) -> Figure:
    figure, panels = _plots.canvas(12.0, 5.9, record["caption"])
    top, bottom = panels.subfigures(2, 1, height_ratios=[1.15, 4.75], squeeze=False)[:, 0]
    _draw_digits(top, record)
    loss, accuracy, start = bottom.subplots(1, 3, width_ratios=[1.2, 1.2, 0.85])
    colour = dict(zip(record["settings"]["lengths"], _plots.colours(len(record["settings"]["lengths"])), strict=True))
    _draw_loss(loss, record, colour)
    _draw_accuracy(accuracy, record, colour)
    _draw_drift(start, record)
    return figure


def _draw_digits(figure: Any, record: Record) -> None:
    axes = figure.subplots(1, 10)
    side = round((len(record["numbers"]["digits"][0]) / 2) ** 0.5)
    for place, digit in zip(axes, record["numbers"]["digits"], strict=True):
        place.imshow(np.frombuffer(bytes.fromhex(digit), np.uint8).reshape(side, side), cmap="gray_r", interpolation="nearest")
        place.set(xticks=[], yticks=[])
        for spine in place.spines.values():
            spine.set_visible(True)
            spine.set_linewidth(0.5)
    figure.suptitle(r"$\bf{(a)}$ one image of each class", x=0.015, ha="left", fontsize=10.5)


def _line(
    axes: Axes, points: list[dict[str, Any]], values: list[float], colour: Any, mark: str, style: Any, label: str | None
) -> None:
    """A line through all points: full where they have settled, hollow where not."""
    axes.plot([p["s"] for p in points], values, color=colour, linestyle=style, linewidth=1.3, label=label)
    for point, value in zip(points, values, strict=True):
        face = colour if point["settled"] else "white"
        axes.plot(point["s"], value, mark, color=colour, markerfacecolor=face, markersize=6, markeredgewidth=1.3)


def _of(record: Record, length: int) -> list[dict[str, Any]]:
    return [p for p in record["numbers"]["points"] if p["length"] == length]


def _tilts(axes: Axes, record: Record) -> None:
    tilts = record["settings"]["tilts"]
    _plots.tilt_axis(axes, tilts)
    axes.set_xlim(min(tilts) / 1.15, max(tilts) * 1.15)
    axes.set_xticks(tilts, [f"{s:g}" for s in tilts])
    axes.set_xticks([], minor=True)


def _draw_loss(axes: Axes, record: Record, colour: dict[int, Any]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    level = record["numbers"]["plateau"]
    axes.axhline(level, color=_plots.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.text(0.985, level * 1.03, "ln 10", transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=9)
    for length, tone in colour.items():
        points = _of(record, length)
        for p in points:
            if p["settled"]:
                axes.errorbar(p["s"], p["loss"], 3 * p["standard_error"], color=tone, capsize=2, elinewidth=1.0)
        _line(axes, points, [p["loss"] for p in points], tone, "o", "-", f"τ = {length}")
    _tilts(axes, record)
    losses = [level, *(p["loss"] for p in record["numbers"]["points"])]
    axes.set_yscale("log")
    # room for the legend below the lines, which begin near ln 10
    axes.set_ylim(min(min(losses) / 1.3, level / 6), 1.2 * max(losses))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("loss per model")
    axes.legend(title="models in a path", frameon=False, loc="lower left")
    _plots.title(axes, "b", "loss")


def _draw_accuracy(axes: Axes, record: Record, colour: dict[int, Any]) -> None:
    from matplotlib.lines import Line2D

    axes.axhline(CHANCE, color=_plots.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.text(0.985, CHANCE - 0.012, "chance", transform=axes.get_yaxis_transform(), ha="right", va="top", fontsize=9)
    for length, tone in colour.items():
        points = _of(record, length)
        _line(axes, points, [p["test_accuracy"]["mean_probability"] for p in points], tone, "s", (0, (3, 1.5)), None)
        _line(axes, points, [p["accuracy"]["mean_probability"] for p in points], tone, "o", "-", None)
    _tilts(axes, record)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("accuracy of the ensemble")
    axes.legend(
        handles=[
            Line2D([], [], color=_plots.INK, marker="o", linewidth=1.3, label="training images"),
            Line2D([], [], color=_plots.INK, marker="s", linewidth=1.3, linestyle=(0, (3, 1.5)), label="test images"),
            Line2D([], [], color=_plots.INK, marker="o", linewidth=0, markerfacecolor="white", label="not settled"),
        ],
        frameon=False,
        loc="upper left",
    )
    _plots.title(axes, "c", "accuracy at the last draw")


def _draw_drift(axes: Axes, record: Record) -> None:
    drift = record["numbers"]["drift"]
    for name, tone, label in (("flat", _plots.WARM, "flat start"), ("gaussian", _plots.INK, "Gaussian start")):
        axes.plot(drift[name]["sweep"], drift[name]["size"], color=tone, label=label, linewidth=1.6)
    axes.set_ylim(0, None)
    axes.set_xlabel("sweeps of the paper's moves")
    axes.set_ylabel(r"root mean square of $\theta_1$")
    axes.legend(frameon=False, loc="upper left")
    _plots.title(axes, "d", f"the start, τ = {drift['length']}, s = {drift['s']:g}")


def caption(record: Record) -> str:
    chosen, numbers = record["settings"], record["numbers"]
    points = numbers["points"]
    settled = sum(p["settled"] for p in points)
    network = "LeNets of 44,426 parameters" if chosen["network"] == "lenet" else f"networks {chosen['network']}"
    verdicts = " ".join(f"({i}) {c['claim']} {c['verdict'].capitalize()}." for i, c in enumerate(numbers["claims"], 1))
    made = (
        f"Made in {numbers['wall_seconds']:,.0f} s and {numbers['cpu_seconds']:,.0f} s of processor time on {numbers['cores']} "
        f"cores; {numbers['kernel']}."
    )
    if numbers["parts_read_back"]:
        made = f"{made[:-1]}; {numbers['parts_read_back']} parts were made before and read back."
    grown = " or grown from shorter paths at the same s" if chosen["sampler"] == "best" else ""
    return (
        f"{network}, cross entropy on {chosen['images']:,} images of MNIST, σ = {chosen['sigma']:g}, Gaussian start at "  # noqa: RUF001
        f"initialisation scale, sampler “{chosen['sampler']}”. (b) Loss per model against the tilt s, each line from its least "
        f"s upwards{grown}; error bars: 3 standard errors. A point is full where its mean loss has settled by the stated "
        f"test, and hollow where its budget was spent before: {settled} of {len(points)} have settled. (c) Accuracy by mean "
        "probability "
        "over the models of the last path, on the images that were sampled on and on "
        f"{chosen['test_images']:,} others. (d) Size of the first model's parameters with the paper's flat start and with the "
        "Gaussian one, from the same path.\n"
        f"The paper's claims: {verdicts} The evidence is in the JSON. {made}\n"
        "Corrections to the paper that apply: a flat p(θ₁) with cross entropy cannot be normalised, since a constant added to "
        "all logits costs nothing, nor do ever larger weights once the data are told apart; so the start is Gaussian."
    )
