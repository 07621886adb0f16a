"""Samplers of BlackJAX on the same log density: random-walk Metropolis, HMC and NUTS, tuned by their own window adaptation.

Each makes a few chains from exact draws, in as many groups as there are cores, each with its own thread, as `sample` does for
ours. Adaptation runs on one chain, before the clock. Random-walk Metropolis has no adaptation of its own there: its step is
tuned here to an acceptance of 0.234, once for a proposal that is alike in all directions, and once for one with the exact
covariance of the law, which nobody has in practice: it is the best that any tuning could give.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk.bench.samplers_clock import Go, Piece, seen
from tiltwalk.measure import PathMeasure

CHAINS = 16
HMC_STEPS = 15
GROUPS = 2


def missing() -> str | None:
    """Why there is nothing to measure, if so."""
    return None if importlib.util.find_spec("blackjax") else 'BlackJAX is not installed: pip install "blackjax>=1.2"'


def log_density(measure: PathMeasure, s: float) -> Callable[[Any], Any]:
    """The log density of a path of a random walk from a flat start, without its constants."""
    sigma: Any = measure.walk.sigma  # type: ignore[attr-defined]

    def of(path: Any) -> Any:
        return -jnp.sum((path[1:] - path[:-1]) ** 2) / (2 * sigma**2) - s * jnp.sum(measure.loss(path))

    return of


def gradient_peer(name: str, measure: PathMeasure, s: float, starts: Any, draws: int, adaptation: int) -> Go:
    """`"nuts"` or `"hmc"` with what window adaptation finds in `adaptation` steps."""
    import blackjax

    algorithm = getattr(blackjax, name)
    more = {"num_integration_steps": HMC_STEPS} if name == "hmc" else {}
    density = log_density(measure, s)
    warm = blackjax.window_adaptation(algorithm, density, **more)
    found, _ = warm.run(jax.random.key(1), jnp.asarray(starts[0]), num_steps=adaptation)
    kernel = algorithm(density, **found.parameters)

    def step(key: Any, state: Any) -> tuple[Any, Any, Any]:
        state, info = kernel.step(key, state)
        return state, info.acceptance_rate, info.num_integration_steps

    return _going(step, jax.vmap(kernel.init), measure, starts, draws, thin=1, gradients=True)


def random_walk(measure: PathMeasure, s: float, starts: Any, draws: int, thin: int, covariance: np.ndarray | None) -> Go:
    """Random-walk Metropolis with a normal proposal, tuned to an acceptance of 0.234."""
    import blackjax

    density = log_density(measure, s)
    shape = (measure.length, measure.dim)
    size = measure.length * measure.dim
    root = None if covariance is None else jnp.asarray(np.linalg.cholesky(covariance), jnp.float32)
    flat = lambda x: density(x.reshape(shape))  # noqa: E731

    def kernel(scale: Any) -> Any:
        return blackjax.normal_random_walk(flat, scale if root is None else scale * root)

    def step(scale: Any, key: Any, state: Any) -> tuple[Any, Any, Any]:
        state, info = kernel(scale).step(key, state)
        return state, info.acceptance_rate, 1

    @jax.jit
    def tune(key: Any, state: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            state, log_scale = carry
            number, key = x
            state, accepted, _ = jax.vmap(lambda k, one: step(jnp.exp(log_scale), k, one))(jax.random.split(key, CHAINS), state)
            return (state, log_scale + (number + 1) ** -0.6 * (jnp.mean(accepted) - 0.234)), None

        xs = (jnp.arange(1000), jax.random.split(key, 1000))
        first = jnp.log((2.38 if root is not None else 0.3 * measure.walk.sigma) / np.sqrt(size))  # type: ignore[attr-defined]
        return jax.lax.scan(body, (state, first), xs)[0][1]

    positions = jnp.asarray(starts).reshape(len(starts), size)
    begin = jax.vmap(kernel(1.0).init)
    scale = jnp.exp(tune(jax.random.key(1), begin(positions)))
    go = lambda key, state: step(scale, key, state)  # noqa: E731
    return _going(go, begin, measure, positions, draws, thin, gradients=False)


def _going(
    step: Callable[..., Any],
    begin: Callable[..., Any],
    measure: PathMeasure,
    starts: Any,
    draws: int,
    thin: int,
    gradients: bool,
) -> Go:
    """A function that makes `draws` draws of each chain, and goes on from there when it is called again."""
    shape = (measure.length, measure.dim)

    @jax.jit
    def many(key: Any, state: Any) -> Any:
        def one(state: Any, key: Any) -> Any:
            keys = jax.random.split(key, starts.shape[0] // GROUPS)
            return jax.vmap(step)(keys, state)

        def draw(state: Any, key: Any) -> Any:
            def body(state: Any, key: Any) -> Any:
                state, accepted, cost = one(state, key)
                return state, (jnp.mean(accepted), jnp.sum(cost))

            state, (accepted, cost) = jax.lax.scan(body, state, jax.random.split(key, thin))
            paths = state.position.reshape(-1, *shape)
            losses = jax.vmap(measure.losses)(paths)
            kept = jax.vmap(seen)(jnp.sum(losses, -1), paths[:, 0])
            return state, (kept, jnp.mean(accepted), jnp.sum(cost))

        return jax.lax.scan(draw, state, jax.random.split(key, draws))

    states = [begin(part) for part in jnp.split(jnp.asarray(starts), GROUPS)]
    keys = list(jax.random.split(jax.random.key(2), GROUPS))

    def go() -> Piece:
        def group(i: int) -> Any:
            keys[i], now = jax.random.split(keys[i])
            return jax.block_until_ready(many(now, states[i]))  # type: ignore[no-untyped-call]

        with ThreadPoolExecutor(GROUPS) as pool:
            found = list(pool.map(group, range(GROUPS)))
        states[:] = [state for state, _ in found]
        kept = np.concatenate([np.moveaxis(np.asarray(out[0]), 0, 1) for _, out in found])
        accepted = float(np.mean([np.mean(out[1]) for _, out in found]))
        evaluations = measure.length * float(sum(np.sum(np.asarray(out[2], np.float64)) for _, out in found))
        return Piece(kept, evaluations, evaluations if gradients else 0.0, accepted)

    return go
