"""HTML from Python: elements whose text is escaped unless it is itself markup, so that nothing from a run can be markup.

    element("p", "1 < 2 ", element("em", "always"), class_="note")      <p class="note">1 &lt; 2 <em>always</em></p>

A run folder may come from a stranger. Text passes through `shown`, which leaves out what has no place on a page: control
characters, and marks that turn the direction of text around.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

EMPTY = ("meta", "img", "br")
"""Elements without an end."""


class Html(str):
    """Markup; every other string is text."""

    __slots__ = ()


def element(name: str, /, *content: Any, **attributes: Any) -> Html:
    """An element. `class_` and `for_` lose their underscore, others become a hyphen; None leaves an attribute out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items() if value is not None
    )
    if name in EMPTY:
        return Html(f"<{name}{words}>")
    return Html(f"<{name}{words}>{joined(content)}</{name}>")


def joined(parts: Iterable[Any]) -> Html:
    """Markup and text, one after the other; None is nothing."""
    return Html("".join(text(part) for part in parts if part is not None))


def text(value: Any) -> Html:
    """A value as markup: itself, where it is markup, and escaped otherwise."""
    return value if isinstance(value, Html) else Html(html.escape(shown(str(value))))


def shown(value: str) -> str:
    """The letters of a text that can be seen, and its line ends."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in value)


def short(value: Any, most: int = 40) -> str:
    """Somebody's name for something, cut where it is too long for a page."""
    line = " ".join(str(value).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def paragraph(*content: Any, class_: str | None = None) -> Html:
    return element("p", *content, class_=class_)


def items(lines: Sequence[Any]) -> Html:
    """A list with bullets, or nothing."""
    return element("ul", *(element("li", line) for line in lines)) if lines else Html("")


def table(caption: str, head: Sequence[Any], rows: Iterable[Sequence[Any]], *, class_: str | None = None) -> Html:
    """A table whose first column names its rows; where it is wider than the page, it scrolls by itself, also by keyboard."""
    top = element("tr", *(element("th", cell, scope="col") for cell in head)) if head else None
    body = [
        element("tr", element("th", row[0], scope="row"), *(cell if is_cell(cell) else element("td", cell) for cell in row[1:]))
        for row in rows
    ]
    made = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", top) if top is not None else None,
        element("tbody", *body),
        class_=class_,
    )
    return element("div", made, class_="scroll", role="region", tabindex="0", aria_label=caption)


def is_cell(value: Any) -> bool:
    """Whether markup is a cell of a table already."""
    return isinstance(value, Html) and value.startswith("<td")
