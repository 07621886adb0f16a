"""What holds for every run: shapes and types, the same key the same run, and that nothing depends on how a run was cut.

Chains are compared bit for bit where the same program runs, and to rounding where the number of chains beside them differs:
the machine's vectors then end elsewhere, and a product and a sum are rounded together or one by one.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltwalk as tw

KEYS = st.integers(-(2**63), 2**63 - 1)

_home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental


def few(examples: int) -> Any:
    """The same examples each time, and no more of them than their compilation allows."""
    return settings(max_examples=examples, derandomize=True, deadline=None)


def measure(length: int = 4, dim: int = 2) -> tw.PathMeasure:
    loss = tw.losses.double_well() if dim == 2 else tw.losses.bowl(dim=dim)
    return tw.PathMeasure(tw.RandomWalk(0.6, start=tw.Normal(1.0)), loss, length)


def sample(m: tw.PathMeasure | None = None, **given: Any) -> tw.Run:
    call = {"s": 1.3, "steps": 24, "chains": 3, "keep": "paths", "progress": False, "key": 5} | given
    return tw.sample(m if m is not None else measure(), **call)


def same(a: tw.Run, b: tw.Run) -> None:
    """The same draws and the same end, bit for bit."""
    np.testing.assert_array_equal(a.paths, b.paths)
    np.testing.assert_array_equal(a.losses, b.losses)
    np.testing.assert_array_equal(a.state.path, b.state.path)
    np.testing.assert_array_equal(a.state.losses, b.state.losses)


def close(a: tw.Run, b: tw.Run, chains: int) -> None:
    """The same draws of the first chains, to rounding."""
    np.testing.assert_allclose(a.paths[:chains], b.paths[:chains], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(a.losses[:chains], b.losses[:chains], rtol=1e-4, atol=1e-5)


# ---- shapes and types ----


@few(3)
@given(
    length=st.integers(1, 5), dim=st.integers(1, 3), chains=st.integers(1, 4), steps=st.integers(0, 9),
    thin=st.integers(1, 3), burn_in=st.sampled_from([0, 2]),
)  # fmt: skip
def test_a_run_has_the_shapes_and_types_that_it_promises(
    length: int, dim: int, chains: int, steps: int, thin: int, burn_in: int
) -> None:
    m = measure(length, dim)
    run = sample(m, steps=steps, chains=chains, thin=thin, burn_in=burn_in)
    draws = steps // thin
    assert (run.chains, run.draws, run.step_number) == (chains, draws, burn_in + steps)
    assert run.losses.shape == (chains, draws, length) and run.losses.dtype == np.float32
    assert run.paths.shape == (chains, draws, length, dim) and run.paths.dtype == np.float32
    assert run.state.path.shape == (chains, length, dim) and run.state.losses.shape == (chains, length)
    assert run.s.shape == (draws,) and run.total_losses.shape == (chains, draws)
    assert list(run.acceptance) == list(run.steps) == ["sweep"]
    assert run.steps["sweep"].shape == run.acceptance_by_chain["sweep"].shape == (chains,)
    assert run.evaluations == length * chains * (burn_in + steps)
    assert np.all(np.isfinite(run.paths)) and np.all(np.isfinite(run.losses))


@few(3)
@given(length=st.sampled_from([1, 2, 5]), mixture=st.sampled_from(["sweep", "paper", "shoot"]), key=KEYS)
def test_losses_that_are_kept_are_those_of_the_paths(length: int, mixture: str, key: int) -> None:
    moves = {"sweep": None, "paper": tw.moves.paper(length), "shoot": tw.moves.Shoot(step=0.6)}[mixture]
    m = measure(length)
    run = sample(m, moves=moves, key=key, chains=2)
    losses = jax.vmap(jax.vmap(m.losses))(run.paths)
    np.testing.assert_allclose(run.losses, losses, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(run.state.path, run.paths[:, -1])
    np.testing.assert_array_equal(run.state.losses, run.losses[:, -1])
    assert run.draws == 24 and np.any(run.paths[:, 1:] != run.paths[:, :-1])


def test_losses_alone_are_the_losses_of_the_same_run_with_paths() -> None:
    np.testing.assert_array_equal(sample(keep="losses").losses, sample().losses)


def test_a_function_is_kept_draw_by_draw() -> None:
    run = sample(keep=lambda state: {"first": state.path[0], "total": state.losses.sum()})
    paths = sample()
    assert run.losses is None and run.paths is None
    assert run.kept["first"].shape == (3, 24, 2) and run.kept["total"].shape == (3, 24)
    np.testing.assert_allclose(run.kept["first"], paths.paths[:, :, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.kept["total"], paths.total_losses, rtol=1e-5)


# ---- keys ----


@few(12)
@given(KEYS)
def test_the_same_key_gives_the_same_run(key: int) -> None:
    same(sample(key=key), sample(key=key))


@few(12)
@given(KEYS, KEYS)
def test_different_keys_give_different_runs(one: int, other: int) -> None:
    if one != other:
        a, b = sample(key=one), sample(key=other)
        assert np.mean(a.paths != b.paths) > 0.99


def test_a_jax_key_is_as_good_as_a_number() -> None:
    same(sample(key=jax.random.key(8)), sample(key=jax.random.key(8)))
    assert np.any(sample(key=jax.random.key(8)).paths != sample(key=jax.random.key(9)).paths)


def test_chains_differ_from_each_other() -> None:
    run = sample(chains=6, init=np.zeros((4, 2)))
    for c in range(1, 6):
        assert np.mean(run.paths[c] != run.paths[0]) > 0.8


# ---- nothing depends on how a run was cut ----


@few(4)
@given(chains=st.sampled_from([1, 5, 16]), key=KEYS)
def test_a_chain_does_not_know_how_many_are_beside_it(chains: int, key: int) -> None:
    close(sample(key=key, workers=1), sample(key=key, chains=chains, workers=1), min(3, chains))


@few(3)
@given(workers=st.sampled_from([2, 6]), key=KEYS)
def test_the_number_of_workers_changes_nothing(workers: int, key: int) -> None:
    close(sample(key=key, chains=6, workers=1), sample(key=key, chains=6, workers=workers), 6)


@few(4)
@given(thin=st.sampled_from([5, 24, 25]), key=KEYS)
def test_thinning_keeps_every_so_many_th_state(thin: int, key: int) -> None:
    whole, thinned = sample(key=key), sample(key=key, thin=thin)
    np.testing.assert_array_equal(thinned.paths, whole.paths[:, thin - 1 :: thin])
    np.testing.assert_array_equal(thinned.losses, whole.losses[:, thin - 1 :: thin])
    np.testing.assert_array_equal(thinned.state.path, whole.state.path)  # also past the last draw
    assert thinned.acceptance == pytest.approx(whole.acceptance, abs=1e-6)


@pytest.mark.parametrize(("mixture", "cut"), [("sweep", 7), ("paper", 12), ("wide", 12)])
def test_a_run_in_pieces_is_one_run_bit_for_bit(mixture: str, cut: int) -> None:
    wide = [(tw.moves.Shoot(step=0.7), 1.0), (tw.moves.Bridge(None), 1.0)]
    moves = {"sweep": None, "paper": tw.moves.paper(5), "wide": wide}[mixture]
    m = measure(4 if mixture == "sweep" else 5)
    whole = sample(m, moves=moves)
    first = sample(m, moves=moves, steps=cut)
    second = sample(m, moves=moves, steps=24 - cut, init=first)
    np.testing.assert_array_equal(np.concatenate([first.paths, second.paths], 1), whole.paths)
    np.testing.assert_array_equal(np.concatenate([first.losses, second.losses], 1), whole.losses)
    np.testing.assert_array_equal(second.state.path, whole.state.path)
    np.testing.assert_array_equal(second.state.losses, whole.state.losses)
    assert second.step_number == whole.step_number == 24


def test_burn_in_is_steps_that_are_not_kept() -> None:
    whole, later = sample(), sample(burn_in=10, steps=14)
    np.testing.assert_array_equal(later.paths, whole.paths[:, 10:])
    np.testing.assert_array_equal(later.state.losses, whole.state.losses)


def test_tuned_step_sizes_are_frozen_after_burn_in_and_travel_with_the_run() -> None:
    tuned = sample(burn_in=100, steps=0, target_acceptance=0.3, s=20.0)
    assert np.all(tuned.steps["sweep"] < 1) and len(np.unique(tuned.steps["sweep"])) == 3
    later = sample(init=tuned, s=20.0)
    np.testing.assert_array_equal(later.steps["sweep"], tuned.steps["sweep"])
    together = sample(burn_in=100, target_acceptance=0.3, s=20.0)
    np.testing.assert_array_equal(together.paths, later.paths)


def test_a_model_too_large_for_chains_last_keeps_all_of_this() -> None:
    """From 128 parameters chains are mapped over instead: the same promises, through the other layout."""
    m = measure(3, dim=130)
    whole = sample(m, chains=2)
    first = sample(m, chains=2, steps=12)
    second = sample(m, chains=2, steps=12, init=first)
    np.testing.assert_array_equal(np.concatenate([first.paths, second.paths], 1), whole.paths)
    close(whole, sample(m, chains=1), 1)
    np.testing.assert_allclose(whole.losses, jax.vmap(jax.vmap(m.losses))(whole.paths), rtol=2e-5)


# ---- double precision ----

DOUBLE = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import tiltwalk as tw
m = tw.PathMeasure(tw.RandomWalk(0.6, start=tw.Normal(1.0)), tw.losses.double_well(), 4)
run = tw.sample(m, 1.3, steps=24, chains=4, keep="paths", moves=tw.moves.paper(5), workers=2)
for x in (run.losses, run.paths, run.state.path, run.state.losses, *run.steps.values()):
    assert x.dtype == np.float64, x.dtype
losses = jax.vmap(jax.vmap(m.losses))(run.paths)
np.testing.assert_allclose(run.losses, losses, rtol=1e-13)
changed = run.paths[run.paths != run.paths.astype(np.float32)]
assert changed.size > 0.9 * run.paths.size  # and not float32 numbers in float64 arrays
print("double", run.draws)
"""


def test_all_is_double_precision_where_x64_is_on() -> None:
    done = subprocess.run([sys.executable, "-c", DOUBLE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "double 24\n"


def test_double_precision_for_a_while_reaches_all_threads() -> None:
    """`jax.enable_x64` holds in one thread alone; groups of chains run in others."""
    with _home.enable_x64(True):
        assert sample(chains=2, workers=2, steps=4).paths.dtype == np.float64
    assert sample(chains=2, workers=2, steps=4).paths.dtype == np.float32
