"""The networks that come with the package: the paper's linear perceptron, a multilayer perceptron and LeNet-5."""

from collections.abc import Sequence
from itertools import pairwise

from tiltwalk import check
from tiltwalk.networks.layers import ACTIVATIONS, Activation, Conv, Dense, Flatten, Layer, MaxPool
from tiltwalk.networks.network import Network, sequential


def linear(n_in: int, n_out: int, *, initialiser: str = "glorot") -> Network:
    """The linear perceptron: `theta.reshape(n_in + 1, n_out)` holds the weights and, in its last row, the bias."""
    n_in, n_out = check.whole("linear.n_in", n_in, low=1), check.whole("linear.n_out", n_out, low=1)
    return sequential((n_in,), (Dense(n_in, n_out),), initialiser=initialiser)


def mlp(sizes: Sequence[int], activation: str = "relu", *, initialiser: str | None = None) -> Network:
    """Dense layers from `sizes[0]` inputs to `sizes[-1]` outputs, an activation after each but the last.

    The initialiser is "he" for relu and gelu and "glorot" for the others, unless it is given.
    """
    sizes = [check.whole("mlp.sizes", n, low=1) for n in sizes]
    if len(sizes) < 2:
        raise ValueError(f"mlp.sizes must hold at least the number of inputs and of outputs; got {sizes}.")
    check.one_of("mlp.activation", activation, ACTIVATIONS)
    layers: list[Layer] = []
    for n_in, n_out in pairwise(sizes):
        layers += [Dense(n_in, n_out), Activation(activation)]
    initialiser = initialiser or ("he" if activation in ("relu", "gelu") else "glorot")
    return sequential((sizes[0],), layers[:-1], initialiser=initialiser)


def lenet(n_classes: int = 10, in_channels: int = 1, image_size: int = 28, *, initialiser: str = "he") -> Network:
    """LeNet-5 with relu and max pooling: 5x5 convolutions of 6 and 16 filters, dense layers of 120, 84, `n_classes`.

    44,426 parameters on 28x28 images of one channel (LeCun, Bottou, Bengio, Haffner 1998).
    """
    check.whole("lenet.n_classes", n_classes, low=1)
    check.whole("lenet.in_channels", in_channels, low=1)
    side = ((check.whole("lenet.image_size", image_size, low=16) - 4) // 2 - 4) // 2
    relu = Activation("relu")
    layers = (
        *(Conv(5, in_channels, 6), relu, MaxPool(2)),
        *(Conv(5, 6, 16), relu, MaxPool(2), Flatten()),
        *(Dense(16 * side * side, 120), relu),
        *(Dense(120, 84), relu),
        Dense(84, n_classes),
    )
    return sequential((image_size, image_size, in_channels), layers, initialiser=initialiser)
