"""Warm-up by gradients: an Optax optimizer on a single model, or on all models of a path at once.

Without a tilt the goal is the mean loss of each model. With `s` it is `sum_t L(theta_t) - log walk(path) / s`, whose least
value is the most likely path.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from tiltwalk import batches, check, noise
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.run import Run
from tiltwalk.warm import paths

STEPS_A_CALL = 256


def train(
    measure: PathMeasure, steps: int, s: float | None, optimizer: Any, batch: int | None, every_model: bool, chains: int,
    init: Any, key: Any, progress: bool,
) -> Run:  # fmt: skip
    """A run without draws, whose chains are where the optimizer came to."""
    batches.checked("warm_start", measure, batch)
    optimizer = _checked(optimizer)
    words = noise.seed(key)
    began = time.perf_counter()
    with surfaced():
        models, number = paths.begin(measure, init, chains, words)
        if every_model and models.shape[1] != measure.length:
            models = _walked(measure, models[:, -1], words)
        elif not every_model:
            models = models[:, -1:]
        state = jax.vmap(optimizer.init)(models)
        tilt = None if s is None else jnp.asarray(s, models.dtype)
        one = measure if every_model else paths.single(measure)
        with Progress(steps, progress) as bar:
            done = 0
            while done < steps:
                now = min(STEPS_A_CALL, steps - done)
                models, state, loss = _descend(
                    one, optimizer, batch, tilt, words, jnp.uint32((number + done) % 2**32), jnp.int32(now), models, state
                )
                done += now
                if not np.isfinite(loss):
                    raise ValueError(
                        "warm_start.optimizer must keep the losses finite: take a smaller learning rate, or a better init; "
                        f"got NaN or infinite losses within {done} steps."
                    )
                bar.advance(now, s=s or 0.0, loss=float(loss), acceptance=1.0, phase="warm start")
        passes = models.shape[0] * models.shape[1] * steps * batches.share(measure, batch)
        return paths.finished(
            measure, models, steps=number + steps, evaluations=passes, gradients=passes, seconds=time.perf_counter() - began
        )


def _checked(optimizer: Any) -> Any:
    if optimizer is None:
        try:
            import optax
        except ImportError as error:
            raise ImportError('warm_start.optimizer needs Optax: pip install "tiltwalk[gradients]"') from error
        return optax.adam(1e-3)
    if (
        isinstance(optimizer, type)
        or not callable(getattr(optimizer, "init", None))
        or not callable(getattr(optimizer, "update", None))
    ):
        raise TypeError(
            f"warm_start.optimizer must be an Optax transformation such as optax.adam(1e-3); got {check.shown(optimizer)}."
        )
    return optimizer


def _walked(measure: PathMeasure, first: Float[Array, "chains d"], words: UInt32[Array, " 2"]) -> Float[Array, "chains tau d"]:
    """Paths of the walk from `first`: equal models under equal gradients would stay equal."""
    keys = jax.random.split(jax.random.wrap_key_data(words ^ jnp.uint32(0xA77), impl="threefry2x32"), first.shape[0])
    return jax.vmap(measure.draw)(keys, first)


@functools.partial(jax.jit, static_argnames=("optimizer", "batch"))
def _descend(
    measure: PathMeasure, optimizer: Any, batch: int | None, s: Any, words: UInt32[Array, " 2"], first: UInt32[Array, ""],
    steps: Int[Array, ""], models: Float[Array, "chains n d"], state: Any,
) -> tuple[Float[Array, "chains n d"], Any, Float[Array, ""]]:  # fmt: skip
    """`steps` steps; the mean loss is that of the last."""
    root = jax.random.wrap_key_data(words, impl="threefry2x32")

    def against_walk(path: Float[Array, "n d"]) -> Any:
        return -measure.log_walk(path) / s

    def one(i: Array, carried: Any) -> Any:
        models, state, _ = carried
        flat = models.reshape(-1, models.shape[-1])
        losses, grads = batches.value_and_grad(measure, flat, jax.random.fold_in(root, i), batch)
        grads = grads.reshape(models.shape).astype(models.dtype)
        if s is not None:
            grads = grads + jax.vmap(jax.grad(against_walk))(models)
        # each chain on its own, so that an optimizer that looks at the norm of its gradient sees one chain
        updates, state = jax.vmap(optimizer.update)(grads, state, models)
        return models + updates, state, jnp.mean(losses).astype(models.dtype)

    done: tuple[Array, Any, Array] = jax.lax.fori_loop(
        first, first + steps.astype(jnp.uint32), one, (models, state, jnp.zeros((), models.dtype))
    )
    return done
