"""What compiles again and what does not: traces are counted in a loss, compilations in JAX's own log.

The budget: nothing is traced again for a new tilt, schedule, sigma, start, data, key, step number or step size; new shapes are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk.pytree import pytree

traces: list[Any] = []


@pytree
class Counted:
    """The squared distance from `data`, a leaf; every trace of it, and every call outside of compiled programs, is noted."""

    data: Any
    dim: ClassVar[int] = 2
    trailing: ClassVar[bool] = True

    def __call__(self, thetas: Any) -> Any:
        traces.append(thetas)
        data = jnp.asarray(self.data, thetas.dtype)
        return jnp.sum((thetas - data.reshape(-1, *[1] * (thetas.ndim - 2))) ** 2, 1)


@pytree
class CountedByModel(Counted):
    """The same, but without room for a trailing axis of chains: chains are mapped over."""

    data: Any
    trailing: ClassVar[bool] = False

    def __call__(self, thetas: Any) -> Any:
        traces.append(thetas)
        return jnp.sum((thetas - jnp.asarray(self.data, thetas.dtype)) ** 2, 1)


def measure(sigma: Any = 0.5, scale: Any = 1.0, data: Any = 0.0, kind: Any = Counted, length: int = 5) -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(sigma, start=tw.Normal(scale)), kind(jnp.full(2, data)), length)


def traced(measure: tw.PathMeasure, s: Any = 1.0, **given: Any) -> int:
    """How often a call of `sample` traces the loss."""
    before = len(traces)
    tw.sample(measure, s, **({"steps": 16, "chains": 2, "progress": False} | given))
    return len(traces) - before


NEW_VALUES: dict[str, dict[str, Any]] = {
    "s": {"s": 2.5},
    "an integer s": {"s": 3},
    "s over steps": {"s": np.linspace(0.0, 2.0, 16)},
    "a schedule": {"s": tw.schedules.geometric(0.1, 2.0, 9)},
    "sigma": {"sigma": 0.7},
    "the scale of the start": {"scale": 3.0},
    "data": {"data": 1.5},
    "key": {"key": 99},
    "a JAX key": {"key": jax.random.key(4)},
}


@pytest.mark.parametrize("kind", [Counted, CountedByModel], ids=["chains last", "chains mapped"])
@pytest.mark.parametrize("moves", [None, tw.moves.paper(5)], ids=["sweep", "paper"])
def test_new_values_never_trace_again(kind: Any, moves: Any) -> None:
    assert traced(measure(kind=kind), moves=moves) > 0
    counts = {}
    for name, new in NEW_VALUES.items():
        of_measure = {k: v for k, v in new.items() if k in ("sigma", "scale", "data")}
        of_sample = {k: v for k, v in new.items() if k not in of_measure}
        counts[name] = traced(measure(kind=kind, **of_measure), **of_sample, moves=moves)
    assert counts == dict.fromkeys(NEW_VALUES, 0)


def test_going_on_from_a_run_traces_nothing() -> None:
    run = tw.sample(measure(), 1.0, steps=16, chains=2, progress=False)
    assert traced(measure(), init=run) == 0
    assert traced(measure(), init=run.state) == 0
    assert traced(measure(), init=np.zeros((5, 2))) == 0


@pytest.mark.parametrize("move", [tw.moves.Sweep, tw.moves.SingleSite])
def test_a_new_step_size_traces_nothing(move: Any) -> None:
    traced(measure(), moves=move(step=0.9))
    assert traced(measure(), moves=move(step=0.2)) == 0
    assert traced(measure(), moves=move(step=jnp.asarray(0.4))) == 0


def test_new_weights_of_a_mixture_trace_nothing() -> None:
    assert traced(measure(), moves=[(tw.moves.Sweep(), 1.0), (tw.moves.SingleSite(), 1.0)]) > 0
    assert traced(measure(), moves=[(tw.moves.Sweep(step=0.5), 0.2), (tw.moves.SingleSite(), 3.0)]) == 0


def test_a_long_run_is_one_program_however_it_is_cut() -> None:
    """Python sees the run in pieces, whose sizes depend on the clock: no piece may compile anew."""
    assert traced(measure(), steps=20_000) <= 3  # the losses of the first paths, and the two halves of a sweep


def test_a_new_shape_does_trace() -> None:
    """What must be noticed: else nothing is counted above."""
    assert traced(measure(length=6)) > 0


@pytest.fixture
def compiled(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """The names of the programs that JAX compiled since the last call, in any thread."""
    jax.config.update("jax_log_compiles", True)

    def since() -> list[str]:
        found = [r.getMessage().split(" with ")[0] for r in caplog.records if r.getMessage().startswith("Compiling ")]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING):
        yield since
    jax.config.update("jax_log_compiles", False)


def test_a_second_call_compiles_nothing_at_all(compiled: Any) -> None:
    def call(s: float, key: int, **given: Any) -> None:
        tw.sample(measure(length=3), s, key=key, steps=16, burn_in=8, chains=2, thin=2, progress=False, **given)

    call(1.0, 0, keep="paths", target_acceptance=0.4)
    assert any("advance" in name for name in compiled())
    call(2.0, 1, keep="paths", target_acceptance=0.4)
    assert compiled() == []


def test_a_kept_function_compiles_once(compiled: Any) -> None:
    def first_model(state: tw.ChainState) -> Any:
        return state.path[0]

    for key in (0, 1):
        if key:
            compiled()
        tw.sample(measure(length=3), 1.0, key=key, steps=8, keep=first_model, progress=False)
    assert compiled() == []


def test_a_step_of_the_pure_functions_is_traced_once_for_all_values() -> None:
    @jax.jit
    def step(key: Any, state: Any, s: Any, measure: Any) -> Any:
        return tw.chain.step(key, state, s, measure=measure, moves=[(tw.moves.Sweep(), 1.0)])

    state = tw.chain.init(measure(), jnp.zeros((5, 2)))
    first = measure()
    step(jax.random.key(0), state, 1.0, first)
    others = [measure(sigma=0.1 * i + 0.1, scale=1.0 + i, data=float(i)) for i in range(4)]
    before = len(traces)
    for i, other in enumerate(others):
        state, _ = step(jax.random.key(i), state, 0.5 * i, other)
    assert len(traces) == before
