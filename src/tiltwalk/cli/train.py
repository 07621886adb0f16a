"""`tiltwalk train DATA`: an ensemble in a given time, and how good it is on data that it has not seen."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from tiltwalk import data, metrics, networks
from tiltwalk.ensemble import Ensemble
from tiltwalk.experiments import writable
from tiltwalk.training import Trained, train

NETWORKS = ("lenet", "mlp", "linear")
HELD_BACK = 0.2
"""The part of a user's own file that is kept for the test."""


@click.command("train")
@click.argument("source", metavar="DATA")
@click.option("--target", help="CSV, Parquet: the column to predict. NPZ: the array, such as y.")
@click.option("--network", "kind", type=click.Choice(NETWORKS), help="By default lenet for images, else mlp.")
@click.option("--hidden", default="32", show_default=True, help="Widths of an mlp's hidden layers, between commas.")
@click.option("--seconds", type=click.FloatRange(min=5), default=150.0, show_default=True, help="Time to train for.")
@click.option("--evaluations", type=click.IntRange(min=100), help="A budget that does not depend on the machine, instead.")
@click.option("--chains", type=click.IntRange(min=1), default=2, show_default=True, help="Independent paths.")
@click.option("--length", type=click.IntRange(min=1), default=4, show_default=True, help="Models in a path, tau.")
@click.option("--draws", type=click.IntRange(min=1), default=8, show_default=True, help="Paths kept of each chain.")
@click.option("--s", type=float, help="Tilt of a single model; by default 10 times the number of samples.")
@click.option("--sigma", type=float, help="Step of the walk, in initialisation scales; by default found in the warm-up.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of all random numbers.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/latest"), show_default=True, help="The folder to write to."
)
@click.option("--quiet", is_flag=True, help="Print the result alone.")
def command(
    source: str, target: str | None, kind: str | None, hidden: str, seconds: float, evaluations: int | None, chains: int,
    length: int, draws: int, s: float | None, sigma: float | None, seed: int, out: Path, quiet: bool,
) -> None:  # fmt: skip
    """Train an ensemble without gradients, and test it.

    DATA is mnist2048, mnist, fashion_mnist or digits, or a CSV, Parquet, NPZ or IDX file, a fifth of which is kept for the
    test. Writes OUT/ensemble.safetensors, to predict with, and OUT/result.json, with the settings and the figures.
    """
    began = time.perf_counter()
    X, y, test_X, test_y, task, classes = load(source, target, seed)
    network = build(kind, X, y, task, hidden)
    folder = writable(out)
    say = (lambda text: None) if quiet else click.echo
    say(f"{source}: {len(X)} samples to train on, {len(test_X)} to test; a model has {network.dim} parameters")
    trained = train(
        network, X, y, kind="cross_entropy" if task == "classification" else "gaussian",
        seconds=None if evaluations else seconds, evaluations=evaluations, s=s, length=length, sigma=sigma, chains=chains,
        draws=draws, key=seed, progress=not quiet, report=say,
    )  # fmt: skip
    ensemble = Ensemble(network, trained.ensemble.paths, task, classes)  # type: ignore[arg-type]
    found = figures(ensemble, test_X, test_y)
    found |= {"members": len(ensemble), "seconds": round(time.perf_counter() - began, 1)}
    ensemble.save(folder / "ensemble.safetensors")
    record = {"data": source, "network": kind, "seed": seed, **settings(trained), "test": found}
    (folder / "result.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for line in spoken(found):
        click.echo(line)
    click.echo(f"Wrote {folder / 'ensemble.safetensors'} and {folder / 'result.json'} in {found['seconds']:.0f} s.")


def load(source: str, target: str | None, seed: int) -> tuple[Any, Any, Any, Any, str, tuple[str, ...] | None]:
    """Data to train on and to test on, the task, and the names of the classes."""
    if source in data.NAMED:
        named = data.load(source)
        return named.X_train, named.y_train, named.X_test, named.y_test, "classification", named.classes
    if not Path(source).is_file():
        raise ValueError(f"DATA must be one of {', '.join(data.NAMED)}, or a file; got {source!r}.")
    X, y, info = data.read(source, target)
    if y is None:
        raise ValueError(f"train: --target must name what to predict; {Path(source).name} has {', '.join(info.features)}.")
    order = np.random.default_rng(seed).permutation(len(X))
    test, rest = np.split(order, [max(1, int(HELD_BACK * len(X)))])
    if len(rest) < 2:
        raise ValueError(f"train: {Path(source).name} must hold at least 3 samples; got {len(X)}.")
    if X.ndim == 2:  # columns in units of their own spread: networks are made for values of order one
        centre, spread = X[rest].mean(0), X[rest].std(0)
        X = (X - centre) / np.where(spread > 0, spread, 1)
    return X[rest], y[rest], X[test], y[test], info.task, info.classes  # type: ignore[return-value]


def build(kind: str | None, X: Any, y: Any, task: str, hidden: str) -> networks.Network:
    """The network for the data."""
    outputs = int(np.max(y)) + 1 if task == "classification" else (1 if np.ndim(y) == 1 else np.shape(y)[1])
    square = X.ndim == 4 and X.shape[1] == X.shape[2]
    kind = kind or ("lenet" if square and X.shape[1] >= 16 else "mlp")
    if kind == "lenet":
        if not square:
            raise ValueError(
                f"--network lenet needs square images (n, side, side, channels); got samples of shape {X.shape[1:]}."
            )
        return networks.lenet(outputs, X.shape[3], X.shape[1])
    inputs = int(np.prod(X.shape[1:]))
    if kind == "linear":
        return networks.linear(inputs, outputs)
    try:
        widths = [int(word) for word in hidden.split(",")]
    except ValueError:
        raise ValueError(f"--hidden must be whole numbers between commas, such as 64,32; got {hidden!r}.") from None
    return networks.mlp([inputs, *widths, outputs])


def figures(ensemble: Ensemble, X: Any, y: Any) -> dict[str, float]:
    """How good the ensemble is on the test data, and one member on average."""
    some = ensemble.thetas[:: max(1, len(ensemble) // 8)]
    ones = [Ensemble(ensemble.network, member[None], ensemble.task) for member in some]
    if ensemble.task == "regression":
        error = [float(np.sqrt(np.mean((e.mean(X).reshape(np.shape(y)) - y) ** 2))) for e in [ensemble, *ones]]
        return {"rmse": error[0], "rmse_of_one_member": float(np.mean(error[1:]))}
    p = ensemble.predict_proba(X)
    alone = [metrics.accuracy(y, one.predict_proba(X).argmax(-1)) for one in ones]
    return {
        "accuracy": metrics.accuracy(y, p.argmax(-1)),
        "accuracy_of_one_member": float(np.mean(alone)),
        "nll": metrics.nll(y, p),
        "calibration_error": metrics.calibration_error(y, p),
    }


def spoken(found: dict[str, float]) -> list[str]:
    if "rmse" in found:
        return [f"test error (root mean square): one member {found['rmse_of_one_member']:.4g}, ensemble {found['rmse']:.4g}"]
    one, all_of_them = found["accuracy_of_one_member"], found["accuracy"]
    return [
        f"test accuracy: one member {one:.2%}, ensemble of {found['members']} {all_of_them:.2%}",
        f"negative log-likelihood {found['nll']:.3f}, calibration error {found['calibration_error']:.3f}",
    ]


def settings(trained: Trained) -> dict[str, Any]:
    return {"s": trained.s, "sigma": trained.sigma, "length": trained.measure.length, "warm_up": list(trained.warm_up)}
