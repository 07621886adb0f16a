"""Ladders: chains at several tilts that step side by side and swap paths with their neighbours, in one program.

The chains of a ladder sample the product of the measures at its rungs. After every `swap_every`-th step the rungs are paired,
(0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn, and the paths `x, y` of each pair `r, r + 1` change places with probability

    min(1, p_r(y) p_{r+1}(x) / (p_r(x) p_{r+1}(y))) = min(1, exp((s_{r+1} - s_r) (Lsum(y) - Lsum(x)))),

which leaves the product as it is (Geyer 1991; Hukushima, Nemoto 1996). In turn, and not at random, since a path that goes up
then tends to go on up: round trips take a time in proportion to the rungs, and not to their square (Okabe and others 2001;
Syed, Bouchard-Côté, Deligiannidis, Doucet 2022). Where rungs also differ in sigma, the ratio of the walks' densities enters.

Step sizes belong to the rungs; paths, losses and gradients move, whatever the state holds. A path that moves is a walker.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from tiltwalk import chain
from tiltwalk import noise as noise_
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree
from tiltwalk.types import ChainState, Move, Noise, Rule


@pytree
class Carry:
    """`c` ladders of `r` rungs: states on one axis of `n = r c` chains, the ladders of a rung side by side.

    `walker` is which path is at each rung, by the rung where it began. `heading` is 1 for a walker that has been at the lowest
    rung and not yet at the highest, -1 for one that has then been there too, and 0 for one that has not been at the lowest.
    """

    state: ChainState
    steps: Float[Array, "moves n"]
    walker: Int[Array, "r c"]
    heading: Int[Array, "r c"]


@pytree
class Tally:
    """What `chain.Tally` counts; the swaps made, by pair and ladder; the swaps tried, by pair; and round trips, by ladder."""

    accepted: Float[Array, "moves n"]
    made: Float[Array, " moves"]
    evaluations: Float[Array, ""]
    gradients: Float[Array, ""]
    failed: Float[Array, " n"]
    swapped: Float[Array, "r-1 c"]
    tried: Float[Array, " r-1"]
    trips: Float[Array, " c"]


def begin(rungs: int, ladders: int) -> tuple[Int[Array, "r c"], Int[Array, "r c"]]:
    """Walkers and headings of ladders on which nothing has moved."""
    walker = jnp.broadcast_to(jnp.arange(rungs, dtype=jnp.int32)[:, None], (rungs, ladders))
    heading = jnp.zeros((rungs, ladders), jnp.int32).at[0].set(1)
    return walker, heading


def of_tilts(s: Float[Array, " r"], total: Float[Array, "r c"]) -> Float[Array, "r-1 c"]:
    """The log ratio of a swap between each rung and the next, from the total losses."""
    return jnp.diff(s)[:, None] * jnp.diff(total, axis=0)


@functools.partial(jax.jit, static_argnames=("plan", "swap_every", "by_rung"))
def advance(
    plan: chain.Plan,
    swap_every: int,
    by_rung: bool,
    words: UInt32[Array, " 2"],
    ladders: UInt32[Array, " c"],
    first_step: UInt32[Array, ""],
    units: Int[Array, ""],
    s: Float[Array, " r"],
    carry: Carry,
    measure: PathMeasure,
    moves: tuple[Move, ...],
    weights: Float[Array, " moves"],
    rule: Rule,
) -> tuple[Carry, Tally, Any]:
    """What `chain.advance` does, for ladders. `by_rung` says that the arrays of `measure.walk` have one entry a rung."""
    rungs, count = s.shape[0], ladders.shape[0]
    dtype = carry.state.path.dtype
    length, dim = measure.length, measure.dim
    shapes = [tuple((*p.noise_shape(length), dim) for p in m.parts(length)) for m in moves]
    alike = all(shape == shapes[0] for shape in shapes)
    # the noise of a chain depends neither on how many ladders run beside it nor on how they are grouped
    chains = (ladders[None, :] * jnp.uint32(rungs) + jnp.arange(rungs, dtype=jnp.uint32)[:, None]).reshape(-1)
    tilts = jnp.repeat(s.astype(dtype), count)
    axis = -1 if plan.last else 0
    of_walk = jax.tree_util.tree_map_with_path(lambda path, _: 0 if by_rung and path[0].name == "walk" else None, measure)
    of_chains = jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.repeat(x, count, 0) if by_rung and path[0].name == "walk" else x, measure
    )
    of_state = jax.tree.map(lambda _: axis, carry.state)

    def noises(numbers: UInt32[Array, " k"], index: int) -> tuple[Noise, ...]:
        return tuple(
            noise_.steps_noise(words, numbers, i, shape, chains, last=plan.last, dtype=dtype)
            for i, shape in enumerate(shapes[index])
        )

    def branch(index: int) -> Callable[..., tuple[Carry, tuple[Array, Array], Array]]:
        def of_chain(
            state: ChainState, step: Array, noise: tuple[Noise, ...], tilt: Array, measure: PathMeasure
        ) -> tuple[ChainState, tuple[Array, Array], Array]:
            move = dataclasses.replace(moves[index], step=step.astype(dtype))  # type: ignore[type-var]
            state, info = chain.make(state, noise, move.parts(length), measure, rule, tilt, index)
            return state, (info.accepted, info.failed), jnp.stack([info.evaluations, info.gradients])

        def many(carry: Carry, noise: tuple[Noise, ...] | None, number: Array) -> tuple[Carry, tuple[Array, Array], Array]:
            if noise is None:
                noise = jax.tree.map(lambda x: x[0], noises(number[None], index))
            every = of_chain
            if not plan.last:
                each = (Noise(0, 0, None, None),) * len(noise)  # type: ignore[arg-type]
                every = jax.vmap(of_chain, in_axes=(of_state, 0, each, 0, of_walk))
            state, decided, cost = every(carry.state, carry.steps[index], noise, tilts, of_chains)
            steps = carry.steps
            if plan.target is not None:
                steps = steps.at[index].set(chain.tuned(steps[index], number, decided[0], plan.target))
            return dataclasses.replace(carry, state=state, steps=steps), decided, cost if plan.last else jnp.mean(cost, 0)

        return many

    branches = [branch(i) for i in range(len(moves))]

    def one_step(carried: tuple[Carry, Tally], x: Any) -> tuple[tuple[Carry, Tally], None]:
        carry, tally = carried
        noise, number, index, uniform = x
        if len(moves) == 1:
            carry, (accepted, failed), cost = branches[0](carry, noise, number)
        else:
            carry, (accepted, failed), cost = jax.lax.switch(index, branches, carry, noise, number)
        tally = dataclasses.replace(
            tally,
            accepted=tally.accepted.at[index].add(accepted),
            made=tally.made.at[index].add(1),
            evaluations=tally.evaluations + cost[0],
            gradients=tally.gradients + cost[1],
            failed=tally.failed + failed,
        )
        turn = number + jnp.uint32(1)

        def swap(carried: tuple[Carry, Tally]) -> tuple[Carry, Tally]:
            return swapped(*carried, uniform, turn // jnp.uint32(swap_every) % 2)

        if swap_every == 1:
            return swap((carry, tally)), None
        return jax.lax.cond(turn % jnp.uint32(swap_every) == 0, swap, lambda same: same, (carry, tally)), None

    def swapped(carry: Carry, tally: Tally, uniform: Float[Array, "r-1 c"], odd: Array) -> tuple[Carry, Tally]:
        due = (jnp.arange(rungs - 1) % 2 == odd)[:, None]
        taken = due & (uniform < jnp.exp(log_ratio(carry.state)))
        none = jnp.zeros((1, count), bool)
        from_above, from_below = jnp.concatenate([taken, none]), jnp.concatenate([none, taken])

        def swap(x: Array, place: int = 0) -> Array:
            """The entries of `x`, rungs and ladders from axis `place` on, in their new places."""
            after = (1,) * (x.ndim - 2) if place == 0 else ()
            up, down = (mask.reshape(mask.shape + after) for mask in (from_above, from_below))
            return jnp.where(up, jnp.roll(x, -1, place), jnp.where(down, jnp.roll(x, 1, place), x))

        def swap_leaf(x: Array) -> Array:
            return swap(apart(x), -2 if plan.last else 0).reshape(x.shape)

        walker, heading = swap(carry.walker), swap(carry.heading)
        tally = dataclasses.replace(
            tally,
            swapped=tally.swapped + taken,
            tried=tally.tried + due[:, 0],
            trips=tally.trips + (heading[0] == -1),  # from the lowest rung to the highest and back
        )
        heading = heading.at[0].set(1).at[-1].set(jnp.where(heading[-1] == 1, -1, heading[-1]))
        return Carry(jax.tree.map(swap_leaf, carry.state), carry.steps, walker, heading), tally

    def apart(x: Array) -> Array:
        """`x` with its axis of chains taken apart, into rungs and ladders."""
        return x.reshape((*x.shape[:-1], rungs, count) if plan.last else (rungs, count, *x.shape[1:]))

    def log_ratio(state: ChainState) -> Float[Array, "r-1 c"]:
        """Of a swap between each rung and the next."""
        total = jnp.sum(apart(state.losses), 0 if plan.last else -1)
        ratio = of_tilts(s.astype(dtype), total)
        if not by_rung:
            return ratio
        paths = apart(state.path)

        def log_walks(rungs: slice, of: slice) -> Array:
            chosen = jax.tree_util.tree_map_with_path(lambda path, x: x[rungs] if path[0].name == "walk" else x, measure)
            every: Any = jax.vmap(jax.vmap(PathMeasure.log_walk, (None, 0)), (of_walk, 0))
            found: Array = every(chosen, paths[of])
            return found

        low, high, own = slice(None, -1), slice(1, None), slice(None)
        stay = log_walks(own, own)
        return ratio + log_walks(low, high) + log_walks(high, low) - stay[:-1] - stay[1:]

    def kept(carry: Carry) -> Any:
        if plan.keep is None:
            return None
        found = jax.vmap(plan.keep, in_axes=(of_state,), out_axes=axis)(carry.state)
        return {"of_state": found, "walker": carry.walker.reshape(-1)}

    def inputs(start: Array) -> Any:
        numbers = first_step + start + jnp.arange(plan.steps, dtype=jnp.uint32)
        which = chain.chosen_move(words, numbers, weights) if len(moves) > 1 else jnp.zeros(plan.steps, jnp.int32)
        noise = chain.materialised(lambda: noises(numbers, 0), plan.steps, units) if alike else None
        return noise, numbers, which, noise_.swap_uniforms(words, numbers, rungs - 1, ladders, dtype)

    zeros = functools.partial(jnp.zeros, dtype=dtype)
    nothing = Tally(
        zeros((len(moves), rungs * count)), zeros(len(moves)), zeros(()), zeros(()), zeros(rungs * count),
        zeros((rungs - 1, count)), zeros(rungs - 1), zeros(count),
    )  # fmt: skip
    return chain.in_units(plan, units, (carry, nothing), inputs, one_step, kept)
