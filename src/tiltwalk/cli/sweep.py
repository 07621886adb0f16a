"""`tiltwalk sweep`: runs over a grid of settings, each in its own folder."""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any

import click

from tiltwalk.cli import live
from tiltwalk.cli.train import spoken


@click.command("sweep")
@click.argument("source", metavar="[DATA]", required=False)
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file with settings.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="One setting of all runs. Repeat for more.")
@click.option(
    "--grid", "grid", multiple=True, metavar="KEY=VALUE,VALUE", required=True, help="A setting's values. Repeat for more."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/sweep"), show_default=True, help="The folder of all runs."
)
@click.option("--quiet", is_flag=True, help="Print the results alone.")
def command(
    source: str | None, file: Path | None, changes: tuple[str, ...], grid: tuple[str, ...], out: Path, quiet: bool
) -> None:
    """Make a run for every combination of some settings' values.

    Each run has its own folder in OUT, named by its values. The same command again goes on with what was stopped and leaves
    what is finished, so more values may be added. Writes OUT/sweep.json with the settings and the figures of all.

    \b
    tiltwalk sweep wine.csv --set data.target=quality --grid walk.sigma=0.05,0.1 --grid seeds.run=0,1
    """
    from tiltwalk.runs import config as settings
    from tiltwalk.runs import session

    if source is None and file is None:
        raise click.UsageError("Missing argument 'DATA', or --config FILE.", click.get_current_context())
    common = [*([f"data.source={json.dumps(source)}"] if source is not None else []), *changes]
    points = list(itertools.product(*(_values(text) for text in grid)))
    chosen = [settings.load(file, [*common, *point]) for point in points]  # all are looked at before the first is run
    names = ["-".join(_safe(change) for change in point) for point in points]
    if len(set(names)) < len(names):
        raise ValueError("--grid must give different values; got some of them twice.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file.")
    session.compiled_once()
    table = []
    for name, point, one in zip(names, points, chosen, strict=True):
        folder = out / name
        click.echo(f"{name}:")
        with live.shown(quiet=quiet, as_json=False, folder=folder, tensorboard=one.output.tensorboard) as watcher:
            result = live.ended(functools.partial(_made, one, folder, watcher))
        for line in spoken(result["test"]):
            click.echo(f"  {line}")
        table.append({"run": name, "settings": dict(change.split("=", 1) for change in point), "test": result["test"]})
    from tiltwalk.runs import files

    files.write_whole(out / "sweep.json", (json.dumps(table, indent=1) + "\n").encode())
    click.echo(f"Wrote {out / 'sweep.json'}: {len(table)} runs.")


def _made(config: Any, folder: Path, watcher: live.Watcher) -> dict[str, Any]:
    """The result of a run: made, gone on with, or looked up."""
    from tiltwalk import runs
    from tiltwalk.runs import config as settings
    from tiltwalk.runs import prepare, session

    if not (folder / "run.json").exists():
        return session.begin(config, folder, watcher, settings.versions())
    there = runs.open(folder)
    if there.config != prepare.resolved(config, there.data):
        raise ValueError(
            f"{folder} must hold a run with these settings; it was made with others. Name another folder with --out."
        )
    if there.status == "finished" and there.result is not None:
        return there.result
    return session.resume(folder, watcher=watcher)


def _values(text: str) -> list[str]:
    key, equals, values = text.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not equals or not key.strip() or not all(parts):
        raise ValueError(f"--grid must be KEY=VALUE,VALUE, such as walk.sigma=0.05,0.1; got {text!r}.")
    return [f"{key.strip()}={part}" for part in parts]


def _safe(change: str) -> str:
    key, _, value = change.partition("=")
    return re.sub(r"[^\w.+=-]", "_", f"{key.split('.')[-1]}={value}")
