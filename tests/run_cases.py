"""Small runs that the tests of run folders share: three clusters in the plane, a few seconds of sampling at most."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tiltwalk import runs
from tiltwalk.runs import config, session
from tiltwalk.runs.config import Config
from tiltwalk.runs.writer import Watcher

WALL = "progress/seconds"
"""The one array that two equal runs need not share."""


def clusters(path: Path, n: int = 60) -> Path:
    """Three classes in the plane as a CSV file."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])[y] + 0.6 * rng.normal(size=(n, 2))
    np.savetxt(path, np.c_[X, y], delimiter=",", header="a,b,y", comments="", fmt=["%.6f", "%.6f", "%d"])
    return path


def small(folder: Path, *changes: str) -> Config:
    """Settings of a run that takes a moment: no warm-up, a walk of three models, pieces of four steps."""
    source = clusters(folder / "clusters.csv")
    return config.load(
        None,
        [
            f"data.source={source}", "data.target=y", "network.kind=linear", "walk.length=3", "walk.sigma=0.3",
            "chains.count=2", "budget.warm_up=false", "budget.burn_in=16", "budget.steps=48", "output.path_every=8",
            "output.thin=2", "output.piece=4", "output.save_steps=8", *changes,
        ],
    )  # fmt: skip


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing is saved."""


class KillAfter(Watcher):
    """A watcher that kills after some pieces."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces
        self.said: list[str] = []

    def piece(self, told: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def say(self, text: str) -> None:
        self.said.append(text)


def draws(path: Path) -> dict[str, np.ndarray]:
    """All that a run has drawn, and where its chains are."""
    folder = runs.open(path)
    found = {
        f"{group}/{name}": x for group in ("sample_stats", "posterior", "progress") for name, x in folder.arrays(group).items()
    }
    found |= {"path": np.asarray(folder.run.state.path), "members": folder.ensemble.thetas}
    found |= {name: np.asarray(value) for name, value in (folder.result or {"test": {}})["test"].items() if name != "seconds"}
    del found[WALL]
    return found


def beginning(path: Path, whole: Path) -> None:
    """Raises unless all that one run has drawn is how the other begins."""
    folder, of = runs.open(path), runs.open(whole)
    for name, array in folder._writer.draws.arrays.items():
        if name != WALL:
            found = folder._writer.draws.read(name)
            expected = of._writer.draws.read(name, 0, found.shape[array.axis])
            np.testing.assert_array_equal(found, expected, err_msg=f"{path}: {name}")


def same(one: Path, other: Path) -> None:
    """Raises unless two runs hold the same numbers, bit for bit."""
    first, second = draws(one), draws(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def made(folder: Path, *changes: str) -> Path:
    """A whole run, made once in `folder` and copied by those who change it."""
    path = folder / "whole"
    session.begin(small(folder, *changes), path)
    return path


def copied(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to
