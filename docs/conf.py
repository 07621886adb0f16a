"""Settings of the documentation: Markdown pages, and the package's own docstrings.

Docstrings are plain text with `code` in single backticks, indented formulas and `- ` lists. Sphinx reads
reStructuredText, in which `|`, `*` and a trailing `_` have meanings that mathematics does not intend: `plain` turns the
one into the other.
"""

import re
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

from tiltwalk._version import __version__

project = "Tiltwalk"
author = "The Tiltwalk developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Tiltwalk"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["wide.css"]
exclude_patterns = ["_build"]
default_role = "code"

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def plain(lines: list[str]) -> list[str]:
    """The lines of a plain docstring as reStructuredText."""
    made: list[str] = []
    formula = in_list = False
    for i, line in enumerate(lines):
        opens = line.startswith(" ") and (i == 0 or not lines[i - 1].strip())
        in_list = line.lstrip().startswith("- ") or (in_list and (not line.strip() or line.startswith(" ")))
        if opens and not formula and not in_list:
            made += ["::", ""]
            formula = True
        elif line.strip() and not line.startswith(" "):
            formula = False
        made.append(line if formula or line.startswith(">>>") else escaped(line))
    return made


def escaped(line: str) -> str:
    """The line with `|`, `*` and trailing `_` made literal outside backticks."""
    parts = re.split(r"(``?[^`]+``?)", line)
    return "".join(part if i % 2 else re.sub(r"([|*])|_(?!\w)", r"\\\g<0>", part) for i, part in enumerate(parts))


def process_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = plain(lines)


def process_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    return short(signature), short(returns)


def short(annotations: str | None) -> str | None:
    """Annotations with the names that people write."""
    if annotations is None:
        return None
    annotations = annotations.replace("jaxlib._jax.Array", "Array").replace("jax.Array", "Array")
    return re.sub(r"Key\[Array, ''\]( \| UInt32\[Array, '\d'\])*", "PRNGKeyArray", annotations)


def inline_math(self: Any, node: Any) -> None:
    """A formula as MathML, which browsers draw themselves: the pages need no network and run no script for it."""
    self.body.append(convert(node.astext()))
    raise SkipNode


def block_math(self: Any, node: Any) -> None:
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
