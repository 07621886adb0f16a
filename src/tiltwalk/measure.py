"""The measure that is sampled: paths of a walk, tilted towards a low time-integrated loss,

    P_{sigma,s}(path) ∝ walk(path) * exp(-s * sum_t L(theta_t)).

There is no `s` inside: it is an argument of every step, so that annealing, ladders and sweeps over `s` are one mechanism.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tiltwalk import check
from tiltwalk.pytree import pytree, static
from tiltwalk.types import Loss, Proposal
from tiltwalk.walks import Walk


@pytree
class PathMeasure:
    """Paths of `length` models under `walk`, with `loss` to tilt by."""

    walk: Walk
    loss: Loss
    length: int = static()

    def __post_init__(self) -> None:
        if not check.is_instance_of(Walk, self.walk):
            raise TypeError(
                f"PathMeasure.walk must be a walk such as RandomWalk(sigma) or OrnsteinUhlenbeck(sigma, pull); "
                f"got {check.shown(self.walk)}."
            )
        check.whole("PathMeasure.length", self.length, low=1)
        if isinstance(self.loss, type) or not callable(self.loss) or not hasattr(self.loss, "dim"):
            raise TypeError(
                "PathMeasure.loss must be a loss with `dim`, called as loss(thetas) with thetas of shape (m, dim): see "
                f"tiltwalk.losses, or wrap a function in losses.Function or losses.BlackBox; got {check.shown(self.loss)}."
            )
        check.whole("PathMeasure.loss.dim", self.loss.dim, low=1)
        self.walk.check_dim(self.loss.dim)
        self._check_loss()
        if not self.walk.proper and getattr(self.loss, "needs_start", False):
            warnings.warn(
                "PathMeasure: a flat start cannot be normalised with this loss, since a constant added to all scores costs "
                "nothing, and the path drifts off for ever: give the walk a start such as Normal(network.scale()).",
                stacklevel=3,
            )

    def _check_loss(self) -> None:
        """Raises unless the loss can be compiled and gives one real number a model."""
        try:
            made: Any = jax.eval_shape(lambda: self.loss(jnp.zeros((3, self.loss.dim))))
        except jax.errors.JAXTypeError as error:
            raise TypeError(
                "PathMeasure.loss must be written with jax.numpy, so that it can be compiled; wrap a function of NumPy arrays "
                f"in losses.BlackBox(fn, dim); got {check.shown(self.loss)}."
            ) from error
        allowed = f"PathMeasure.loss must return one real number a model, shape (m,), for thetas of shape (m, {self.loss.dim})"
        shape, dtype = getattr(made, "shape", None), getattr(made, "dtype", None)
        if shape is None:
            raise TypeError(f"{allowed}; got {'None' if made is None else 'a ' + type(made).__name__}.")
        if shape != (3,):
            raise ValueError(f"{allowed}; for m = 3 it returned shape {shape}.")
        if dtype is not None and jnp.issubdtype(dtype, jnp.complexfloating):
            raise TypeError(f"{allowed}; got {dtype}.")

    @property
    def dim(self) -> int:
        """The number of parameters of a model."""
        return self.loss.dim

    def draw(self, key: PRNGKeyArray, first: Any = None) -> Float[Array, "tau d"]:
        """A path of the walk, before any tilt; a flat start needs the `first` model."""
        return self.walk.draw(key, self.length, self.dim, first)

    def losses(self, path: Float[Array, "tau d"]) -> Float[Array, " tau"]:
        """The loss of each model of a path, or of the paths of many chains, `(tau, d, c)`."""
        if path.ndim == 2 or getattr(self.loss, "trailing", False):
            return self.loss(path)
        return jax.vmap(self.loss, in_axes=-1, out_axes=-1)(path)

    def value_and_grad(self, thetas: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
        """The loss of each model and its gradient, of a path or of the paths of many chains, `(m, d, c)`."""
        self.check_gradient("PathMeasure.value_and_grad")
        if thetas.ndim > 2 and not getattr(self.loss, "trailing", False):
            found: tuple[Array, Array] = jax.vmap(self.value_and_grad, in_axes=-1, out_axes=-1)(thetas)
            return found
        if hasattr(self.loss, "value_and_grad"):
            losses, grads = self.loss.value_and_grad(thetas)
            return losses, grads
        # the loss of a model depends on that model alone: one pull back gives the gradients of all
        losses, pull = jax.vjp(self.loss, thetas)
        (grads,) = pull(jnp.ones_like(losses))
        return losses, grads

    def check_gradient(self, name: str) -> None:
        """Raises where the loss has no gradient; `name` is what asked for it."""
        if not getattr(self.loss, "differentiable", True):
            raise TypeError(f"{name} needs a differentiable loss; got {check.shown(self.loss)}.")

    def log_walk(self, path: Float[Array, "tau d"]) -> Float[Array, ""]:
        """The log density of a path before the tilt (where the start is flat, given the first model)."""
        return self.walk.log_density(path)

    def log_density(self, path: Float[Array, "tau d"], s: Any) -> Float[Array, ""]:
        """The log density of a path with the tilt, but for the constant `log Z(s)`."""
        log_density: Array = self.log_walk(path) - s * jnp.sum(self.losses(path))
        return log_density

    def evaluate(self, proposal: Proposal) -> tuple[Float[Array, "b w"], Float[Array, ""]]:
        """The losses of the proposed models, and how many were evaluated; padding costs nothing and counts as 0.

        Losses that came with the proposal are taken as they are.
        """
        dtype = proposal.rows.dtype
        if proposal.losses is not None:
            return proposal.losses, jnp.zeros((), dtype)
        (losses,), evaluations = _of_rows(lambda rows: (self.losses(rows).astype(dtype),), proposal)
        return losses, evaluations

    def with_gradients(self, proposal: Proposal) -> Proposal:
        """The proposal with the losses of its models and their gradients."""
        dtype = proposal.rows.dtype

        def both(rows: Array) -> tuple[Array, ...]:
            losses, grads = self.value_and_grad(rows)
            return losses.astype(dtype), grads.astype(dtype)

        (losses, grads), evaluations = _of_rows(both, proposal)
        return dataclasses.replace(proposal, losses=losses, grads=grads, evaluations=evaluations)


def _of_rows(function: Callable[[Array], tuple[Array, ...]], proposal: Proposal) -> tuple[tuple[Array, ...], Array]:
    """What `function` of models `(m, d)` gives for a proposal's rows, `(b, w, ...)` each, and for how many it was called."""
    b, w, d, *chains = proposal.rows.shape
    dtype = proposal.rows.dtype
    if proposal.count is None:
        found = function(proposal.rows.reshape(b * w, d, *chains))
        return tuple(x.reshape(b, w, *x.shape[1:]) for x in found), jnp.asarray(b * w, dtype)
    rows = proposal.rows[0]
    shapes = jax.eval_shape(function, rows)

    def body(j: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
        new = function(jax.lax.dynamic_slice_in_dim(rows, j, 1))
        return tuple(jax.lax.dynamic_update_slice_in_dim(x, y, j, 0) for x, y in zip(found, new, strict=True))

    found = jax.lax.fori_loop(0, proposal.count, body, tuple(jnp.zeros(x.shape, x.dtype) for x in shapes))
    return tuple(x[None] for x in found), proposal.count.astype(dtype)
