"""Gradients on a random part of the data, for many models in one pass.

`batch` samples `B` are drawn with replacement, the same for all models of a step, which is what makes it one pass:

    g(theta) = 1/batch sum_{i in B} grad l_i(theta),

unbiased for the gradient of the loss. With an anchor `theta*`, where the gradient on all data is known,

    g(theta) - g(theta*) + grad L(theta*)

is unbiased too, and less noisy the nearer the models are to it (a control variate: Baker, Fearnhead, Fox, Nemeth 2019,
arXiv:1706.05439). It costs one model more a pass.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree


@pytree
class Anchor:
    """A model, and the gradient of its loss on all data."""

    theta: Float[Array, " d"]
    grad: Float[Array, " d"]


def checked(name: str, measure: PathMeasure, batch: Any) -> int | None:
    """`batch` as it is, or an error that names `name` unless gradients can be had from that many samples (None: all)."""
    if not isinstance(measure, PathMeasure):
        raise TypeError(f"{name}.measure must be a PathMeasure; got {check.shown(measure)}.")
    measure.check_gradient(name)
    if batch is None:
        return None
    loss: Any = measure.loss
    if not hasattr(loss, "on") or not hasattr(loss, "n"):
        raise TypeError(f"{name}.batch needs a loss on samples, such as losses.Supervised; got {check.shown(measure.loss)}.")
    return check.whole(f"{name}.batch", batch, low=1, high=loss.n)


def share(measure: PathMeasure, batch: int | None) -> float:
    """The part of the data that a pass looks at."""
    loss: Any = measure.loss
    return 1.0 if batch is None else float(batch / loss.n)


def anchored(measure: PathMeasure, theta: Float[Array, " d"]) -> Anchor:
    """An anchor at `theta`."""
    _, grads = _full(measure, theta[None])
    return Anchor(theta, grads[0])


@jax.jit
def _full(measure: PathMeasure, thetas: Array) -> tuple[Array, Array]:
    return measure.value_and_grad(thetas)


def value_and_grad(
    measure: PathMeasure, thetas: Float[Array, "m d"], key: PRNGKeyArray, batch: int | None, anchor: Anchor | None = None
) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
    """Estimates of the losses and of their gradients; both exact where `batch` is None."""
    if batch is None:
        return measure.value_and_grad(thetas)
    loss: Any = measure.loss
    part = loss.on(jax.random.randint(key, (batch,), 0, loss.n))
    if anchor is None:
        losses, grads = part.value_and_grad(thetas)
        return losses, grads
    losses, grads = part.value_and_grad(jnp.concatenate([thetas, anchor.theta[None].astype(thetas.dtype)]))
    return losses[:-1], grads[:-1] - grads[-1] + anchor.grad
