"""Where warm-up begins and what it ends with: models from what was given, and paths from models."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from tiltwalk import check, diagnostics
from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.types import ChainState


def grow(run: Run, length: int) -> Float[np.ndarray, "chains tau d"]:
    """Paths of `length` equal models from a run's last models: a path to start from."""
    check.whole("grow.length", length, low=1)
    return np.repeat(np.asarray(run.state.path[:, -1:]), length, axis=1)


def single(measure: PathMeasure) -> PathMeasure:
    """The measure of one model."""
    return measure if measure.length == 1 else dataclasses.replace(measure, length=1)


def grown(run: Run, measure: PathMeasure) -> Run:
    """The run with each of its single models as a path of equal ones.

    The step sizes found for single models are under another name, since those of a path are others.
    """
    length = measure.length
    if length == 1:
        return run
    state = ChainState(jnp.asarray(grow(run, length)), jnp.repeat(run.state.losses[:, -1:], length, axis=1))
    steps = {f"{name} of one model": size for name, size in run.steps.items()}
    return dataclasses.replace(run, state=state, steps=steps, losses=np.zeros((run.chains, 0, length)))


def given(measure: PathMeasure, init: Any, chains: int) -> Float[Array, "chains n d"]:
    """The models of `init`: a model, a path of any length or one a chain, a ChainState or a Run."""
    init = init.state if isinstance(init, Run) else init
    init = init.path if isinstance(init, ChainState) else init
    dim = measure.dim
    allowed = f"a model ({dim},), a path (n, {dim}) or one a chain, a ChainState or a Run"
    models = check.numeric("warm_start.init", init, allowed)
    models = models.reshape(1, dim) if models.shape == (dim,) else models
    if models.ndim not in (2, 3) or models.size == 0 or models.shape[-1] != dim or models.shape[:-2] not in ((), (chains,)):
        raise ValueError(f"warm_start.init must be {allowed}, {chains} of them; got an array of shape {np.shape(init)}.")
    if not np.all(np.isfinite(models)):
        raise ValueError("warm_start.init must be finite; got NaN or infinite entries.")
    return jnp.broadcast_to(jnp.asarray(models, float), (chains, *models.shape[-2:]))


def begin(measure: PathMeasure, init: Any, chains: int, words: UInt32[Array, " 2"]) -> tuple[Float[Array, "chains n d"], int]:
    """Where models begin, and the number of the first step: what was given, or the network's initialisation, or the start."""
    number = init.step_number if isinstance(init, Run) else 0
    if init is not None:
        return given(measure, init, chains), number
    keys = jax.random.split(jax.random.wrap_key_data(words ^ jnp.uint32(0x5EED), impl="threefry2x32"), chains)
    network = getattr(measure.loss, "network", None)
    if network is not None:
        made = jax.vmap(network.init)(keys)
        learnt = measure.dim - network.dim  # the log noise of a Gaussian likelihood begins at 0
        return jnp.pad(made, ((0, 0), (0, learnt)))[:, None], number
    first = None if measure.walk.proper else jnp.zeros(measure.dim)
    return jax.vmap(lambda key: single(measure).draw(key, first))(keys), number


def finished(
    measure: PathMeasure, paths: Float[Array, "chains tau d"], *, steps: int, evaluations: float, gradients: float,
    seconds: float, acceptance: dict[str, np.ndarray] | None = None,
) -> Run:  # fmt: skip
    """A run without draws, whose chains are at `paths`, or at paths of equal models where they hold one."""
    rates = acceptance or {}
    losses = _losses(measure, paths)
    run = Run(
        losses=np.zeros((paths.shape[0], 0, paths.shape[1])), paths=None, kept=None, s=np.zeros(0),
        acceptance={name: float(rate.mean()) for name, rate in rates.items()}, acceptance_by_chain=rates, steps={},
        state=ChainState(paths, losses), step_number=steps, evaluations=round(evaluations + losses.size),
        gradients=round(gradients), seconds=seconds, first_draw_seconds=seconds, cautions=diagnostics.cautions(measure),
    )  # fmt: skip
    return grown(run, measure) if paths.shape[1] == 1 else run


@jax.jit
def _losses(measure: PathMeasure, paths: Float[Array, "chains tau d"]) -> Float[Array, "chains tau"]:
    return jax.vmap(measure.losses)(paths).astype(paths.dtype)
