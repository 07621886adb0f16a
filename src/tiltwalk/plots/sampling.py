"""Plots of how a run went: its losses, its tilt, what was accepted, how far its draws depend on those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from tiltwalk import check
from tiltwalk.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 1000
"""Of a longer run, so many draws are drawn, evenly spaced, the first and the last among them."""

DOTS = 200
LINES = 16
"""Of more chains, so many have a line of their own; means are over all."""


def loss(run: Any, ax: Axes | None = None) -> Axes:
    """Loss per model at each draw: a thin line a chain, a thick one for their mean, and `s` at the right where it changes."""
    per_model = losses_of("loss", run).mean(-1, dtype=np.float64)
    ax = style.axes_for(ax)
    tilt = np.asarray(run.s, float)
    against(ax, "draw", np.arange(per_model.shape[1]), per_model, tilt)
    if tilt.size and (tilt == tilt[0]).all():
        ax.set_title(f"$s$ = {tilt[0]:g}", loc="left")
    return ax


def against(
    ax: Axes, what: str, x: np.ndarray[Any, Any], values: Float[np.ndarray, "chains n"], s: np.ndarray[Any, Any]
) -> None:
    """Losses of chains against `x`, and the tilt at the right where it changes."""
    shown = spread(values.shape[1])
    for chain in values[:LINES]:
        ax.plot(x[shown], chain[shown], color=style.COOL, linewidth=0.7, alpha=0.45)
    ax.plot(x[shown], values.mean(0)[shown], color=style.COOL, label="mean over chains")
    if np.nanmin(values) > 0 and np.nanmax(values) > 30 * np.nanmin(values):
        ax.set_yscale("log")
    ax.set(xlabel=what, ylabel="loss per model")
    if s.size == 0 or (s == s[0]).all():
        return
    right = ax.twinx()
    right.plot(x[shown], s[shown], color=style.WARM, linewidth=1.2, drawstyle="steps-post")
    right.set_ylabel("tilt $s$", color=style.WARM)
    right.tick_params(axis="y", colors=style.WARM)
    right.spines["right"].set_visible(True)
    right.grid(visible=False)
    if s.min() > 0 and s.max() > 30 * s.min():
        right.set_yscale("log")


def acceptance(run: Any, ax: Axes | None = None) -> Axes:
    """Share of proposals accepted, by move: a dot a chain, a bar for their mean; below each move its mean step size."""
    by_chain = {name: np.ravel(values) for name, values in _by_move("acceptance", run, "acceptance_by_chain").items()}
    steps = _by_move("acceptance", run, "steps")
    ax = style.axes_for(ax)
    for place, values in enumerate(by_chain.values()):
        ax.bar(place, values.mean(), width=0.5, color=style.COOL, alpha=0.35)
        some = values[spread(len(values), DOTS)]
        ax.plot(place + _offsets(some), some, "o", color=style.COOL, markersize=4)
    labels = [
        f"{style.label(name)}\nstep {np.mean(steps[name]):.3g}" if name in steps else style.label(name) for name in by_chain
    ]
    ax.set_xticks(range(len(by_chain)), labels)
    ax.set(ylabel="accepted", ylim=(0, 1), xlim=(-0.6, len(by_chain) - 0.4))
    ax.grid(visible=False, axis="x")
    return ax


def step_sizes(run: Any, ax: Axes | None = None) -> Axes:
    """Step size of each move, as given or as tuned: a dot a chain, on a logarithmic axis."""
    steps = {name: np.ravel(values) for name, values in _by_move("step_sizes", run, "steps").items()}
    ax = style.axes_for(ax)
    for place, values in enumerate(steps.values()):
        some = values[spread(len(values), DOTS)]
        ax.plot(place + _offsets(some), some, "o", color=style.COOL, markersize=4, clip_on=False)
    every = np.log10(np.concatenate(list(steps.values())))
    ax.set_yscale("log")
    ax.set_ylim(10 ** np.floor(every.min() - 1e-9), 10 ** np.ceil(every.max()))  # whole decades, at least one
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.set_xticks(range(len(steps)), [style.label(name) for name in steps])
    ax.set(ylabel="step size", xlim=(-0.6, len(steps) - 0.4))
    ax.grid(visible=False, axis="x")
    return ax


def by_position(run: Any, ax: Axes | None = None) -> Axes:
    """Loss of each model of the path, first to last: the mean over draws and chains, and where nine tenths of them lie."""
    losses = losses_of("by_position", run)
    losses = losses.reshape(-1, losses.shape[-1])
    shown = spread(losses.shape[1])
    losses = losses[:, shown]
    low, high = np.quantile(losses, [0.05, 0.95], axis=0)
    position = shown + 1
    ax = style.axes_for(ax)
    ax.fill_between(position, low, high, color=style.COOL, alpha=0.2, linewidth=0, label="5 % to 95 % of the draws")
    ax.plot(position, losses.mean(0, dtype=np.float64), "o-", color=style.COOL, markersize=4, label="mean")
    ax.set(xlabel="position on the path", ylabel="loss of the model")
    ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False)
    return ax


def autocorrelation(run: Any, ax: Axes | None = None, *, lags: int | None = None) -> Axes:
    """How like a draw's total loss is to that of the draws before: a thin line a chain, a thick one for their mean.

    The dashed lines are what independent draws would stay within, 19 times in 20, in one chain. By default as many lags are
    shown as the mean takes to come down to them, three times over.
    """
    totals = losses_of("autocorrelation", run, least=4).sum(-1, dtype=np.float64)
    draws = totals.shape[1]
    each = correlations(totals)
    mean = np.nanmean(each, axis=0) if np.isfinite(each).any() else np.zeros(draws)
    band = 1.96 / np.sqrt(draws)
    if lags is None:
        below = np.flatnonzero(mean < band)
        lags = int(np.clip(3 * (below[0] if below.size else draws), 10, draws - 1)) if draws > 10 else draws - 1
    lags = check.whole("autocorrelation.lags", lags, low=1, high=draws - 1)
    ax = style.axes_for(ax)
    shown = spread(lags + 1)
    for chain in each[:LINES]:
        ax.plot(shown, chain[shown], color=style.COOL, linewidth=0.7, alpha=0.45)
    ax.plot(shown, mean[shown], color=style.COOL)
    for level in (-band, band):
        ax.axhline(level, color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    ax.set(xlabel="draws apart", ylabel="autocorrelation of the loss", ylim=(min(-0.1, 1.3 * -band, mean[shown].min()), 1.02))
    return ax


def curve(run: Any, ax: Axes | None = None) -> Axes:
    """Mean loss per model against `s`, with three standard errors: of a run with a `curve`, or of its `s`, `loss`, `error`.

    Where `s` is the same throughout and sigma was annealed, against sigma, in units of the first one.
    """
    s, mean, error = curve_of(run)
    ax = style.axes_for(ax)
    ax.errorbar(s, mean, 3 * error, fmt="o-", color=style.COOL, markersize=4, capsize=2.5, elinewidth=1.1, linewidth=1.4)
    if s.min() > 0 and s.max() > 10 * s.min():
        ax.set_xscale("log")
    if (mean - 3 * error).min() > 0 and mean.max() > 30 * mean.min():
        ax.set_yscale("log")
    ax.set(xlabel=r"$\sigma$, in units of the first" if _of_sigma(run) else "tilt $s$", ylabel="loss per model")
    return ax


def losses_of(name: str, run: Any, *, least: int = 1) -> Float[np.ndarray, "chains draws tau"]:
    """The losses of a run, rungs of a ladder as chains, or an error that says how to keep them."""
    losses = getattr(run, "losses", run)
    if losses is None:
        raise ValueError(f'plots.{name}.run must hold losses: sample with keep="losses" or keep="paths".')
    array = check.numeric(f"plots.{name}.run", losses, "a run with losses, or an array (chains, draws, tau)")
    if array.ndim < 3 or array.size == 0 or array.shape[-2] < least:
        raise ValueError(
            f"plots.{name}.run must hold losses of shape (chains, draws, tau) with at least {least} "
            f"draw{'s' if least > 1 else ''}; got {array.shape}."
        )
    return array.reshape(-1, *array.shape[-2:])


def spread(count: int, most: int = SHOWN) -> Int[np.ndarray, " n"]:
    """Numbers from 0 to `count - 1`, all of them or `most`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def correlations(x: Float[np.ndarray, "chains n"]) -> Float[np.ndarray, "chains n"]:
    """The autocorrelation of each row at every lag; NaN where a row is constant."""
    n = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2  # padded, so that the end does not meet the beginning
    covariance = np.fft.irfft(power)[..., :n]
    with np.errstate(invalid="ignore"):
        found: Float[np.ndarray, "chains n"] = np.where(
            np.ptp(x, axis=-1, keepdims=True) > 0, covariance / covariance[..., :1], np.nan
        )
    return found


def curve_of(run: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """`s`, mean loss and standard error, in the order of `s`."""
    found = getattr(run, "curve", run)
    try:
        s, mean, error = (np.asarray(getattr(found, name), float).ravel() for name in ("s", "loss", "error"))
    except (AttributeError, TypeError, ValueError):
        raise TypeError(
            f"plots.curve.run must be a run of anneal or exchange, or have s, loss and error; got {check.shown(run)}."
        ) from None
    if not s.size or s.shape != mean.shape or s.shape != error.shape:
        raise ValueError(f"plots.curve.run must have as many losses and errors as s; got {s.size}, {mean.size}, {error.size}.")
    if _of_sigma(run):
        s = np.asarray(found.sigma, float)
    order = np.argsort(s, kind="stable")
    return s[order], mean[order], np.nan_to_num(error[order])


def _of_sigma(run: Any) -> bool:
    """Whether sigma is what changes along a curve."""
    found = getattr(run, "curve", run)
    sigma = np.asarray(getattr(found, "sigma", 1.0), float)
    return bool(np.ptp(sigma) > 0) and bool(np.ptp(np.asarray(found.s, float)) == 0)


def _offsets(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where dots of one move stand side by side."""
    return np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)


def _by_move(name: str, run: Any, field: str) -> dict[str, Any]:
    found = getattr(run, field, None)
    if not isinstance(found, dict) or not found:
        raise TypeError(f"plots.{name}.run must be a run, with {field}; got {check.shown(run)}.")
    return found
