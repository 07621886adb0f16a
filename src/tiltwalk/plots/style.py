"""How what the package draws looks: one style, colours that colour-blind readers can tell apart, the same bytes each time.

matplotlib is imported when something is drawn. Figures are made without pyplot unless a user asks for a new one, so that no
backend is chosen and no state is left behind.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
DOTS_PER_INCH = 150
PLACES = 6
"""Decimals of where a panel is, in widths of the figure."""

INK = "#222222"
WARM = "#d95f02"
COOL = "#2878b5"
FAINT = "#8a8f98"

TONES = (COOL, WARM, "#00906a", "#a765b5", "#96801a", "#b5504f")
"""Lines that belong to different things. Each stands out from white paper and from a dark screen by 3 to 1: a test says so."""

ALONG = ("#2878b5", "#7a78a8", "#b0687a", "#d95f02")
"""From the first model of a path to its last, blue to orange, as readable on white as on black."""


def need() -> None:
    """Raises an ImportError that says what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError('Figures need matplotlib: pip install "tiltwalk[plots]".') from None


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """The shared style on top of the defaults, whatever a user's own settings are, but for the backend, not ours to choose."""
    import matplotlib

    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context(defaults | STYLE):
        yield


def axes_for(ax: Axes | None, width: float = 5.6, height: float = 3.8) -> Axes:
    """The axes to draw on: those given, or the axes of a new figure of pyplot, which notebooks show by themselves."""
    need()
    if ax is not None:
        return ax
    import matplotlib
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(STYLE):
        made: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return made


def save(draw: Callable[[], Figure], png: Path, svg: Path | None = None) -> None:
    """Draws in the shared style and writes the files, without dates, so that the same numbers give the same bytes."""
    with styled():
        figure = draw()
        pin(figure)
        figure.savefig(png, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        if svg is not None:
            svg.write_text(as_svg(figure), encoding="utf-8")


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


def as_svg(figure: Figure) -> str:
    """The figure as the text of an SVG."""
    text = io.StringIO()
    figure.savefig(text, format="svg", dpi=100, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def label(text: Any, most: int = 24) -> str:
    """Somebody's name for something, as it is and not as mathematics, and no longer than `most` letters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    shown = shown if len(shown) <= most else shown[: most - 1] + "…"
    return shown.replace("$", r"\$")


def colours(n: int) -> list[Any]:
    """`n` colours from dark to bright, short of the yellow that white paper swallows."""
    from matplotlib import colormaps

    return [colormaps["viridis"](x) for x in np.linspace(0.0, 0.88, n)]


def shade() -> Any:
    """Shades from nothing to blue, on any ground: ink can be read on all of them."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    return LinearSegmentedColormap.from_list("shade", [(*to_rgb(COOL), 0.0), (*to_rgb(COOL), 0.7)])


def along(n: int) -> list[Any]:
    """`n` colours from a path's first model to its last."""
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("along", ALONG)
    return [ramp(x) for x in np.linspace(0.0, 1.0, max(n, 2))[:n]]
