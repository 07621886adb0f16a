"""Drives the compiled loop of ladders: how much a call, how ladders are split between threads, what is counted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import chain, ladder, sampling, schedules
from tiltwalk.measure import PathMeasure
from tiltwalk.types import Move, Rule


class LadderRunner(sampling.Runner):
    """Drives `ladder.advance` over groups of ladders, as `Runner` drives chains."""

    def __init__(
        self, measures: tuple[PathMeasure, ...], s: Float[np.ndarray, " rungs"], by_rung: bool,
        mixture: list[tuple[Move, float]], rule: Rule, words: Any, ladders: int, last: bool, workers: int | None,
        swap_every: int,
    ) -> None:  # fmt: skip
        self.s, self.rungs, self.ladders, self.swap_every, self.of_rungs = s, len(s), ladders, swap_every, by_rung
        super().__init__(
            measures[0], mixture, rule, words, schedules.constant(float(s[-1])), len(s) * ladders, last,
            sampling.workers_for(workers, ladders, measures[0]),
        )  # fmt: skip
        if by_rung:
            self.measure = jax.tree_util.tree_map_with_path(
                lambda path, *xs: jnp.stack(xs) if path[0].name == "walk" else xs[0], *measures
            )

    def forget_acceptance(self) -> None:
        super().forget_acceptance()
        self.swapped, self.tried = np.zeros(self.rungs - 1), np.zeros(self.rungs - 1)
        self.trips = np.zeros(self.ladders)

    def swap_rates(self) -> Float[np.ndarray, " rungs-1"]:
        """The share of tried swaps that were made; NaN where none was tried."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.swapped / (self.tried * self.ladders))

    def split(self, carry: Any) -> list[Any]:
        size = self.ladders // self.workers

        def part(i: int) -> ladder.Carry:
            chosen = slice(i * size, (i + 1) * size)

            def of_chains(x: Any) -> Any:
                x = x.reshape(self.rungs, self.ladders, *x.shape[1:])[:, chosen].reshape(-1, *x.shape[1:])
                return jnp.moveaxis(x, 0, -1) if self.last else x

            steps = carry.steps.reshape(-1, self.rungs, self.ladders)[:, :, chosen].reshape(len(carry.steps), -1)
            return ladder.Carry(jax.tree.map(of_chains, carry.state), steps, carry.walker[:, chosen], carry.heading[:, chosen])

        return [part(i) for i in range(self.workers)]

    def join(self, groups: list[Any]) -> Any:
        def of_chains(*xs: Any) -> Any:
            firsts = [jnp.moveaxis(x, -1, 0) if self.last else x for x in xs]
            return jnp.concatenate([x.reshape(self.rungs, -1, *x.shape[1:]) for x in firsts], 1).reshape(
                -1, *firsts[0].shape[1:]
            )

        steps = jnp.concatenate([g.steps.reshape(len(self.moves), self.rungs, -1) for g in groups], -1)
        return ladder.Carry(
            jax.tree.map(of_chains, *(g.state for g in groups)),
            steps.reshape(len(self.moves), -1),
            jnp.concatenate([g.walker for g in groups], 1),
            jnp.concatenate([g.heading for g in groups], 1),
        )

    def by_rung(self, x: Any) -> np.ndarray:
        """What was collected of all chains, group after group, as `(rungs, ladders, ...)`."""
        x = np.asarray(x)
        grouped = x.reshape(self.workers, self.rungs, self.ladders // self.workers, *x.shape[1:])
        return np.asarray(np.moveaxis(grouped, 0, 1)).reshape(self.rungs, self.ladders, *x.shape[1:])

    def _launch(self, plan: chain.Plan, i: int, first: Any, units: Any, tilts: np.ndarray, group: Any) -> Any:
        size = self.ladders // self.workers
        ids = jnp.arange(i * size, (i + 1) * size, dtype=jnp.uint32)
        return ladder.advance(
            plan, self.swap_every, self.of_rungs, self.words, ids, first, units, jnp.asarray(self.s), group,
            self.measure, self.moves, self.weights, self.rule,
        )  # fmt: skip

    def _count(self, tallies: list[Any], groups: list[Any], steps: int, s: float, phase: str) -> None:
        self.swapped = self.swapped + sum(np.asarray(t.swapped, np.float64).sum(1) for t in tallies)
        self.tried = self.tried + np.asarray(tallies[0].tried, np.float64)
        self.trips = self.trips + np.concatenate([np.asarray(t.trips, np.float64) for t in tallies])
        super()._count(tallies, groups, steps, s, phase)

    def _mean_loss(self, group: Any) -> float:
        """Of the highest rung, whose tilt is shown."""
        losses = np.asarray(group.state.losses)
        top = losses.shape[-1 if self.last else 0] // self.rungs
        return float(np.mean(losses[..., -top:] if self.last else losses[-top:]))
