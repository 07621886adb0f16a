"""A network as a function of one flat parameter vector: `apply(theta, X) -> outputs`.

A `Network` is a description, frozen and hashable: it holds no weights. Our own networks are layer programs
(`tiltwalk.networks.layers`) and compare by value, so that two equal ones share compiled code. Networks made from other
libraries' modules (`from_flax`, `from_equinox`, `from_torch`) carry functions and compare by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from tiltwalk import check
from tiltwalk.networks import plain
from tiltwalk.networks.layers import Conv, Dense, Program, Shape, described, fans, output_shape, parameter_shapes

INITIALISERS = ("glorot", "he", "lecun")
BIAS_SCALE = 0.1


@dataclass(frozen=True)
class Parameter:
    """A named part of the flat vector. `scale` is the standard deviation of its values at initialisation."""

    name: str
    start: int
    shape: Shape
    scale: float

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, eq=False)
class Adapted:
    """What a module of another library brings: functions of the flat vector, and its own form of the weights."""

    library: str
    module: Any
    forward: Callable[[Any, Any], Any]
    forward_many: Callable[[Any, Any], Any]
    init: Callable[[Any], Any]
    flatten: Callable[[Any], Any]
    unflatten: Callable[[Any], Any]
    differentiable: bool


@dataclass(frozen=True, repr=False)
class Network:
    """One sample of `input_shape` in, `n_out` outputs out. Images are `(height, width, channels)`."""

    input_shape: Shape
    n_out: int
    parameters: tuple[Parameter, ...]
    program: Program | None = None
    initialiser: str = "glorot"
    adapted: Adapted | None = None
    row: Any = None  # of an adapted module, where it is a row of our layers: see recognise.Row
    unknown: str = ""  # what in an adapted module is none of our layers

    @property
    def layers(self) -> Program | None:
        """The row of layers that the network is, which the compiled kernel can take; None for modules that are none."""
        return self.program if self.row is None else self.row.network.program

    @property
    def why(self) -> str:
        """Whether the network is a row of layers that the compiled kernel knows, and if not, what in it is not."""
        if self.layers is not None:
            return f"layers that the kernel knows: {described(self.layers)}"
        return f"no row of layers that the kernel knows: {self.unknown}"

    def __repr__(self) -> str:
        inside = "x".join(map(str, self.input_shape))
        kind = "" if self.adapted is None else f"of {self.adapted.library}, "
        why = "" if self.adapted is None else f"; {self.why}"
        return f"Network({kind}{inside} in, {self.n_out} out, {self.dim:,} parameters{why})"

    @property
    def dim(self) -> int:
        """Length of the parameter vector."""
        return sum(p.size for p in self.parameters)

    @property
    def n_in(self) -> int:
        """Values in one sample."""
        return int(np.prod(self.input_shape, dtype=int))

    @property
    def layout(self) -> dict[str, Parameter]:
        """Where each weight and bias lies in the vector, by name: `theta[network.layout["dense1.weight"].slice]`."""
        return {p.name: p for p in self.parameters}

    @property
    def differentiable(self) -> bool:
        return self.adapted is None or self.adapted.differentiable

    @cached_property
    def _scale(self) -> np.ndarray:
        return np.repeat([p.scale for p in self.parameters], [p.size for p in self.parameters])

    def scale(self) -> Float[Array, " d"]:
        """Each parameter's standard deviation at initialisation; 0.1 for biases, which others start at zero."""
        return jnp.asarray(self._scale, dtype=float)

    def init(self, key: PRNGKeyArray | int) -> Float[Array, " d"]:
        """Random parameters. For our own networks a draw of the start `Normal(scale())`, biases included."""
        key = jax.random.key(key) if isinstance(key, int) else key
        if self.adapted is not None:
            return jnp.asarray(self.adapted.init(key), dtype=float)
        return self.scale() * jax.random.normal(key, (self.dim,), dtype=self.scale().dtype)

    def apply(self, theta: Float[Array, " d"], X: Float[Array, "n ..."]) -> Float[Array, "n k"]:
        """Outputs of one model."""
        X = self.as_inputs(X)
        if jnp.shape(theta) != (self.dim,):
            raise ValueError(f"Network.apply: theta must have shape ({self.dim},); got {jnp.shape(theta)}.")
        if self.program is not None:
            one: Any = _one(self.program, jnp.asarray(theta), jnp.asarray(X))
            return one  # type: ignore[no-any-return]
        assert self.adapted is not None
        return self.adapted.forward(jnp.asarray(theta), X)  # type: ignore[no-any-return]

    def apply_many(self, thetas: Float[Array, "m d"], X: Float[Array, "n ..."]) -> Float[Array, "m n k"]:
        """Outputs of many models on the same samples, some models and samples at a time."""
        X = self.as_inputs(X)
        if jnp.ndim(thetas) != 2 or jnp.shape(thetas)[1] != self.dim:
            raise ValueError(f"Network.apply_many: thetas must have shape (m, {self.dim}); got {jnp.shape(thetas)}.")
        if self.program is not None:
            outputs: Any = _many(self.program, jnp.asarray(thetas), jnp.asarray(X))
            return outputs  # type: ignore[no-any-return]
        return self.forward_many(jnp.asarray(thetas), X)

    def forward_many(self, thetas: Float[Array, "m d"], X: Float[Array, "n ..."]) -> Float[Array, "m n k"]:
        """`apply_many` on one block of samples and one group of models: all at once, nothing checked."""
        if self.adapted is not None:
            return self.adapted.forward_many(thetas, X)  # type: ignore[no-any-return]
        assert self.program is not None
        return jax.vmap(partial(plain.forward, self.program), (0, None))(thetas, X)

    def flatten(self, params: Any) -> Float[Array, " d"]:
        """Weights as one vector: from a mapping with the names of `layout`, or from the other library's own form."""
        if self.adapted is not None:
            return self.adapted.flatten(params)  # type: ignore[no-any-return]
        if not isinstance(params, Mapping) or set(params) != set(self.layout):
            raise ValueError(
                f"Network.flatten: params must be a mapping with the names {', '.join(self.layout)}; got {_names(params)}."
            )
        for p in self.parameters:
            if jnp.shape(params[p.name]) != p.shape:
                raise ValueError(f"Network.flatten: {p.name} must have shape {p.shape}; got {jnp.shape(params[p.name])}.")
        return jnp.concatenate([jnp.ravel(jnp.asarray(params[p.name], dtype=float)) for p in self.parameters])

    def unflatten(self, theta: Float[Array, " d"]) -> Any:
        """The inverse of `flatten`."""
        if self.adapted is not None:
            return self.adapted.unflatten(theta)
        if jnp.shape(theta) != (self.dim,):
            raise ValueError(f"Network.unflatten: theta must have shape ({self.dim},); got {jnp.shape(theta)}.")
        return {p.name: jnp.asarray(theta)[p.slice].reshape(p.shape) for p in self.parameters}

    def as_inputs(self, X: Any) -> Any:
        """`X` with the shape that the network reads, or an error. The axis of a single channel may be missing."""
        X = X if isinstance(X, jax.Array) else np.asarray(X)
        if self.program is not None and len(self.input_shape) == 3 and (*X.shape[1:], 1) == self.input_shape:
            X = X[..., None]
        if X.ndim < 1 or X.shape[1:] != self.input_shape:
            wanted = ", ".join(map(str, ("N", *self.input_shape)))
            raise ValueError(f"X must have shape ({wanted}){_hint(X.shape, self.input_shape)}; got {X.shape}.")
        return X


_one = jax.jit(plain.forward, static_argnums=0)
_many = jax.jit(plain.forward_many, static_argnums=0)


def sequential(input_shape: Sequence[int], layers: Sequence[Any], *, initialiser: str = "glorot") -> Network:
    """A network of layers in a row. `input_shape` is `(features,)` or `(height, width, channels)`.

    Weights start with variance `2 / (fan_in + fan_out)` ("glorot"), `2 / fan_in` ("he") or `1 / fan_in` ("lecun").
    """
    check.one_of("sequential.initialiser", initialiser, INITIALISERS)
    outside = tuple(check.whole("sequential.input_shape", int(n), low=1) for n in input_shape)
    if len(outside) not in (1, 3):
        raise ValueError(f"sequential.input_shape must be (features,) or (height, width, channels); got {tuple(input_shape)}.")
    shape: Shape = outside if len(outside) == 1 else (outside[2], outside[0], outside[1])
    program, parameters, start, counted = tuple(layers), [], 0, 0
    for layer in program:
        shape = output_shape(layer, shape)
        if isinstance(layer, Conv | Dense):
            counted += 1
            deviations = (_deviation(layer, initialiser), BIAS_SCALE)
            for kind, part, deviation in zip(("weight", "bias"), parameter_shapes(layer), deviations, strict=True):
                name = f"{type(layer).__name__.lower()}{counted}.{kind}"
                parameters.append(Parameter(name, start, part, deviation))
                start += parameters[-1].size
    if len(shape) != 1 or not parameters:
        raise ValueError(f"sequential.layers must hold parameters and end in a vector of outputs; got {shape}.")
    return Network(outside, shape[0], tuple(parameters), program, initialiser)


def _deviation(layer: Conv | Dense, initialiser: str) -> float:
    fan_in, fan_out = fans(layer)
    variance = {"glorot": 2 / (fan_in + fan_out), "he": 2 / fan_in, "lecun": 1 / fan_in}[initialiser]
    return float(variance**0.5)


def _names(params: Any) -> str:
    return ", ".join(map(str, params)) if isinstance(params, Mapping) else check.shown(params)


def _hint(came: Shape, wanted: Shape) -> str:
    if len(wanted) == 3 and len(came) == 4 and came[1:] == (wanted[2], wanted[0], wanted[1]):
        return ", channels last: transpose with X.transpose(0, 2, 3, 1)"
    if int(np.prod(came[1:], dtype=int)) == int(np.prod(wanted, dtype=int)) and came != (wanted[0],):
        return f": reshape with X.reshape(-1, {', '.join(map(str, wanted))})"
    return ", samples first"
