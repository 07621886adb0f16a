"""Losses of two (or any number of) parameters that can be looked at: `(m, d) -> (m,)`.

Himmelblau's function is `(x^2 + y - 11)^2 + (x + y^2 - 7)^2`, with four minima of value 0. The paper prints it without the
7, which is another landscape, with two minima of value 0 and others above it; both are here, named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.pytree import pytree, static
from tiltwalk.shapes import per_parameter


@pytree
class Himmelblau:
    """`(x^2 + y - 11)^2 + (x + y^2 - shift)^2`."""

    shift: Any
    differentiable: ClassVar[bool] = True
    trailing: ClassVar[bool] = True
    dim: ClassVar[int] = 2

    def __call__(self, thetas: Float[Array, "m 2"]) -> Float[Array, " m"]:
        x, y = thetas[:, 0], thetas[:, 1]
        value: Array = (x * x + y - 11) ** 2 + (x + y * y - self.shift) ** 2
        return value


@pytree
class DoubleWell:
    """`height * ((x / distance)^2 - 1)^2 + stiffness * y^2 / 2`: minima of value 0 at `x = ±distance, y = 0`."""

    height: Any = 1.0
    distance: Any = 1.0
    stiffness: Any = 1.0
    differentiable: ClassVar[bool] = True
    trailing: ClassVar[bool] = True
    dim: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for name in ("height", "distance", "stiffness"):
            check.number(f"double_well.{name}", getattr(self, name), low=0, low_open=True)

    def __call__(self, thetas: Float[Array, "m 2"]) -> Float[Array, " m"]:
        x, y = thetas[:, 0], thetas[:, 1]
        value: Array = self.height * ((x / self.distance) ** 2 - 1) ** 2 + self.stiffness * y * y / 2
        return value


@pytree
class Bowl:
    """`sum_i curvature_i (theta_i - centre_i)^2 / 2`."""

    curvature: Any
    centre: Any
    dim: int = static(default=2)
    differentiable: ClassVar[bool] = True
    trailing: ClassVar[bool] = True

    def __call__(self, thetas: Float[Array, "m d"]) -> Float[Array, " m"]:
        curvature, centre = (per_parameter(x, thetas[0]) for x in (self.curvature, self.centre))
        return jnp.sum(curvature * (thetas - centre) ** 2, 1) / 2


@pytree
class Function:
    """A loss from a JAX function `(m, d) -> (m,)` that is compiled and may be differentiated."""

    function: Callable[[Array], Array] = static()
    dim: int = static()
    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"Function.function must be callable, (m, d) -> (m,); got {check.shown(self.function)}.")
        check.whole("Function.dim", self.dim, low=1)

    def __call__(self, thetas: Float[Array, "m d"]) -> Float[Array, " m"]:
        return self.function(thetas)


def himmelblau(variant: str = "paper") -> Himmelblau:
    """Himmelblau's landscape: `"classic"` as it is known, `"paper"` as the paper prints it."""
    check.one_of("himmelblau.variant", variant, ("paper", "classic"))
    return Himmelblau(0.0 if variant == "paper" else 7.0)


def double_well(height: float = 1.0, distance: float = 1.0, stiffness: float = 1.0) -> DoubleWell:
    """Two wells of depth `height` at `x = ±distance`, with a spring of `stiffness` in `y`."""
    return DoubleWell(height, distance, stiffness)


def bowl(curvature: Any = 1.0, centre: Any = 0.0, dim: int = 2) -> Bowl:
    """A quadratic bowl; `curvature` and `centre` are one number or one per parameter."""
    check.whole("bowl.dim", dim, low=1)
    check.positive("bowl.curvature", curvature)
    check.finite_array("bowl.centre", centre, (0, 1), "() or (d,)")
    for name, value in (("curvature", curvature), ("centre", centre)):
        if np.ndim(value) == 1 and np.shape(value) != (dim,):
            raise ValueError(f"bowl.{name} must be one number or {dim}; got {np.shape(value)[0]}.")
    return Bowl(jnp.asarray(curvature), jnp.asarray(centre), dim)
