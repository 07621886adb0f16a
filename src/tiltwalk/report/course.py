"""How the run went: its loss and tilt over all phases, what was accepted, the draws, and how much they depend on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tiltwalk import plots
from tiltwalk.plots import sampling, style
from tiltwalk.report.figures import figure
from tiltwalk.report.markup import Html, element, joined, paragraph
from tiltwalk.report.subject import Subject, counted, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 0.28
"""Of the longest run's axis, the least that a phase is given."""

MARKED = 40
"""Up to so many points are marked, so that few can be seen."""


def section(subject: Subject) -> Html:
    """The course of the run."""
    progress, run = subject.folder.arrays("progress"), subject.run
    parts: list[Any] = [element("h2", "How the run went", id="course")]
    if not progress["step"].size:
        return joined([*parts, paragraph("Nothing was made yet.")])
    figures = [_losses(subject, progress), *_moves(subject, progress)]
    left_out = []
    if run.draws:
        figures.append(_draws(run))
        figures.append(_acceptance(run))
        if run.losses is not None and run.losses.shape[-1] > 1:
            figures.append(_position(run))
        else:
            left_out.append("A path of one model has no loss by position.")
        if run.draws >= 4 and np.ptp(run.total_losses, axis=1).any():
            figures.append(_autocorrelation(subject))
        else:
            left_out.append(f"Autocorrelation needs four draws that differ; there are {counted(run.draws, 'draw')}.")
    else:
        left_out.append(
            "The run has not come to sampling: it has no draws to judge by position on the path or by autocorrelation."
        )
    parts.append(element("div", *figures, class_="figures"))
    parts += [paragraph(line, class_="aside") for line in left_out]
    return joined(parts)


def spans(subject: Subject, progress: dict[str, np.ndarray]) -> list[tuple[str, int, int]]:
    """Warm-up, burn-in and sampling: the steps at which each begins and ends."""
    found: list[tuple[str, int, int]] = []
    end = 0
    for i, phase in enumerate(subject.folder.phases):
        mine = progress["step"][progress["phase"] == i]
        if not mine.size:
            continue
        name = phase["name"] if phase["name"] in ("burn-in", "sampling") else "warm-up"
        begin, end = end, int(mine[-1])
        if found and found[-1][0] == name:
            begin = found.pop()[1]
        found.append((str(name), begin, end))
    return found


def scale(step: np.ndarray, found: list[tuple[str, int, int]]) -> np.ndarray:
    """Steps as places from 0 to 1, each phase with room to be seen: most steps may be those of the warm-up."""
    widths = np.array([max((end - begin) / max(found[-1][2], 1), LEAST) for _, begin, end in found])
    ends = np.append(0.0, np.cumsum(widths) / widths.sum())
    placed: np.ndarray = np.interp(step, [0, *(end for _, _, end in found)], ends)
    return placed


def _evolving(subject: Subject, progress: dict[str, np.ndarray]) -> np.ndarray:
    """Which pieces are of the evolution, which has no tilt and accepts everything."""
    names = [str(phase["name"]) for phase in subject.folder.phases]
    made: np.ndarray = np.array([names[i].startswith("evolution") for i in progress["phase"]], bool)
    return made


def _losses(subject: Subject, progress: dict[str, np.ndarray]) -> Html:
    step, loss = progress["step"], progress["loss"]
    s = np.where(_evolving(subject, progress), np.nan, progress["s"])
    found = spans(subject, progress)

    x = scale(step, found)

    def draw(ax: Axes) -> None:
        shown = sampling.spread(len(step))
        dots = "o" if len(step) <= MARKED else ""
        for chain in loss[: sampling.LINES]:
            ax.plot(x[shown], chain[shown], color=style.COOL, linewidth=0.7, alpha=0.45)
        ax.plot(x[shown], loss.mean(0)[shown], dots + "-", color=style.COOL, markersize=3)
        if np.nanmin(loss) > 0 and np.nanmax(loss) > 30 * np.nanmin(loss):
            ax.set_yscale("log")
        ax.set(ylabel="loss per model")
        ax.yaxis.label.set_color(style.COOL)
        ax.tick_params(axis="y", colors=style.COOL)
        if np.isfinite(s).any():
            right = ax.twinx()
            right.plot(x[shown], s[shown], dots + "-", color=style.WARM, linewidth=1.2, markersize=3)
            right.set_ylabel("tilt $s$", color=style.WARM)
            right.tick_params(axis="y", colors=style.WARM)
            right.spines["right"].set_visible(True)
            right.grid(visible=False)
            some = s[np.isfinite(s)]
            if some.max() > 30 * some.min() > 0:
                right.set_yscale("log")
            else:
                right.set_ylim(0, 1.1 * some.max())
        _phases(ax, found)

    first, last = loss.mean(0)[[0, -1]]
    phases = ", ".join(f"{name} to step {end:,}" for name, _, end in found)
    tilt = s[np.isfinite(s)]
    says = (
        f"Loss per model against the step: the mean over {counted(len(loss), 'chain')} goes from {number(first)} to "
        f"{number(last)} over {number(step[-1])} steps ({phases})."
    )
    says += f" The tilt s goes from {number(tilt[0])} to {number(tilt[-1])}." if tilt.size else ""
    caption = "Loss per model against the step, a thin line a chain and a thick one for their mean, and the tilt s. "
    caption += (
        "The evolution of the warm-up has no tilt; a path of several models has the tilt of a single one divided by its length."
    )
    return figure("losses", draw, says, caption)


def _phases(ax: Axes, found: list[tuple[str, int, int]]) -> None:
    """Where phases end, their names above, and the steps at their ends below."""
    ends = [0, *(end for _, _, end in found)]
    at = scale(np.array(ends), found)
    for place in at[1:-1]:
        ax.axvline(place, color=style.FAINT, linewidth=0.9, linestyle=(0, (2, 2)))
    for i, (name, _, _) in enumerate(found):
        ax.annotate(
            name, ((at[i] + at[i + 1]) / 2, 1), xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
            ha="center", va="bottom", fontsize=8.5,
        )  # fmt: skip
    ax.set_xticks(at, [f"{end:,}" for end in ends])
    ax.set(xlabel="step, each phase on its own scale" if len(found) > 1 else "step", xlim=(-0.03, 1.03))
    ax.grid(visible=False, axis="x")


def _moves(subject: Subject, progress: dict[str, np.ndarray]) -> list[Html]:
    """Acceptance and step size of each move over the run."""
    names = [str(name) for name in subject.folder.record["moves"]]
    step, found = progress["step"], spans(subject, progress)
    evolving = _evolving(subject, progress)
    with np.errstate(invalid="ignore"):
        accepted = np.where(evolving, np.nan, _mean(progress["acceptance"]))
        sizes = _mean(progress["step_size"])
    target = float(subject.folder.config.chains.target_acceptance)

    x = scale(step, found)

    def lines(ax: Axes, values: np.ndarray) -> None:
        shown = sampling.spread(len(step))
        for name, row, colour in zip(names, values, style.TONES * len(names), strict=False):
            if np.isfinite(row).any():
                dots = "o" if np.isfinite(row).sum() <= MARKED else ""
                ax.plot(x[shown], row[shown], dots + "-", color=colour, markersize=3, linewidth=1.5, label=style.label(name))
        _phases(ax, found)
        ax.legend(frameon=False)

    def acceptance(ax: Axes) -> None:
        lines(ax, accepted)
        ax.axhline(target, color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
        ax.set(ylabel="accepted", ylim=(0, 1))

    def step_size(ax: Axes) -> None:
        lines(ax, sizes)
        ax.set(ylabel="step size", yscale="log")
        _plain(ax)

    made = []
    if np.isfinite(accepted).any():
        ends = [f"{name} {percent(_last(row))}" for name, row in zip(names, accepted, strict=True) if np.isfinite(row).any()]
        says = f"Share of proposals accepted against the step, mean over chains. At the end: {', '.join(ends)}. "
        says += f"Step sizes were tuned towards {percent(target)}."
        caption = f"Share of proposals accepted, by move; the dashed line is what burn-in tunes for, {percent(target, 0)}."
        made.append(figure("acceptance", acceptance, says, caption))
    if np.isfinite(sizes).any():
        ends = [
            f"{name} from {number(_first(row), 3)} to {number(_last(row), 3)}"
            for name, row in zip(names, sizes, strict=True)
            if np.isfinite(row).any()
        ]
        says = f"Step size against the step, mean over chains: {'; '.join(ends)}."
        caption = "Step size by move. It is given in the evolution, tuned in burn-in, and stays as it is while sampling."
        made.append(figure("steps", step_size, says, caption))
    return made


def _draws(run: Any) -> Html:
    per_model = run.losses.mean(-1, dtype=np.float64)
    says = (
        f"Loss per model at each of {counted(run.draws, 'draw')} of {counted(len(per_model), 'chain')}: mean "
        f"{number(per_model.mean())}, from {number(per_model.min())} to {number(per_model.max())}; the means of the chains lie "
        f"between {number(per_model.mean(1).min())} and {number(per_model.mean(1).max())}."
    )
    caption = (
        "Loss per model at each draw of the sampling phase. Chains that have converged lie on top of each other and go level."
    )
    return figure("draws", lambda ax: plots.loss(run, ax), says, caption)


def _acceptance(run: Any) -> Html:
    some = {name: np.ravel(rates) for name, rates in run.acceptance_by_chain.items()}
    words = [
        f"{name} {percent(np.nanmean(rates))} (chains {percent(np.nanmin(rates))} to {percent(np.nanmax(rates))}) "
        f"at a mean step size of {number(np.mean(run.steps[name]), 3)}"
        for name, rates in some.items()
        if np.isfinite(rates).any()
    ]
    says = f"Share of proposals accepted while sampling: {'; '.join(words) or 'none were made'}."
    caption = "What was accepted while sampling: a dot a chain, a bar for their mean, and the step size that was used."
    return figure("by-move", lambda ax: plots.acceptance(run, ax), says, caption)


def _position(run: Any) -> Html:
    mean = run.losses.mean((0, 1), dtype=np.float64)
    says = (
        f"Mean loss by position on the path of {len(mean)} models: {number(mean[0])} for the first, {number(mean[-1])} for the "
        f"last; lowest {number(mean.min())} at position {mean.argmin() + 1}, highest {number(mean.max())} at "
        f"position {mean.argmax() + 1}."
    )
    caption = "Loss by position on the path. The ends have one neighbour, those between have two: ends are freer."
    return figure("position", lambda ax: plots.by_position(run, ax), says, caption)


def _autocorrelation(subject: Subject) -> Html:
    run = subject.run
    summary = subject.verdict.summary
    time = summary["total loss"].autocorrelation_time if summary is not None else float("nan")
    words = (
        f" About {number(round(time) if time > 10 else time, 3)} draws are worth one independent draw." if time == time else ""
    )
    each = sampling.correlations(run.total_losses)
    mean = np.nanmean(each, axis=0)
    lag = min(10, len(mean) - 1)
    says = (
        f"Autocorrelation of the total loss against the distance between draws: {number(mean[1], 2)} one draw apart, "
        f"{number(mean[lag], 2)} {lag} draws apart, mean over chains.{words}"
    )
    caption = f"How like a draw is to those before; the dashed lines are what independent draws would stay within.{words}"
    return figure("autocorrelation", lambda ax: plots.autocorrelation(run, ax), says, caption)


def _plain(ax: Axes) -> None:
    """Ticks of a logarithmic axis that can be read: whole decades in full, and more where it spans less than one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = ax.get_ylim()
    few = high < 30 * low
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _mean(values: np.ndarray) -> np.ndarray:
    """Over the chains, of `(chain, move, piece)`; NaN where no chain has a number."""
    there = np.isfinite(values)
    total: np.ndarray = np.where(there, values, 0).sum(0) / np.where(there.any(0), there.sum(0), np.nan)
    return total


def _first(row: np.ndarray) -> float:
    return float(row[np.isfinite(row)][0])


def _last(row: np.ndarray) -> float:
    return float(row[np.isfinite(row)][-1])
