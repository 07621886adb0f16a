"""Plots of where the models are: in the plane of their two principal components, or on a landscape of two parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tiltwalk import check
from tiltwalk.plots import style
from tiltwalk.plots.sampling import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODELS = 1500
"""Models that principal components are computed from, and dots that are drawn: of more, so many, evenly spaced."""

PATHS = 4
"""Of more chains, the last paths of so many are drawn as lines."""

FINENESS = 121


def components(run: Any, ax: Axes | None = None, *, chain: int | None = None) -> Axes:
    """All kept models, seen along the two directions in which they spread most, and the last path of each chain as a line.

    Of all chains, or of one `chain` alone, in the directions of its own spread: chains may lie so far apart that each
    looks like a point. A path runs from blue, its first model, marked by a square, to orange. The axes say what share of the
    spread they show.
    """
    paths = paths_of("components", run)
    if chain is not None:
        paths = paths[[check.whole("plots.components.chain", chain, low=0, high=len(paths) - 1)]]
    flat = paths.reshape(-1, paths.shape[-1])
    models = flat[spread(len(flat), MODELS)].astype(float)
    centre = models.mean(0)
    _, size, directions = np.linalg.svd(models - centre, full_matrices=False)
    share = size**2 / max(float((size**2).sum()), 1e-300)
    two = np.zeros((2, paths.shape[-1]))
    two[: min(2, len(directions))] = directions[:2]
    # a direction and its opposite are as good: the larger entry is positive, so that the same run gives the same picture
    two *= np.where(np.take_along_axis(two, np.abs(two).argmax(1)[:, None], 1) < 0, -1.0, 1.0)
    ax = style.axes_for(ax, 5.2, 4.4)
    around = (models - centre) @ two.T
    ax.scatter(around[:, 0], around[:, 1], s=5, color=style.FAINT, linewidths=0, alpha=0.5, rasterized=True)
    for path in paths[spread(len(paths), PATHS), -1]:
        trace(ax, (path.astype(float) - centre) @ two.T)
    shown = [f"{100 * value:.0f} % of the spread" for value in (*share[:2], 0.0, 0.0)[:2]]
    ax.set(xlabel=f"component 1 ({shown[0]})", ylabel=f"component 2 ({shown[1]})")
    return ax


def landscape(run: Any, loss: Any, ax: Axes | None = None) -> Axes:
    """The last path of each chain over a loss of two parameters, in shades of the logarithm of the loss above its least."""
    paths = paths_of("landscape", run)
    if paths.shape[-1] != 2 or getattr(loss, "dim", 2) != 2:
        raise ValueError(f"plots.landscape.run must hold models of two parameters; got {paths.shape[-1]}.")
    if not callable(loss):
        raise TypeError(f"plots.landscape.loss must be a loss, (m, 2) -> (m,); got {check.shown(loss)}.")
    last = paths[spread(len(paths), PATHS), -1].astype(float)
    low, high = last.min((0, 1)), last.max((0, 1))
    pad = 0.25 * np.maximum(high - low, 0.05 * max(1.0, float(np.abs(last).max())))
    x, y = (np.linspace(a, b, FINENESS) for a, b in zip(low - pad, high + pad, strict=True))
    grid = np.stack(np.meshgrid(x, y), -1)
    height = np.asarray(loss(grid.reshape(-1, 2).astype(np.float32)), float).reshape(FINENESS, FINENESS)
    finite = height[np.isfinite(height)]
    if not finite.size:
        raise ValueError("plots.landscape.loss must be finite somewhere around the path; it is nowhere.")
    scaled = np.log1p(np.where(np.isfinite(height), height, finite.max()) - finite.min())
    ax = style.axes_for(ax, 5.2, 4.6)
    # shades as an image, lines as lines: as shapes, the shades would take megabytes of SVG
    ax.contourf(x, y, scaled, levels=18, cmap="Greys", vmin=-0.1 * scaled.max(), vmax=1.7 * scaled.max()).set_rasterized(True)
    ax.contour(x, y, scaled, levels=8, colors="white", linewidths=0.7)
    for path in last:
        trace(ax, path)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xlabel=r"$\theta_1$", ylabel=r"$\theta_2$")
    ax.grid(visible=False)
    return ax


def trace(ax: Axes, path: Float[np.ndarray, "tau 2"]) -> None:
    """A path in the plane: a line, a dot a model with colour along the path, a square for the first."""
    path = path[spread(len(path), MODELS // PATHS)]
    colours = style.along(len(path))
    ax.plot(path[:, 0], path[:, 1], color=style.INK, linewidth=0.9, zorder=2)
    ax.scatter(path[:, 0], path[:, 1], c=colours, s=24, edgecolors="white", linewidths=0.5, zorder=3)
    ax.scatter(path[:1, 0], path[:1, 1], c=colours[:1], s=42, marker="s", edgecolors="white", linewidths=0.7, zorder=4)


def paths_of(name: str, run: Any) -> Float[np.ndarray, "chains draws tau d"]:
    """The paths of a run, rungs of a ladder as chains, or an error that says how to keep them."""
    paths = getattr(run, "paths", run)
    if paths is None:
        raise ValueError(f'plots.{name}.run must hold paths: sample with keep="paths".')
    array = paths if isinstance(paths, np.ndarray) and paths.dtype.kind == "f" else check.numeric(
        f"plots.{name}.run", paths, "a run with paths, or an array (chains, draws, tau, d)"
    )  # fmt: skip
    if array.ndim < 4 or array.size == 0:
        raise ValueError(f"plots.{name}.run must hold paths of shape (chains, draws, tau, d); got {array.shape}.")
    return array.reshape(-1, *array.shape[-3:])
