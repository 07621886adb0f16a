"""Many models on one data set: data in blocks that stay in cache, a few models at a time, nothing copied per model.

Data are stored once, in blocks: samples last for layer programs, `X (blocks, channels, height, width, n)` or
`(blocks, features, n)`; samples first for everything else, `(blocks, n, ...)`. The last block is filled up with samples of
weight 0. Models are taken in groups and, for each group, the blocks one after another: memory grows with one block and one
group, whatever the number of models and samples. Under `vmap` all rows of all chains become the rows of one evaluation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from tiltwalk.losses import compiled
from tiltwalk.losses.block_sizes import measure_block, measured, rule_of_thumb
from tiltwalk.networks import Network, plain
from tiltwalk.pytree import pytree, static

__all__ = [
    "Data",
    "Task",
    "evaluate",
    "in_rows",
    "listed",
    "measure_block",
    "outputs",
    "rule_of_thumb",
    "sizes",
    "split",
    "take",
]

Head = Callable[[Any, Any, Any], Any]
"""`(outputs, y, log_noise) -> losses (n,)` of one model on one block; outputs `(k, n)` or `(n, k)`, as the data lie."""


@pytree
class Data:
    """Samples in blocks. `weight` is 0 for filling; `log_noise` belongs to the Gaussian likelihood."""

    X: Float[Array, "blocks ..."]
    y: Any
    weight: Float[Array, "blocks n"]
    log_noise: Any = None
    last: bool = static(default=False)

    @property
    def block(self) -> int:
        return self.weight.shape[1]


@dataclasses.dataclass(frozen=True)
class Task:
    """What is computed, without data: structure that decides what is compiled. `learnt`: theta ends in the log noise."""

    network: Network
    head: Head
    learnt: bool = False
    group: int = 4
    module: Network | None = None
    """The module that `network` is the row of layers of, where it was recognised as one: models come in its order."""

    @property
    def asked(self) -> Network:
        """The network whose loss is asked for."""
        return self.network if self.module is None else self.module

    def entered(self, thetas: Float[Array, "... d"]) -> Float[Array, "... e"]:
        """Models in the order in which `network` takes them."""
        if self.module is None:
            return thetas
        found = self.module.row.parameters(thetas[..., :-1] if self.learnt else thetas)
        return jnp.concatenate([found, thetas[..., -1:]], -1) if self.learnt else found

    def left(self, gradients: Float[Array, "m e"]) -> Float[Array, "m d"]:
        """Gradients in the order of the models."""
        if self.module is None:
            return gradients
        like = jax.ShapeDtypeStruct((len(gradients), self.module.dim + self.learnt), gradients.dtype)  # type: ignore[no-untyped-call]
        back: Any = jax.linear_transpose(self.entered, like)
        return back(gradients)[0]  # type: ignore[no-any-return]


def evaluate(task: Task, data: Data, thetas: Float[Array, "m d"], want: str = "sum") -> Any:
    """Weighted losses of models: their `"sum"` over samples (m,), `"each"` (m, samples), or `"gradient"`: sum and gradient.

    The only door between a loss and what computes it. A compiled kernel, where there is one, is taken here.
    """
    run = partial(compiled.evaluate if compiled.serves(task, data, thetas, want) else _plain, task, want=want)
    return in_rows(run, data, thetas)


def outputs(network: Network, thetas: Float[Array, "m d"], X: Any) -> Float[Array, "m n k"]:
    """Outputs of many models: `network.apply_many`, by the kernel where it knows the network."""
    found = compiled.outputs(network, jnp.asarray(thetas), network.as_inputs(X))
    return network.apply_many(thetas, X) if found is None else found


def in_rows(run: Callable[..., Any], data: Any, *rows: Any) -> Any:
    """`run(data, *rows)`, arrays with a row a model, which under any number of `vmap`s is one call with all rows.

    Data that vary are looped over.
    """

    @custom_vmap
    def call(data: Any, *rows: Any) -> Any:
        return run(data, *rows)

    @call.def_vmap
    def _(size: int, batched: Any, data: Any, *rows: Any) -> Any:
        data_batched, *rows_batched = batched
        if any(jax.tree.leaves(data_batched)):
            out = _looped(call, size, batched, data, *rows)
        else:
            every = [r if b else jnp.broadcast_to(r, (size, *r.shape)) for r, b in zip(rows, rows_batched, strict=True)]
            flat = call(data, *(r.reshape(-1, *r.shape[2:]) for r in every))
            out = jax.tree.map(lambda a: a.reshape(size, every[0].shape[1], *a.shape[1:]), flat)
        return out, jax.tree.map(lambda _: True, out)

    return call(data, *rows)


def _looped(call: Any, size: int, batched: Any, *args: Any) -> Any:
    leaves, treedef = jax.tree.flatten(args)
    which = jax.tree.leaves(tuple(batched))
    varying = [a for a, b in zip(leaves, which, strict=True) if b]

    def one(mine: list[Any]) -> Any:
        mine = list(mine)
        full = [mine.pop(0) if b else a for a, b in zip(leaves, which, strict=True)]
        return call(*jax.tree.unflatten(treedef, full))

    return jax.lax.map(one, varying)


# ---- plain JAX ----


def _plain(task: Task, data: Data, thetas: Float[Array, "m d"], want: str) -> Any:
    m = thetas.shape[0]
    groups, size = even_groups(m, task.group)
    run = partial(_group, task, data, want=want)
    if groups == 1:
        return run(thetas)
    filled = jnp.concatenate([thetas, jnp.broadcast_to(thetas[-1:], (groups * size - m, thetas.shape[1]))])
    out = jax.lax.map(run, filled.reshape(groups, size, -1))
    return jax.tree.map(lambda a: a.reshape(groups * size, *a.shape[2:])[:m], out)


def even_groups(m: int, wanted: int) -> tuple[int, int]:
    """Number and size of groups for `m` models: close to the wanted size, with the least filling."""
    if m <= wanted:
        return 1, m
    sizes = range(max(1, (wanted + 1) // 2), wanted + wanted // 4 + 1)
    size = min(sizes, key=lambda g: (-(-m // g) * g - m, abs(g - wanted)))
    return -(-m // size), size


def _group(task: Task, data: Data, thetas: Float[Array, "g d"], want: str) -> Any:
    """All blocks, one after another, for a group of models."""
    dtype = thetas.dtype
    each = _block_losses(task, data, thetas)
    if want == "gradient":
        value_and_grad = _block_gradients(task, data, thetas)
    merged = _merged(task.network, data)
    blocks = (merged.X, merged.y, merged.weight)

    def add(total: Any, block: Any) -> Any:
        if want == "each":
            return total, each(block)
        found = value_and_grad(block) if want == "gradient" else jnp.sum(each(block), 1)
        return jax.tree.map(jnp.add, total, found), None

    zero: Any = jnp.zeros(thetas.shape[0], dtype)
    if want == "gradient":
        zero = (zero, jnp.zeros_like(thetas))
    if merged.weight.shape[0] == 1:
        total, losses = add(zero, jax.tree.map(lambda a: a[0], blocks))
        losses = None if losses is None else losses[None]
    else:
        total, losses = jax.lax.scan(add, zero, blocks)
    if want == "each":
        return jnp.moveaxis(losses, 0, 1).reshape(thetas.shape[0], -1)
    return total


def _merged(network: Network, data: Data) -> Data:
    """The kernel's small blocks, some at a time, where plain JAX computes what the kernel does not."""
    count, block = data.weight.shape
    most = rule_of_thumb(network)[0] // block if data.last and block == compiled.BLOCK else 1
    factor = max(f for f in range(1, max(1, most) + 1) if count % f == 0)
    if factor == 1:
        return data

    def joined(a: Any) -> Any:
        a = jnp.moveaxis(a.reshape(count // factor, factor, *a.shape[1:]), 1, -2)
        return a.reshape(*a.shape[:-2], factor * block)

    return Data(joined(data.X), joined(data.y), joined(data.weight), data.log_noise, data.last)


def _block_losses(task: Task, data: Data, thetas: Float[Array, "g d"]) -> Callable[[Any], Any]:
    """A function of one block that gives the weighted losses `(g, n)` of the models of a group."""
    network, log_noise = task.network, data.log_noise
    if task.learnt:
        thetas, log_noise = thetas[:, :-1], thetas[:, -1]
    noise_axis = 0 if task.learnt else None
    program = network.program
    if program is not None and data.last:
        prepared = jax.vmap(partial(plain.prepare, program))(thetas)

        def outputs(x: Any) -> Any:
            return jax.vmap(lambda p: plain.forward_last(program, p, x))(prepared)

    else:

        def outputs(x: Any) -> Any:
            return network.forward_many(thetas, x)

    def losses(block: Any) -> Any:
        x, y, weight = block
        x = x.astype(thetas.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
        found = jax.vmap(task.head, (0, None, noise_axis))(outputs(x), y, log_noise)
        # where, and not a product: filling must not turn an infinite loss into NaN
        return jnp.where(weight > 0, found.astype(thetas.dtype) * weight.astype(thetas.dtype), 0)

    return losses


def _block_gradients(task: Task, data: Data, thetas: Float[Array, "g d"]) -> Callable[[Any], Any]:
    def value_and_grad(block: Any) -> Any:
        def total(thetas: Any) -> Any:
            found = jnp.sum(_block_losses(task, data, thetas)(block), 1)
            return jnp.sum(found), found

        grad, found = jax.grad(total, has_aux=True)(thetas)
        return found, grad

    return value_and_grad


# ---- layout ----


def lies_last(network: Network) -> bool:
    """Whether the data of this network lie samples last: all layer programs.

    On a GPU too: many models' own convolutions become grouped ones there, which take twice as long as matrix products with
    patches (H200, 32 LeNets, 2,048 images, ms a model: value 0.094 against 0.066, with gradient 0.405 against 0.190).
    """
    return network.program is not None


def split(network: Network, X: Any, y: Any, weight: Any, block: int, log_noise: Any = None) -> Data:
    """Samples in blocks of `block`, the last one filled up with weight 0."""
    last, n = lies_last(network), X.shape[0]
    count = max(1, -(-n // block))
    block = min(block, n)
    filling = count * block - n

    def cut(a: Any, more: Any) -> Any:
        xp = np if isinstance(a, np.ndarray) else jnp
        more = xp.broadcast_to(more, (filling, *a.shape[1:])).astype(a.dtype)
        return xp.concatenate([a, more]).reshape(count, block, *a.shape[1:])

    # filled with copies of the first sample, which no network and no per-sample loss can mind
    y, weight = cut(y, y[:1]), cut(weight, 0)
    y = y.swapaxes(1, 2) if last and y.ndim == 3 else y
    if last and isinstance(X, np.ndarray):
        return Data(_laid_last(X, count, block), jnp.asarray(y), jnp.asarray(weight), log_noise, last)
    X = cut(X, X[:1])
    if last:
        X = X.transpose(_SAMPLES_LAST[X.ndim])
    return Data(jnp.asarray(X), jnp.asarray(y), jnp.asarray(weight), log_noise, last)


_SAMPLES_LAST = {3: (0, 2, 1), 5: (0, 4, 2, 3, 1)}
"""From `(blocks, n, features)` to `(blocks, features, n)`, and from channels last to channels first, for images in blocks."""

_ALIGNMENT = 64
"""Bytes: where an array begins at a multiple of it, JAX takes its memory as it is."""


def _laid_last(X: np.ndarray, count: int, block: int) -> Array:
    """`X` in blocks, samples last, in one copy: data sets may be large, and a user holds the first one."""
    axes = _SAMPLES_LAST[X.ndim + 1]
    shape = tuple((count, block, *X.shape[1:])[axis] for axis in axes)
    room = np.empty(int(np.prod(shape)) * X.dtype.itemsize + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    laid = room[start : start + room.size - _ALIGNMENT].view(X.dtype).reshape(shape)
    whole = len(X) // block
    some = max(1, 2**24 // max(1, X[:block].nbytes))  # blocks at a time
    for i in range(0, whole, some):
        part = X[i * block : min(i + some, whole) * block]
        laid[i : min(i + some, whole)] = part.reshape(-1, block, *X.shape[1:]).transpose(axes)
    if whole < count:
        rest = X[whole * block :]
        filled = np.concatenate([rest, np.broadcast_to(X[:1], (block - len(rest), *X.shape[1:]))])
        laid[whole] = filled[None].transpose(axes)[0]
    found: Array = jax.device_put(laid, may_alias=True)
    return found


def listed(task: Task, data: Data, thetas: Float[Array, "m d"], indices: Any) -> Any:
    """Weighted losses `(m, n)` on the samples at `indices`."""
    if compiled.serves(task, data, thetas, "each"):
        return compiled.listed(task, data, thetas, indices)
    some = take(data, indices, min(data.block, indices.shape[0]))
    return evaluate(task, some, thetas, "each")[:, : indices.shape[0]]


def take(data: Data, indices: Any, block: int) -> Data:
    """The samples at `indices` (positions in the order in which the data were given), in new blocks."""
    indices = jnp.asarray(indices)
    b, i = indices // data.block, indices % data.block
    last, count = data.last, max(1, -(-indices.shape[0] // block))
    block = min(block, indices.shape[0])
    filling = count * block - indices.shape[0]
    b, i = (jnp.concatenate([a, jnp.broadcast_to(a[:1], (filling,))]).reshape(count, block) for a in (b, i))

    def pick(a: Any, samples_last: bool) -> Any:
        if not samples_last:
            return a[b, i]
        return jnp.moveaxis(a[b, ..., i], 1, -1)

    real = jnp.arange(count * block).reshape(count, block) < indices.shape[0]
    weight = jnp.where(real, data.weight[b, i], 0)
    return Data(pick(data.X, last), pick(data.y, last and data.y.ndim == 3), weight, data.log_noise, last)


# ---- sizes ----


def sizes(network: Network, kind: Any = None) -> tuple[int, int]:
    """Samples in a block and models in a group: the kernel's, else what was measured on this machine, else a rule of thumb."""
    taken = compiled.block(network, kind)
    thumb = rule_of_thumb(network)
    if taken is not None:
        return taken, thumb[1]
    return measured(network) or thumb
