"""The calls into the kernel, and how they behave under `vmap` and `grad`. See `tiltwalk.native`.

Which samples: all of them, or a range of them (`ranges`: start and count, one row for all models or one a model), or a list
(`index`: numbers of samples, one row for all or one a model). Starts, counts and lists are arrays: new values do not recompile.
The loss of a model is the mean of `w_i l_i` over its samples; weights of mean 1 keep its scale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Float32, Int, Int32

from tiltwalk.native.library import load
from tiltwalk.native.program import KINDS, encode
from tiltwalk.networks.layers import Program, Shape, shapes
from tiltwalk.pytree import pytree, static

BLOCK = 16
DIFFERENTIABLE = ("cross_entropy", "mse")


@pytree
class Packed:
    """Data for the kernel: blocks of 16 samples, samples last; the last block is filled up with zeros."""

    data: Float32[Array, "blocks features 16"]
    labels: Int32[Array, "blocks 16"] | None
    targets: Float32[Array, "blocks outputs 16"] | None
    weights: Float32[Array, "blocks 16"] | None
    samples: int = static()


def pack(X: ArrayLike, y: ArrayLike | None = None, weights: ArrayLike | None = None) -> Packed:
    """Samples along the first axis, images channels first. Whole-number `y` are labels, others targets (a row a sample)."""
    rows = jnp.asarray(X)
    n = rows.shape[0]
    if n == 0:
        raise ValueError("pack.X must hold at least one sample; got none.")
    labels = targets = None
    if y is not None:
        truth = jnp.asarray(y)
        if truth.shape[0] != n:
            raise ValueError(f"pack.y must have one row a sample, {n}; got {truth.shape[0]}.")
        if jnp.issubdtype(truth.dtype, jnp.integer) and truth.ndim == 1:
            labels = _blocks(truth.reshape(n, 1).astype(jnp.int32))[:, 0]
        else:
            targets = _blocks(truth.reshape(n, -1).astype(jnp.float32))
    heavy = None
    if weights is not None:
        each = jnp.asarray(weights, jnp.float32)
        if each.shape != (n,):
            raise ValueError(f"pack.weights must have one number a sample, {n}; got shape {each.shape}.")
        heavy = _blocks(each.reshape(n, 1))[:, 0]
    return Packed(_blocks(rows.reshape(n, -1).astype(jnp.float32)), labels, targets, heavy, n)


def _blocks(rows: Array) -> Array:
    n, width = rows.shape
    count = -(-n // BLOCK)
    full = jnp.pad(rows, ((0, count * BLOCK - n), (0, 0)))
    return full.reshape(count, BLOCK, width).transpose(0, 2, 1)


def losses(
    program: Program,
    shape: Shape,
    kind: str,
    thetas: Float[Array, "m d"],
    packed: Packed,
    *,
    ranges: Int[Array, "r 2"] | None = None,
    index: Int[Array, "r n"] | None = None,
    target: str = "",
) -> Float[Array, " m"]:
    """Mean loss of each model. Differentiable in `thetas`, and in nothing else."""
    run = _differentiable(encode(program, shape), KINDS[kind], packed.samples, target)
    return run(thetas, _operands(kind, packed, ranges, index))


def per_sample(
    program: Program,
    shape: Shape,
    kind: str,
    thetas: Float[Array, "m d"],
    packed: Packed,
    *,
    start: Int[Array, ""] | int = 0,
    count: int | None = None,
    index: Int[Array, "r n"] | None = None,
    target: str = "",
) -> Float[Array, "m n"]:
    """Loss of each model on each sample, times its weight: all samples, `count` from `start` on, or a list.

    Beyond the last sample it is NaN.
    """
    listed, ranges = _listed(packed, start, count, index)
    call = _call(encode(program, shape), KINDS[kind], packed.samples, target, (listed,))
    each: Array = call(thetas.astype(jnp.float32), *_operands(kind, packed, ranges, index)).astype(thetas.dtype)
    return each


def outputs(
    program: Program,
    shape: Shape,
    thetas: Float[Array, "m d"],
    packed: Packed,
    *,
    start: Int[Array, ""] | int = 0,
    count: int | None = None,
    index: Int[Array, "r n"] | None = None,
    target: str = "",
) -> Float[Array, "m n outputs"]:
    """Outputs of each model for each sample, images in (channels, height, width) order."""
    listed, ranges = _listed(packed, start, count, index)
    width = int(np.prod(shapes(program, shape)[-1]))
    call = _call(encode(program, shape), KINDS["outputs"], packed.samples, target, (listed, width))
    out: Array = call(thetas.astype(jnp.float32), *_operands("outputs", packed, ranges, index)).astype(thetas.dtype)
    return out


def value_and_grad(
    program: Program,
    shape: Shape,
    kind: str,
    thetas: Float[Array, "m d"],
    packed: Packed,
    *,
    ranges: Int[Array, "r 2"] | None = None,
    index: Int[Array, "r n"] | None = None,
    target: str = "",
) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
    """Mean loss of each model and its gradient, which there is for cross_entropy and mse."""
    if kind not in DIFFERENTIABLE:
        raise ValueError(f"value_and_grad.kind must be one of {', '.join(DIFFERENTIABLE)}; got {kind!r}.")
    call = _call(encode(program, shape), KINDS[kind], packed.samples, target, None)
    value, gradient = call(thetas.astype(jnp.float32), *_operands(kind, packed, ranges, index))
    return value.astype(thetas.dtype), gradient.astype(thetas.dtype)


def _listed(packed: Packed, start: Any, count: int | None, index: Array | None) -> tuple[int, Array | None]:
    if index is not None:
        return index.shape[-1], None
    if count is None:
        count = packed.samples
    return count, jnp.stack([jnp.asarray(start, jnp.int32), jnp.asarray(count, jnp.int32)])[None]


def _operands(kind: str, packed: Packed, ranges: Array | None, index: Array | None) -> tuple[Array, ...]:
    nothing = jnp.zeros((1, 0), jnp.float32)
    truth: Array = nothing
    if kind in ("cross_entropy", "zero_one"):
        if packed.labels is None:
            raise ValueError(f"{kind} needs labels: pack whole-number y of shape (samples,).")
        truth = packed.labels
    elif kind == "mse":
        if packed.targets is None:
            raise ValueError("mse needs targets: pack y of floats, a row a sample.")
        truth = packed.targets
    whole = jnp.zeros((1, 0), jnp.int32)
    return (
        packed.data,
        truth,
        nothing if packed.weights is None else packed.weights,
        whole if ranges is None else jnp.atleast_2d(ranges).astype(jnp.int32),
        whole if index is None else jnp.atleast_2d(index).astype(jnp.int32),
    )


@functools.cache
def _call(code: tuple[int, ...], kind: int, samples: int, target: str, tail: tuple[int, ...] | None) -> Callable[..., Any]:
    """The kernel's call for rows of parameters, with a rule for `vmap`: more rows of one call.

    The result has shape `(m, *tail)`; without a tail it is the losses and their gradients.
    """

    @jax.custom_batching.custom_vmap
    def evaluate(thetas: Array, *operands: Array) -> Any:
        library = load()
        if library.handle is None:
            raise RuntimeError(f"The compiled kernel cannot be called: {library.reason}.")
        m, d = thetas.shape
        name, shapes = ("evaluate", [(m, *tail)]) if tail is not None else ("differentiate", [(m,), (m, d)])
        results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]  # type: ignore[no-untyped-call]
        out = jax.ffi.ffi_call(f"tiltwalk_{name}", results)(
            thetas,
            *operands,
            program=np.asarray(code, np.int32),
            kind=np.int64(kind),
            samples=np.int64(samples),
            target=target or library.target,
        )
        return out[0] if tail is not None else tuple(out)

    evaluate.def_vmap(functools.partial(_batched, evaluate))
    return evaluate


def _batched(evaluate: Callable[..., Any], size: int, batched: Sequence[bool], *operands: Array) -> tuple[Any, Any]:
    """Models of all members of the batch as rows; where the data differ, one member after another."""
    thetas, data, truth, weights, ranges, index = operands
    if any(batched[1:4]):

        def one(i: Array) -> Any:
            return evaluate(*(x[i] if b else x for x, b in zip(operands, batched, strict=True)))

        out = jax.lax.map(one, jnp.arange(size))
        return out, jax.tree.map(lambda _: True, out)
    rows = thetas if batched[0] else jnp.broadcast_to(thetas, (size, *thetas.shape))
    m = rows.shape[1]

    def spread(which: Array, is_batched: bool) -> Array:
        if not is_batched and which.shape[0] == 1:
            return which
        full = which if is_batched else which[None]
        return jnp.broadcast_to(full, (size, m, full.shape[-1])).reshape(size * m, -1)

    out = evaluate(rows.reshape(size * m, -1), data, truth, weights, spread(ranges, batched[4]), spread(index, batched[5]))
    out = jax.tree.map(lambda x: x.reshape(size, m, *x.shape[1:]), out)
    return out, jax.tree.map(lambda _: True, out)


@functools.cache
def _differentiable(code: tuple[int, ...], kind: int, samples: int, target: str) -> Callable[..., Array]:
    """Losses whose derivative by the parameters is the kernel's own; data and the choice of samples are constants."""
    losses_of = _call(code, kind, samples, target, ())
    gradients_of = _call(code, kind, samples, target, None)

    @jax.custom_vjp
    def value(thetas: Array, operands: tuple[Array, ...]) -> Array:
        out: Array = losses_of(thetas.astype(jnp.float32), *operands).astype(thetas.dtype)
        return out

    def forward(thetas: Array, operands: tuple[Array, ...]) -> tuple[Array, Array]:
        if kind not in (KINDS[name] for name in DIFFERENTIABLE):
            raise TypeError(f"The kernel has gradients of {', '.join(DIFFERENTIABLE)} alone.")
        out, gradient = gradients_of(thetas.astype(jnp.float32), *operands)
        return out.astype(thetas.dtype), gradient.astype(thetas.dtype)

    def backward(gradient: Array, cotangent: Array) -> tuple[Array, None]:
        return gradient * cotangent[:, None], None

    value.defvjp(forward, backward)
    return value
