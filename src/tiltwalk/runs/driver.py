"""A phase of a run, driven a piece at a time: what `sample` does in one go, with all that it stands on in plain arrays.

A step's random numbers depend on the key, its number and its chain alone, so that a phase in pieces is the phase in one go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tiltwalk import chain, noise, sampling, schedules
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.rules import Metropolis
from tiltwalk.run import Run
from tiltwalk.types import ChainState

GRANULE = 64
"""Draws that a program makes without looking up, at most."""

MOST_ROOM = 1024
"""Draws for which it has space."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a piece did: losses that were kept `(draws, chains, tau)`, and its figures."""

    losses: np.ndarray | None
    s: float
    made: np.ndarray
    acceptance: np.ndarray
    evaluations: float
    gradients: float
    failed: float


class PieceRunner(sampling.Runner):
    """A runner with one program for pieces of any size that is a multiple of `granule` draws."""

    granule = 1

    def plan(self, draws: int, thin: int, keep: Callable[[ChainState], Any] | None, target: float | None) -> chain.Plan:
        size = min(draws, self.granule)
        found = super().plan(size, thin, keep, target)
        most = super().plan(MOST_ROOM, thin, keep, target).room
        return dataclasses.replace(found, room=found.draws * max(1, min(MOST_ROOM, most) // found.draws))


class Driver:
    """The chains of one phase, of `steps` steps in all."""

    def __init__(
        self, measure: PathMeasure, s: Any, *, steps: int, moves: Any, rule: Any, chains: int, key: Any, target: float | None
    ) -> None:
        mixture = sampling.mixture_of("sample", measure, moves)
        rule = Metropolis() if rule is None else rule
        sampling._check(measure, rule, steps, chains, steps if target else 0, 1, target, None)
        self.measure, self.mixture, self.chains, self.target = measure, mixture, chains, target
        self.words = noise.seed(key)
        self.schedule = schedules.as_schedule(s, steps)
        last, workers = sampling.chains_last(measure, rule, mixture), sampling.workers_for(None, chains, measure)
        self.runner = PieceRunner(measure, mixture, rule, self.words, self.schedule, chains, last, workers)
        self.runner.unhurried = True
        self.names = self.runner.names()
        self.first = self.done = 0
        self.groups: list[chain.Carry] = []

    def begin(self, init: Any) -> None:
        """The chains at the start of the phase."""
        with surfaced():
            carry, self.first = sampling._begin(self.measure, self.mixture, self.words, self.chains, init)
        self.groups = self.runner.split(carry)

    def restore(self, arrays: dict[str, np.ndarray], first: int, done: int) -> None:
        """The chains as `arrays` has them, `done` steps into the phase."""
        state = state_of(arrays)
        shapes = (self.chains, self.measure.length, self.measure.dim), (self.chains, self.measure.length)
        if (state.path.shape, state.losses.shape) != shapes or arrays["steps"].shape != (len(self.mixture), self.chains):
            raise ValueError("the checkpoint must hold the chains of this run; their shapes are others.")
        self.groups = self.runner.split(chain.Carry(state, jnp.asarray(arrays["steps"])))
        self.first, self.done = first, done

    def fit(self, draws: int) -> int:
        """Settles the granule for pieces that lie in windows of `draws` draws; a divisor of that, where there is a fair one."""
        best = max(g for g in range(1, min(draws, GRANULE) + 1) if draws % g == 0)
        self.runner.granule = best if best >= GRANULE // 8 else min(draws, GRANULE)
        return self.runner.granule

    def arrays(self) -> dict[str, np.ndarray]:
        """Where the chains are."""
        carry = self.runner.join(self.groups)
        found = {"path": carry.state.path, "losses": carry.state.losses, "steps": carry.steps}
        if carry.state.grads is not None:
            found["grads"] = carry.state.grads
        return {name: np.asarray(x) for name, x in found.items()}

    def advance(self, steps: int, thin: int | None) -> Piece:
        """`steps` steps on; every `thin`-th is a draw."""
        runner = self.runner
        runner.forget_acceptance()
        runner.evaluations = runner.gradients = runner.failed = 0.0
        runner._done = self.done
        draws, each, keep = (steps, 1, None) if thin is None else (steps // thin, thin, sampling.keeper_of("sample", "losses"))
        with surfaced():
            self.groups, kept = runner.advance(self.groups, self.first + self.done, draws, each, keep, self.target, "")
        self.done += steps
        return Piece(
            None if thin is None else np.moveaxis(np.asarray(kept["losses"]), 1, 0),
            float(self.schedule(np.asarray([self.done - 1]))[0]),
            runner._made.copy(),
            runner.acceptance(),
            runner.evaluations,
            runner.gradients,
            runner.failed,
        )


def state_of(arrays: dict[str, np.ndarray]) -> ChainState:
    """The chains that `Driver.arrays` described."""
    grads = jnp.asarray(arrays["grads"]) if "grads" in arrays else None
    return ChainState(jnp.asarray(arrays["path"]), jnp.asarray(arrays["losses"]), grads)


def run_of(arrays: dict[str, np.ndarray], names: list[str], step_number: int, evaluations: float, seconds: float) -> Run:
    """A finished phase as the run that `sample` would have returned, without draws."""
    return Run(
        losses=None, paths=None, kept=None, s=np.zeros(0), acceptance={}, acceptance_by_chain={},
        steps=dict(zip(names, arrays["steps"], strict=True)), state=state_of(arrays), step_number=step_number,
        evaluations=round(evaluations), seconds=seconds, first_draw_seconds=seconds,
    )  # fmt: skip
