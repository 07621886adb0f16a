"""Chains: `init`, `step` and `run` as pure functions; and `advance`, many steps of many chains in one program.

`init(measure, path) -> ChainState`, `step(key, state, s, ...) -> (ChainState, StepInfo)` and `run`, which is many steps, are
for one chain and go through `jit`, `vmap` and `scan` as they are. `advance` does what they do, with three things arranged for
speed: the noise of many steps is drawn at once; chains are the last axis where models are small, so that the machine's vectors
run over chains; and which move a step makes is decided once for all chains, so that a mixture stays a real branch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from tiltwalk import check
from tiltwalk import noise as noise_
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree
from tiltwalk.rules import Metropolis
from tiltwalk.types import ChainState, Decision, Move, Noise, Part, Proposal, Rule, StepInfo

Mixture = Sequence[tuple[Move, float]]

SMALLEST_STEP = 1e-6

LONG_STEP = 2**14
"""Random numbers in a step of all chains above which noise is drawn a step at a time."""

SLOWEST_GAIN = 0.01
"""Tuning never slows down below this, so that a step size can follow a tilt that rises through a long burn-in."""


def init(measure: PathMeasure, path: Float[Array, "tau d"], gradients: bool = False) -> ChainState:
    """The state of a chain that is at `path`, with the gradient of each loss where an informed move will need it."""
    path = jnp.asarray(path, float)
    if not gradients:
        return ChainState(path, measure.losses(path).astype(path.dtype))
    losses, grads = measure.value_and_grad(path)
    return ChainState(path, losses.astype(path.dtype), grads.astype(path.dtype))


def step(
    key: Any, state: ChainState, s: Any, *, measure: PathMeasure, moves: Mixture, rule: Rule | None = None
) -> tuple[ChainState, StepInfo]:
    """One step of one chain: choose a move of the mixture, propose, decide."""
    _check_state("chain.step", state, moves)
    return _step(noise_.seed(key), 0, 0, state, s, measure, moves, Metropolis() if rule is None else rule)


def run(
    key: Any,
    state: ChainState,
    s: Any,
    *,
    steps: int,
    measure: PathMeasure,
    moves: Mixture,
    rule: Rule | None = None,
    first_step: Any = 0,
    chain: Any = 0,
) -> tuple[ChainState, StepInfo]:
    """`steps` steps of one chain: the last state, and what happened in each step, `(steps,)` in every field.

    `s` is a number, or an array with one value a step. Randomness is that of `tiltwalk.sample` for the same key: the step
    number `first_step + i` of chain number `chain`. So a run that goes on from step `n` has `first_step=n`, and

        jax.vmap(lambda state, c: run(key, state, s, chain=c, ...))(states, jnp.arange(chains))

    runs many chains that share the choice of a move, which keeps a mixture a real branch.
    """
    check.whole("chain.run.steps", steps, low=0)
    _check_state("chain.run", state, moves)
    tilts = jnp.asarray(s, state.path.dtype)
    if tilts.shape not in ((), (steps,)):
        raise ValueError(f"chain.run.s must be a number or one for each of {steps} steps; got an array of shape {tilts.shape}.")
    words = noise_.seed(key)
    rule = Metropolis() if rule is None else rule

    def body(state: ChainState, x: tuple[Array, Array]) -> tuple[ChainState, StepInfo]:
        number, tilt = x
        return _step(words, number, chain, state, tilt, measure, moves, rule)

    numbers = jnp.asarray(first_step, jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32)
    return jax.lax.scan(body, state, (numbers, jnp.broadcast_to(tilts, (steps,))))


def informed(moves: Iterable[Move]) -> bool:
    """Whether one of the moves needs gradients in the state."""
    return any(getattr(move, "needs_gradient", False) for move in moves)


def _check_state(name: str, state: ChainState, moves: Mixture) -> None:
    if state.grads is None and informed(move for move, _ in moves):
        raise ValueError(
            f"{name}.state must hold gradients, as moves that need them are in the mixture: "
            "chain.init(measure, path, gradients=True); got none."
        )


def _step(
    words: UInt32[Array, " 2"],
    number: Any,
    chain: Any,
    state: ChainState,
    s: Any,
    measure: PathMeasure,
    moves: Mixture,
    rule: Rule,
) -> tuple[ChainState, StepInfo]:
    dtype = state.path.dtype

    def made_by(index: int, move: Move) -> Callable[[ChainState], tuple[ChainState, StepInfo]]:
        def branch(state: ChainState) -> tuple[ChainState, StepInfo]:
            parts = move.parts(measure.length)
            noises = tuple(
                noise_.step_noise(words, number, i, (*part.noise_shape(measure.length), measure.dim), dtype, chain)
                for i, part in enumerate(parts)
            )
            return make(state, noises, parts, measure, rule, s, index)

        return branch

    branches = [made_by(i, move) for i, (move, _) in enumerate(moves)]
    if len(branches) == 1:
        return branches[0](state)
    chosen = chosen_move(words, jnp.asarray(number, jnp.uint32), [w for _, w in moves])
    return jax.lax.switch(chosen, branches, state)  # type: ignore[no-any-return]


def make(
    state: ChainState,
    noises: tuple[Noise, ...],
    parts: tuple[Part, ...],
    measure: PathMeasure,
    rule: Rule,
    s: Any,
    index: Any,
) -> tuple[ChainState, StepInfo]:
    """One move with its noise in hand: its parts are proposed and decided in turn."""
    dtype = state.path.dtype
    taken = ratio = failed = jnp.zeros(state.losses.shape[1:], dtype)
    evaluations = gradients = jnp.zeros((), dtype)
    blocks = 0
    s = jnp.asarray(s, dtype)
    for part, noise in zip(parts, noises, strict=True):
        proposal = part.propose(noise, state, measure, s)
        if state.grads is not None and proposal.grads is None:
            # a plain move beside an informed one: the gradients of what it changes must go with the models
            proposal = measure.with_gradients(proposal)
        decision = rule.decide(noise, measure, state, proposal, s)
        state = put(state, proposal, decision)
        taken += jnp.sum(decision.accepted.astype(dtype), 0)
        ratio += jnp.sum(decision.log_ratio, 0)
        failed += jnp.sum(jnp.isnan(decision.log_ratio).astype(dtype), 0)
        evaluations += decision.evaluations
        if proposal.evaluations is not None:
            evaluations += proposal.evaluations
            gradients += proposal.evaluations
        blocks += proposal.rows.shape[0]
    return state, StepInfo(taken / blocks, ratio / blocks, jnp.asarray(index, jnp.int32), s, evaluations, gradients, failed)


def put(state: ChainState, proposal: Proposal, decision: Decision) -> ChainState:
    """The state with the accepted blocks written into it."""
    write = functools.partial(_written, proposal, decision.accepted)
    losses = state.losses
    if decision.stayed is not None:
        losses = _written(proposal, jnp.ones_like(decision.accepted), losses, decision.stayed)
    grads = None if state.grads is None or proposal.grads is None else write(state.grads, proposal.grads)
    return ChainState(write(state.path, proposal.rows), write(losses, decision.losses), grads)


def _written(proposal: Proposal, accepted: Array, old: Array, new: Array) -> Array:
    """`old (tau, ...)` with the accepted blocks of `new (b, w, ...)`."""
    b, w = proposal.sites.shape
    # one decision a block, of each chain where chains are the last axis
    taken = accepted.reshape(b, *[1] * (new.ndim - accepted.ndim), *accepted.shape[1:])
    if proposal.first is not None and proposal.stride == 2 and w == 1:
        chosen = slice(proposal.first, None, 2)
        return _interleaved(old, jnp.where(taken[:, 0], new[:, 0], old[chosen]), proposal.first)
    if b == 1 and proposal.count is None and proposal.stride == 1:
        first = proposal.sites[0, 0]
        there = jax.lax.dynamic_slice_in_dim(old, first, w)
        return jax.lax.dynamic_update_slice_in_dim(old, jnp.where(taken[0], new[0], there), first, 0)
    there = jnp.take(old, proposal.sites, axis=0, mode="clip")
    sites = proposal.sites
    if proposal.count is not None:
        sites = jnp.where(jnp.arange(w) < proposal.count, sites, old.shape[0])  # out of range: not written
    return old.at[sites].set(jnp.where(taken, new, there), mode="drop", unique_indices=proposal.count is None)


def _interleaved(old: Array, new: Array, first: int) -> Array:
    """`old` with `new` at `first, first + 2, ...`: a copy in one pass, where a scatter would go row by row."""
    length = old.shape[0]
    if length == 1:
        return new
    other = old[1 - first :: 2]
    even, odd = (new, other) if first == 0 else (other, new)
    if length % 2:
        odd = jnp.concatenate([odd, even[-1:]])
    return jnp.stack([even, odd], 1).reshape(2 * even.shape[0], *old.shape[1:])[:length]


def chosen_move(words: UInt32[Array, " 2"], steps: Any, weights: Any) -> Int[Array, "..."]:
    """Which move of a mixture each step makes."""
    bounds = jnp.cumsum(jnp.asarray(weights, jnp.float32))
    return jnp.searchsorted(bounds / bounds[-1], noise_.move_choice(words, steps), side="right").clip(0, len(weights) - 1)


def tuned(
    step: Float[Array, " c"], number: UInt32[Array, ""], accepted: Float[Array, " c"], target: float
) -> Float[Array, " c"]:
    """The step size after step `number`, which accepted a share `accepted` of its blocks (Robbins, Monro 1951)."""
    gain = jnp.maximum((number.astype(jnp.float32) + 1) ** -0.6, SLOWEST_GAIN)
    return jnp.clip(step * jnp.exp(gain * (accepted - target)), SMALLEST_STEP, 1).astype(step.dtype)


# ---- many steps of many chains ----


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static shape of a run: what is compiled. `draws * blocks` blocks of `steps` steps make a unit of `draws` draws.

    Either a block holds several draws (`blocks == 1`, `steps = draws * thin`) or a draw takes several blocks (`draws == 1`).
    `room` is the number of draws for which the program has space. `target` is the acceptance to tune to, or None.
    """

    draws: int
    blocks: int
    steps: int
    room: int
    last: bool
    keep: Callable[[ChainState], Any] | None
    target: float | None

    @property
    def unit(self) -> int:
        """Steps a unit."""
        return self.blocks * self.steps


@pytree
class Carry:
    """The chains as they travel from unit to unit: `c` chains, on the last axis or the first."""

    state: ChainState
    steps: Float[Array, "moves c"]


@pytree
class Tally:
    """Counts of one call of `advance`: per move and chain, the sum of acceptances; per move, steps; models evaluated; by chain,
    blocks whose loss was not a number.

    `evaluations` and `gradients` are of one chain, as in `StepInfo`.
    """

    accepted: Float[Array, "moves c"]
    made: Float[Array, " moves"]
    evaluations: Float[Array, ""]
    gradients: Float[Array, ""]
    failed: Float[Array, " c"]


def words_per_step(measure: PathMeasure, moves: Sequence[Move]) -> int:
    """Random numbers that a step of one chain needs, at most."""

    def of(move: Move) -> int:
        shapes = [part.noise_shape(measure.length) for part in move.parts(measure.length)]
        return sum(b * w * measure.dim + b for b, w in shapes)

    return max(of(move) for move in moves)


@functools.partial(jax.jit, static_argnames=("plan",))
def advance(
    plan: Plan,
    words: UInt32[Array, " 2"],
    chains: UInt32[Array, " c"],
    first_step: UInt32[Array, ""],
    units: Int[Array, ""],
    s: Float[Array, " n"],
    carry: Carry,
    measure: PathMeasure,
    moves: tuple[Move, ...],
    weights: Float[Array, " moves"],
    rule: Rule,
) -> tuple[Carry, Tally, Any]:
    """Runs `units` units from step number `first_step`, with the tilt `s[i]` at step `first_step + i`; returns what was kept.

    `units` is traced, so that a run in pieces of any size is one program. Kept draws fill the front of a buffer of `room`.
    """
    ax = -1 if plan.last else 0
    dtype = carry.state.path.dtype
    length, dim = measure.length, measure.dim
    parts_shapes = [tuple((*p.noise_shape(length), dim) for p in m.parts(length)) for m in moves]
    alike = all(shapes == parts_shapes[0] for shapes in parts_shapes)

    def noises(steps: UInt32[Array, " k"], shapes: tuple[tuple[int, int, int], ...]) -> tuple[Noise, ...]:
        return tuple(
            noise_.steps_noise(words, steps, i, shape, chains, last=plan.last, dtype=dtype) for i, shape in enumerate(shapes)
        )

    def branch(index: int) -> Callable[..., tuple[Carry, tuple[Array, Array], Array]]:
        def of_chain(one: Carry, noise: tuple[Noise, ...], tilt: Array) -> tuple[ChainState, tuple[Array, Array], Array]:
            move = dataclasses.replace(moves[index], step=one.steps[index].astype(dtype))  # type: ignore[type-var]
            state, info = make(one.state, noise, move.parts(length), measure, rule, tilt, index)
            return state, (info.accepted, info.failed), jnp.stack([info.evaluations, info.gradients])

        def many(
            carry: Carry, noise: tuple[Noise, ...] | None, number: Array, tilt: Array
        ) -> tuple[Carry, tuple[Array, Array], Array]:
            if noise is None:
                noise = jax.tree.map(lambda x: x[0], noises(number[None], parts_shapes[index]))
            every = of_chain
            if not plan.last:
                every = jax.vmap(
                    of_chain,
                    in_axes=(Carry(along(carry.state, 0), -1), (Noise(0, 0, None, None),) * len(noise), None),  # type: ignore[arg-type]
                )
            state, decided, cost = every(carry, noise, tilt)
            steps = carry.steps
            if plan.target is not None:
                steps = steps.at[index].set(tuned(steps[index], number, decided[0], plan.target))
            return Carry(state, steps), decided, cost if plan.last else jnp.mean(cost, 0)

        return many

    def along(state: ChainState, axis: int) -> Any:
        return jax.tree.map(lambda _: axis, state)

    branches = [branch(i) for i in range(len(moves))]

    def one_step(carried: tuple[Carry, Tally], x: Any) -> tuple[tuple[Carry, Tally], None]:
        carry, tally = carried
        noise, number, tilt, index = x
        if len(moves) == 1:
            carry, (accepted, failed), cost = branches[0](carry, noise, number, tilt)
            taken, made = tally.accepted + accepted, tally.made + 1
        else:
            carry, (accepted, failed), cost = jax.lax.switch(index, branches, carry, noise, number, tilt)
            taken, made = tally.accepted.at[index].add(accepted), tally.made.at[index].add(1)
        spent = tally.evaluations + cost[0], tally.gradients + cost[1]
        return (carry, Tally(taken, made, *spent, tally.failed + failed)), None

    def kept(carry: Carry) -> Any:
        if plan.keep is None:
            return None
        return jax.vmap(plan.keep, in_axes=(along(carry.state, ax),), out_axes=ax)(carry.state)

    def inputs(start: Array) -> Any:
        numbers = first_step + start + jnp.arange(plan.steps, dtype=jnp.uint32)
        tilts = jax.lax.dynamic_slice_in_dim(s, start.astype(jnp.int32), plan.steps)
        which = chosen_move(words, numbers, weights) if len(moves) > 1 else jnp.zeros(plan.steps, jnp.int32)
        noise = materialised(lambda: noises(numbers, parts_shapes[0]), plan.steps, units) if alike else None
        return noise, numbers, tilts, which

    zeros = functools.partial(jnp.zeros, dtype=dtype)
    count = chains.shape[0]
    nothing = Tally(zeros((len(moves), count)), zeros(len(moves)), zeros(()), zeros(()), zeros(count))
    return in_units(plan, units, (carry, nothing), inputs, one_step, kept)


def in_units(
    plan: Plan,
    units: Int[Array, ""],
    carried: tuple[Any, Any],
    inputs: Callable[[Array], Any],
    one_step: Callable[[tuple[Any, Any], Any], tuple[tuple[Any, Any], None]],
    kept: Callable[[Any], Any],
) -> tuple[Any, Any, Any]:
    """`units` units of steps of a carry and a tally, and a buffer of `plan.room` draws, filled from the front.

    `inputs(start)` is what a block of `plan.steps` steps from the step `start` of this call needs, with a row for each step;
    `one_step` makes one of them, and `kept` is what stays of a carry.
    """

    def block(carried: tuple[Any, Any], start: Array) -> tuple[tuple[Any, Any], Any]:
        """A block, and a draw after every `steps / draws` of its steps where a block holds draws."""
        xs = inputs(start)
        if plan.blocks > 1 or plan.keep is None:
            return jax.lax.scan(one_step, carried, xs)
        thin = plan.steps // plan.draws
        if thin == 1:

            def step_and_keep(carried: Any, x: Any) -> Any:
                carried, _ = one_step(carried, x)
                return carried, kept(carried[0])

            return jax.lax.scan(step_and_keep, carried, xs)
        xs = jax.tree.map(lambda x: x.reshape(plan.draws, thin, *x.shape[1:]), xs)

        def draw(carried: Any, x: Any) -> Any:
            carried, _ = jax.lax.scan(one_step, carried, x)
            return carried, kept(carried[0])

        return jax.lax.scan(draw, carried, xs)

    def unit(i: Array, done: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        carry, tally, buffer = done
        start = i.astype(jnp.uint32) * plan.unit
        if plan.blocks > 1:
            starts = start + plan.steps * jnp.arange(plan.blocks, dtype=jnp.uint32)
            (carry, tally), _ = jax.lax.scan(block, (carry, tally), starts)
            found = jax.tree.map(lambda x: x[None], kept(carry))
        else:
            (carry, tally), found = block((carry, tally), start)
        if plan.keep is not None:
            buffer = jax.tree.map(lambda b, x: jax.lax.dynamic_update_slice_in_dim(b, x, i * plan.draws, 0), buffer, found)
        return carry, tally, buffer

    shapes = jax.eval_shape(kept, carried[0])
    buffer = jax.tree.map(lambda x: jnp.zeros((plan.room, *x.shape), x.dtype), shapes)
    done: tuple[Any, Any, Any] = jax.lax.fori_loop(0, units, unit, (*carried, buffer))
    return done


def materialised(draw: Callable[[], Any], steps: int, units: Array) -> Any:
    """The result of `draw`, written to memory before it is used.

    The compiler takes a loop over several steps as a border; for a single step it would draw each number anew in every
    place that uses it, unless the border is a loop whose length it cannot know.
    """
    if steps > 1:
        return draw()
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(draw))
    return jax.lax.fori_loop(0, jnp.minimum(units, 1), lambda _, __: draw(), empty)


def plan_for(
    measure: PathMeasure,
    moves: Sequence[Move],
    *,
    draws: int,
    thin: int,
    chains: int,
    last: bool,
    keep: Callable[[ChainState], Any] | None,
    target: float | None,
    budget: int = 2**19,
    room_bytes: int = 2**25,
) -> Plan:
    """A plan for up to `draws` draws of `thin` steps each, whose noise for one block stays within `budget` numbers."""
    words = words_per_step(measure, moves) * chains
    # where a step is long by itself, blocks of one step serve any number of steps with one program
    most = 1 if words > LONG_STEP else int(max(1, min(4096, budget // max(1, words))))
    if thin <= most:
        upper = max(1, min(draws, most // thin))
        # a number of draws a block that divides all of them spares a second program for the rest
        best = max(range(max(1, upper // 2), upper + 1), key=lambda g: (-(draws % g), g))
        group, blocks, steps = best, 1, best * thin
    else:
        steps = max(k for k in range(1, most + 1) if thin % k == 0)
        group, blocks = 1, thin // steps
    size = 1
    if keep is not None:
        one = jax.eval_shape(lambda: keep(_blank(measure, informed(moves))))
        size = sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(one))
    wanted = 4096 if keep is None else 2 ** math.ceil(math.log2(max(1, draws // group)))
    room = group * max(1, min(wanted, room_bytes // max(1, size * chains) // group))
    return Plan(group, blocks, steps, room, last, keep, target)


def _blank(measure: PathMeasure, gradients: bool) -> ChainState:
    path = jnp.zeros((measure.length, measure.dim))
    return ChainState(path, jnp.zeros(measure.length), path if gradients else None)
