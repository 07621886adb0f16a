"""Losses of models on some of the data, where each model may be done with before the others.

Work that is not wanted is not done: the kernel gets no samples for models that are done; plain JAX puts those that are not to
the front and takes them a few at a time, for as long as there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tiltwalk.losses import blocks, compiled
from tiltwalk.losses.blocks import Data, Task

LISTED_AT_A_TIME = 8
"""Models for which the kernel gets lists of samples in one call."""

ANY_AT_A_TIME = 8
"""Models that a loss of any kind gets in one call, where not all of them are wanted."""


def until(
    task: Task, data: Data, thetas: Float[Array, "b w d"], limits: Float[Array, " b"], wanted: Bool[Array, "b w"], count: int,
    low: float,
) -> tuple[Float[Array, "b w"], Float[Array, " b"]]:  # fmt: skip
    """Weighted losses over samples, `count` blocks of data at a time, until a group of `w` models must exceed its limit.

    No sample's loss is below `low`. Returns the sums so far and the share of the data that was looked at.
    """
    return blocks.in_rows(partial(_until, task, count, low), data, thetas, limits, wanted)  # type: ignore[no-any-return]


def _until(task: Task, count: int, low: float, data: Data, thetas: Any, limits: Any, wanted: Any) -> tuple[Any, Any]:
    b, w, d = thetas.shape
    rows, total = thetas.reshape(b * w, d), data.weight.shape[0]
    pieces = -(-total // count)
    weights = jnp.sum(data.weight, 1).astype(thetas.dtype)
    weights = jnp.sum(jnp.pad(weights, (0, pieces * count - total)).reshape(pieces, count), 1)
    ahead = low * jnp.append(jnp.flip(jnp.cumsum(jnp.flip(weights))), 0)  # the least that pieces from i on can add
    models = jnp.sum(wanted, 1)

    def goes_on(sums: Any, i: Any) -> Any:
        # a sum that is not a number does not
        return jnp.sum(sums, 1) + models * ahead[i] <= limits

    def body(carry: Any) -> Any:
        i, sums, going, seen = carry
        live = (going[:, None] & wanted).reshape(-1)
        sums = sums + _piece(task, data, rows, live, i * count, count).reshape(b, w)
        return i + 1, sums, going & goes_on(sums, i + 1), seen + going

    nothing = jnp.zeros((b, w), thetas.dtype)
    start = jnp.zeros((), jnp.int32), nothing, goes_on(nothing, 0), jnp.zeros(b, thetas.dtype)
    _, sums, _, seen = jax.lax.while_loop(lambda c: (c[0] < pieces) & jnp.any(c[2]), body, start)
    return sums, jnp.minimum(seen * count, total) / total


def _piece(task: Task, data: Data, rows: Any, live: Any, first: Any, count: int) -> Any:
    """What `count` blocks from `first` on, those that there are, add to the losses of the models that are `live`."""
    total = data.weight.shape[0]
    if compiled.serves(task, data, rows, "sum"):
        return compiled.piece(task, data, rows, live, first, count)
    start = jnp.minimum(first, total - count)
    some = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, count) if a.ndim else a, data)
    again = start + jnp.arange(count) < first  # blocks of the piece before, where the last one is short
    some = Data(some.X, some.y, jnp.where(again[:, None], 0, some.weight), some.log_noise, some.last)
    run = partial(blocks.evaluate, task, some, want="sum")
    return compacted(run, live, task.group, jnp.zeros(len(rows), rows.dtype), rows)


def listed(
    task: Task, data: Data, thetas: Float[Array, "m d"], indices: Int[Array, "m n"], live: Bool[Array, " m"]
) -> Float[Array, "m n"]:
    """Weighted losses of each model on its own list of samples; zero for models that are not `live`."""
    return blocks.in_rows(partial(_listed, task), data, thetas, indices, live)  # type: ignore[no-any-return]


def _listed(task: Task, data: Data, thetas: Any, indices: Any, live: Any) -> Any:
    empty = jnp.zeros(indices.shape, thetas.dtype)
    if compiled.serves(task, data, thetas, "each"):
        run: Callable[..., Any] = partial(compiled.listed, task, data)
        return compacted(run, live, LISTED_AT_A_TIME, empty, thetas, indices)
    size = min(data.block, indices.shape[1])

    def one(theta: Any, mine: Any) -> Any:
        some = blocks.take(data, mine, size)
        return blocks.evaluate(task, some, theta[None], "each")[0, : indices.shape[1]]

    return compacted(lambda t, i: jax.lax.map(lambda x: one(*x), (t, i)), live, task.group, empty, thetas, indices)


def where(
    task: Task, data: Data, thetas: Float[Array, "m d"], live: Bool[Array, " m"], first: Any, count: int
) -> Float[Array, " m"]:
    """Weighted losses over `count` blocks of samples from `first` on, of the models that are `live`; zero for the others."""

    def run(some: tuple[Data, Any], thetas: Any, live: Any) -> Any:
        data, first = some
        return _piece(task, data, thetas, live, first, count)

    return blocks.in_rows(run, (data, jnp.asarray(first, jnp.int32)), thetas, live)  # type: ignore[no-any-return]


def of_live(loss: Callable[[Any], Any], thetas: Float[Array, "m d"], live: Bool[Array, " m"]) -> Float[Array, " m"]:
    """What any loss, a pytree, gives for the models that are `live`; the others are not evaluated and get 0."""

    def run(loss: Any, thetas: Any, live: Any) -> Any:
        return compacted(loss, live, ANY_AT_A_TIME, jnp.zeros(len(thetas), thetas.dtype), thetas)

    return blocks.in_rows(run, loss, thetas, live)  # type: ignore[no-any-return]


def compacted(run: Callable[..., Any], live: Bool[Array, " m"], group: int, empty: Any, *rows: Any) -> Any:
    """`run` on the rows that are live, `group` at a time and no more groups than there must be; `empty` elsewhere."""
    m = live.shape[0]
    size = min(group, m)
    # a row number of m is nobody's: it is read as the last one and written nowhere
    order = jnp.append(jnp.argsort(~live, stable=True), jnp.full(-m % size, m)).astype(jnp.int32)

    def body(j: Any, out: Any) -> Any:
        which = jax.lax.dynamic_slice_in_dim(order, j * size, size)
        found = run(*(jnp.take(r, which, axis=0, mode="clip") for r in rows))
        mine = jnp.where(jnp.take(live, which, mode="clip"), which, m)
        return out.at[mine].set(found, mode="drop")

    return jax.lax.fori_loop(0, (jnp.sum(live, dtype=jnp.int32) + size - 1) // size, body, empty)
