"""The Metropolis rule: take a block with probability `min(1, exp(-s * change of loss + correction))`."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree
from tiltwalk.types import ChainState, Decision, Noise, Proposal


@pytree
class Metropolis:
    """Every block on its own; the walk does not appear, since every move is reversible with respect to it."""

    trailing: ClassVar[bool] = True

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any) -> Decision:
        losses, evaluations = measure.evaluate(proposal)
        change = jnp.sum(losses - current_losses(state, proposal), 1)
        log_ratio = proposal.log_correction - s * change
        # NaN rejects: a comparison with it is false
        return Decision(noise.uniform < jnp.exp(log_ratio), losses, log_ratio, evaluations)


def current_losses(state: ChainState, proposal: Proposal) -> Any:
    """The losses that a proposal would replace, `(b, w)`, zero where a block has padding."""
    b, w = proposal.sites.shape
    if proposal.first is not None and proposal.stride is not None:
        return state.losses[proposal.first :: proposal.stride].reshape(b, w, *state.losses.shape[1:])
    found = jnp.take(state.losses, proposal.sites, axis=0, mode="clip")
    if proposal.count is None:
        return found
    live = jnp.arange(w).reshape(1, w, *[1] * (found.ndim - 2)) < proposal.count
    return jnp.where(live, found, 0)
