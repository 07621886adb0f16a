"""Follows a function of JAX, `forward(theta, X)`, through its equations: see `recognise`. For Flax and Equinox."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tiltwalk.networks.recognise import GRID, SAMPLES, Follower, Unknown, Values

_CALLS = {
    *("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
}
_SAME = {"copy", "copy_p", "stop_gradient", "optimization_barrier"}
_ELEMENTWISE = {
    *("add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "square", "sqrt", "rsqrt", "integer_pow", "pow"),
    *("add_any", "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "erf", "erfc", "select_n", "clamp"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Parameters: for each entry, its position in the vector."""

    positions: np.ndarray


def follow(forward: Callable[[Any, Any], Any], dim: int, shape: tuple[int, ...], dtype: Any) -> Callable[[Follower], None]:
    """What `recognise.recognised` takes."""

    def run(follower: Follower) -> None:
        given = [jax.ShapeDtypeStruct((dim,), dtype), jax.ShapeDtypeStruct((SAMPLES, *shape), dtype)]  # type: ignore[no-untyped-call]
        closed = jax.make_jaxpr(forward)(*given)
        out = _run(follower, closed.jaxpr, closed.consts, [Weights(np.arange(dim)), follower.first])
        if not isinstance(out[0], Values):
            raise Unknown("outputs that do not depend on the sample")
        follower.outputs(out[0])

    return run


def _run(follower: Follower, jaxpr: Any, consts: Any, args: list[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if hasattr(atom, "val") else known[atom]

    for equation in jaxpr.eqns:
        found = _equation(follower, equation, [read(atom) for atom in equation.invars])
        known |= dict(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(follower: Follower, equation: Any, args: list[Any]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
        return _run(follower, getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args)
    if not any(isinstance(a, Values | Weights) for a in args):
        found = equation.primitive.bind(*args, **params)
        return list(found) if equation.primitive.multiple_results else [found]
    if name in _SAME:
        return args
    if name == "convert_element_type":
        if equation.invars[0].aval.dtype != params["new_dtype"]:
            raise Unknown(f"numbers of type {params['new_dtype']} within the module")
        return args
    if name in _MOVES and not any(isinstance(a, Values | Weights) for a in args[1:] if name != "concatenate"):
        return _moved(name, params, args)
    match name, args:
        case "conv_general_dilated", [Values() as values, Weights() as weights]:
            return [_conv(follower, params, values, weights.positions)]
        case "dot_general", [Values() as values, Weights() as weights]:
            return [_dot(follower, params["dimension_numbers"], values, weights.positions, False)]
        case "dot_general", [Weights() as weights, Values() as values]:
            return [_dot(follower, params["dimension_numbers"], values, weights.positions, True)]
        case (("reduce_window_max" | "reduce_window_sum"), [Values() as values]):
            return [_pool(follower, params, values, name == "reduce_window_max")]
        case (("add" | "add_any"), [Values() as values, Weights() as weights] | [Weights() as weights, Values() as values]):
            return [follower.bias(values, weights.positions)]
    if name in _ELEMENTWISE:
        return [_elementwise(equation, args)]
    if any(isinstance(a, Weights) for a in args) and not any(isinstance(a, Values) for a in args):
        raise Unknown(f"weights that are computed from others ({name})")
    raise Unknown(_WHAT.get(name, f"an operation that no layer of the kernel is ({name})"))


_WHAT = {
    "reduce_sum": "a sum over a layer's values (as in a normalisation, an attention or a global pooling)",
    "reduce_max": "a maximum over a layer's values (as in an attention or a global pooling)",
    "reduce_window": "a pooling that is neither of the largest nor of the mean",
    "dot_general": "a product of a layer's values with each other (as in an attention)",
    "conv_general_dilated": "a convolution with a kernel that is no parameter",
    "scan": "a loop over steps (as in a recurrent layer)",
    "while": "a loop over steps (as in a recurrent layer)",
    "concatenate": "values put beside each other (as in a skip connection)",
    "gather": "values that are looked up",
}


# ---- moves: on positions they are what they are on numbers ----

_MOVES: dict[str, Callable[[np.ndarray, Any], Any]] = {
    "reshape": lambda a, p: a.reshape(p["new_sizes"]),
    "transpose": lambda a, p: a.transpose(p["permutation"]),
    "squeeze": lambda a, p: a.squeeze(tuple(p["dimensions"])),
    "expand_dims": lambda a, p: np.expand_dims(a, p["dimensions"]),
    "rev": lambda a, p: np.flip(a, p["dimensions"]),
    "slice": lambda a, p: a[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or (1,) * a.ndim))],
    "split": lambda a, p: np.split(a, np.cumsum(p["sizes"])[:-1], p["axis"]),
    "broadcast_in_dim": lambda a, p: _broadcast(a, p["shape"], p["broadcast_dimensions"]),
    "concatenate": lambda a, p: a,
}


def _moved(name: str, params: Any, args: list[Any]) -> list[Any]:
    if name == "reshape" and params.get("dimensions") is not None:
        raise Unknown("a reshape that also transposes")
    if name == "concatenate":
        if not all(isinstance(a, Weights) for a in args):
            raise Unknown(_WHAT["concatenate"])
        return [Weights(np.concatenate([a.positions for a in args], params["dimension"]))]
    found = _MOVES[name](args[0].positions, params)
    many = found if isinstance(found, list) else [found]
    return [Weights(a) if isinstance(args[0], Weights) else args[0].moved(a) for a in many]


def _broadcast(a: np.ndarray, shape: Any, dimensions: Any) -> np.ndarray:
    wide = [1] * len(shape)
    for axis, to in enumerate(dimensions):
        wide[int(to)] = a.shape[axis]
    return np.broadcast_to(a.reshape(wide), shape)


# ---- layers ----


def _conv(follower: Follower, p: Any, values: Values, weight: np.ndarray) -> Values:
    spec = p["dimension_numbers"]
    plain = p["feature_group_count"] == p["batch_group_count"] == 1 and {*p["lhs_dilation"], *p["rhs_dilation"]} == {1}
    if not plain or weight.ndim != 4:
        raise Unknown("a convolution in groups, with dilation, or of other than images")
    f, c, *at = spec.rhs_spec
    found = follower.conv(
        values.moved(values.positions.transpose(spec.lhs_spec)), weight.transpose(*at, c, f), p["window_strides"], p["padding"]
    )
    return found.moved(found.positions.transpose(np.argsort(spec.out_spec)))


def _dot(follower: Follower, numbers: Any, values: Values, weight: np.ndarray, weight_first: bool) -> Values:
    (left, right), (left_batch, right_batch) = numbers
    mine, its = (right, left) if weight_first else (left, right)
    if left_batch or right_batch or len(mine) != 1 or weight.ndim != 2 or values.positions.ndim != 2:
        raise Unknown("a product other than of vectors with a matrix")
    rows = np.moveaxis(values.positions, mine[0], -1)
    matrix = np.moveaxis(weight, its[0], 0)
    found = follower.dense(values.moved(rows), matrix)
    return found.moved(found.positions.T) if weight_first else found


def _pool(follower: Follower, p: Any, values: Values, largest: bool) -> Values:
    size, stride = p["window_dimensions"], p["window_strides"]
    if any(n for pad in p["padding"] for n in pad) or {*p["base_dilation"], *p["window_dilation"]} != {1}:
        raise Unknown("a pooling with padding or dilation")
    at = [axis for axis, n in enumerate(size) if n > 1]
    rest = [axis for axis, n in enumerate(size) if n == 1 and axis and (values.positions.shape[axis] > 1 or stride[axis] > 1)]
    empty = [axis for axis in range(1, len(size)) if axis not in at and axis not in rest]
    if len(at) != 2 or len(rest) > 1 or any(stride[axis] != 1 for axis in (0, *rest)):
        raise Unknown("a pooling of other than windows of an image")
    order = [0, *empty, *rest, *at]
    shape = values.positions.transpose(order).shape
    images = values.positions.transpose(order).reshape(shape[0], -1, *shape[-2:])
    found = follower.pool(values.moved(images), [size[a] for a in at], [stride[a] for a in at], largest)  # type: ignore[arg-type]
    wide = found.positions.reshape(*shape[:-2], *found.positions.shape[-2:])
    return found.moved(wide.transpose(np.argsort(order)))


def _elementwise(equation: Any, args: list[Any]) -> Values:
    """The same operation on the curves, with constants that are one number."""
    if any(isinstance(a, Weights) for a in args):
        raise Unknown(
            f"parameters that enter by other than a convolution, a dense layer or its bias ({equation.primitive.name})"
        )
    own = [a for a in args if isinstance(a, Values)]
    if any(a.layers != own[0].layers for a in own):
        raise Unknown("two values put together (as in a residual connection)")
    shape = equation.outvars[0].aval.shape
    if any(a.positions.shape != shape or not np.array_equal(a.positions, own[0].positions) for a in own):
        raise Unknown("two values put together that do not belong together")
    curves = []
    for a in args:
        if not isinstance(a, Values):
            number = np.asarray(a)
            if number.size and not np.all(number == number.flat[0]):
                raise Unknown("constants that differ from value to value (such as the scaling of inputs)")
            curves.append(np.full(GRID.shape, number.flat[0], number.dtype))
        else:
            curves.append(a.curve)
    with np.errstate(all="ignore"):
        found = np.asarray(equation.primitive.bind(*curves, **equation.params))
    same = found.dtype == GRID.dtype and np.array_equal(found, GRID)
    return dataclasses.replace(own[0], curve=GRID if same else found)
