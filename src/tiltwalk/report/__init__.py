"""The report on a run: one HTML file that says what was run, how it went, whether it converged, and how good it is.

    tiltwalk.report.write("runs/wine")                        into the run folder, report.html
    tiltwalk.report.write("runs/wine", "wine.html")

The file stands alone: no scripts, nothing from the network, figures as SVG that can be read by day and in the dark. All that
a run folder says is text to it, whatever it says. Needs the extras `runs` and `plots`; with `arviz`, it has a verdict.
"""

from __future__ import annotations

from pathlib import Path

from tiltwalk.plots import style

__all__ = ["write"]

FILE = "report.html"
MOST = 5_000_000
"""Bytes that a report may have."""


def write(run: str | Path, out: str | Path | None = None) -> Path:
    """Writes the report on a run folder, finished or not, and returns where it is: `report.html` in the folder, or `out`."""
    from tiltwalk import runs
    from tiltwalk.report import page
    from tiltwalk.report.subject import Subject
    from tiltwalk.runs import files

    style.need()
    path = Path(run)
    folder = runs.open(path)
    place = path / FILE if out is None else Path(out)
    if out is not None and (place.is_dir() or place.suffix not in (".html", ".htm")):
        raise ValueError(f"report.out must be a file that ends in .html; got {place}.")
    if not place.parent.is_dir():
        raise ValueError(f"report.out must be in a folder that is there; {place.parent} is not.")
    text = page.html(Subject(folder, str(run))).encode()
    if len(text) > MOST:
        raise ValueError(f"report.run must be one whose report has at most {MOST:,} bytes; it came to {len(text):,}.")
    try:
        files.write_whole(place, text)
    except OSError as error:
        elsewhere = "" if out is not None else "; name another place with --out"
        raise ValueError(f"{place} could not be written ({error.strerror}){elsewhere}.") from None
    return place
