"""What every figure shares: the data of a straight line, the record of how the numbers were made, and the files."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from jaxtyping import Float

import tiltwalk as tw
from tiltwalk import check
from tiltwalk.experiments import _parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("linear", "annealing", "landscape", "mnist")
LONG = ("mnist",)
"""Figures that are made in parts, which are kept, by a sampler that may be chosen."""

PACKAGES = ("tiltwalk", "jax", "jaxlib", "numpy", "scipy", "matplotlib")

Record = dict[str, Any]
"""What the JSON holds: figure, caption, quick, seed, settings, numbers, versions, machine, seconds."""

Report = Callable[[float, str], None]
"""Is told, now and then, which share of the work is done and what is at hand."""


class Experiment(Protocol):
    """What a figure's module offers. All values are what JSON can hold."""

    def settings(self, quick: bool) -> dict[str, Any]: ...

    def compute(self, settings: dict[str, Any], seed: int, report: Report) -> dict[str, Any]: ...

    def caption(self, record: Record) -> str:
        """What is seen, and which corrections to the paper apply."""
        ...

    def summary(self, record: Record) -> list[str]:
        """What the numbers say, in lines to print."""
        ...

    def draw(self, record: Record) -> Figure: ...


class LongExperiment(Experiment, Protocol):
    """What the module of a figure in `LONG` offers beside that."""

    SAMPLERS: Iterable[str]
    """The first is the one that is taken where none is named."""

    def settings(self, quick: bool, sampler: str = ...) -> dict[str, Any]: ...

    def compute(self, settings: dict[str, Any], seed: int, report: Report, folder: Path | None = ...) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Result:
    """The files that were written, what they say, and the record itself."""

    files: tuple[Path, ...]
    summary: tuple[str, ...]
    record: Record


def load(name: str) -> Experiment:
    """The module of a figure."""
    check.one_of("reproduce.name", name, NAMES)
    return cast(Experiment, importlib.import_module(f"tiltwalk.experiments.{name}"))


def reproduce(
    name: str,
    *,
    quick: bool = False,
    out: str | Path = "figures",
    seed: int = 0,
    report: Report = lambda share, text: None,
    sampler: str | None = None,
    fresh: bool = False,
) -> Result:
    """Computes a figure and writes it to the folder `out` as PNG, SVG and a JSON of its numbers.

    A figure in `LONG` keeps its parts in a folder beside them, as they are made, and goes on from what is there; `fresh` makes
    them anew. Its `sampler` may be chosen.
    """
    experiment = load(name)
    check.whole("reproduce.seed", seed, low=0, high=2**32 - 1)
    plan = (
        _long(name, quick, sampler, Path(out)) if name in LONG else _Plan(name, experiment.settings(quick), experiment.compute)
    )
    if plan.parts is None and (sampler is not None or fresh):
        which, given = ("fresh", fresh) if sampler is None else ("sampler", sampler)
        raise ValueError(f"reproduce.{which} must be left out for {name}: it is for {' and '.join(LONG)}; got {given!r}.")
    # whatever can be missing is looked for before the work, not after it
    from tiltwalk.experiments import _plots

    _plots.need()
    folder = writable(Path(out))
    if fresh and plan.parts is not None:
        _parts.forget(plan.parts)
    began = time.perf_counter()
    numbers = plan.compute(plan.settings, seed, report)
    record: Record = {
        "figure": name,
        "caption": "",
        "quick": quick,
        "seed": seed,
        "settings": plan.settings,
        "numbers": numbers,
        "versions": versions(),
        "machine": machine(),
        "seconds": round(time.perf_counter() - began, 2),
    }
    record["caption"] = experiment.caption(record)
    paths = [folder / f"{plan.stem}.{ending}" for ending in ("png", "svg", "json")]
    _plots.save(lambda: experiment.draw(record), paths[0], paths[1])
    paths[2].write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return Result(tuple(paths), tuple(experiment.summary(record)), record)


@dataclass(frozen=True)
class _Plan:
    """What a figure's files are called, how it is made, and where its parts are kept, if they are."""

    stem: str
    settings: dict[str, Any]
    compute: Callable[[dict[str, Any], int, Report], dict[str, Any]]
    parts: Path | None = None


def _long(name: str, quick: bool, sampler: str | None, out: Path) -> _Plan:
    """A quick figure and a full one, and those of other samplers, stand beside each other: none writes over hours of work."""
    experiment = cast(LongExperiment, load(name))
    size = f"{name}_quick" if quick else name
    usual = next(iter(experiment.SAMPLERS))
    stem = size if sampler in (None, usual) else f"{size}_{sampler}"
    parts = out / f"{size}_parts"
    settings = experiment.settings(quick, sampler or usual)
    return _Plan(stem, settings, functools.partial(experiment.compute, folder=parts), parts)


def line_data(samples: int = 100, seed: int = 7) -> tuple[Float[np.ndarray, "N 1"], Float[np.ndarray, "N 1"]]:
    """The data set that comes with the package: a straight line with noise, `y = 0.5 x - 0.3 + 0.1 noise`, `d + 1 = 2`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 1))
    return X, 0.5 * X - 0.3 + 0.1 * rng.normal(size=(samples, 1))


def key_of(seed: int, part: int) -> int:
    """A key for part `part` of a figure: seed and part are its two words, so that no two parts share noise."""
    return (part << 32) | seed


def mean_loss(state: tw.ChainState) -> Any:
    """The loss per model of one chain's path; what is kept where paths are long."""
    return state.losses.mean()


def mean_and_error(by_chain: Float[np.ndarray, " chains"]) -> tuple[float, float]:
    """Mean and standard error over independent chains, whatever the correlation within each."""
    return float(by_chain.mean()), float(by_chain.std(ddof=1) / np.sqrt(len(by_chain)))


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = tw.__version__ if package == "tiltwalk" else "not installed"
    return found


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def machine() -> dict[str, Any]:
    """What ran: cores, processor, device."""
    import jax

    device = jax.devices()[0]
    return {"cores": cores(), "processor": platform.machine(), "system": platform.system(), "device": device.device_kind}


def writable(folder: Path) -> Path:
    """The folder, made where it was missing; an OSError that names it where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"reproduce.out must be a folder that can be written; {folder} is not ({error.strerror}).") from None
    return folder
