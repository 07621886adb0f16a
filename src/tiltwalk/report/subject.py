"""What a report is about: a run folder, with what could be read of it, and a reason for each thing that could not."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tiltwalk import diagnostics
from tiltwalk.run import Run
from tiltwalk.runs import RunFolder

if TYPE_CHECKING:
    from tiltwalk.ensemble import Ensemble
    from tiltwalk.runs.prepare import Data

MOST_SINGLE = 8
"""Members that are tested one by one, evenly chosen."""

MOST_TESTED = 10_000
"""Test samples that predictions are made for; the first so many of more."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run folder and the name that it was given."""

    folder: RunFolder
    place: str

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def task(self) -> str:
        return str(self.folder.record["data"]["task"])

    @cached_property
    def run(self) -> Run:
        """The draws, with what may go wrong with the measure where that is known."""
        run = self.folder.run
        with contextlib.suppress(ValueError, OSError):
            run = dataclasses.replace(run, cautions=diagnostics.cautions(self.folder.measure))
        return run

    @cached_property
    def verdict(self) -> diagnostics.Verdict:
        return self.run.verdict()

    @cached_property
    def data(self) -> Data | str:
        """The data, or why there are none."""
        try:
            return self.folder.data
        except (ValueError, OSError, ImportError) as error:
            return str(error)

    @cached_property
    def ensemble(self) -> Ensemble | None:
        """The members so far; None before the first path is kept."""
        return self.folder.ensemble if self.folder.manifest["counts"]["posterior/step"] else None

    @cached_property
    def tested(self) -> Tested | str:
        """The test data and the predictions for them, or why there are none."""
        if self.ensemble is None:
            return "No path was kept yet, so that there is nothing to predict with."
        if isinstance(self.data, str):
            return f"There is no test: {self.data}"
        return Tested(self.ensemble, self.data.test_X[:MOST_TESTED], self.data.test_y[:MOST_TESTED], len(self.data.test_X))


@dataclasses.dataclass(frozen=True, eq=False)
class Tested:
    """An ensemble and the samples that it is tested on, `all` of which there may be more."""

    ensemble: Ensemble
    X: np.ndarray
    y: np.ndarray
    all: int

    @cached_property
    def mean(self) -> np.ndarray:
        """Probabilities `(n, classes)`, or values `(n, k)`."""
        return self.ensemble.mean(self.X)

    @cached_property
    def chosen(self) -> np.ndarray:
        """The numbers of the members that are tested one by one."""
        m = len(self.ensemble)
        return np.unique(np.linspace(0, m - 1, min(m, MOST_SINGLE)).round().astype(int))

    @cached_property
    def single(self) -> np.ndarray:
        """What these members say, each for itself: probabilities or values, `(members, n, k)`."""
        from tiltwalk.ensemble import Ensemble

        some = [Ensemble(self.ensemble.network, self.ensemble.thetas[i : i + 1], self.ensemble.task) for i in self.chosen]
        return np.stack([one.mean(self.X) for one in some])

    def class_names(self) -> list[str]:
        """The classes as text."""
        return [str(label) for label in (self.ensemble.classes or range(self.mean.shape[1]))]


def number(value: Any, digits: int = 4) -> str:
    """A number as people read it: thousands with commas, small ones to some digits."""
    value = float(value)
    if value != value:
        return "unknown"
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(value: Any, digits: int = 1) -> str:
    value = float(value)
    return "unknown" if value != value else f"{100 * value:.{digits}f} %"


def counted(count: Any, one: str, many: str | None = None) -> str:
    """1 member, 2 members."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
