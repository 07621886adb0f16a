"""Any function of NumPy arrays as a loss: a decision rule, a simulator, a quantised or spiking network.

The function gets all models at once, `(m, dim) -> (m,)`, whatever the number of chains and sites. It may return NaN or +inf,
which reject. It is called from compiled programs, so it must give the same values for the same models, and it may be called
from another thread. It has no gradient. An exception inside it leaves `tiltwalk.sample`, or a direct call, as itself;
around compiled programs of your own, use `with surfaced():` (see `tiltwalk.networks.callback`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.networks.callback import call, raise_pending, surfaced
from tiltwalk.pytree import pytree, static

__all__ = ["BlackBox", "raise_pending", "surfaced"]


@pytree
class BlackBox:
    """`fn: (m, dim) NumPy -> (m,) NumPy`."""

    fn: Callable[[Any], Any] = static()
    dim: int = static()
    differentiable = False
    on_host = True

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"BlackBox.fn must be a function (m, dim) -> (m,); got {check.shown(self.fn)}.")
        check.whole("BlackBox.dim", self.dim, low=1)
        if type(self.fn).__hash__ is None:  # structure is hashed; this wrapper is, by identity
            object.__setattr__(self, "fn", functools.partial(self.fn))

    def __call__(self, thetas: Float[Array, "m d"]) -> Float[Array, " m"]:
        if jnp.ndim(thetas) != 2 or jnp.shape(thetas)[1] != self.dim:
            raise ValueError(f"BlackBox: thetas must have shape (m, {self.dim}); got {jnp.shape(thetas)}.")
        if check.concrete(thetas):  # no compiled program in between: exceptions are themselves
            rows = np.asarray(thetas)
            return jnp.asarray(_values(self.fn, rows if rows.dtype.kind == "f" else rows.astype(float)))
        return _traced(self.fn, thetas)  # type: ignore[no-any-return]

    def value_and_grad(self, thetas: Float[Array, "m d"]) -> Any:
        raise TypeError("BlackBox.value_and_grad needs a differentiable loss; a BlackBox has no gradient.")

    def raise_pending(self) -> None:
        """Raises what `fn` raised inside a compiled program, if it did."""
        raise_pending()


def _values(fn: Callable[[Any], Any], thetas: np.ndarray) -> np.ndarray:
    """The function on all rows, its answer checked. It gets a copy, so that what it writes stays its own."""
    rows = thetas.reshape(-1, thetas.shape[-1]).copy()
    made = np.asarray(fn(rows))
    if made.dtype.kind not in "fiub":
        raise TypeError(f"BlackBox.fn must return real numbers of shape (m,); got {check.shown(made)}.")
    if made.shape != rows.shape[:1]:
        raise ValueError(
            f"BlackBox.fn must return one number a model, shape (m,); for m = {len(rows)} it returned shape {made.shape}."
        )
    return made.astype(thetas.dtype).reshape(thetas.shape[:-1])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _traced(fn: Callable[[Any], Any], thetas: Any) -> Any:
    return call(functools.partial(_values, fn), thetas.shape[:1], thetas.dtype, thetas)


@_traced.defjvp
def _no_gradient(fn: Any, primals: Any, tangents: Any) -> Any:
    raise TypeError("The gradient of a loss needs a differentiable loss; a BlackBox has no gradient.")
