"""What the paper's figures share on top of the style of all plots: captions, lettered panels, an axis of `s`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tiltwalk.plots.style import INK, WARM, colours, need, pin, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["INK", "WARM", "canvas", "colours", "need", "pin", "save", "tilt_axis", "title"]

CAPTION_SIZE = 9.0


def canvas(width: float, height: float, caption: str = "") -> tuple[Figure, Figure | SubFigure]:
    """A figure of `width` by `height` inches for panels, and where they go; a caption goes below, in extra height."""
    from matplotlib.figure import Figure

    if not caption:
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure
    # letters of this font are about half as wide as they are high
    characters = int((width - 0.4) * 72 / (0.515 * CAPTION_SIZE))
    lines = [line for part in caption.split("\n") for line in textwrap.wrap(part, characters)]
    below = len(lines) * 1.45 * CAPTION_SIZE / 72 + 0.2
    figure = Figure(figsize=(width, height + below), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[height, below])
    top, bottom = parts
    bottom.text(0.2 / width, 0.95, "\n".join(lines), fontsize=CAPTION_SIZE, va="top", linespacing=1.4, color=INK)
    return figure, top


def title(axes: Axes, letter: str, text: str) -> None:
    """A panel's letter and what it shows, at its left."""
    axes.set_title(rf"$\bf{{({letter})}}$ {text}", loc="left")


def tilt_axis(axes: Axes, tilts: Sequence[float]) -> None:
    """A logarithmic axis of `s`, from the least to the largest value."""
    axes.set_xscale("log")
    axes.set_xlim(min(tilts) / 1.3, max(tilts) * 1.3)
    axes.set_xlabel("tilt $s$")
