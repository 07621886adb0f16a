"""Warm-up by adaptive Monte Carlo (aMC): a single model, whose proposals follow the moves that were accepted.

    proposal     theta + epsilon,  epsilon_i = mu_i + width * scale_i * noise
    accepted     mu <- mu + rate * (epsilon - mu)
    `patience` rejections in a row     width <- 0.95 * width,  mu <- 0

`scale` equalises what a step changes in the pre-activations: a neuron with inputs `x` gets

    scale = 1 / sqrt(mean over samples of |x|^2 + 1),

the 1 for its bias. It is found from some of the samples, and again as the model changes. Since the law of the proposals
depends on the past, the chain is not reversible, and no draw is ever kept from it.

Whitelam, Selin, Benlolo, Casert and Tamblyn (2022), arXiv:2205.07408, at temperature zero; with a tilt `s` as Metropolis.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from tiltwalk import noise
from tiltwalk.measure import PathMeasure
from tiltwalk.networks import Network, plain
from tiltwalk.networks.callback import surfaced
from tiltwalk.networks.layers import Conv, Dense, parameter_shapes
from tiltwalk.progress import Progress
from tiltwalk.pytree import pytree
from tiltwalk.run import Run
from tiltwalk.warm import paths

WIDTH, RATE, PATIENCE, SHRINK = 0.01, 0.01, 50, 0.95
SAMPLES = 256
"""Samples that scales are found from."""

PARTS = 20
"""How often in a run scales are found."""


@pytree
class Walker:
    """A model, its loss, and the law of its next proposal."""

    theta: Float[Array, "c d"]
    loss: Float[Array, " c"]
    mean: Float[Array, "c d"]
    width: Float[Array, " c"]
    rejected: Int[Array, " c"]
    accepted: Float[Array, " c"]


def train(measure: PathMeasure, steps: int, s: float | None, chains: int, init: Any, key: Any, progress: bool) -> Run:
    """A run without draws, whose chains are at paths of equal models."""
    words = noise.seed(key)
    one = paths.single(measure)
    began = time.perf_counter()
    with surfaced(), Progress(steps, progress) as bar:
        models, number = paths.begin(measure, init, chains, words)
        walker = _begin(one, models[:, -1])
        if not np.all(np.isfinite(walker.loss)):
            raise ValueError("warm_start.init must have finite losses; got a model whose loss is not a number, or infinite.")
        tilt = None if s is None else jnp.asarray(s, walker.loss.dtype)
        done = 0
        while done < steps:
            now = min(-(-steps // PARTS), steps - done)
            scale = _scales(one, walker.theta)
            walker = _advance(one, tilt, words, jnp.uint32((number + done) % 2**32), jnp.int32(now), scale, walker)
            done += now
            rate = float(np.mean(walker.accepted)) / done
            bar.advance(now, s=s or 0.0, loss=float(np.mean(walker.loss)), acceptance=rate, phase="warm start")
    return paths.finished(
        measure, walker.theta[:, None], steps=number + steps, evaluations=chains * (steps + 1), gradients=0,
        seconds=time.perf_counter() - began, acceptance={"amc": np.asarray(walker.accepted) / steps},
    )  # fmt: skip


@jax.jit
def _begin(measure: PathMeasure, thetas: Float[Array, "c d"]) -> Walker:
    loss = measure.loss(thetas).astype(thetas.dtype)
    nothing = jnp.zeros_like(loss)
    return Walker(thetas, loss, jnp.zeros_like(thetas), jnp.full_like(loss, WIDTH), jnp.zeros(loss.shape, jnp.int32), nothing)


@jax.jit
def _advance(
    measure: PathMeasure, s: Any, words: UInt32[Array, " 2"], first: UInt32[Array, ""], steps: Int[Array, ""],
    scale: Float[Array, "c d"], walker: Walker,
) -> Walker:  # fmt: skip
    c, d = walker.theta.shape
    chains = jnp.arange(c, dtype=jnp.uint32)

    def one(i: Array, old: Walker) -> Walker:
        drawn = noise.steps_noise(words, i[None], 0, (1, 1, d), chains, last=False, dtype=old.theta.dtype)
        step = old.mean + old.width[:, None] * scale * drawn.normal[0, :, 0, 0]
        theta = old.theta + step
        loss = measure.loss(theta).astype(theta.dtype)
        taken = _taken(measure, s, old, theta, loss, drawn.uniform[0, :, 0])
        rejected = jnp.where(taken, 0, old.rejected + 1)
        stuck = rejected >= PATIENCE
        mean = jnp.where(taken[:, None], old.mean + RATE * (step - old.mean), old.mean)
        return Walker(
            jnp.where(taken[:, None], theta, old.theta),
            jnp.where(taken, loss, old.loss),
            jnp.where(stuck[:, None], 0, mean),
            jnp.where(stuck, SHRINK * old.width, old.width),
            jnp.where(stuck, 0, rejected),
            old.accepted + taken,
        )

    walked: Walker = jax.lax.fori_loop(first, first + steps.astype(jnp.uint32), one, walker)
    return walked


def _taken(measure: PathMeasure, s: Any, old: Walker, theta: Array, loss: Array, uniform: Array) -> Bool[Array, " c"]:
    if s is None:
        return loss <= old.loss  # downhill alone; false for what is not a number
    before, after = (jax.vmap(measure.log_walk)(x[:, None]) for x in (old.theta, theta))
    return uniform < jnp.exp(after - before - s * (loss - old.loss))


def _scales(measure: PathMeasure, thetas: Float[Array, "c d"]) -> Float[Array, "c d"]:
    """What a step of width 1 is, by parameter: by the signals of a network of ours, else the initialisation's scales."""
    network: Any = getattr(measure.loss, "network", None)
    if network is None:
        return jnp.broadcast_to(jnp.asarray(getattr(getattr(measure.walk, "start", None), "scale", 1.0)), thetas.shape)
    learnt = measure.dim - network.dim
    if network.program is None:
        scale = jnp.broadcast_to(network.scale(), (thetas.shape[0], network.dim))
    else:
        scale = _signal_scales(network, thetas[:, : network.dim], _some_inputs(measure.loss))
    return jnp.pad(scale, ((0, 0), (0, learnt)), constant_values=1.0)


def _some_inputs(loss: Any) -> Float[Array, "n ..."]:
    """The first samples, samples first and channels last, from blocks as they lie."""
    data = loss.data
    X = data.X[: max(1, -(-SAMPLES // data.block))]
    if data.last:
        X = jnp.moveaxis(X, -1, 1)
        X = X if X.ndim == 3 else X.transpose(0, 1, 3, 4, 2)
    some: Array = X.reshape(-1, *X.shape[2:])[: min(SAMPLES, loss.n)]
    return some


@functools.partial(jax.jit, static_argnums=0)
def _signal_scales(network: Network, thetas: Float[Array, "c d"], X: Float[Array, "n ..."]) -> Float[Array, "c d"]:
    return jax.vmap(functools.partial(_of_one, network, X))(thetas)


def _of_one(network: Network, X: Float[Array, "n ..."], theta: Float[Array, " d"]) -> Float[Array, " d"]:
    """`1 / sqrt(mean |x|^2 + 1)` for all weights and the bias of each layer, its inputs `x` those of one neuron."""
    assert network.program is not None
    h, at, scales = X.astype(theta.dtype), 0, []
    for layer in network.program:
        size = sum(int(np.prod(shape)) for shape in parameter_shapes(layer))
        if isinstance(layer, Dense | Conv):
            scales.append(jnp.full(size, 1 / jnp.sqrt(_signal(layer, h) + 1)))
        h = plain.forward((layer,), theta[at : at + size], h)
        at += size
    return jnp.concatenate(scales)


def _signal(layer: Dense | Conv, h: Array) -> Array:
    """The mean of the sum of squares of what enters a neuron."""
    if isinstance(layer, Dense):
        return jnp.mean(jnp.sum(h * h, -1))
    window = Conv(layer.kernel, layer.in_channels, 1, layer.stride, layer.padding)
    ones = jnp.ones(layer.kernel**2 * layer.in_channels + 1, h.dtype).at[-1].set(0)
    return jnp.mean(plain.forward((window,), ones, h * h))
