"""`tiltwalk predict RUN DATA`: classes, probabilities and the spread over the members, for new samples."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click
import numpy as np

from tiltwalk import data


@click.command("predict")
@click.argument("model", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="DATA")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A .csv or .npz file; by default CSV to stdout.")
@click.option("--target", help="A column of DATA, or an array, that is not a feature.")
def command(model: Path, source: str, out: Path | None, target: str | None) -> None:
    """Predict new samples with the ensemble of a run.

    RUN is a run folder, finished or not, or an ensemble.safetensors. DATA is a CSV, TSV, Parquet, NPZ or IDX file, or the name
    of a data set, whose test part is taken. Columns are found by their names; others than the run's are left out.

    Classes: the likeliest class, the probability of each, and its standard deviation over the members. Values: the mean and its
    standard deviation over the members.
    """
    from tiltwalk.ensemble import Ensemble

    if out is not None and out.suffix not in (".csv", ".npz"):
        raise ValueError(f"--out must end in .csv or .npz; got {out.name}.")
    if model.is_dir():
        from tiltwalk import runs

        folder = runs.open(model)
        for note in folder.notes:
            click.echo(f"tiltwalk: {note}", err=True)
        ensemble = folder.ensemble
        X = folder.scaled(
            samples(source, target, folder.config.data.target, folder.record["data"]["features"], folder.config.data.scale)
        )
    elif not model.exists():
        raise FileNotFoundError(f"RUN must be a run folder or an ensemble.safetensors; {model} is not there.")
    else:
        ensemble = Ensemble.load(model)
        X = samples(source, target, None, [], None)
    found = columns(ensemble, X)
    if out is None:
        click.echo(as_csv(found), nl=False)
        return
    if out.suffix == ".npz":
        with out.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays(ensemble, found))
    else:
        out.write_text(as_csv(found), encoding="utf-8")
    click.echo(f"Wrote {out}: {len(X)} predictions of {len(ensemble)} members.")


def samples(source: str, given: str | None, usual: str | None, features: list[str], scale: float | None) -> Any:
    """The samples of a file or of a data set's test part, with the columns in the run's order.

    The target is left out: the one that is `given`, which must be there, or the run's `usual` one, which need not.
    """
    if source in data.NAMED:
        return data.load(source).X_test
    path = Path(source)
    target = None if data.files.kind(path) == "idx" else given or usual
    try:
        X, _, info = data.read(path, target, scale=scale)
    except ValueError:
        if target is None or given is not None:
            raise
        X, _, info = data.read(path, scale=scale)  # without the target: it is what is asked for
    if not features or not info.features:
        return X
    missing = [name for name in features if name not in info.features]
    if missing:
        raise ValueError(f"{path.name} must have the columns {', '.join(features)}; {', '.join(missing)} is missing.")
    return X[:, [info.features.index(name) for name in features]]


def columns(ensemble: Any, X: Any) -> dict[str, np.ndarray]:
    """The predictions by column."""
    mean, spread = ensemble.mean(X), ensemble.std(X)
    if ensemble.task == "regression":
        names = ["value"] if mean.shape[1] == 1 else [f"value_{i}" for i in range(mean.shape[1])]
        parts = dict(zip(names, mean.T, strict=True))
        return parts | {name.replace("value", "spread"): x for name, x in zip(names, spread.T, strict=True)}
    labels = ensemble.classes or tuple(range(mean.shape[1]))
    best = mean.argmax(1)
    found = {"class": np.asarray(labels)[best]}
    found |= {f"p_{label}": x for label, x in zip(labels, mean.T, strict=True)}
    return found | {f"spread_{label}": x for label, x in zip(labels, spread.T, strict=True)}


def arrays(ensemble: Any, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same as arrays of an archive: class, probabilities and spread, or value and spread."""

    def of(start: str) -> np.ndarray:
        return np.stack([x for name, x in found.items() if name.startswith(start)], 1)

    if ensemble.task == "regression":
        return {"value": of("value"), "spread": of("spread")}
    return {"class": found["class"], "probabilities": of("p_"), "spread": of("spread_")}


def as_csv(found: dict[str, np.ndarray]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    for row in zip(*found.values(), strict=True):
        writer.writerow([f"{x:.6g}" if isinstance(x, float | np.floating) else x for x in row])
    return text.getvalue()
