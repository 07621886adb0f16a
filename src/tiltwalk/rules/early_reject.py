"""The Metropolis rule on no more data than it takes to reject.

The uniform number `u` of a block is drawn before anything is evaluated, so that it is known from the start how large the loss
of the proposed models may be:

    accepted  <=>  sum of new losses < sum of old losses + (log_correction - log u) / s.

Losses of samples that have a lower bound (cross entropy, squares and errors are never negative) only add to what was seen, so
the block is rejected as soon as its loss on the data so far exceeds that limit. Decisions are those of `Metropolis`, but
for rounding.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tiltwalk import check
from tiltwalk.losses import Supervised
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree, static
from tiltwalk.rules.metropolis import Metropolis, current_losses
from tiltwalk.types import ChainState, Decision, Noise, Proposal

ROUNDING = 1e-5
"""How much of its size a sum may be off: nearer to the limit than that, a block is decided on all data."""

BOUNDED = ("cross_entropy", "mse", "zero_one")


@pytree
class EarlyReject:
    """`Metropolis` for a loss on data (`losses.Supervised`), which stops looking at data once a block is sure to be rejected.

    `bound`: no sample's loss is below this, before weights; None stands for 0 and serves the kinds that are never negative.
    `pieces`: after how many parts of the data to ask. A block that was given up has an upper bound in place of its log ratio.
    """

    bound: float | None = static(default=None)
    pieces: int = static(default=32)

    def __post_init__(self) -> None:
        if self.bound is not None:
            check.number("EarlyReject.bound", self.bound)
        check.whole("EarlyReject.pieces", self.pieces, low=1)

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any) -> Decision:
        if proposal.losses is not None:  # the move had to know them: there is nothing to spare
            return Metropolis().decide(noise, measure, state, proposal, s)
        loss = measure.loss
        low = _bound(loss, self.bound)
        b, w, _ = proposal.rows.shape
        wanted = jnp.ones((b, w), bool) if proposal.count is None else jnp.arange(w)[None] < proposal.count
        old = jnp.sum(current_losses(state, proposal), 1)
        limit = old + (proposal.log_correction - jnp.log(noise.uniform)) / s
        slack = ROUNDING * (jnp.abs(limit) + jnp.abs(old))
        losses, seen = loss.until(proposal.rows, limit + slack, wanted, self.pieces, low)  # type: ignore[attr-defined]
        change = jnp.sum(losses, 1) + low * (1 - seen) * jnp.sum(wanted, 1) - old
        log_ratio = proposal.log_correction - s * change
        accepted = (noise.uniform < jnp.exp(log_ratio)) & (seen == 1)
        return Decision(accepted, losses, log_ratio, jnp.sum(seen * jnp.sum(wanted, 1)).astype(proposal.rows.dtype))


def _bound(loss: Any, bound: float | None) -> float:
    if not isinstance(loss, Supervised):
        raise TypeError(f"EarlyReject needs a loss on data, losses.Supervised, that it can look at in pieces; got {loss}.")
    if bound is None and loss.kind not in BOUNDED:
        raise ValueError(
            f"EarlyReject.bound must be given for a loss that may be negative, or of a kind of your own; got None, and the "
            f"kind {check.shown(loss.kind)}."
        )
    return 0.0 if bound is None else float(bound)
