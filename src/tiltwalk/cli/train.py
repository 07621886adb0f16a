"""`tiltwalk train DATA`: a run in a folder of its own, from settings on the line or in a file."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import click

from tiltwalk.cli import live

RUNS = Path("runs")
LATEST = "latest"

SHORT = {
    "source": "data.source", "target": "data.target", "kind": "network.kind", "hidden": "network.hidden",
    "seconds": "budget.seconds", "evaluations": "budget.evaluations", "chains": "chains.count", "length": "walk.length",
    "draws": "output.paths", "s": "schedule.s", "sigma": "walk.sigma", "seed": "seeds.run", "steps": "budget.steps",
}  # fmt: skip
"""Options that are short for settings."""


@click.command("train")
@click.argument("source", metavar="[DATA]", required=False)
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file with settings.")
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, such as walk.sigma=0.05. Repeat for more."
)
@click.option("--target", help="CSV, Parquet: the column to predict. NPZ: the array, such as y.")
@click.option("--network", "kind", type=click.Choice(("lenet", "mlp", "linear")), help="By default lenet for images, else mlp.")
@click.option("--hidden", help="Widths of an mlp's hidden layers, between commas; by default 32.")
@click.option("--seconds", type=click.FloatRange(min=5), help="Time to train for, by default 150.")
@click.option("--evaluations", type=click.IntRange(min=100), help="A budget that does not depend on the machine, instead.")
@click.option("--steps", type=click.IntRange(min=1), help="Steps of sampling, in place of what the budget leaves.")
@click.option("--chains", type=click.IntRange(min=1), help="Independent paths, by default 4.")
@click.option("--length", type=click.IntRange(min=1), help="Models in a path, tau, by default 4.")
@click.option("--draws", type=click.IntRange(min=1), help="Paths kept of each chain, by default 8.")
@click.option("--s", type=float, help="Tilt of a single model; by default 10 times the number of samples.")
@click.option("--sigma", type=float, help="Step of the walk, in initialisation scales; by default found in the warm-up.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 2), help="Of all random numbers, by default 0.")
@click.option("--out", type=click.Path(path_type=Path), help="The folder of the run, by default runs/ and its name and time.")
@click.option("--tensorboard", is_flag=True, help="Write events for TensorBoard into the folder as well.")
@click.option("--quiet", is_flag=True, help="Print the result alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line an event.")
@click.option("--example", is_flag=True, help="Print a file of settings with comments, and do no more.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of that file, and do no more.")
def command(
    file: Path | None, changes: tuple[str, ...], out: Path | None, tensorboard: bool, quiet: bool, as_json: bool,
    example: bool, schema: bool, **short: Any,
) -> None:  # fmt: skip
    """Train an ensemble without gradients, and test it.

    DATA is mnist2048, mnist, fashion_mnist or digits, or a CSV, Parquet, NPZ or IDX file, a fifth of which is kept for the
    test. Settings come from the file, then from options, then from --set.

    A run saves itself. Ctrl-C ends it after a save, and whatever ends it: tiltwalk resume RUN goes on as if it had not.
    """
    from tiltwalk.runs import config as settings

    if example:
        click.echo(
            settings.toml(settings.Config(), comments=True, head=["Settings of a run: tiltwalk train --config THIS"]), nl=False
        )
        return
    if schema:
        click.echo(json.dumps(settings.json_schema(), indent=1))
        return
    if short["source"] is None and file is None:
        raise click.UsageError("Missing argument 'DATA', or --config FILE.", click.get_current_context())
    hidden = short.pop("hidden")
    words = [f"{SHORT[name]}={_toml(value)}" for name, value in short.items() if value is not None]
    words += [f"network.hidden={_widths(hidden)}"] if hidden is not None else []
    words += ["output.tensorboard=true"] if tensorboard else []
    chosen = settings.load(file, [*words, *changes])
    began = time.perf_counter()
    from tiltwalk.runs import session

    session.compiled_once()
    line = shlex.join(["tiltwalk", *click.get_current_context().obj])
    folder = out or _named(chosen.data.source)
    with live.shown(quiet=quiet, as_json=as_json, folder=folder, tensorboard=chosen.output.tensorboard) as watcher:
        result = live.ended(
            lambda: session.begin(chosen, folder, watcher, settings.versions(), command=line), lambda: _latest(folder, out)
        )
    say(result, folder, time.perf_counter() - began, as_json, quiet)


def _toml(value: Any) -> str:
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _widths(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} must be whole numbers between commas, such as 64,32",
            click.get_current_context(),
            param_hint="'--hidden'",
        ) from None


def say(result: dict[str, Any], folder: Path, seconds: float, as_json: bool, quiet: bool) -> None:
    """The end of a training, of `train` and of `resume`."""
    if as_json:
        click.echo(json.dumps({"event": "finished", "folder": str(folder)} | result))
        return
    for line in spoken(result["test"]):
        click.echo(line)
    click.echo(f"Wrote {folder / 'ensemble.safetensors'} and {folder / 'result.json'} in {seconds:.0f} s.")
    if not quiet:
        click.echo(f"To see how it went: tiltwalk report {shlex.quote(str(folder))}")


def spoken(found: dict[str, float | None]) -> list[str]:
    """The figures on the test data, in words; what is None is not a finite number."""

    def said(name: str, form: str) -> str:
        value = found[name]
        return "not a number" if value is None else format(value, form)

    if "rmse" in found:
        one, all_of_them = said("rmse_of_one_member", ".4g"), said("rmse", ".4g")
        return [f"test error (root mean square): one member {one}, ensemble {all_of_them}"]
    one, all_of_them = said("accuracy_of_one_member", ".2%"), said("accuracy", ".2%")
    return [
        f"test accuracy: one member {one}, ensemble of {said('members', 'd')} {all_of_them}",
        f"negative log-likelihood {said('nll', '.3f')}, calibration error {said('calibration_error', '.3f')}",
    ]


def _named(source: str) -> Path:
    """A folder of its own: the data's name and the time."""
    name = f"{Path(source).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    place = RUNS / name
    count = 2
    while place.exists():
        place, count = RUNS / f"{name}-{count}", count + 1
    return place


def _latest(folder: Path, out: Path | None) -> None:
    """Lets runs/latest lead to a run that was named by us."""
    link = RUNS / LATEST
    if out is None and folder.is_dir() and (link.is_symlink() or not link.exists()):
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(folder.name, target_is_directory=True)
        except OSError:
            pass  # a convenience, and not everywhere to be had
