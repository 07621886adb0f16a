"""`tiltwalk resume RUN`: goes on with a run as if it had never stopped."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tiltwalk.cli import live
from tiltwalk.cli.train import say


@click.command("resume")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(min=1), help="Steps of sampling in all, those already made included.")
@click.option("--more", type=click.IntRange(min=1), help="Steps of sampling beyond what was asked for so far.")
@click.option("--quiet", is_flag=True, help="Print the result alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line an event.")
def command(folder: Path, steps: int | None, more: int | None, quiet: bool, as_json: bool) -> None:
    """Go on with a run that was stopped or killed, or beyond its end.

    The draws are the same, bit for bit, as if it had never stopped. --steps N is N steps of sampling in all; --more N is N
    on top of what was asked for so far.
    """
    if steps is not None and more is not None:
        raise click.UsageError("--steps and --more exclude each other: N in all, or N more.", click.get_current_context())
    from tiltwalk.runs import session

    began = time.perf_counter()
    session.compiled_once()
    tensorboard = (folder / "tensorboard").is_dir()
    with live.shown(quiet=quiet, as_json=as_json, folder=folder, tensorboard=tensorboard) as watcher:
        result = live.ended(lambda: session.resume(folder, steps, more, watcher))
    say(result, folder, time.perf_counter() - began, as_json, quiet)
