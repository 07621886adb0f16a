"""The layer program: what a network computes, as a tuple of small values that any backend can read.

Shapes here are of one sample, channels first: `(channels, height, width)` for images, `(features,)` for vectors.
Parameters lie in the flat vector in the order of the layers, weight before bias, each in C order:

    Conv    weight (kernel, kernel, in_channels, out_channels), bias (out_channels,)
            out[f, i, j] = bias[f] + sum_{y, x, c} weight[y, x, c, f] in[c, stride i + y - low, stride j + x - low]
            "valid": low = 0, size (in - kernel) // stride + 1. "same": size ceil(in / stride), zeros around the image,
            max((size - 1) stride + kernel - in, 0) of them along an axis, low = half of that, rounded down.
    Dense   weight (n_in, n_out), bias (n_out,): out = in @ weight + bias
    MaxPool, AvgPool   windows of size x size that do not overlap; rows and columns that fill no window are dropped
    Flatten (channels, height, width) -> (channels * height * width,), C order
    Activation   "relu", "tanh", "sigmoid", "identity", and "gelu" in its tanh form,
            x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
"""

from dataclasses import dataclass

from tiltwalk import check

ACTIVATIONS = ("gelu", "identity", "relu", "sigmoid", "tanh")
PADDINGS = ("same", "valid")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """Cross-correlation with a square kernel, and a bias."""

    kernel: int
    in_channels: int
    out_channels: int
    stride: int = 1
    padding: str = "valid"

    def __post_init__(self) -> None:
        for name in ("kernel", "in_channels", "out_channels", "stride"):
            check.whole(f"Conv.{name}", getattr(self, name), low=1)
        check.one_of("Conv.padding", self.padding, PADDINGS)

    def pads(self, size: int) -> tuple[int, int]:
        """Zeros before and after an axis of `size`."""
        if self.padding == "valid":
            return 0, 0
        out = -(-size // self.stride)
        total = max((out - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2

    def out_size(self, size: int) -> int:
        return (size + sum(self.pads(size)) - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class MaxPool:
    """The largest value in each window."""

    size: int

    def __post_init__(self) -> None:
        check.whole("MaxPool.size", self.size, low=1)


@dataclass(frozen=True)
class AvgPool:
    """The mean of each window."""

    size: int

    def __post_init__(self) -> None:
        check.whole("AvgPool.size", self.size, low=1)


@dataclass(frozen=True)
class Dense:
    """An affine map of vectors."""

    n_in: int
    n_out: int

    def __post_init__(self) -> None:
        check.whole("Dense.n_in", self.n_in, low=1)
        check.whole("Dense.n_out", self.n_out, low=1)


@dataclass(frozen=True)
class Flatten:
    """An image as a vector, channel by channel."""


@dataclass(frozen=True)
class Activation:
    """A function of each value."""

    name: str

    def __post_init__(self) -> None:
        check.one_of("Activation.name", self.name, ACTIVATIONS)


Layer = Conv | MaxPool | AvgPool | Dense | Flatten | Activation
Program = tuple[Layer, ...]


def parameter_shapes(layer: Layer) -> tuple[Shape, ...]:
    """Shapes of the layer's weight and bias, or nothing."""
    match layer:
        case Conv():
            return (layer.kernel, layer.kernel, layer.in_channels, layer.out_channels), (layer.out_channels,)
        case Dense():
            return (layer.n_in, layer.n_out), (layer.n_out,)
    return ()


def fans(layer: Conv | Dense) -> tuple[int, int]:
    """How many values enter one output of the layer, and how many outputs one input enters."""
    if isinstance(layer, Conv):
        area = layer.kernel**2
        return area * layer.in_channels, area * layer.out_channels
    return layer.n_in, layer.n_out


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """Shape of one sample after the layer, or an error where the layer cannot follow."""
    match layer:
        case Conv():
            if len(shape) != 3 or shape[0] != layer.in_channels:
                raise ValueError(f"{layer} must follow an image of {layer.in_channels} channels; got {shape}.")
            height, width = layer.out_size(shape[1]), layer.out_size(shape[2])
            if min(height, width) < 1:
                raise ValueError(f"{layer} must follow an image at least as large as its kernel; got {shape}.")
            return layer.out_channels, height, width
        case MaxPool() | AvgPool():
            if len(shape) != 3 or min(shape[1:]) < layer.size:
                raise ValueError(f"{layer} must follow an image at least as large as its window; got {shape}.")
            return shape[0], shape[1] // layer.size, shape[2] // layer.size
        case Dense():
            if shape != (layer.n_in,):
                raise ValueError(f"{layer} must follow a vector of {layer.n_in} values; got {shape}.")
            return (layer.n_out,)
        case Flatten():
            size = 1
            for axis in shape:
                size *= axis
            return (size,)
        case Activation():
            return shape
    raise TypeError(f"A layer must be Conv, MaxPool, AvgPool, Dense, Flatten or Activation; got {layer!r}.")


def shapes(program: Program, shape: Shape) -> tuple[Shape, ...]:
    """Shape of one sample before the first layer and after each."""
    out = [shape]
    for layer in program:
        out.append(output_shape(layer, out[-1]))
    return tuple(out)


def described(program: Program) -> str:
    """A row of layers in one line."""
    return ", ".join(layer.name if isinstance(layer, Activation) else _short(layer) for layer in program)


def _short(layer: Layer) -> str:
    match layer:
        case Conv():
            more = (f", stride {layer.stride}" if layer.stride != 1 else "") + (", same" if layer.padding == "same" else "")
            return f"Conv({layer.kernel}x{layer.kernel}, {layer.in_channels} to {layer.out_channels}{more})"
        case Dense():
            return f"Dense({layer.n_in} to {layer.n_out})"
        case MaxPool() | AvgPool():
            return f"{type(layer).__name__}({layer.size})"
    return type(layer).__name__
