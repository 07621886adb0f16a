"""`SMCRun`: what sequential Monte Carlo returns, populations of paths at every tilt on their way."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tiltwalk import diagnostics
from tiltwalk.types import ChainState

FEWEST_FAMILIES = 20
"""Paths of the start, in a population, from which those at the last tilt should descend."""


@dataclasses.dataclass(frozen=True)
class PopulationCurve:
    """The mean loss per model at each tilt, with its standard error from populations that know nothing of each other."""

    s: Float[np.ndarray, " rungs"]
    loss: Float[np.ndarray, " rungs"]
    error: Float[np.ndarray, " rungs"]


@dataclasses.dataclass(frozen=True)
class SMCRun:
    """Populations of paths at every tilt, each after it was resampled and moved, so that all particles count the same.

    - `s (rungs,)`: the tilts; `losses (rungs, populations, particles, tau)`, `paths (..., tau, d)` and `kept` at each of them,
      None where they were not asked for.
    - `log_partition (rungs,)` and `error`: log Z relative to the first tilt (absolute where that is 0), and its standard error;
      `log_partitions (rungs, populations)`: those of each population. `thermo.log_partition(run)` is the same as a curve.
    - `share (rungs - 1,)`: the share of particles that counted, in effect, before they were resampled.
    - `families (rungs, populations)`: from how many paths of the start those of a population descend.
    - `acceptance` of the moves at each rung but the first, and `steps`, the step size of each move there.

    `state` holds the last paths, one population after another: pass it as `init` to `sample`, with as many chains.
    """

    s: Float[np.ndarray, " rungs"]
    losses: Float[np.ndarray, "rungs populations particles tau"] | None
    paths: Float[np.ndarray, "rungs populations particles tau d"] | None
    kept: Any
    log_partitions: Float[np.ndarray, "rungs populations"]
    totals: Float[np.ndarray, "rungs populations particles"]
    share: Float[np.ndarray, " rungs-1"]
    families: Int[np.ndarray, "rungs populations"]
    acceptance: dict[str, Float[np.ndarray, " rungs-1"]]
    steps: dict[str, Float[np.ndarray, " rungs-1"]]
    state: ChainState
    length: int
    evaluations: int
    gradients: int
    seconds: float
    cautions: tuple[str, ...] = ()

    @property
    def rungs(self) -> int:
        """The number of tilts."""
        return len(self.s)

    @property
    def populations(self) -> int:
        """The number of populations."""
        return int(self.totals.shape[1])

    @property
    def particles(self) -> int:
        """The number of paths of a population."""
        return int(self.totals.shape[2])

    @property
    def log_partition(self) -> Float[np.ndarray, " rungs"]:
        """The log of the mean over populations of `Z(s)`, of which each population's estimate has the right mean."""
        top = self.log_partitions.max(1)
        return np.asarray(top + np.log(np.exp(self.log_partitions - top[:, None]).mean(1)))

    @property
    def error(self) -> Float[np.ndarray, " rungs"]:
        """The standard error of `log_partition`, from the populations' differences; NaN for a single population."""
        if self.populations == 1:
            return np.where(self.s == self.s[0], 0.0, np.nan)
        shares = np.exp(self.log_partitions - self.log_partition[:, None])
        return np.asarray(shares.std(1, ddof=1) / np.sqrt(self.populations))

    @property
    def curve(self) -> PopulationCurve:
        """The mean loss per model at each tilt, with its error."""
        means = self.totals.mean(2) / self.length
        spread = means.std(1, ddof=1) / np.sqrt(self.populations) if self.populations > 1 else np.full(self.rungs, np.nan)
        return PopulationCurve(self.s, means.mean(1), spread)

    def verdict(self) -> diagnostics.Verdict:
        """Whether populations agree and have kept enough families, in words, and what to do where not."""
        advice = []
        fewest = int(self.families[-1].min())
        error = float(self.error[-1])
        lowest = {name: float(np.min(rate)) for name, rate in self.acceptance.items() if len(rate)}
        stuck = [name for name, rate in lowest.items() if rate < diagnostics.RARELY]
        if stuck:
            advice.append(f"{stuck[0]} accepts {lowest[stuck[0]]:.1%} at a tilt: resampled paths stay copies. Give more steps.")
        if fewest < FEWEST_FAMILIES:
            advice.append("Give more particles: a population that descends from few paths knows few valleys.")
        if self.populations == 1:
            words = f"One population: log Z at s = {self.s[-1]:.4g} is {self.log_partition[-1]:.4g}, of unknown error."
            advice.append("Give populations=8 or more: their differences are the error.")
            return diagnostics.Verdict(None, words, (*advice, *self.cautions))
        if not error < 0.5:
            advice.append("Populations disagree: more particles, more steps between tilts, or a larger overlap.")
        good = not advice
        words = (
            f"{'Good' if good else 'Doubtful'}: log Z at s = {self.s[-1]:.4g} is {self.log_partition[-1]:.4g} ± {error:.2g} "
            f"over {self.populations} populations, and the last paths of each descend from {fewest} of the first or more."
        )
        return diagnostics.Verdict(good, words, (*advice, *self.cautions))

    def __str__(self) -> str:
        return f"{self!r}\n{self.verdict()}"

    def __repr__(self) -> str:
        return (
            f"SMCRun({self.rungs} tilts from s = {self.s[0]:.4g} to {self.s[-1]:.4g}, {self.populations} populations of "
            f"{self.particles} paths, log Z {self.log_partition[-1]:.6g} ± {self.error[-1]:.2g}, "
            f"{self.evaluations} evaluations in {self.seconds:.1f} s)"
        )
