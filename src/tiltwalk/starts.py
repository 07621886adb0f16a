"""Starts: the law `p` of the first model of a path.

A start has a Gaussian part, which the walk's conditional laws take in exactly, and a rest, which enters the acceptance of
every proposal that moves the first model. `Flat` and `Normal` are all Gaussian part (with precision zero, or `1/scale^2`);
a start of your own may leave the Gaussian part at zero and put everything into the rest.
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from tiltwalk import check
from tiltwalk.pytree import pytree
from tiltwalk.shapes import Scale, per_parameter


@runtime_checkable
class Start(Protocol):
    """The law of the first model. `proper` says whether it can be normalised; `has_rest` whether `rest` is ever not zero."""

    proper: ClassVar[bool]
    has_rest: ClassVar[bool]

    def precision(self) -> Scale:
        """The precision of the Gaussian part, one number or one per parameter; 0 where there is none."""
        ...

    def mean(self) -> Scale:
        """The mean of the Gaussian part."""
        ...

    def rest(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """The log density without its Gaussian part."""
        ...

    def log_density(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """The whole log density, normalised where the start is proper."""
        ...

    def draw(self, key: PRNGKeyArray, dim: int) -> Float[Array, " d"]: ...


@pytree
class Flat:
    """`p = 1`: every first model is as likely as any other. It cannot be normalised, and a loss need not make up for that."""

    proper: ClassVar[bool] = False
    has_rest: ClassVar[bool] = False
    trailing: ClassVar[bool] = True

    def precision(self) -> Scale:
        return 0.0

    def mean(self) -> Scale:
        return 0.0

    def rest(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(theta.shape[1:], theta.dtype)

    def log_density(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(theta.shape[1:], theta.dtype)

    def draw(self, key: PRNGKeyArray, dim: int) -> Float[Array, " d"]:
        raise ValueError("Flat cannot be drawn from: it has no normalisation. Give a first model, or use Normal(scale).")


@pytree
class Normal:
    """Each parameter of the first model is normal around `centre` with deviation `scale`: one number, or one per parameter."""

    scale: Scale = 1.0
    centre: Scale = 0.0

    proper: ClassVar[bool] = True
    has_rest: ClassVar[bool] = False
    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check.positive("Normal.scale", self.scale)
        if check.concrete(self.centre):
            check.finite_array("Normal.centre", self.centre, (0, 1), "() or (d,)")

    def precision(self) -> Scale:
        return jnp.asarray(self.scale) ** -2.0

    def mean(self) -> Scale:
        return self.centre

    def rest(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(theta.shape[1:], theta.dtype)

    def log_density(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        scale, centre = (per_parameter(x, theta) for x in (self.scale, self.centre))
        return jnp.sum(-(((theta - centre) / scale) ** 2) / 2 - jnp.log(scale) - math.log(2 * math.pi) / 2, 0)

    def draw(self, key: PRNGKeyArray, dim: int) -> Float[Array, " d"]:
        return jnp.asarray(self.centre) + jnp.asarray(self.scale) * jax.random.normal(key, (dim,))


@pytree
class Uniform:
    """The first model is uniform in a box, from `low` to `high` in each parameter; later models may leave it."""

    low: Scale = -1.0
    high: Scale = 1.0

    proper: ClassVar[bool] = True
    has_rest: ClassVar[bool] = True
    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if check.concrete(self.low) and check.concrete(self.high):
            low = check.finite_array("Uniform.low", self.low, (0, 1), "() or (d,)")
            high = check.finite_array("Uniform.high", self.high, (0, 1), "() or (d,)")
            if low.ndim and high.ndim and low.shape != high.shape:
                raise ValueError(
                    f"Uniform.low and Uniform.high must be one number or one per parameter; got {low.size} and {high.size}."
                )
            if np.any(low >= high):
                raise ValueError(f"Uniform.low must be below Uniform.high; got {self.low} and {self.high}.")

    def precision(self) -> Scale:
        return 0.0

    def mean(self) -> Scale:
        return 0.0

    def rest(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        return self.log_density(theta)

    def log_density(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        low, high = (per_parameter(x, theta) for x in (self.low, self.high))
        inside = jnp.all((theta >= low) & (theta <= high), 0)
        return jnp.where(inside, -jnp.sum(jnp.log(high - low), 0), -jnp.inf)

    def draw(self, key: PRNGKeyArray, dim: int) -> Float[Array, " d"]:
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return low + (high - low) * jax.random.uniform(key, (dim,))
