"""How the figures look: one style, colours that colour-blind readers can tell apart, files that are the same each time.

matplotlib is imported when something is drawn. Figures are made without pyplot, so that no backend is chosen and no
state is left behind.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.5,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    # letters of SVG as outlines: the same everywhere, whatever fonts a reader has
    "svg.fonttype": "path",
    "svg.hashsalt": "tiltwalk",
}
CAPTION_SIZE = 9.0
DOTS_PER_INCH = 150
PLACES = 6
"""Decimals of where a panel is, in widths of the figure."""

INK = "#222222"
WARM = "#d95f02"


def need() -> None:
    """Raises an ImportError that says what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError('Figures need matplotlib: pip install "tiltwalk[plots]".') from None


def save(draw: Callable[[], Figure], png: Path, svg: Path | None = None) -> None:
    """Draws in the shared style and writes the files, without dates, so that the same numbers give the same bytes."""
    import matplotlib

    # the defaults, whatever a user's own settings are, but for the backend, which is not ours to choose
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context(defaults | STYLE):
        figure = draw()
        pin(figure)
        figure.savefig(png, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        if svg is not None:
            figure.savefig(svg, format="svg", dpi=100, metadata={"Date": None, "Creator": None})


def pin(figure: Figure) -> None:
    """Places the panels once, for all files.

    The solver that places them takes its equations in the order of their addresses, so that the last digit of its answer may
    differ from figure to figure in one process: what it finds is rounded to far below what an eye can see.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    parts = list(figure.subfigs)
    for part in parts:
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(PLACES))
        parts += part.subfigs
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position(original=True).get_points().round(PLACES)))


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


def colours(n: int) -> list[Any]:
    """`n` colours from dark to bright, short of the yellow that white paper swallows."""
    from matplotlib import colormaps

    return [colormaps["viridis"](x) for x in np.linspace(0.0, 0.88, n)]


def title(axes: Axes, letter: str, text: str) -> None:
    """A panel's letter and what it shows, at its left."""
    axes.set_title(rf"$\bf{{({letter})}}$ {text}", loc="left")


def tilt_axis(axes: Axes, tilts: Sequence[float]) -> None:
    """A logarithmic axis of `s`, from the least to the largest value."""
    axes.set_xscale("log")
    axes.set_xlim(min(tilts) / 1.3, max(tilts) * 1.3)
    axes.set_xlabel("tilt $s$")
