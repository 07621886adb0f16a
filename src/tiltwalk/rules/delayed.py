"""Delayed acceptance in two stages: a cheap loss turns away what is hopeless, the loss on all data corrects it: exact.

With `c` the correction of a proposal, `dG` the change of a surrogate `G` of the loss, and `dL` that of the loss itself,

    first stage   a1 = min(1, exp(c - trust s dG)),          from G alone
    second stage  a2 = min(1, exp(trust s dG - s dL)),       for what has passed the first

and a block is taken with probability `a1 a2` (Christen, Fox 2005). Both exponents change sign where old and new change places,
so that each stage, and their product, is reversible with respect to the tilted measure, however bad the surrogate: it only
makes for fewer acceptances. One uniform number `u` serves both: a block passes where `u < a1`, and is taken where `u < a1 a2`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tiltwalk import check
from tiltwalk.losses import Supervised, pieces
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree, static
from tiltwalk.rules.metropolis import Metropolis, current_losses
from tiltwalk.types import ChainState, Decision, Loss, Noise, Proposal

SHARE = 0.1
"""The part of the data that is looked at first where nothing is said."""

Evaluate = Callable[[Float[Array, "m d"], Bool[Array, " m"]], Float[Array, " m"]]


@pytree
class Delayed:
    """Two-stage acceptance: first by a surrogate of the loss, then, for blocks that pass, by the loss.

    `surrogate`: a cheaper loss of the same models, such as `loss.on(indices)`. Without one it is the mean over the first
    `share` of the data of a `losses.Supervised`, which the second stage does not look at again; shuffle data that are sorted.
    `trust` in (0, 1]: how much of the surrogate's change the first stage goes by. Less passes more, and wastes less where the
    surrogate is noisy.

    The old models' surrogate values are not kept in the state: they are evaluated beside the new ones. `evaluations` counts
    both, in shares of the data; a surrogate that is no `losses.Supervised` counts as free. A block that did not pass has the
    first stage's log ratio. Moves that bring their losses with them leave nothing to spare, and are decided by `Metropolis`.
    """

    surrogate: Loss | None = None
    share: float | None = static(default=None)
    trust: Any = 1.0

    def __post_init__(self) -> None:
        if self.share is not None:
            check.number("Delayed.share", self.share, low=0, high=0.9, low_open=True)
            if self.surrogate is not None:
                raise ValueError(f"Delayed.share must be None where a surrogate is given; got {self.share:g}.")
        if self.surrogate is not None and (not callable(self.surrogate) or not hasattr(self.surrogate, "dim")):
            raise TypeError(
                f"Delayed.surrogate must be a loss of models, such as loss.on(indices); got {check.shown(self.surrogate)}."
            )
        check.number("Delayed.trust", self.trust, low=0, high=1, low_open=True)

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any) -> Decision:
        stages = self._on_data(measure.loss) if self.surrogate is None else self._by_surrogate(measure.loss)
        if proposal.losses is not None:
            return Metropolis().decide(noise, measure, state, proposal, s)
        b, w, d = proposal.rows.shape
        dtype = proposal.rows.dtype
        wanted = jnp.ones((b, w), bool) if proposal.count is None else jnp.arange(w)[None] < proposal.count
        old = jnp.take(state.path, proposal.sites, axis=0, mode="clip")
        thetas = jnp.stack([old, proposal.rows]).reshape(2 * b * w, d)
        seen = stages.first(thetas, jnp.tile(wanted.reshape(-1), 2)).astype(dtype).reshape(2, b, w)
        guess = self.trust * s * stages.scale * jnp.sum(seen[1] - seen[0], 1)
        # a surrogate that cannot compare the two lets pass: the loss decides alone
        first = jnp.where(jnp.isfinite(guess), proposal.log_correction - guess, 0).astype(dtype)
        passes = noise.uniform < jnp.exp(first)
        live = wanted & passes[:, None]
        losses = stages.second(proposal.rows.reshape(b * w, d), live.reshape(-1)).astype(dtype).reshape(b, w)
        losses = jnp.where(live, losses + (seen[1] if stages.adds else 0), 0)
        log_ratio = proposal.log_correction - s * jnp.sum(losses - current_losses(state, proposal), 1)
        taken = passes & (noise.uniform < jnp.exp(jnp.minimum(first, 0) + jnp.minimum(log_ratio - first, 0)))
        looked = 2 * stages.share * jnp.sum(wanted) + (1 - stages.share * stages.adds) * jnp.sum(live)
        return Decision(taken, losses, jnp.where(passes, log_ratio, first), looked.astype(dtype))

    def _on_data(self, loss: Any) -> Stages:
        """The first blocks of the data, and the others."""
        if not isinstance(loss, Supervised):
            raise TypeError(
                "Delayed needs a loss on data, losses.Supervised, of which it can look at a share, or a cheaper loss, "
                f"Delayed(surrogate); got {check.shown(loss)}."
            )
        blocks = loss.data.weight.shape[0]
        if blocks == 1:
            raise ValueError(
                f"Delayed.share needs data in two blocks or more; got {loss.n} samples in one block of {loss.block}: "
                "give Supervised a smaller block."
            )
        count = min(max(1, round(blocks * (SHARE if self.share is None else self.share))), blocks - 1)
        scale = loss.n / jnp.sum(loss.data.weight[:count])
        return Stages(
            lambda thetas, live: loss.part(thetas, 0, count, live),
            lambda thetas, live: loss.part(thetas, count, blocks - count, live),
            scale, count / blocks, adds=True,
        )  # fmt: skip

    def _by_surrogate(self, loss: Any) -> Stages:
        surrogate: Any = self.surrogate
        if surrogate.dim != loss.dim:
            raise ValueError(f"Delayed.surrogate must be a loss of the same {loss.dim} parameters; got one of {surrogate.dim}.")
        on_data = isinstance(surrogate, Supervised) and isinstance(loss, Supervised)
        share = surrogate.n / loss.n if on_data else 0.0
        return Stages(_where(surrogate), _where(loss), 1.0, share, adds=False)


@dataclasses.dataclass(frozen=True)
class Stages:
    """The two evaluations of models that are live; what makes the first a mean loss, and its share of the data; and whether
    the second is to be added to the first."""

    first: Evaluate
    second: Evaluate
    scale: Any
    share: float
    adds: bool


def _where(loss: Any) -> Evaluate:
    if isinstance(loss, Supervised):
        return loss.where
    return lambda thetas, live: pieces.of_live(loss, thetas, live)
