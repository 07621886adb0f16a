"""Step sizes of a sweep for each model of a path and for each group of parameters, found before draws are kept.

A model that the data hold tightly, and a layer to which the loss is sensitive, want smaller steps than the rest: one step for
all is as small as the worst needs. Each group is tuned alone, which says how far it alone may go; then each model, by

    log step <- log step + gain * (accepted - target),

with the share of its proposals accepted in a round of sweeps (Robbins, Monro 1951). What is found is a `Sweep` whose settings
are frozen: it is exact from then on, as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves import Sweep
from tiltwalk.sampling import sample
from tiltwalk.types import ChainState, Rule

ACCEPTANCE = 0.3
"""What every model is tuned to where nothing is said: near the best for a random walk in many dimensions, 0.234, and in one,
0.44 (Gelman, Roberts, Gilks 1996)."""

GAIN = 2.0
"""The change of a step's logarithm for a change of acceptance by 1: about one over the slope of acceptance in it near 0.3."""


@dataclass(frozen=True)
class TunedSweep:
    """A sweep with its step sizes; where the tuning left the chains, to go on from; and the acceptance of each model there."""

    move: Sweep
    paths: Float[np.ndarray, "chains tau d"]
    acceptance: Float[np.ndarray, " tau"]
    evaluations: int


def tuned_sweep(
    measure: PathMeasure,
    s: float,
    *,
    groups: Sequence[slice] | None = None,
    sites: bool = True,
    steps: int = 200,
    rounds: int = 4,
    chains: int = 1,
    init: Any = None,
    target_acceptance: float = ACCEPTANCE,
    rule: Rule | None = None,
    key: int = 0,
) -> TunedSweep:
    """A `Sweep` tuned at the tilt `s`: pass `move` as `moves` and `paths` as `init` to `sample`.

    - `groups`: slices of parameters that share a step, such as `[p.slice for p in network.parameters]`; they must cover all.
      None gives all parameters the same.
    - `sites`: whether each model has a step of its own, in `rounds` rounds.
    - `steps`: sweeps to tune each group by, and in each half of a round.

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(2.0)), tw.losses.double_well(), length=8)
    >>> tuned = tw.tuned_sweep(measure, 20.0, chains=8, steps=50)
    >>> run = tw.sample(measure, 20.0, steps=100, chains=8, moves=tuned.move, init=tuned.paths, progress=False)
    """
    name = "tuned_sweep"
    check.whole(f"{name}.steps", steps, low=2)
    check.whole(f"{name}.rounds", rounds, low=1)
    check.number(f"{name}.target_acceptance", target_acceptance, low=0, high=1, low_open=True)
    pilot = _Pilot(measure, s, rule, chains, init, target_acceptance, key)
    move = Sweep()
    if groups is not None:
        move = Sweep(parameters=_of_groups(pilot, _checked(groups, measure.dim), steps))
    if sites:
        move = Sweep(move.step, sites=np.ones(measure.length), parameters=move.parameters)
        for _ in range(rounds):
            move = pilot.whole(move, steps)
            accepted = pilot.accepted(move, steps)
            each = np.asarray(move.sites) * np.exp(GAIN * (accepted - target_acceptance))
            # as sizes relative to each other: the step is common to all
            move = Sweep(move.step, sites=each / np.exp(np.mean(np.log(each))), parameters=move.parameters)
    move = pilot.whole(move, steps)
    return TunedSweep(move, pilot.paths, pilot.accepted(move, steps), pilot.evaluations)


def _checked(groups: Sequence[slice], dim: int) -> list[np.ndarray]:
    """The parameters of each group."""
    found = [np.arange(dim)[group] for group in groups if isinstance(group, slice)]
    if len(found) != len(groups) or sorted(np.concatenate([*found, []]).tolist()) != list(range(dim)):
        raise ValueError(f"tuned_sweep.groups must be slices that hold each of {dim} parameters once; got {groups}.")
    return found


def _of_groups(pilot: _Pilot, groups: list[np.ndarray], steps: int) -> Float[np.ndarray, " d"]:
    """The step that each group takes alone, relative to the largest."""
    found = np.zeros(pilot.measure.dim)
    for group in groups:
        alone = np.zeros(pilot.measure.dim)
        alone[group] = 1.0
        found[group] = float(pilot.whole(Sweep(parameters=alone), steps).step)
    relative: Float[np.ndarray, " d"] = found / found.max()
    return relative


class _Pilot:
    """Chains that are moved while settings are found."""

    def __init__(
        self, measure: PathMeasure, s: float, rule: Rule | None, chains: int, init: Any, target: float, key: int
    ) -> None:
        self.measure, self.s, self.rule, self.chains, self.target, self.key = measure, s, rule, chains, target, key
        self.paths, self.evaluations = init, 0

    def whole(self, move: Sweep, steps: int) -> Sweep:
        """The move with the step, one for all, that meets the target."""
        found = self._sampled(move, 0, burn_in=steps, target_acceptance=self.target)
        step = float(np.exp(np.mean(np.log(found.steps["sweep"]))))
        return Sweep(step, sites=move.sites, parameters=move.parameters)

    def accepted(self, move: Sweep, steps: int) -> Float[np.ndarray, " tau"]:
        """The share of sweeps in which each model moved."""
        found = np.asarray(self._sampled(move, steps, keep=_places).kept)
        share: Float[np.ndarray, " tau"] = np.asarray(np.mean(found[:, 1:] != found[:, :-1], (0, 1)), np.float64)
        return share

    def _sampled(self, move: Sweep, steps: int, **more: Any) -> Any:
        self.key += 1
        run = sample(
            self.measure, self.s, steps=steps, moves=move, rule=self.rule, chains=self.chains, init=self.paths,
            key=self.key, progress=False, **more,
        )  # fmt: skip
        self.paths = np.asarray(run.state.path)
        self.evaluations += run.evaluations
        return run


def _places(state: ChainState) -> Any:
    """One number a model that changes when it moves."""
    return jnp.sum(state.path, 1)
