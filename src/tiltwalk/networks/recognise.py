"""Which modules of other libraries are a row of our own layers, so that the compiled kernel can take them.

A module is followed once, when its network is made, with positions in place of numbers: an array says of each value which of
the current layer's values it is, so that transposed images, flattened in whatever order, and weights in whatever layout are all
read off. What comes out is a row of layers and, for each of its parameters, where that lies in the module's own flat vector,
whose order stays as it is. Then the row must give the module's outputs, on random samples and parameters, to 1e-5. Elementwise
functions are told apart by their values on a grid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, MaxPool, described
from tiltwalk.networks.network import Network, sequential

SAMPLES = 3
TOLERANCE = 1e-5
GRID = np.concatenate([np.linspace(-8, 8, 321), [-1e4, -100.0, -20.0, 20.0, 100.0, 1e4]]).astype(np.float32)
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


class Unknown(Exception):
    """What in a module the kernel does not know."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of the row's vector: a slice of the module's, its axes in another order; or zeros; or single positions."""

    size: int
    start: int = 0
    shape: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    zeros: bool = False

    def of(self, thetas: Any) -> Any:
        lead = thetas.shape[:-1]
        if self.zeros:
            return jnp.zeros((*lead, self.size), thetas.dtype)
        part = thetas[..., self.start : self.start + self.size]
        if self.axes == tuple(range(len(self.axes))):
            return part
        moved = part.reshape(*lead, *self.shape).transpose(*range(len(lead)), *(len(lead) + a for a in self.axes))
        return moved.reshape(*lead, self.size)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A module as a row of our layers. `network` is the row; its vector and its inputs lie otherwise than the module's."""

    network: Network
    pieces: tuple[Piece, ...]
    order: np.ndarray | None  # of the inputs, a position for each of the row's; None where they are the same

    def parameters(self, thetas: Float[Array, "... d"]) -> Float[Array, "... e"]:
        """The module's parameters in the order of the row. Linear: its transpose takes gradients back."""
        return jnp.concatenate([piece.of(thetas) for piece in self.pieces], axis=-1)

    def inputs(self, X: Any) -> Any:
        """The module's samples as the row reads them, images channels last."""
        flat = X.reshape(X.shape[0], -1)
        return (flat if self.order is None else flat[:, self.order]).reshape(X.shape[0], *self.network.input_shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """What stands at a place of the module: for each entry, sample by sample, which value after `layers` layers it holds, and
    the function that was applied to it since, on the grid."""

    positions: np.ndarray
    layers: int
    curve: np.ndarray = dataclasses.field(default_factory=lambda: GRID)

    def moved(self, positions: np.ndarray) -> Values:
        return dataclasses.replace(self, positions=positions)


class Follower:
    """The row so far. Each layer takes the values of the one before it: anything else is no row."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.features = int(np.prod(shape, dtype=int))
        self.shape: tuple[int, ...] | None = None  # of the current layer's values, channels first; None before the first layer
        self.order: np.ndarray | None = None
        self.layers: list[Any] = []
        self.weights: list[np.ndarray] = []  # positions in the module's vector, weight and bias of each layer that has them
        self.unbiased = False
        self.first = Values(np.arange(SAMPLES * self.features).reshape(SAMPLES, *shape), 0)

    # ---- the layers ----

    def conv(self, values: Values, weight: np.ndarray, stride: tuple[int, ...], pads: Any) -> Values:
        """`values` as (n, c, h, w), `weight` as (kernel, kernel, c, f)."""
        c, h, w = self._image(values)
        k, across, inside, filters = weight.shape
        if k != across or len(set(stride)) != 1 or inside != c:
            raise Unknown("a convolution in groups, or with a kernel or stride that is not square")
        pads = [tuple(map(int, p)) for p in pads]
        for padding in ("valid", "same"):
            layer = Conv(k, c, filters, int(stride[0]), padding)
            if pads == [layer.pads(h), layer.pads(w)]:
                return self._affine(layer, weight, (filters, layer.out_size(h), layer.out_size(w)))
        raise Unknown(f"a convolution with padding {pads}, which is neither valid nor same")

    def pool(self, values: Values, size: tuple[int, ...], stride: tuple[int, ...], largest: bool) -> Values:
        """`values` as (n, c, h, w). Means are the sums of windows until they are divided."""
        c, h, w = self._image(values)
        if len({*size, *stride}) != 1:
            raise Unknown("a pooling whose windows are not square, or overlap, or leave gaps")
        side = int(size[0])
        layer = MaxPool(side) if largest else AvgPool(side)
        found = self._next(layer, (c, h // side, w // side))
        return found if largest else dataclasses.replace(found, curve=GRID * np.float32(side**2))

    def dense(self, values: Values, weight: np.ndarray) -> Values:
        """`values` as (n, k), `weight` as (k, outputs)."""
        columns = self._vector(values)
        if weight.shape[0] != len(columns):
            raise Unknown("a product of other than a layer's values with a matrix")
        before = self.shape
        if self.shape is None:
            self.shape, self.order = (len(columns),), columns
            rows = weight
        else:
            rows = np.empty_like(weight)
            rows[columns] = weight  # the row that belongs to each value, in whatever order they were flattened
        if before is not None and len(before) == 3:
            self.layers.append(Flatten())
            rows = rows.reshape(*before, -1)
        return self._affine(Dense(weight.shape[0], weight.shape[1]), rows, (weight.shape[1],))

    def bias(self, values: Values, bias: np.ndarray) -> Values:
        """Adds a parameter to each value: `bias` has the shape of the values, or one that broadcasts to it."""
        if values.layers != len(self.layers) or not self.unbiased or values.curve is not GRID or self.shape is None:
            raise Unknown("parameters added elsewhere than after a convolution or a dense layer")
        full = np.broadcast_to(bias, values.positions.shape)
        size = SAMPLES * int(np.prod(self.shape))
        found = np.full(size, -1)
        if full.size != size:
            raise Unknown("a bias that makes more values of a layer's")
        found[values.positions.ravel()] = full.ravel()
        by_filter = found.reshape(SAMPLES, self.shape[0], -1)
        if not np.all(by_filter == by_filter[:1, :, :1]):
            raise Unknown("a bias that is not one number a filter or an output")
        self.weights[-1], self.unbiased = by_filter[0, :, 0], False
        return values

    def outputs(self, values: Values) -> None:
        """Ends the row."""
        columns = self._vector(values)
        if self.shape is None or not any(isinstance(layer, Conv | Dense) for layer in self.layers):
            raise Unknown("no convolution and no dense layer")
        if not np.array_equal(columns, np.arange(len(columns))):
            raise Unknown("outputs in another order than the last layer's")
        if len(self.shape) == 3:
            self.layers.append(Flatten())

    # ---- how values lie ----

    def _settled(self, values: Values) -> np.ndarray:
        """The positions, once the function that was applied to them is a layer of its own."""
        if values.layers != len(self.layers):
            raise Unknown("values that are used again later (as in a residual connection)")
        name = _named(values.curve)
        if name is None:
            raise Unknown(f"a function of single values that is none of {', '.join(sorted(_ACTIVATIONS))}")
        if name != "identity":
            self.layers.append(Activation(name))
            self.unbiased = False
        return values.positions

    def _image(self, values: Values) -> tuple[int, int, int]:
        positions = self._settled(values)
        if positions.ndim != 4 or positions.shape[0] != SAMPLES:
            raise Unknown("a convolution or a pooling of other than images")
        if self.shape is None:
            self.order = self._each(positions, self.features)
            self.shape = self.order.shape
        elif len(self.shape) != 3 or not np.array_equal(positions.ravel(), np.arange(SAMPLES * int(np.prod(self.shape)))):
            raise Unknown("a convolution or a pooling of values that do not lie as the image before it")
        c, h, w = self.shape
        return c, h, w

    def _vector(self, values: Values) -> np.ndarray:
        positions = self._settled(values)
        size = self.features if self.shape is None else int(np.prod(self.shape))
        return self._each(positions, size).ravel()

    def _each(self, positions: np.ndarray, size: int) -> np.ndarray:
        """The positions of one sample's values, which must be all of them, and alike for each sample."""
        first = positions.reshape(positions.shape[0], -1)
        steps = np.arange(SAMPLES)[:, None] * size
        right = first.shape == (SAMPLES, size) and np.array_equal(first, first[:1] + steps)
        if not right or not np.array_equal(np.sort(first[0]), np.arange(size)):
            raise Unknown("a layer that takes some of the values before it, or other than one row of them a sample")
        found: np.ndarray = positions[0]
        return found

    def _next(self, layer: Any, shape: tuple[int, ...]) -> Values:
        self.layers.append(layer)
        self.shape, self.unbiased = shape, False
        return Values(np.arange(SAMPLES * int(np.prod(shape))).reshape(SAMPLES, *shape), len(self.layers))

    def _affine(self, layer: Conv | Dense, weight: np.ndarray, shape: tuple[int, ...]) -> Values:
        self.weights += [weight, np.full(shape[0], -1)]
        found = self._next(layer, shape)
        self.unbiased = True
        return found

    # ---- what came out ----

    def row(self, dim: int) -> Row:
        """The row, where every parameter of the module has one place in it."""
        used = np.sort(np.concatenate([w.ravel() for w in self.weights]))
        if not np.array_equal(used[used >= 0], np.arange(dim)):
            raise Unknown("weights that are used twice, or not at all")
        assert self.shape is not None
        assert self.order is not None
        order = self.order.transpose(1, 2, 0) if self.order.ndim == 3 else self.order
        network = sequential(order.shape, tuple(self.layers))
        straight = np.array_equal(order.ravel(), np.arange(self.features))
        return Row(network, tuple(_piece(w) for w in self.weights), None if straight else order.ravel())


def _named(curve: np.ndarray) -> str | None:
    with np.errstate(all="ignore"):
        for name, function in _ACTIVATIONS.items():
            wanted = function(GRID.astype(float))
            if np.all(np.abs(curve - wanted) <= 1e-5 * np.maximum(np.abs(wanted), 0.1)):
                return name
    return None


def _piece(positions: np.ndarray) -> Piece:
    """How to cut `positions`, in this order, out of a vector without looking up each."""
    size, start = positions.size, int(positions.min())
    if start < 0:
        return Piece(size, zeros=True)
    ends = [positions[tuple(1 if i == axis else 0 for i in range(positions.ndim))] if n > 1 else start
            for axis, n in enumerate(positions.shape)]  # fmt: skip
    steps = [int(end) - start for end in ends]
    wide = [a for a, n in enumerate(positions.shape) if n > 1]
    wide.sort(key=lambda a: -steps[a])
    shape = tuple(positions.shape[a] for a in wide)
    kept = sorted(wide)
    axes = tuple(wide.index(a) for a in kept)
    made = (start + np.arange(size)).reshape(shape).transpose(axes).reshape(positions.shape)
    if not np.array_equal(made, positions):
        raise Unknown("weights that do not lie together in an order of their axes")
    return Piece(size, start, shape, axes)


def recognised(follow: Callable[[Follower], None], network: Network, theta: Any) -> tuple[Row | None, str]:
    """The row that `follow` finds the network's module to be, held to the module's outputs; or None, and why not."""
    if theta.dtype != np.float32:
        return None, "the kernel computes in float32, and this is JAX's x64"
    follower = Follower(network.input_shape)
    try:
        follow(follower)
        row = follower.row(network.dim)
    except Unknown as error:
        return None, str(error)
    rng = np.random.default_rng(0)
    samples = jnp.asarray(rng.standard_normal((SAMPLES, *network.input_shape)).astype(theta.dtype))
    spread = np.asarray(network.scale()).astype(theta.dtype)
    for other in (0, 1):
        these = jnp.asarray(theta) + other * spread * rng.standard_normal(len(spread)).astype(theta.dtype)
        wanted = np.asarray(network.apply(these, samples))
        got = np.asarray(row.network.apply(row.parameters(these), row.inputs(samples)))
        far = np.max(np.abs(got - wanted)) if got.shape == wanted.shape else np.inf
        if not far <= TOLERANCE * np.max(np.abs(wanted)):
            return None, f"its layers, {described(tuple(follower.layers))}, give other outputs than it does, by {far:.1e}"
    return row, ""
