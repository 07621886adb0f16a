"""`tiltwalk exact [DATA]`: the linear perceptron in closed form, on the data that come with the package or on a user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from tiltwalk import data
from tiltwalk.exact import LinearPerceptron
from tiltwalk.experiments import line_data

OWN = "the line y = 0.5 x - 0.3 + 0.1 noise that comes with the package"


class Numbers(click.ParamType[list[float]]):
    """Numbers between commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        if isinstance(value, list):
            return value
        try:
            return [float(word) for word in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} must be a number, or numbers between commas, such as 0.1,1,10", param, ctx)


@click.command("exact")
@click.argument("file", metavar="[DATA]", required=False, type=click.Path(path_type=Path))
@click.option("--target", help="CSV, Parquet: the column to predict. NPZ: the array, by default y.")
@click.option("--s", "tilts", type=Numbers(), default="0.1,1,10,100,1000", show_default=True, help="Tilts.")
@click.option("--sigma", type=float, default=0.1, show_default=True, help="Step of the walk.")
@click.option("--length", type=int, default=8, show_default=True, help="Models in a path, tau.")
@click.option("--start-scale", type=float, help="A start Normal(0, scale²) in place of a flat one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
def command(
    file: Path | None,
    target: str | None,
    tilts: list[float],
    sigma: float,
    length: int,
    start_scale: float | None,
    as_json: bool,
) -> None:
    """The exact law of paths of linear perceptrons: expected loss per model, and log Z, for each s.

    DATA is a CSV, TSV, Parquet or NPZ file, or a JSON file {"X": [[...], ...], "y": [...]}. Without it: a noisy line of 100
    samples that comes with the package. The loss of a model is half the mean squared error; a bias is added.

    log Z is the log of the integral of p(theta_1) exp(-S) over paths, S = sum |step|²/(2 sigma²) + s sum L, p = 1 where flat.
    """
    X, Y = line_data() if file is None else read(file, target)
    oracle = LinearPerceptron(X, Y)
    losses = np.asarray(oracle.expected_loss(tilts, sigma, length, start_scale))
    log_z = np.asarray(oracle.log_partition(tilts, sigma, length, start_scale))
    found = {
        "data": OWN if file is None else str(file),
        "samples": len(oracle.X),
        "parameters": oracle.dim,
        "sigma": sigma,
        "length": length,
        "start_scale": start_scale,
        "least_loss": oracle.minimum,
        "s": tilts,
        "loss_per_model": losses.tolist(),
        "log_partition": log_z.tolist(),
    }
    click.echo(json.dumps(found, indent=1, allow_nan=False) if as_json else table(found))


def table(found: dict[str, Any]) -> str:
    start = "flat" if found["start_scale"] is None else f"Normal(0, {found['start_scale']:g}²)"
    lines = [
        f"{found['data']}: {found['samples']} samples, {found['parameters']} parameters a model",
        f"sigma {found['sigma']:g}, length {found['length']}, start {start}, least loss {found['least_loss']:.6g}",
        "",
        f"{'s':>12}{'loss per model':>18}{'log Z':>18}",
    ]
    rows = zip(found["s"], found["loss_per_model"], found["log_partition"], strict=True)
    return "\n".join(lines + [f"{s:>12g}{loss:>18.8g}{log_z:>18.8g}" for s, loss, log_z in rows])


def read(file: Path, target: str | None) -> tuple[Any, Any]:
    """Features and targets of a user's file."""
    if file.suffix.lower() == ".json":
        return read_json(file, target or "y")
    if target is None and file.suffix.lower() == ".npz":
        target = "y"
    if target is None:
        names = data.read(file)[2].features
        raise ValueError(f"exact: --target must name the column to predict; {file.name} has {', '.join(names)}.")
    X, y, _ = data.read(file, target, task="regression")
    return X, y


def read_json(file: Path, target: str) -> tuple[Any, Any]:
    """`{"X": [[...], ...], "y": [...]}`, as an object of numbers and nothing else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file.name} must be JSON; it cannot be read ({error}).") from None
    missing = [name for name in ("X", target) if not isinstance(found, dict) or name not in found]
    if missing:
        raise ValueError(f'{file.name} must be an object with "X" and "{target}"; {" and ".join(missing)} is missing.')
    return found["X"], found[target]
