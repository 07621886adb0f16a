"""Layer programs in plain JAX, twice: samples first with XLA's own convolutions, and samples last for many models.

Samples first is the usual form, and the reference for the other. Samples last is faster on a CPU and, for many models at a
time, on a GPU: every operation runs along contiguous samples, and a convolution is a matrix product with patches. XLA pays for
patches (25 times the data for a 5x5 kernel) and for short matrices (6 rows for 6 filters). Where pooling follows a
convolution, one patch therefore covers all outputs under a pooling window: a 6x6 patch gives the four 5x5 convolutions
of a 2x2 window as four blocks of rows of one taller matrix. That is 36/25 of the arithmetic on a third of the patches,
and the largest of the four is taken without moving anything.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk.networks.layers import (
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Program,
    parameter_shapes,
)

_FUNCTIONS = {
    "gelu": jax.nn.gelu,
    "identity": lambda x: x,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
}
_RISING = ("identity", "relu", "sigmoid", "tanh")  # commute with taking the largest value
_WORTH = 1.8  # largest factor of extra arithmetic at which one patch for a whole pooling window still pays

Pool = MaxPool | AvgPool
Weights = tuple[tuple[Any, ...], ...]


def weights(program: Program, theta: Float[Array, " d"]) -> Weights:
    """Each layer's weight and bias, cut from the vector."""
    out, start = [], 0
    for layer in program:
        parts = []
        for shape in parameter_shapes(layer):
            size = int(np.prod(shape))
            parts.append(theta[start : start + size].reshape(shape))
            start += size
        out.append(tuple(parts))
    return tuple(out)


def forward(program: Program, theta: Float[Array, " d"], X: Float[Array, "n ..."]) -> Float[Array, "n k"]:
    """Outputs of one model, samples first, images `(n, height, width, channels)`."""
    h = jnp.asarray(X)
    h = h.astype(jnp.promote_types(h.dtype, theta.dtype))
    for layer, parts in zip(program, weights(program, theta), strict=True):
        match layer:
            case Conv():
                pads = [layer.pads(h.shape[1]), layer.pads(h.shape[2])]
                numbers = ("NHWC", "HWIO", "NHWC")
                strides = (layer.stride, layer.stride)
                w = parts[0].astype(h.dtype)
                h = jax.lax.conv_general_dilated(h, w, strides, pads, dimension_numbers=numbers) + parts[1]
            case MaxPool() | AvgPool():
                h = _pool(layer, h, axes=(1, 2))
            case Dense():
                h = h @ parts[0] + parts[1]
            case Flatten():
                h = h.reshape(len(h), -1) if h.ndim == 2 else h.transpose(0, 3, 1, 2).reshape(len(h), -1)
            case Activation():
                h = _FUNCTIONS[layer.name](h)
    return h


def forward_many(program: Program, thetas: Float[Array, "m d"], X: Float[Array, "n ..."]) -> Float[Array, "m n k"]:
    """Outputs of many models, samples first in and out; a block of samples and a few models at a time in between."""
    m, n = thetas.shape[0], X.shape[0]
    small = jax.default_backend() == "cpu"
    block = min(n, (64 if any(isinstance(layer, Conv) for layer in program) else 512) if small else 2048)
    count, group = -(-n // block), min(m, 4 if small else 32)
    filled = jnp.pad(X.astype(thetas.dtype), ((0, count * block - n), *((0, 0),) * (X.ndim - 1)))
    blocks = filled.reshape(count, block, *X.shape[1:])
    rows = jnp.pad(thetas, ((0, -m % group), (0, 0))).reshape(-1, group, thetas.shape[1])

    def some(rows: Any) -> Any:
        prepared = jax.vmap(partial(prepare, program))(rows)

        def one(x: Any) -> Any:
            return jax.vmap(lambda p: forward_last(program, p, samples_last(x)).T)(prepared)

        return jnp.moveaxis(jax.lax.map(one, blocks), 0, 1).reshape(group, count * block, -1)[:, :n]

    outputs: Array = jax.lax.map(some, rows)
    return outputs.reshape(-1, *outputs.shape[2:])[:m]


def samples_last(X: Any) -> Any:
    """`(n, features)` as `(features, n)`, `(n, height, width, channels)` as `(channels, height, width, n)`."""
    return X.transpose(1, 0) if X.ndim == 2 else X.transpose(3, 1, 2, 0)


def prepare(program: Program, theta: Float[Array, " d"]) -> Weights:
    """What `forward_last` multiplies with: matrices with outputs as rows, and biases; done once for many blocks."""
    out: list[tuple[Any, ...]] = []
    for i, (layer, parts) in enumerate(zip(program, weights(program, theta), strict=True)):
        match layer:
            case Conv():
                pool = _pooled(program, i)[1]
                out.append((_window_rows(parts[0], pool.size if pool else 1), parts[1]))
            case Dense():
                out.append((parts[0].T, parts[1]))
            case _:
                out.append(())
    return tuple(out)


def forward_last(program: Program, prepared: Weights, h: Float[Array, "... n"]) -> Float[Array, "k n"]:
    """Outputs of one model on a block of samples that lie last, channels first."""
    done = 0
    for i, (layer, parts) in enumerate(zip(program, prepared, strict=True)):
        if i < done:
            continue
        match layer:
            case Conv():
                between, pool = _pooled(program, i)
                h = _convolve(layer, parts[0], h, pool.size if pool else 1)
                h = _reduce(h, parts[1][:, None, None, None], between, pool)
                done = i + len(between) + 2 if pool else 0
            case MaxPool() | AvgPool():
                h = _pool(layer, h, axes=(1, 2))
            case Dense():
                h = parts[0] @ h + parts[1][:, None]
            case Flatten():
                h = h.reshape(-1, h.shape[-1])
            case Activation():
                h = _FUNCTIONS[layer.name](h)
    return h


def _pooled(program: Program, i: int) -> tuple[tuple[Activation, ...], Pool | None]:
    """Activations and pool after the convolution at `i`, where one patch should cover a whole pooling window."""
    conv, between = program[i], []
    for after in program[i + 1 :]:
        if isinstance(after, Activation):
            between.append(after)
        elif isinstance(after, Pool) and isinstance(conv, Conv) and conv.stride == 1:
            pays = ((conv.kernel + after.size - 1) / conv.kernel) ** 2 <= _WORTH
            return (tuple(between), after) if pays else ((), None)
        else:
            break
    return (), None


def _reduce(h: Any, bias: Any, between: tuple[Activation, ...], pool: Pool | None) -> Any:
    """Bias, activations and pooling of the places of a window, which are the first axis."""
    if isinstance(pool, MaxPool) and all(a.name in _RISING for a in between):
        h, pool = _together(pool, list(h))[None], None
    h = h + bias
    for activation in between:
        h = _FUNCTIONS[activation.name](h)
    return h[0] if pool is None else _together(pool, list(h))


def _window_rows(weight: Float[Array, "k k c f"], window: int) -> Float[Array, "rows columns"]:
    """The kernel at each of the `window**2` places of a larger patch: rows (place, filter), columns (y, x, channel)."""
    k, _, channels, filters = weight.shape
    spare = window - 1
    places = [jnp.pad(weight, ((y, spare - y), (x, spare - x), (0, 0), (0, 0))) for y in range(window) for x in range(window)]
    return (
        jnp.stack(places)
        .reshape(window**2, (k + spare) ** 2 * channels, filters)
        .swapaxes(1, 2)
        .reshape(window**2 * filters, -1)
    )


def _convolve(layer: Conv, matrix: Any, h: Float[Array, "c a b n"], window: int) -> Float[Array, "places f i j n"]:
    channels, height, width, n = h.shape
    rows, columns = layer.out_size(height) // window, layer.out_size(width) // window
    if layer.padding == "same":
        h = jnp.pad(h, ((0, 0), layer.pads(height), layer.pads(width), (0, 0)))
    side, stride = layer.kernel + window - 1, layer.stride * window
    patches = jnp.stack(
        [
            h[:, y : y + stride * (rows - 1) + 1 : stride, x : x + stride * (columns - 1) + 1 : stride]
            for y in range(side)
            for x in range(side)
        ]
    )
    out: Array = matrix @ patches.reshape(side**2 * channels, rows * columns * n)
    return out.reshape(window**2, layer.out_channels, rows, columns, n)


def _pool(layer: Pool, h: Any, axes: tuple[int, int]) -> Any:
    """Pooling over two adjacent axes; what fills no window is dropped."""
    first, second = axes
    rows, columns = h.shape[first] // layer.size, h.shape[second] // layer.size
    h = jax.lax.slice_in_dim(h, 0, rows * layer.size, axis=first)
    h = jax.lax.slice_in_dim(h, 0, columns * layer.size, axis=second)
    split = (*h.shape[:first], rows, layer.size, columns, layer.size, *h.shape[second + 1 :])
    h = jnp.moveaxis(h.reshape(split), (first + 1, second + 2), (0, 1))
    return _together(layer, list(h.reshape(layer.size**2, *h.shape[2:])))


def _together(pool: Pool, places: list[Any]) -> Any:
    """The largest or the mean of equal arrays, two by two: XLA makes vectors of this, and scalar code of a reduction."""
    count = len(places)
    join: Any = jnp.maximum if isinstance(pool, MaxPool) else jnp.add
    while len(places) > 1:
        places = [join(*pair) for pair in zip(places[::2], places[1::2], strict=False)] + places[len(places) // 2 * 2 :]
    return places[0] if isinstance(pool, MaxPool) else places[0] / count
