"""`tiltwalk report RUN`: one HTML file on a run."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="An .html file; by default report.html in the run folder.")
def command(folder: Path, out: Path | None) -> None:
    """Write a report on a run, finished or not: one HTML file to read in a browser.

    What was run and how to repeat it, whether it converged, how it went, how good its predictions are and where they fail,
    where the models are. The file holds everything that it shows, and no scripts.
    """
    from tiltwalk import report

    place = report.write(folder, out)
    size = place.stat().st_size
    click.echo(f"Wrote {place}: {size / 1e6:.1f} MB, to open in a browser.")
