"""Losses of a network on data: `L(theta) = (1/N) sum_i w_i l(f_theta(x_i), y_i)`, the weights `w` with mean 1.

    "mse"            l = |f - y|^2 / 2, so L = 1/(2N) sum_i |f_i - y_i|^2, as in the paper
    "cross_entropy"  l = log sum_c exp(f_c) - f_y: outputs are logits
    "gaussian"       l = |f - y|^2 / (2 noise^2) + k log noise + k/2 log(2 pi); `noise=None` learns it: theta then ends in
                     log noise, and `dim` is `network.dim + 1`
    "zero_one"       l = 1 where the largest output is not y, else 0: no gradient
    a callable       (outputs (n, k), y (n, ...)) -> (n,)

Bayes' posterior for the log-likelihoods (cross_entropy, gaussian) is one model at tilt `s = N`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tiltwalk import check
from tiltwalk.losses import blocks, compiled, heads
from tiltwalk.losses import pieces as pieces_
from tiltwalk.losses.inputs import checked_features, checked_targets, checked_weights
from tiltwalk.networks import Network
from tiltwalk.networks.callback import surfaced
from tiltwalk.pytree import pytree, static


@pytree
class Supervised:
    """The mean loss of `network` on `X`, `y`. Data are array leaves: new values, or another data set of the same size,
    do not compile again.

    `class_weight`: one number per class, or "balanced" (each class counts the same). `sample_weight`: one number per
    sample. `noise`: of the Gaussian likelihood, a number, or None to learn it. `block`: samples in a block; None takes
    what `block_sizes.measure_block` found on this machine, else a rule of thumb.
    """

    data: blocks.Data
    task: blocks.Task = static()
    n: int = static()

    def __init__(
        self,
        network: Network,
        X: Any,
        y: Any,
        kind: Any = "cross_entropy",
        *,
        class_weight: Any = None,
        sample_weight: Any = None,
        noise: Any = None,
        block: int | None = None,
    ) -> None:
        if not isinstance(network, Network):
            raise TypeError(
                "Supervised.network must be a network such as networks.mlp(sizes), or one made by networks.from_flax, "
                f"from_equinox or from_torch; got {check.shown(network)}."
            )
        if not callable(kind) and kind not in heads.KINDS:
            allowed = ", ".join(heads.KINDS)
            raise ValueError(f"Supervised.kind must be one of {allowed}, or a callable; got {check.shown(kind)}.")
        if noise is not None and kind != "gaussian":
            raise ValueError(f"Supervised.noise must be None unless kind is gaussian; got {check.shown(noise)}.")
        if noise is not None:
            check.number("Supervised.noise", noise, low=0, low_open=True)
        X = checked_features(network, X)
        row = compiled.row_of(network, kind) if block in (None, compiled.BLOCK) else None
        y = checked_targets(network, y, kind, X.shape[0])
        weight = checked_weights(network, y, kind, X.shape[0], class_weight, sample_weight)
        asked = None
        if row is not None:  # a module that the kernel can take
            asked, network, X = network, row.network, row.inputs(X)
        sizes = blocks.sizes(network, None if callable(kind) else kind)
        block = sizes[0] if block is None else check.whole("Supervised.block", block, low=1)
        log_noise = None if noise is None else jnp.log(jnp.asarray(noise, dtype=float))
        data = blocks.split(network, X, y, weight, block, log_noise)
        head = heads.PerSample(kind, data.last) if callable(kind) else heads.Named(kind, data.last)
        learnt = kind == "gaussian" and noise is None
        _set(self, data, blocks.Task(network, head, learnt, sizes[1], asked), int(X.shape[0]))
        if callable(kind):
            self._check_callable(kind, X, y)

    # ---- what it is ----

    def __repr__(self) -> str:
        return f"Supervised({self.task.network}, {self.n:,} samples, {self.task.head})"

    @property
    def network(self) -> Network:
        return self.task.asked

    @property
    def kind(self) -> Any:
        head = self.task.head
        return head.kind if isinstance(head, heads.Named) else getattr(head, "function", head)

    @property
    def dim(self) -> int:
        """Parameters of a model: the network's, and the log noise where it is learnt."""
        return self.network.dim + self.task.learnt

    @property
    def block(self) -> int:
        """Samples in a block."""
        return self.data.block

    @property
    def differentiable(self) -> bool:
        return self.network.differentiable and self.kind != "zero_one"

    @property
    def needs_start(self) -> bool:
        """Whether a flat start cannot be normalised: a constant added to all scores changes no class and costs nothing."""
        return self.kind in ("cross_entropy", "zero_one")

    # ---- what it gives ----

    def __call__(self, thetas: Float[Array, "m d"]) -> Float[Array, " m"]:
        """The mean loss of each model."""
        total: Any = self._run(_sums, self.data, thetas)
        return total / self.n  # type: ignore[no-any-return]

    def per_sample(
        self,
        thetas: Float[Array, "m d"],
        indices: Int[Array, " n"] | Int[Array, "m n"] | None = None,
        live: Bool[Array, " m"] | None = None,
    ) -> Float[Array, "m n"]:
        """The loss of each model on each sample, weight included, so that the mean over all samples is the loss.

        `indices` are positions in the data as they were given, a fixed number of them, and may be traced. With a list for
        each model, `(m, n)`, models for which `live` is false are not evaluated: they get zeros.
        """
        if indices is not None and jnp.ndim(indices) == 2:
            rows = jnp.asarray(indices)
            live = jnp.ones(rows.shape[0], bool) if live is None else live
            own: Any = self._run(_each_its_own, self.data, thetas, rows, live)
            return own  # type: ignore[no-any-return]
        if indices is not None:
            listed: Any = self._run(_listed, self.data, thetas, self._checked_indices(indices))
            return listed  # type: ignore[no-any-return]
        each: Any = self._run(_each, self.data, thetas)
        return each[:, : self.n]  # type: ignore[no-any-return]

    def on(self, indices: Int[Array, " n"]) -> Supervised:
        """The loss on some of the samples: its value is the mean of `per_sample` over them."""
        indices = self._checked_indices(indices)
        size = min(self.block, indices.shape[0])
        return _made(blocks.take(self.data, indices, size), self.task, int(indices.shape[0]))

    def part(
        self, thetas: Float[Array, "m d"], first: Any, count: int, live: Bool[Array, " m"] | None = None
    ) -> Float[Array, " m"]:
        """What `count` blocks from `first` on (which may be traced) add to the loss: all parts together give `loss(thetas)`.

        Models for which `live` is false are not evaluated and get 0.
        """
        check.whole("Supervised.part: count", count, low=1, high=self.data.weight.shape[0])
        if live is not None:
            wanted: Any = self._run(partial(_where, count=count), self.data, thetas, live, first)
            return wanted / self.n  # type: ignore[no-any-return]
        some = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, count) if a.ndim else a, self.data)
        total: Any = self._run(_sums, some, thetas)
        return total / self.n  # type: ignore[no-any-return]

    def until(
        self,
        thetas: Float[Array, "b w d"],
        limits: Float[Array, " b"],
        wanted: Bool[Array, "b w"],
        pieces: int,
        low: float = 0.0,
    ) -> tuple[Float[Array, "b w"], Float[Array, " b"]]:
        """Losses of groups of `w` models, given up on where the sum of a group must come to exceed its limit.

        The data are looked at in `pieces`; no sample's loss is below `low`. Returns the losses so far, whole where a group
        was not given up, and the share of the data that each group has seen. Models that are not `wanted` count as zero.
        """
        count = max(1, -(-self.data.weight.shape[0] // pieces))
        run = partial(_until, count=count, low=low)
        sums, seen = run(self.task, self.data, thetas, limits * self.n, wanted)
        return sums / self.n, seen

    def where(self, thetas: Float[Array, "m d"], live: Bool[Array, " m"]) -> Float[Array, " m"]:
        """The loss of the models that are `live`; the others are not evaluated and get 0."""
        return self.part(thetas, 0, self.data.weight.shape[0], live)

    def value_and_grad(self, thetas: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
        """The loss of each model and its gradient."""
        if not self.differentiable:
            raise TypeError(f"Supervised.value_and_grad needs a differentiable loss; got {_why(self.task)}.")
        value, grad = self._run(_gradients, self.data, thetas)
        return value / self.n, grad / self.n

    def zero_one(self) -> Supervised:
        """The share of samples whose class is wrong, for the same network and data, with the same weights."""
        if not self.needs_start:
            raise TypeError(
                f"Supervised.zero_one needs a loss with classes, such as cross_entropy; got {check.shown(self.kind)}."
            )
        return _made(self.data, dataclasses.replace(self.task, head=heads.Named("zero_one", self.data.last)), self.n)

    def grouped(self, group: int) -> Supervised:
        """The same loss, `group` models at a time."""
        check.whole("Supervised.grouped: group", group, low=1)
        return _made(self.data, dataclasses.replace(self.task, group=group), self.n)

    # ---- checks ----

    def _run(self, compiled: Any, data: blocks.Data, thetas: Any, *more: Any) -> Any:
        rows = self._rows(thetas)
        if self.task.network.differentiable or not check.concrete(rows):
            return compiled(self.task, data, rows, *more)
        with surfaced():  # a black box: what it raises leaves as itself
            return jax.block_until_ready(compiled(self.task, data, rows, *more))  # type: ignore[no-untyped-call]

    def _rows(self, thetas: Any) -> Any:
        thetas = jnp.asarray(thetas)
        if thetas.ndim != 2 or thetas.shape[1] != self.dim:
            raise ValueError(f"Supervised: thetas must have shape (m, {self.dim}); got {thetas.shape}.")
        return thetas if jnp.issubdtype(thetas.dtype, jnp.floating) else thetas.astype(float)

    def _checked_indices(self, indices: Any) -> Any:
        if not check.concrete(indices):
            return indices
        found = np.asarray(indices)
        if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
            raise TypeError(
                f"Supervised.on: indices must be a vector of at least one whole number; got {check.shown(indices)}."
            )
        if found.min() < 0 or found.max() >= self.n:
            raise ValueError(f"Supervised.on: indices must be between 0 and {self.n - 1}; got {found.min()} to {found.max()}.")
        return jnp.asarray(found)

    def _check_callable(self, function: Any, X: Any, y: Any) -> None:
        rows = min(3, X.shape[0])
        made = jax.eval_shape(function, jnp.zeros((rows, self.network.n_out)), jnp.asarray(y[:rows]))
        if getattr(made, "shape", None) != (rows,):
            raise ValueError(
                "Supervised.kind, a callable, must give one loss a sample, shape (n,), for outputs of shape "
                f"(n, {self.network.n_out}); for n = {rows} it gave {getattr(made, 'shape', made)}."
            )


def _set(loss: Supervised, data: blocks.Data, task: blocks.Task, n: int) -> None:
    for name, value in (("data", data), ("task", task), ("n", n)):
        object.__setattr__(loss, name, value)


def _made(data: blocks.Data, task: blocks.Task, n: int) -> Supervised:
    loss = object.__new__(Supervised)
    _set(loss, data, task, n)
    return loss


def _why(task: blocks.Task) -> str:
    if not task.asked.differentiable:
        return "a Torch module, which is evaluated as a black box"
    return 'kind="zero_one", which is flat wherever it is continuous'


# ---- compiled once for each task and shape; under vmap one evaluation of all rows ----


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums_with_gradient(task: blocks.Task, data: blocks.Data, thetas: Any) -> Any:
    return blocks.evaluate(task, data, task.entered(thetas), "sum")


def _forward(task: blocks.Task, data: blocks.Data, thetas: Any) -> Any:
    if not task.asked.differentiable or getattr(task.head, "kind", None) == "zero_one":
        raise TypeError(f"The gradient of a loss needs a differentiable loss; got {_why(task)}.")
    value, grad = blocks.evaluate(task, data, task.entered(thetas), "gradient")
    return value, task.left(grad)


def _backward(task: blocks.Task, grad: Any, cotangent: Any) -> Any:
    return None, cotangent[:, None] * grad


_sums_with_gradient.defvjp(_forward, _backward)
_sums = jax.jit(_sums_with_gradient, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _each(task: blocks.Task, data: blocks.Data, thetas: Any) -> Any:
    return blocks.evaluate(task, data, task.entered(thetas), "each")


@partial(jax.jit, static_argnums=0)
def _listed(task: blocks.Task, data: blocks.Data, thetas: Any, indices: Any) -> Any:
    return blocks.listed(task, data, task.entered(thetas), indices)


@partial(jax.jit, static_argnums=0)
def _each_its_own(task: blocks.Task, data: blocks.Data, thetas: Any, indices: Any, live: Any) -> Any:
    return pieces_.listed(task, data, task.entered(thetas), indices, live)


@partial(jax.jit, static_argnums=0, static_argnames=("count", "low"))
def _until(task: blocks.Task, data: blocks.Data, thetas: Any, limits: Any, wanted: Any, count: int, low: float) -> Any:
    return pieces_.until(task, data, task.entered(thetas), limits, wanted, count, low)


@partial(jax.jit, static_argnums=0, static_argnames="count")
def _where(task: blocks.Task, data: blocks.Data, thetas: Any, live: Any, first: Any, count: int) -> Any:
    return pieces_.where(task, data, task.entered(thetas), live, first, count)


@partial(jax.jit, static_argnums=0)
def _gradients(task: blocks.Task, data: blocks.Data, thetas: Any) -> Any:
    value, grad = blocks.evaluate(task, data, task.entered(thetas), "gradient")
    return value, task.left(grad)
