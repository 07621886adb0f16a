"""Figures for the page: SVG that takes the page's own colours, in daylight and in the dark, and says in words what it shows.

Plots are drawn by `tiltwalk.plots` on a transparent ground. Ink, blue, orange and the white of edges become the page's
own, which change with the light; the other colours stand out from light and from dark alike. Letters are outlines, so that
no font is asked for.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from tiltwalk.plots import style
from tiltwalk.report.markup import Html, element

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SVG = "http://www.w3.org/2000/svg"
LINK = "{http://www.w3.org/1999/xlink}href"
WIDTH, HEIGHT = 4.5, 3.2
"""In inches: small, so that letters can be read on a phone, where a figure is as wide as the screen."""

INKED = dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), style.INK
)
COLOURS = {style.INK: "currentColor", "#ffffff": "var(--page)", style.COOL: "var(--cool)", style.WARM: "var(--warm)"}
DOTS_PER_INCH = 140
MOST_NUMBERS = 6
MOST_PIXELS = 96
"""Of an image's height and width: of a larger one, every second or third pixel is left out, and so on."""


def figure(
    name: str, draw: Callable[[Axes], Any], says: str, caption: Any, *, height: float = HEIGHT, class_: str | None = None
) -> Html:
    """A plot in its figure: `says` is read out in place of it, `caption` stands below it."""
    return element(
        "figure", drawn(name, draw, says, height), element("figcaption", caption), class_=f"plot {class_}" if class_ else "plot"
    )


def drawn(name: str, draw: Callable[[Axes], Any], says: str, height: float = HEIGHT) -> Html:
    """What `draw` puts on axes, as an element of the page."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with style.styled(), rc_context({**INKED, "savefig.transparent": True, "legend.labelcolor": style.INK}):
        made = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(made.add_subplot())
        _fewer_numbers(made)
        style.pin(made)
        text = io.StringIO()
        made.savefig(text, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None, "Creator": None})
    return inlined(text.getvalue(), name, says)


def _fewer_numbers(made: Any) -> None:
    """So that numbers along the axes of a small figure do not run into each other."""
    from matplotlib.ticker import MaxNLocator

    for ax in made.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_locator(), MaxNLocator):
                axis.get_major_locator().set_params(nbins=MOST_NUMBERS)


def inlined(svg: str, name: str, says: str) -> Html:
    """An SVG of ours as a part of a page: names that no other figure has, the page's colours, and what it shows in words.

    Comments are left out: matplotlib writes labels into them, which may be anybody's words.
    """
    root = ElementTree.fromstring(svg)
    parents = {child: parent for parent in root.iter() for child in parent}
    for node in [node for node in root.iter() if node.tag == f"{{{SVG}}}metadata"]:
        parents[node].remove(node)
    named = re.compile(r"#([\w.-]+)")
    used = set(
        named.findall(" ".join(v for node in root.iter() for k, v in node.attrib.items() if k != "style" or "url(" in v))
    )
    for node in root.iter():
        own = node.attrib.pop("id", None)
        if own in used:
            node.set("id", f"{name}-{own}")
        for key, value in list(node.attrib.items()):
            if key == LINK:
                del node.attrib[key]
                node.set("href", f"#{name}-{value[1:]}" if value.startswith("#") else value)
            elif "url(#" in value:
                node.set(key, re.sub(r"url\(#", f"url(#{name}-", value))
            if key in ("style", "fill", "stroke"):
                node.set(key, recoloured(node.get(key, "")))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", says)
    root.set("id", name)
    ElementTree.register_namespace("", SVG)
    return Html(ElementTree.tostring(root, encoding="unicode"))


def recoloured(text: str) -> str:
    """The page's own ink, ground and colours in the place of ours: it has a set for the day and one for the dark."""
    for ours, pages in COLOURS.items():
        text = text.replace(ours, pages)
    return text


def picture(image: np.ndarray, says: str) -> Html:
    """An image with values in [0, 1], `(height, width, 1 or 3)`, pixel by pixel."""
    import base64

    from matplotlib.image import imsave

    stride = max(1, -(-max(image.shape[:2]) // MOST_PIXELS))
    image = np.asarray(image[::stride, ::stride], float)
    pixels = np.repeat(image, 3, 2) if image.shape[2] == 1 else image
    content = io.BytesIO()
    imsave(content, np.clip(pixels, 0, 1), format="png", metadata={"Software": ""})
    source = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    return element("img", src=source, alt=says, width=str(image.shape[1]), height=str(image.shape[0]))
