"""Walks: the law of a path before any data. Both walks here are Gaussian chains,

    theta_{t+1} = centre + a (theta_t - centre) + sigma * noise,

with `a = 1` for the random walk and `a = 1 - pull` for the Ornstein-Uhlenbeck walk, which is stationary. Moves never see
which: they ask for the conditional law of some sites given the rest, `sites` for many sites apart from each other, `window`
for consecutive ones. Both follow from the precision of the chain, in units of `1/sigma^2`,

    diagonal: [t > 1 ? 1 : q] + [t < tau ? a^2 : 0],    beside it: -a,    q = sigma^2 * precision of the start,

which for `a = 1` inside a window gives the paper's Brownian bridge: mean `(theta_{t2} + (t2-t) x)/(t2-t+1)` and variance
`sigma^2 (t2-t)/(t2-t+1)` step by step; and for a window that reaches an end of the path, shooting.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from tiltwalk import check
from tiltwalk.pytree import pytree
from tiltwalk.shapes import Scale, like_models
from tiltwalk.starts import Flat, Start

_UNROLLED = 4
"""Windows up to this width are written out; longer ones are a loop."""


@runtime_checkable
class Walk(Protocol):
    """What a move and a measure ask of a walk. Paths are `(tau, d)`."""

    @property
    def proper(self) -> bool:
        """Whether the law of the whole path can be normalised."""
        ...

    def check_dim(self, dim: int) -> None:
        """Raises unless per-parameter settings have `dim` entries."""
        ...

    def draw(self, key: PRNGKeyArray, length: int, dim: int, first: Any = None) -> Float[Array, "tau d"]: ...

    def log_density(self, path: Float[Array, "tau d"]) -> Float[Array, ""]: ...

    def sites(
        self, path: Float[Array, "tau d"], first: int, noise: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Conditional mean of sites `first, first+2, ...` given their neighbours, and a draw of the deviation from it."""
        ...

    def window(
        self,
        path: Float[Array, "tau d"],
        first: Int[Array, ""],
        noise: Float[Array, "w d"],
        count: Int[Array, ""] | None,
    ) -> tuple[Float[Array, "w d"], Float[Array, "w d"]]:
        """The same for `count` (or all `w`) consecutive sites from `first`, given all others."""
        ...

    def log_correction(self, old_first: Float[Array, " d"], new_first: Float[Array, " d"]) -> Float[Array, ""] | None:
        """What a new first model adds to the log acceptance ratio; None where that is always zero."""
        ...

    def free_single_model(self, length: int) -> bool:
        """Whether `sites` and `window` step from where a model is, as a path of one model has no law to be drawn from."""
        ...


class GaussianChain:
    """The conditional laws of a Gaussian chain; `RandomWalk` and `OrnsteinUhlenbeck` say what `a`, `q` and the centre are."""

    sigma: Any

    def persistence(self) -> Any:
        raise NotImplementedError

    def centre_of(self) -> Any:
        raise NotImplementedError

    def start_precision(self) -> Any:
        """`q`: the precision of the first model's law in units of `1/sigma^2`."""
        raise NotImplementedError

    @property
    def proper(self) -> bool:
        raise NotImplementedError

    def log_correction(self, old_first: Array, new_first: Array) -> Array | None:
        return None

    def free_single_model(self, length: int) -> bool:
        """Whether the path is one model under a flat start, which has no law to be drawn from.

        A symmetric step from where it is takes its place, which is the neuroevolution limit of the paper.
        """
        return length == 1 and not self._has_gaussian_start

    @property
    def _has_gaussian_start(self) -> bool:
        raise NotImplementedError

    def sites(self, path: Array, first: int, noise: Array) -> tuple[Array, Array]:
        length, dtype = path.shape[0], path.dtype
        old = path[first::2]
        if self.free_single_model(length):
            return old, like_models(jnp.asarray(self.sigma, dtype), path) * noise
        a, q, c, sigma = (
            like_models(jnp.asarray(x, dtype), path)
            for x in (self.persistence(), self.start_precision(), self.centre_of(), self.sigma)
        )
        t = np.arange(first, length, 2).reshape(-1, *[1] * (path.ndim - 1))
        diagonal = jnp.where(t > 0, 1, q) + jnp.where(t < length - 1, a * a, 0)
        weight = a / diagonal
        if length == 1:
            return jnp.broadcast_to(c, old.shape), sigma * noise / jnp.sqrt(diagonal)
        left, right = _neighbours(path, first)
        from_left, from_right = jnp.where(t > 0, weight, 0), jnp.where(t < length - 1, weight, 0)
        mean = from_left * left + from_right * right + c * (1 - from_left - from_right)
        return mean.astype(dtype), (noise * (sigma * jax.lax.rsqrt(diagonal))).astype(dtype)

    def window(self, path: Array, first: Array, noise: Array, count: Array | None) -> tuple[Array, Array]:
        length, width, dtype = path.shape[0], noise.shape[0], path.dtype
        if self.free_single_model(length):
            return path, like_models(jnp.asarray(self.sigma, dtype), path) * noise
        a, q, c, sigma = (
            like_models(jnp.asarray(x, dtype), path)
            for x in (self.persistence(), self.start_precision(), self.centre_of(), self.sigma)
        )
        live = width if count is None else count
        t = jnp.asarray(first)
        left = jax.lax.dynamic_index_in_dim(path, jnp.maximum(t - 1, 0), keepdims=False) - c
        right = jax.lax.dynamic_index_in_dim(path, jnp.minimum(t + live, length - 1), keepdims=False) - c
        pull_left = jnp.where(t > 0, a, 0) * left
        pull_right = jnp.where(t + live < length, a, 0) * right

        def diagonal(j: Any) -> Array:
            return jnp.where(t + j > 0, 1, q) + jnp.where(t + j < length - 1, a * a, 0)

        def forward(carry: tuple[Array, Array], j: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            before, gained = carry
            first_site, last_site = j == 0, j == live - 1
            pivot = diagonal(j) - jnp.where(first_site, 0, a * a / before)
            total = jnp.where(first_site, pull_left, a * gained / before) + jnp.where(last_site, pull_right, 0)
            return (pivot.astype(dtype), total.astype(dtype)), (pivot.astype(dtype), total.astype(dtype))

        def backward(carry: tuple[Array, Array], x: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            j, pivot, total, z = x
            mean, deviation = carry
            alive = j < live
            mean = jnp.where(alive, (total + a * mean) / pivot, 0).astype(dtype)
            deviation = jnp.where(alive, sigma * z * jax.lax.rsqrt(pivot) + a * deviation / pivot, 0).astype(dtype)
            return (mean, deviation), (mean, deviation)

        pivot_shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(q))
        begin = (jnp.ones(pivot_shape, dtype), jnp.zeros_like(left))
        index = jnp.arange(width)
        unroll = width if width <= _UNROLLED else 1
        _, (pivots, totals) = jax.lax.scan(forward, begin, index, unroll=unroll)
        end = (jnp.zeros_like(left), jnp.zeros_like(left))
        _, (means, deviations) = jax.lax.scan(backward, end, (index, pivots, totals, noise), reverse=True, unroll=unroll)
        return c + means, deviations


def _neighbours(path: Array, first: int) -> tuple[Array, Array]:
    """The models before and after sites `first, first + 2, ...`; at an end of the path the one neighbour stands for both."""
    length = path.shape[0]
    if first == 0:
        right = path[1::2]
        if length % 2:
            right = jnp.concatenate([right, path[-2:-1]])
        return jnp.concatenate([path[1:2], path[1:-1:2]]), right
    right = path[2::2]
    if length % 2 == 0:
        right = jnp.concatenate([right, path[-2:-1]])
    return path[0 : length - 1 : 2], right


def _increments(path: Array, centre: Any, persistence: Any, sigma: Any) -> Array:
    """The log density of the steps of a path, given its first model."""
    moved = path[1:] - centre - persistence * (path[:-1] - centre)
    deviation = jnp.broadcast_to(jnp.asarray(sigma, path.dtype), moved.shape)
    return jnp.sum(-((moved / deviation) ** 2) / 2 - jnp.log(deviation) - math.log(2 * math.pi) / 2)


@pytree
class RandomWalk(GaussianChain):
    """`theta_1 ~ start`, then `theta_{t+1} = theta_t + N(0, sigma^2)`; `sigma` is one number or one per parameter."""

    sigma: Scale
    start: Start = Flat()

    def __post_init__(self) -> None:
        check.positive("RandomWalk.sigma", self.sigma)
        if not check.is_instance_of(Start, self.start):
            raise TypeError(f"RandomWalk.start must be a start such as Flat() or Normal(scale); got {check.shown(self.start)}.")

    def persistence(self) -> Any:
        return 1.0

    def centre_of(self) -> Any:
        return self.start.mean()

    @property
    def trailing(self) -> bool:
        return getattr(self.start, "trailing", False)

    def start_precision(self) -> Any:
        return jnp.asarray(self.sigma) ** 2 * self.start.precision()

    @property
    def proper(self) -> bool:
        return self.start.proper

    @property
    def _has_gaussian_start(self) -> bool:
        return self.start.proper and not self.start.has_rest

    def check_dim(self, dim: int) -> None:
        check.entries("RandomWalk.sigma", self.sigma, dim)
        for name in ("scale", "centre", "low", "high"):
            check.entries(f"{type(self.start).__name__}.{name}", getattr(self.start, name, 0.0), dim)

    def draw(self, key: PRNGKeyArray, length: int, dim: int, first: Any = None) -> Array:
        start_key, walk_key = jax.random.split(key)
        theta = self.start.draw(start_key, dim) if first is None else jnp.asarray(first)
        steps = jnp.asarray(self.sigma) * jax.random.normal(walk_key, (length - 1, dim))
        return theta + jnp.concatenate([jnp.zeros((1, dim)), jnp.cumsum(steps, 0)])

    def log_density(self, path: Array) -> Array:
        return self.start.log_density(path[0]) + _increments(path, 0.0, 1.0, self.sigma)

    def log_correction(self, old_first: Array, new_first: Array) -> Array | None:
        if not self.start.has_rest:
            return None
        new = self.start.rest(new_first)
        # a start outside its own support is left at the first chance, and never entered
        return jnp.where(new == -jnp.inf, -jnp.inf, new - self.start.rest(old_first))


@pytree
class OrnsteinUhlenbeck(GaussianChain):
    """`theta_{t+1} = centre + (1 - pull)(theta_t - centre) + N(0, sigma^2)`, stationary, so that it needs no start.

    `pull` in (0, 2) draws each parameter back to `centre`; the law of any one model is normal around `centre` with variance
    `sigma^2 / (1 - (1 - pull)^2)`, so the measure can be normalised whatever the loss.
    """

    sigma: Scale
    pull: Scale
    centre: Scale = 0.0

    def __post_init__(self) -> None:
        check.positive("OrnsteinUhlenbeck.sigma", self.sigma)
        check.positive("OrnsteinUhlenbeck.pull", self.pull, shape="a number in (0, 2) or one per parameter")
        if check.concrete(self.pull) and np.any(np.asarray(self.pull) >= 2):
            raise ValueError(f"OrnsteinUhlenbeck.pull must be in (0, 2); got {check.shown(self.pull)}.")
        if check.concrete(self.centre):
            check.finite_array("OrnsteinUhlenbeck.centre", self.centre, (0, 1), "() or (d,)")

    def persistence(self) -> Any:
        return 1 - jnp.asarray(self.pull)

    def centre_of(self) -> Any:
        return self.centre

    @property
    def trailing(self) -> bool:
        return True

    def start_precision(self) -> Any:
        return 1 - self.persistence() ** 2

    @property
    def proper(self) -> bool:
        return True

    @property
    def _has_gaussian_start(self) -> bool:
        return True

    @property
    def scale(self) -> Array:
        """The deviation of any one model before the tilt."""
        return jnp.asarray(self.sigma) / jnp.sqrt(self.start_precision())

    def check_dim(self, dim: int) -> None:
        for name in ("sigma", "pull", "centre"):
            check.entries(f"OrnsteinUhlenbeck.{name}", getattr(self, name), dim)

    def draw(self, key: PRNGKeyArray, length: int, dim: int, first: Any = None) -> Array:
        start_key, walk_key = jax.random.split(key)
        a, c, sigma = self.persistence(), jnp.asarray(self.centre), jnp.asarray(self.sigma)
        theta = c + self.scale * jax.random.normal(start_key, (dim,)) if first is None else jnp.asarray(first)
        steps = sigma * jax.random.normal(walk_key, (length - 1, dim))

        def body(x: Array, z: Array) -> tuple[Array, Array]:
            x = c + a * (x - c) + z
            return x, x

        _, rest = jax.lax.scan(body, theta, steps)
        return jnp.concatenate([theta[None], rest])

    def log_density(self, path: Array) -> Array:
        scale = jnp.broadcast_to(self.scale, path[0].shape)
        first = jnp.sum(-(((path[0] - self.centre) / scale) ** 2) / 2 - jnp.log(scale) - math.log(2 * math.pi) / 2)
        return first + _increments(path, self.centre, self.persistence(), self.sigma)
