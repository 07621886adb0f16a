"""What the layers hand to each other: noise, proposals, the state of a chain, and the protocols of losses, moves and rules.

All arrays are written for one chain. `tiltwalk.chain` adds the axis of chains with `vmap`; for small models it is the last
axis, so that the machine's vectors run over chains, and nothing in a move or a rule may depend on which axis it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from tiltwalk.pytree import pytree, static

if TYPE_CHECKING:
    from tiltwalk.measure import PathMeasure


@pytree
class Noise:
    """The random numbers of one proposal, drawn before it: for many steps at a time, which is where the speed is.

    `normal` and `uniform` belong to one chain. `choice` and `key` are shared by all chains of a run: they say *which* models
    a step touches. Since every step leaves the measure unchanged whatever was chosen, sharing them correlates nothing in
    equilibrium, and it keeps the memory access of many chains in one line.
    """

    normal: Float[Array, "b w d"]
    uniform: Float[Array, " b"]
    choice: Float[Array, " 2"]
    key: UInt32[Array, " 2"]

    def shared_key(self) -> PRNGKeyArray:
        """A JAX key for choices that need more than two numbers; the same for all chains."""
        key: PRNGKeyArray = jax.random.wrap_key_data(self.key, impl="threefry2x32")
        return key


@pytree
class Proposal:
    """`b` blocks of `w` consecutive models; no two blocks touch, and each is decided on its own.

    `log_correction` is relative to the walk: zero for every move that is reversible with respect to it. `count` is given by
    moves of variable length: only the first `count` models of the block are new, the others are padding that is neither
    evaluated nor written. `stride` says statically that the sites are `sites[0, 0] + stride * i`, which spares a scatter.

    `losses` and `grads`, the losses of the rows and their gradients, are given where a move had to know them: rules then
    evaluate nothing. `evaluations` is what they cost, in losses with gradient of single models, of one chain.
    """

    sites: Int[Array, "b w"]
    rows: Float[Array, "b w d"]
    log_correction: Float[Array, " b"]
    count: Int[Array, ""] | None = None
    first: int | None = static(default=None)
    stride: int | None = static(default=None)
    losses: Float[Array, "b w"] | None = None
    grads: Float[Array, "b w d"] | None = None
    evaluations: Float[Array, ""] | None = None


@pytree
class ChainState:
    """One path and the loss of each of its models: all that the next step needs.

    `grads`, the gradient of each loss, is there where a move of the mixture needs it, and None elsewhere.
    """

    path: Float[Array, "tau d"]
    losses: Float[Array, " tau"]
    grads: Float[Array, "tau d"] | None = None


@pytree
class Decision:
    """What a rule made of a proposal: which blocks are taken, the losses of their models, and what it cost to find out.

    `stayed` is given by rules that estimate: what is to be noted as the losses of the old models where a block is not taken.
    """

    accepted: Bool[Array, " b"]
    losses: Float[Array, "b w"]
    log_ratio: Float[Array, " b"]
    evaluations: Float[Array, ""]
    stayed: Float[Array, "b w"] | None = None


@pytree
class StepInfo:
    """What happened in a step: share of blocks accepted, mean log acceptance ratio, move, tilt, and models evaluated.

    `evaluations` counts losses of single models, a loss with its gradient as one; `gradients` those that came with one.
    `failed` counts the blocks whose loss was not a number, which rejects them.
    """

    accepted: Float[Array, ""]
    log_ratio: Float[Array, ""]
    move: Int[Array, ""]
    s: Float[Array, ""]
    evaluations: Float[Array, ""]
    gradients: Float[Array, ""]
    failed: Float[Array, ""]


@runtime_checkable
class Loss(Protocol):
    """A loss of models: `(m, d) -> (m,)`. `dim` is `d`. Data are array leaves, so that new data do not recompile."""

    @property
    def dim(self) -> int: ...

    def __call__(self, thetas: Float[Array, "m d"], /) -> Float[Array, " m"]: ...


class Part(Protocol):
    """One proposal of a move. Most moves are their own only part; a sweep has two."""

    def noise_shape(self, length: int) -> tuple[int, int]:
        """`(b, w)` of the proposal, which is also how much noise it needs."""
        ...

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any, /) -> Proposal: ...


class Move(Protocol):
    """A way to change a path: parts that are proposed and decided in turn. A move never accepts.

    A move with the class variable `needs_gradient = True` is informed: the state then carries the gradients, `state.grads`.
    """

    @property
    def step(self) -> Any:
        """The size of the partial refresh, in (0, 1]: a leaf of the pytree, so that it can be tuned."""
        ...

    @property
    def name(self) -> str: ...

    def parts(self, length: int) -> tuple[Part, ...]: ...

    def check(self, measure: PathMeasure, /) -> None:
        """Raises where the move cannot serve this measure."""
        ...


class Rule(Protocol):
    """How a proposal is decided. A rule never proposes."""

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any, /) -> Decision: ...
