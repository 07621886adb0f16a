"""Follows a Torch module through the graph that `torch.fx` makes of it: see `recognise`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tiltwalk.networks.recognise import GRID, Follower, Unknown, Values

_FUNCTIONS = ("ReLU", "Tanh", "Sigmoid", "GELU", "SiLU", "ELU", "LeakyReLU", "Softplus", "ReLU6", "Hardtanh", "Softsign")
_CALLED = ("relu", "relu_", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "softplus", "relu6")
_NOTHING = ("Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")


def follow(torch: Any, module: Any, starts: Mapping[str, tuple[int, tuple[int, ...]]]) -> Callable[[Follower], None]:
    """What `recognise.recognised` takes. `starts` says where each parameter lies in the vector, and its shape."""

    def run(follower: Follower) -> None:
        try:
            graph = torch.fx.Tracer().trace(module)
        except Exception as error:  # whatever the module does with what stands in for numbers
            text = str(error).splitlines()
            raise Unknown(f"a forward that torch.fx cannot follow: {text[0] if text else type(error).__name__}") from None
        out = _Graph(torch, module, starts, follower).run(graph)
        if not isinstance(out, Values):
            raise Unknown("outputs that are not one array")
        follower.outputs(out)

    return run


@dataclasses.dataclass
class _Graph:
    torch: Any
    module: Any
    starts: Mapping[str, tuple[int, tuple[int, ...]]]
    follower: Follower

    def run(self, graph: Any) -> Any:
        known: dict[Any, Any] = {}
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        for node in graph.nodes:
            args = self.torch.fx.node.map_arg(node.args, lambda n: known[n])
            keywords = self.torch.fx.node.map_arg(node.kwargs, lambda n: known[n])
            match node.op:
                case "placeholder":
                    known[node] = self.follower.first if node is inputs[0] else (node.args[0] if node.args else None)
                case "get_attr":
                    known[node] = self.parameter(node.target)
                case "call_module":
                    known[node] = self.layer(node.target, *args, **keywords)
                case "output":
                    return args[0]
                case _:
                    known[node] = self.call(node.target, args, dict(keywords))
        return None

    def parameter(self, name: str) -> np.ndarray:
        owner: Any = self.module
        for part in name.split("."):
            owner = getattr(owner, part)
        same = [other for other, leaf in self.module.named_parameters() if leaf is owner]
        if not same:
            raise Unknown(f"numbers that are no parameters: {name}")
        start, shape = self.starts[same[0]]
        return start + np.arange(int(np.prod(shape, dtype=int))).reshape(shape)

    def layer(self, name: str, values: Any = None, *more: Any, **keywords: Any) -> Values:
        layer, nn = self.module.get_submodule(name), self.torch.nn
        kind = type(layer)
        if more or keywords or not isinstance(values, Values):
            raise Unknown(f"{kind.__name__} with more than one argument")
        if kind.__name__ in _NOTHING and kind.__module__.startswith("torch."):
            return values
        if kind is nn.Flatten:
            return values.moved(_flat(values.positions, layer.start_dim, layer.end_dim))
        if kind is nn.Unflatten:
            a, at = values.positions, layer.dim
            return values.moved(a.reshape(*a.shape[:at], *layer.unflattened_size, *a.shape[at + 1 :]))
        if kind is nn.Conv2d:
            if layer.padding_mode != "zeros":
                raise Unknown(f"a convolution with padding of {layer.padding_mode}")
            return self.conv(values, *self.own(name, layer), layer.stride, layer.padding, layer.dilation, layer.groups)
        if kind is nn.Linear:
            return self.dense(values, *self.own(name, layer))
        if kind is nn.MaxPool2d:
            return self.max_pool(
                values, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices
            )
        if kind is nn.AvgPool2d:
            return self.avg_pool(
                values, layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, True, layer.divisor_override
            )
        if kind.__name__ in _FUNCTIONS and kind.__module__.startswith("torch."):
            return self.elementwise(layer, values)
        raise Unknown(f"{kind.__name__}, which is no layer of the kernel's")

    def own(self, name: str, layer: Any) -> tuple[np.ndarray, np.ndarray | None]:
        lead = f"{name}." if name else ""
        return self.parameter(f"{lead}weight"), None if layer.bias is None else self.parameter(f"{lead}bias")

    def call(self, target: Any, args: Any, keywords: dict[str, Any]) -> Any:
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        functional, first = self.torch.nn.functional, args[0] if args else None
        if not isinstance(first, Values):
            if target in (operator.getitem, operator.mul, operator.add, operator.floordiv, int) and not _holds(args):
                return target(*args)
            raise Unknown(f"an operation that no layer of the kernel is ({name})")
        shape, rest = first.positions.shape, args[1:]
        if name in ("size", "getattr") or target is getattr:
            wanted = rest[0] if rest else keywords.get("dim")
            if target is getattr and wanted != "shape":
                raise Unknown(f"an attribute of values ({wanted})")
            return shape if target is getattr or wanted is None else shape[wanted]
        if name in ("view", "reshape"):
            to = rest[0] if len(rest) == 1 and isinstance(rest[0], tuple | list) else rest or keywords["shape"]
            return first.moved(first.positions.reshape(tuple(to)))
        if name == "flatten":
            given = dict(zip(("start_dim", "end_dim"), rest, strict=False)) | keywords
            return first.moved(_flat(first.positions, given.get("start_dim", 0), given.get("end_dim", -1)))
        if name == "permute":
            to = rest[0] if len(rest) == 1 and isinstance(rest[0], tuple | list) else rest
            return first.moved(first.positions.transpose(tuple(to)))
        if name == "transpose":
            return first.moved(np.swapaxes(first.positions, *rest))
        if name == "unsqueeze":
            at = rest[0] if rest else keywords["dim"]
            return first.moved(np.expand_dims(first.positions, at))
        if name == "squeeze" and rest:
            return first.moved(np.squeeze(first.positions, rest[0]))
        if name == "contiguous":
            return first
        if target in (functional.dropout, functional.dropout2d):
            given = dict(zip(("p", "training"), rest, strict=False)) | keywords
            if given.get("training", True) and given.get("p", 0.5) > 0:
                raise Unknown("dropout in training mode")
            return first
        if target is functional.linear:
            return self.dense(first, *_filled(("weight", "bias"), rest, keywords, (None, None)))
        if name == "conv2d":
            names = ("weight", "bias", "stride", "padding", "dilation", "groups")
            return self.conv(first, *_filled(names, rest, keywords, (None, None, 1, 0, 1, 1)))
        if name in ("max_pool2d", "boolean_dispatch", "_max_pool2d"):
            names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
            return self.max_pool(first, *_filled(names, rest, keywords, (None, None, 0, 1, False, False)))
        if name == "avg_pool2d":
            names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
            return self.avg_pool(first, *_filled(names, rest, keywords, (None, None, 0, False, True, None)))
        if name in _CALLED and not _holds(rest):
            function = target if callable(target) else lambda x, *a, **k: getattr(x, name)(*a, **k)
            return self.elementwise(lambda x: function(x, *rest, **keywords), first)
        if name in ("add", "iadd", "mul", "sub", "cat"):
            raise Unknown(
                "two values put together (as in a residual connection)" if _holds(rest) else f"arithmetic on values ({name})"
            )
        raise Unknown(f"an operation that no layer of the kernel is ({name})")

    # ---- layers ----

    def conv(
        self, values: Values, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any = 1, groups: int = 1
    ) -> Values:
        if groups != 1 or _pair(dilation) != (1, 1) or values.positions.ndim != 4:
            raise Unknown("a convolution in groups, with dilation, or of other than images")
        stride, kernel = _pair(stride), weight.shape[2:]
        if padding == "same":  # Torch puts the odd zero at the end, as we do, and knows stride 1 alone
            pads = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in kernel]
        else:
            pads = [(n, n) for n in ((0, 0) if padding == "valid" else _pair(padding))]
        return self.biased(self.follower.conv(values, weight.transpose(2, 3, 1, 0), stride, pads), bias)

    def dense(self, values: Values, weight: Any, bias: Any) -> Values:
        if values.positions.ndim != 2:
            raise Unknown("a dense layer of other than one vector a sample")
        return self.biased(self.follower.dense(values, weight.T), bias)

    def biased(self, values: Values, bias: Any) -> Values:
        if bias is None:
            return values
        return self.follower.bias(values, bias.reshape(-1, *(1,) * (values.positions.ndim - 2)))

    def max_pool(
        self, values: Values, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool = False, indices: bool = False
    ) -> Values:
        if _pair(dilation) != (1, 1) or indices:
            raise Unknown("a pooling with dilation, or one that gives its places")
        return self.pool(values, size, stride, padding, ceil, True)

    def avg_pool(self, values: Values, size: Any, stride: Any, padding: Any, ceil: bool, _: bool, divisor: Any) -> Values:
        if divisor is not None:
            raise Unknown("a mean pooling with a divisor of its own")
        found = self.pool(values, size, stride, padding, ceil, False)
        return dataclasses.replace(found, curve=GRID)

    def pool(self, values: Values, size: Any, stride: Any, padding: Any, ceil: bool, largest: bool) -> Values:
        size = _pair(size)
        stride = size if stride is None or stride == [] else _pair(stride)
        uneven = ceil and any(n % k for n, k in zip(values.positions.shape[2:], size, strict=True))
        if _pair(padding) != (0, 0) or uneven or values.positions.ndim != 4:
            raise Unknown("a pooling with padding, with windows that are part empty, or of other than images")
        return self.follower.pool(values, size, stride, largest)

    def elementwise(self, function: Callable[[Any], Any], values: Values) -> Values:
        with self.torch.no_grad():
            found = function(self.torch.from_numpy(values.curve.copy())).numpy()
        return dataclasses.replace(values, curve=found)


def _pair(value: Any) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


def _flat(a: np.ndarray, first: int, last: int) -> np.ndarray:
    first, last = first % a.ndim, last % a.ndim
    return a.reshape(*a.shape[:first], -1, *a.shape[last + 1 :])


def _holds(args: Any) -> bool:
    """Whether values of the network are among the arguments."""
    if isinstance(args, tuple | list):
        return any(_holds(a) for a in args)
    return isinstance(args, Values)


def _filled(names: tuple[str, ...], rest: Any, keywords: Mapping[str, Any], defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    given = dict(zip(names, rest, strict=False)) | dict(keywords)
    return tuple(given.get(name, default) for name, default in zip(names, defaults, strict=True))
