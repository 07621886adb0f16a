"""`evolve`: single models led towards low loss by an evolution strategy, without a gradient and without equilibrium.

Each step tries `K` random directions around each model, on a random part of the data, and goes a small way along those that
did better and against those that did worse. With `m` the mean of the walk's law of a single model and `e_1 ... e_K` draws of
its deviation,

    f_k = loss of theta + radius * e_k on the part          w_k = (mean f - f_k) / deviation of f
    e   = sum_k w_k e_k / sqrt(K)
    new = m + sqrt(1 - step^2) (theta - m) + step * e,

which is the partial refresh of the gradient-free moves, with noise that is chosen for its loss where theirs is drawn blindly:
the weights have mean square 1, so that `e` is as long as a single draw, and the pull towards `m` keeps a model at the scale of
its start however many steps are made. The sum of `w_k e_k` is the estimate of a gradient that Rechenberg's and Salimans'
strategies follow (Salimans, Ho, Chen, Sidor, Sutskever 2017, arXiv:1703.03864), and a random part of the data is enough to
rank directions by: a step costs `K * batch / N` evaluations, and a hundred such steps bring a model further than as many
proposals on all data that are each accepted or not.

Directions are signs, +1 or -1 in units of the walk's deviation, the same for all chains of a step: models that differ weigh
them differently. Each model follows its own loss and none sees another.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree, static
from tiltwalk.run import Run
from tiltwalk.sampling import sample
from tiltwalk.types import ChainState, Decision, Noise, Proposal

DIRECTIONS = 32
"""Directions of a step: how many hardly matters, as long as there are many steps."""

BATCH = 128
"""Samples that a step looks at."""

RADIUS = 0.2
"""How far a direction is tried, in deviations of the walk. Wide enough to see the shape of the landscape and not its ripples:
with half of it models fit the data more closely and predict worse."""


def evolve(
    measure: PathMeasure,
    *,
    steps: int,
    step: float = 0.025,
    radius: float = RADIUS,
    directions: int = DIRECTIONS,
    batch: int | None = BATCH,
    chains: int = 1,
    init: Any = None,
    key: Any = 0,
    progress: bool = True,
    sampler: Callable[..., Run] = sample,
) -> Run:
    """Single models under the measure's walk and loss, `steps` steps on; nothing is kept, and nothing is in equilibrium.

    - `step` in (0, 1]: of the partial refresh. Let it fall over several calls, each with the `init` of the last.
    - `radius`: how far the directions are tried, in deviations of the walk's law of a single model.
    - `batch`: samples that a step looks at, drawn with replacement and shared by the chains, where the loss is one on
      samples, such as `losses.Supervised`; None for all of them.
    - `init`, `key`, `progress`: as for `sample`.

    Returns a run of one-model paths, whose cached losses are those of the last step's part of the data. `grow(run, length)`
    makes paths of them.
    """
    check.number("evolve.step", step, low=0, high=1, low_open=True)
    check.number("evolve.radius", radius, low=0, low_open=True)
    check.whole("evolve.directions", directions, low=2)
    if batch is not None:
        check.whole("evolve.batch", batch, low=1)
    single = PathMeasure(measure.walk, measure.loss, 1)
    move = Evolution(step, radius, directions, batch)
    if isinstance(init, Run):  # goes on, with this step in place of that run's
        init = dataclasses.replace(init, steps={move.name: np.full(chains, step)})
    return sampler(
        single, 1.0, steps=0, burn_in=steps, chains=chains, key=key, init=init, moves=move, rule=Taken(move.cost(single)),
        progress=progress,
    )  # fmt: skip


@pytree
class Evolution:
    """A step of the strategy in the form of a move, so that what drives moves drives it. It samples nothing."""

    step: Any = 0.025
    radius: Any = RADIUS
    directions: int = static(default=DIRECTIONS)
    batch: int | None = static(default=BATCH)

    @property
    def name(self) -> str:
        return "evolution"

    def check(self, measure: PathMeasure) -> None:
        if measure.length != 1:
            raise ValueError(f"Evolution serves single models alone, length 1; got length {measure.length}.")

    def cost(self, measure: PathMeasure) -> float:
        """Evaluations of one model on all data that a step takes."""
        n = _samples(measure.loss)
        return self.directions * (1.0 if self.batch is None or n is None else min(1.0, self.batch / n))

    def parts(self, length: int) -> tuple[Evolution, ...]:
        return (self,)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return 1, 1

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        chosen, seed = jax.random.split(noise.shared_key())
        old = state.path
        signs = _signs(seed, self.directions, old.shape[1], old.dtype)
        mean, deviation = measure.walk.sites(old, 0, signs)
        tried = self._part(measure.loss, chosen)(old + jnp.asarray(self.radius, old.dtype) * deviation).astype(old.dtype)
        weight, spread = weights(tried)
        best = weight @ deviation / math.sqrt(self.directions)
        step = jnp.asarray(self.step, old.dtype)
        new = mean + jnp.sqrt(1 - step * step) * (old - mean) + step * best
        new = jnp.where(spread > 0, new, old)  # directions that are all alike say nothing
        losses = jnp.nanmean(tried)[None, None]
        return Proposal(jnp.zeros((1, 1), jnp.int32), new[None], jnp.zeros(1, old.dtype), first=0, stride=1, losses=losses)

    def _part(self, loss: Any, key: Any) -> Callable[[Array], Array]:
        n = _samples(loss)
        if self.batch is None or n is None or n <= self.batch:
            return loss  # type: ignore[no-any-return]
        return loss.on(jax.random.randint(key, (self.batch,), 0, n))  # type: ignore[no-any-return]


@pytree
class Taken:
    """The rule that takes every step. `cost`: evaluations in it."""

    cost: float = static()

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any) -> Decision:
        losses, _ = measure.evaluate(proposal)
        dtype = proposal.rows.dtype
        return Decision(jnp.ones(1, bool), losses, jnp.zeros(1, dtype), jnp.asarray(self.cost, dtype))


def weights(losses: Float[Array, " k"]) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """How far each direction is followed: mean 0, mean square 1, larger where the loss is lower; and the losses' deviation.

    A loss that is not finite counts as none: its direction gets 0.
    """
    there = jnp.isfinite(losses)
    number = jnp.maximum(jnp.sum(there), 1)
    gain = jnp.where(there, jnp.sum(jnp.where(there, losses, 0)) / number - losses, 0)
    spread = jnp.sqrt(jnp.sum(gain**2) / losses.shape[0])
    return gain / jnp.where(spread > 0, spread, 1), spread


def _samples(loss: Any) -> int | None:
    """The samples of a loss that can be had on some of them."""
    return loss.n if hasattr(loss, "on") and hasattr(loss, "n") else None


def _signs(key: Any, rows: int, dim: int, dtype: Any) -> Float[Array, "rows dim"]:
    """+1 or -1: 32 to a random word, which costs a fraction of as many normal numbers."""
    words = jax.random.bits(key, (rows, -(-dim // 32)), jnp.uint32)
    bits = (words[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return (2 * bits.astype(dtype) - 1).reshape(rows, -1)[:, :dim]
