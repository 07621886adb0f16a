"""What the benchmark of networks computes: three networks, their data, and what a model costs.

Data are the 2,048 images of `mnist2048`: flat for the dense network, and for the 3x3 network inside 32 x 32 pixels with their
two mirror images as further channels. FLOP are those of the definition, a multiplication and an addition for each weight that
a product reads; with "same" padding the zeros around an image count, biases, pooling and activations do not.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

import tiltwalk as tw
from tiltwalk.networks import Activation, Conv, Dense, Flatten, MaxPool, Network, sequential
from tiltwalk.networks.layers import shapes

LENET, MLP, CONV = "LeNet", "MLP 784-64-10", "3x3, 32x32x3"
MODELS = {LENET: 32, MLP: 64, CONV: 8}


def networks() -> dict[str, Network]:
    """The networks by name."""
    relu = Activation("relu")
    layers: list[Any] = []
    for n_in, n_out in ((3, 16), (16, 32), (32, 64)):
        layers += [Conv(3, n_in, n_out, padding="same"), relu, MaxPool(2)]
    small = sequential((32, 32, 3), [*layers, Flatten(), Dense(64 * 4 * 4, 10)], initialiser="he")
    return {LENET: tw.networks.lenet(), MLP: tw.networks.mlp([784, 64, 10]), CONV: small}


def images(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """That many images of `mnist2048`, again from the first where it has no more, and their labels."""
    data = tw.data.mnist2048()
    which = np.arange(samples) % len(data.X_train)
    return data.X_train[which], data.y_train[which]


def inputs(name: str, X: np.ndarray) -> np.ndarray:
    """The images as the network takes them."""
    if name == MLP:
        return X.reshape(len(X), -1)
    if name == LENET:
        return X
    wide = np.pad(X, ((0, 0), (2, 2), (2, 2), (0, 0)))
    return np.concatenate([wide, wide[:, :, ::-1], wide[:, ::-1]], -1)


def models(network: Network, count: int) -> Any:
    """Random models `(count, d)`, the same in every part of the benchmark."""
    return jax.vmap(network.init)(jax.random.split(jax.random.key(1), count))


def flop(network: Network) -> float:
    """Of one model on one sample."""
    assert network.program is not None
    first = network.input_shape
    inside = first if len(first) == 1 else (first[2], first[0], first[1])
    total = 0
    for layer, shape in zip(network.program, shapes(network.program, inside)[1:], strict=True):
        if isinstance(layer, Conv):
            total += 2 * layer.kernel**2 * layer.in_channels * math.prod(shape)
        elif isinstance(layer, Dense):
            total += 2 * layer.n_in * layer.n_out
    return float(total)
