"""`ExchangeRun`, what replica exchange returns: a run with a rung axis. Arrays are `(rungs, chains, draws, ...)`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from tiltwalk import diagnostics
from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.types import ChainState


@dataclasses.dataclass(frozen=True)
class ExchangeRun:
    """The draws of ladders at all their rungs, and how well paths travelled.

    A chain here is a ladder: its rungs belong together and are not independent of each other. `s (rungs,)` are the tilts, and
    `measures` the measure at each rung, which differ where `sigmas` were given. `losses (rungs, chains, draws, tau)`,
    `paths (rungs, chains, draws, tau, d)` and `kept` are None where they were not asked for. After burn-in:

    - `swap_rates (rungs - 1,)`: the share of tried swaps between a rung and the next that were made;
    - `round_trips (chains,)`: how often a path of this ladder went from the lowest rung to the highest and back;
    - `walkers (rungs, chains, draws)`: which path was at each rung, by the rung where it was at the start of the first run;
    - `acceptance` of the moves at each rung, and `steps (rungs, chains)`, their step sizes, as tuned or given.

    `rung(i)` is an ordinary run with the draws of one rung. Pass the whole as `init` to `exchange` to go on.
    """

    s: Float[np.ndarray, " rungs"]
    measures: tuple[PathMeasure, ...]
    losses: Float[np.ndarray, "rungs chains draws tau"] | None
    paths: Float[np.ndarray, "rungs chains draws tau d"] | None
    kept: Any
    walkers: Int[np.ndarray, "rungs chains draws"]
    swap_rates: Float[np.ndarray, " rungs-1"]
    round_trips: Int[np.ndarray, " chains"]
    acceptance: dict[str, Float[np.ndarray, " rungs"]]
    acceptance_by_chain: dict[str, Float[np.ndarray, "rungs chains"]]
    steps: dict[str, Float[np.ndarray, "rungs chains"]]
    state: ChainState
    walker: Int[np.ndarray, "rungs chains"]
    heading: Int[np.ndarray, "rungs chains"]
    made: int
    step_number: int
    evaluations: int
    gradients: int
    seconds: float

    @property
    def rungs(self) -> int:
        """The number of rungs."""
        return int(self.s.shape[0])

    @property
    def chains(self) -> int:
        """The number of ladders."""
        return int(self.walker.shape[1])

    @property
    def draws(self) -> int:
        """The number of draws of each chain."""
        return int(self.walkers.shape[2])

    @property
    def total_losses(self) -> Float[np.ndarray, "rungs chains draws"]:
        """`Lsum`, the time-integrated loss of each draw."""
        if self.losses is None:
            raise ValueError('ExchangeRun.total_losses needs the losses: exchange with keep="losses" or keep="paths".')
        return np.asarray(self.losses.sum(-1, dtype=np.float64))

    @property
    def round_trip_steps(self) -> float:
        """Steps that a path takes, in the mean, from the lowest rung to the highest and back; infinite where none did."""
        trips = float(self.round_trips.sum())
        return self.made * self.rungs * self.chains / trips if trips else float("inf")

    def verdict(self) -> diagnostics.Verdict:
        """Whether the draws at the highest rung can be trusted, in words, and what to do about them and about the ladder."""
        top = self.rung(-1).verdict()
        return dataclasses.replace(top, advice=(*top.advice, *diagnostics.ladder_advice(self.swap_rates, self.s)))

    def rung(self, i: int) -> Run:
        """The draws of one rung as a run of its own; negative numbers count from the highest."""
        i = range(self.rungs)[i]
        names = list(self.acceptance)
        return Run(
            losses=None if self.losses is None else self.losses[i],
            paths=None if self.paths is None else self.paths[i],
            kept=jax.tree.map(lambda x: x[i], self.kept),
            s=np.full(self.draws, self.s[i]),
            acceptance={name: float(self.acceptance[name][i]) for name in names},
            acceptance_by_chain={name: self.acceptance_by_chain[name][i] for name in names},
            steps={name: self.steps[name][i] for name in names},
            state=jax.tree.map(lambda x: x[i], self.state),
            step_number=self.step_number,
            evaluations=self.evaluations // self.rungs,
            seconds=self.seconds / self.rungs,
            first_draw_seconds=self.seconds / self.rungs,
            gradients=self.gradients // self.rungs,
            cautions=diagnostics.cautions(self.measures[i]),
        )

    def __repr__(self) -> str:
        return (
            f"ExchangeRun({self.rungs} rungs from s = {self.s[0]:.4g} to {self.s[-1]:.4g}, {self.chains} chains, "
            f"{self.draws} draws, swapped {self.swap_rates.min():.0%} to {self.swap_rates.max():.0%}, "
            f"{self.round_trips.sum()} round trips, {self.evaluations} evaluations in {self.seconds:.1f} s)"
        )
