"""Random layer programs for the kernel's tests, and what they give by their definition, in NumPy and in plain JAX."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiltwalk.networks.layers import (
    ACTIVATIONS,
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Program,
    Shape,
    output_shape,
    parameter_shapes,
    shapes,
)


@dataclass(frozen=True)
class Case:
    """A program and everything that a loss needs."""

    program: Program
    shape: Shape
    kind: str
    thetas: np.ndarray
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None


def dim(program: Program) -> int:
    return sum(int(np.prod(shape)) for layer in program for shape in parameter_shapes(layer))


def random_program(rng: np.random.Generator) -> tuple[Program, Shape]:
    """Up to eight layers that fit each other, images of up to 16 x 16."""
    layers: list = []
    if rng.random() < 0.3:
        shape: Shape = (int(rng.integers(1, 40)),)
    else:
        shape = (int(rng.integers(1, 5)), int(rng.integers(3, 17)), int(rng.integers(3, 17)))
    first = shape
    for _ in range(int(rng.integers(0, 7))):
        if len(shape) == 1:
            layer = Dense(shape[0], int(rng.integers(1, 45))) if rng.random() < 0.6 else _activation(rng)
        else:
            pick = rng.random()
            if pick < 0.45:
                padding = "same" if rng.random() < 0.5 else "valid"
                room = min(shape[1:]) if padding == "valid" else 7
                kernel = int(rng.integers(1, min(room, 7) + 1))
                stride = int(rng.choice([1, 1, 1, 2, 3]))
                layer = Conv(kernel, shape[0], int(rng.integers(1, 20)), stride, padding)
            elif pick < 0.7:
                size = int(rng.choice([2, 2, 2, 3, 1]))
                if min(shape[1:]) < size:
                    continue
                layer = MaxPool(size) if rng.random() < 0.6 else AvgPool(size)
            elif pick < 0.95:
                layer = _activation(rng)
            else:
                layer = Flatten()
        layers.append(layer)
        shape = output_shape(layer, shape)
    if len(shape) == 3 and rng.random() < 0.8:
        layers.append(Flatten())
        shape = output_shape(layers[-1], shape)
    if len(shape) == 1 and rng.random() < 0.7:
        layers.append(Dense(shape[0], int(rng.integers(1, 12))))
    if not any(isinstance(layer, Conv | Dense) for layer in layers):
        layers += [Flatten(), Dense(int(np.prod(shape)), 3)] if len(shape) == 3 else [Dense(shape[0], 3)]
    return tuple(layers), first


def _activation(rng: np.random.Generator) -> Activation:
    return Activation(str(rng.choice(ACTIVATIONS)))


def random_case(seed: int, models: int = 3) -> Case:
    rng = np.random.default_rng(seed)
    program, shape = random_program(rng)
    k = int(np.prod(shapes(program, shape)[-1]))
    n = int(rng.integers(1, 70))
    kind = str(rng.choice(["cross_entropy", "mse", "zero_one"]))
    thetas = np.concatenate([_parameters(rng, program)[None] for _ in range(models)])
    X = rng.standard_normal((n, *shape)).astype(np.float32)
    y = rng.standard_normal((n, k)).astype(np.float32) if kind == "mse" else rng.integers(0, k, n).astype(np.int32)
    weights = rng.uniform(0.5, 1.5, n).astype(np.float32) if rng.random() < 0.3 else None
    return Case(program, shape, kind, thetas, X, y, weights)


def _parameters(rng: np.random.Generator, program: Program) -> np.ndarray:
    """Weights at which activations neither vanish nor explode."""
    parts = [np.zeros(0)]
    for layer in program:
        for i, shape in enumerate(parameter_shapes(layer)):
            size = np.prod(shape[:-1]) if i == 0 else 4
            parts.append(rng.standard_normal(int(np.prod(shape))) * 1.3 / np.sqrt(size))
    return np.concatenate(parts).astype(np.float32)


def outputs(program: Program, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Outputs `(n, k)` by the definition, in double, images channels first and read as (channels, height, width)."""
    h, at = X.astype(np.float64), 0
    theta = theta.astype(np.float64)
    for layer in program:
        parts = []
        for shape in parameter_shapes(layer):
            parts.append(theta[at : at + int(np.prod(shape))].reshape(shape))
            at += int(np.prod(shape))
        match layer:
            case Conv():
                pads = ((0, 0), (0, 0), layer.pads(h.shape[2]), layer.pads(h.shape[3]))
                windows = np.lib.stride_tricks.sliding_window_view(np.pad(h, pads), (layer.kernel,) * 2, (2, 3))
                windows = windows[:, :, :: layer.stride, :: layer.stride]
                h = np.einsum("ncijyx,yxcf->nfij", windows, parts[0]) + parts[1][:, None, None]
            case MaxPool() | AvgPool():
                n, c, a, b = h.shape
                s = layer.size
                h = h[:, :, : a // s * s, : b // s * s].reshape(n, c, a // s, s, b // s, s)
                h = h.max((3, 5)) if isinstance(layer, MaxPool) else h.mean((3, 5))
            case Dense():
                h = h @ parts[0] + parts[1]
            case Flatten():
                h = h.reshape(len(h), -1)
            case Activation():
                h = _FUNCTIONS[layer.name](h)
    return h.reshape(len(h), -1)


_FUNCTIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def sample_losses(kind: str, out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Loss of each sample from its outputs."""
    if kind == "mse":
        return ((out - y) ** 2).sum(1) / 2
    if kind == "zero_one":
        return np.where(np.isnan(out).any(1), np.nan, out.argmax(1) != y)
    top = out.max(1, keepdims=True)
    own = np.where((y >= 0) & (y < out.shape[1]), np.take_along_axis(out - top, y[:, None] % out.shape[1], 1)[:, 0], 0)
    return np.log(np.exp(out - top).sum(1)) - own


def losses(case: Case, rows: np.ndarray | None = None) -> np.ndarray:
    """`w_i l_i` of each model and sample: (m, n)."""
    rows = np.arange(len(case.X)) if rows is None else rows
    each = [sample_losses(case.kind, outputs(case.program, t, case.X[rows]), case.y[rows]) for t in case.thetas]
    return np.stack(each) * (1 if case.weights is None else case.weights[rows])
