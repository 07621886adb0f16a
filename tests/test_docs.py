"""The documentation is true: its code runs, its links lead somewhere, and every public name has a page."""

import doctest
import importlib
import re
import runpy
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

import tiltwalk

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
DIRECTIVE = re.compile(r"^\.\. auto\w+:: (tiltwalk[\w.]*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")

EXAMPLES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def code(page: Path) -> str:
    """The Python of a page as one program, each line where it stands on the page."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in PYTHON.finditer(text):
        first = text.count("\n", 0, block.start(1))
        inside = block[1].split("\n")
        lines[first : first + len(inside)] = inside
    return "\n".join(lines)


def public(package: ModuleType) -> set[str]:
    """The dotted names that users are promised: those in `__all__`, but for the version and the like."""
    names = {name for name in package.__all__ if not name.startswith("_")}
    return {f"{package.__name__}.{name}" for name in names}


def documented(pages: Iterable[Path]) -> set[str]:
    """The dotted names that pages describe; a module stands for all that its own `__all__` lists."""
    return {name for page in pages for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", [p for p in PAGES if code(p).strip()], ids=lambda p: str(p.relative_to(ROOT)))
def test_python_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in re.findall(r"^(?:import|from) (flax|equinox|torch)\b", code(page), re.MULTILINE):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    exec(compile(code(page), str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not missing


def test_every_public_name_has_a_page() -> None:
    assert public(tiltwalk) - documented(DOCS.glob("api/*.md")) == set()


def test_every_page_is_about_a_public_name() -> None:
    assert documented(DOCS.glob("api/*.md")) - public(tiltwalk) == set()


def test_a_public_name_without_a_page_is_found() -> None:
    package = ModuleType("tiltwalk")
    package.__all__ = [*tiltwalk.__all__, "Undocumented"]  # type: ignore[attr-defined]
    assert public(package) - documented(DOCS.glob("api/*.md")) == {"tiltwalk.Undocumented"}


def test_every_correction_to_the_paper_has_the_test_that_it_names() -> None:
    rows = [line for line in (DOCS / "corrections.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1]) for row in rows]
    assert len(rows) >= 8 and all(named)
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    assert [name for names in named for name in names if f"def {name}(" not in tests] == []


def test_docstrings_become_what_sphinx_reads() -> None:
    plain = runpy.run_path(str(DOCS / "conf.py"))["plain"]
    assert plain(["Length |x| of x_ by 2 * y, not `a | b`."]) == [r"Length \|x\| of x\_ by 2 \* y, not `a | b`."]
    assert plain(["Law:", "", "    P(x) ∝ |x|", "", "so."]) == ["Law:", "", "::", "", "    P(x) ∝ |x|", "", "so."]
    assert plain(["- one", "  two", "", "  three"]) == ["- one", "  two", "", "  three"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_in_docstrings_print_what_they_say(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
