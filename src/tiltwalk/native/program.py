"""A layer program as the flat integers that the kernel reads: see `plan.cc` for the other side.

version, axes, channels, height, width, layers; then six numbers a layer, the first of which says what it is
"""

from tiltwalk.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, Layer, MaxPool, Program, Shape

VERSION = 1
KINDS = {"cross_entropy": 0, "mse": 1, "zero_one": 2, "outputs": 3}
ACTIVATIONS = {"identity": 0, "relu": 1, "tanh": 2, "sigmoid": 3, "gelu": 4}


def encode(program: Program, shape: Shape) -> tuple[int, ...]:
    """The program for samples of `shape`; raises TypeError where it holds a layer that the kernel does not know."""
    axes = tuple(shape) if len(shape) == 3 else (shape[0], 1, 1) if len(shape) == 1 else None
    if axes is None:
        raise TypeError(f"The kernel takes images (channels, height, width) or vectors; got samples of shape {shape}.")
    code = [VERSION, len(shape), *axes, len(program)]
    for layer in program:
        code += _layer(layer)
    return tuple(code)


def _layer(layer: Layer) -> tuple[int, int, int, int, int, int]:
    match layer:
        case Conv():
            same = int(layer.padding == "same")
            return 1, layer.kernel, layer.in_channels, layer.out_channels, layer.stride, same
        case MaxPool():
            return 2, layer.size, 0, 0, 0, 0
        case AvgPool():
            return 3, layer.size, 0, 0, 0, 0
        case Dense():
            return 4, layer.n_in, layer.n_out, 0, 0, 0
        case Flatten():
            return 5, 0, 0, 0, 0, 0
        case Activation():
            return 6, ACTIVATIONS[layer.name], 0, 0, 0, 0
    raise TypeError(f"The kernel knows Conv, MaxPool, AvgPool, Dense, Flatten and Activation; got {layer!r}.")
