"""Replica exchange: exact at every rung, wrong swaps are caught, ladders even out, runs repeat and go on."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tests.quadrature import on_grid
from tests.statistics import LEVEL, corrected, least_p, p_values, perceptron
from tiltwalk import ladder, spacing

ONE = perceptron(inputs=1)
LADDER = [1.0, 2.0, 4.0, 8.0]
CHAINS = 2048
SIGMA = 0.5
LENGTH = 5
QUIET = {"progress": False}

SMALL: dict[str, Any] = {
    "steps": 24, "chains": 4, "keep": "paths", "key": 3, "moves": tw.moves.Sweep(step=0.7), "workers": 1,
} | QUIET  # fmt: skip


def line(length: int = LENGTH, walk: Any = None) -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(SIGMA) if walk is None else walk, ONE.loss, length)


def whitened(run: tw.ExchangeRun, sigmas: Any = None, **law: Any) -> list[np.ndarray]:
    sigmas = [SIGMA] * run.rungs if sigmas is None else sigmas
    paths = np.asarray(run.state.path, np.float64)
    return [ONE.oracle.whiten(paths[i], s, sigmas[i], paths.shape[2], **law) for i, s in enumerate(run.s)]


def exact_paths(sigmas: Any = None, chains: int = CHAINS, ladder: Any = LADDER) -> np.ndarray:
    sigmas = [SIGMA] * len(ladder) if sigmas is None else sigmas
    return np.stack([ONE.oracle.draw(90 + i, chains, s, sigmas[i], LENGTH) for i, s in enumerate(ladder)])


MIXTURE = [(tw.moves.Sweep(step=0.6), 2.0), (tw.moves.Shoot(), 1.0), (tw.moves.Bridge(2), 1.0)]
CASES: dict[str, dict[str, Any]] = {
    "sweep": {},
    "mixture": {"moves": MIXTURE, "swap_every": 3},
    "chains first": {"first": True},
    "gradients": {"moves": [(tw.moves.LangevinSweep(step=0.5), 1.0), (tw.moves.Hamiltonian(), 1.0)]},
    "sigmas": {"sigmas": [0.7, 0.6, 0.5, 0.5]},
}
SLOW = {"mixture", "chains first", "gradients"}


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in CASES])
def test_every_rung_keeps_its_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Null law: whitened paths are N(0, I) at every rung; the least p-value of all cases and rungs is held against LEVEL."""
    given = dict(CASES[name])
    if given.pop("first", False):
        monkeypatch.setattr(tw.sampling, "SMALL_MODEL", 0)
    sigmas = given.get("sigmas")
    start = exact_paths(sigmas)
    run = tw.exchange(line(), LADDER, steps=6, chains=CHAINS, init=start, key=11, keep=nothing, thin=6, **given, **QUIET)
    assert np.all(run.swap_rates > 0.2), "nothing was swapped: the test could not fail"
    for white in whitened(run, sigmas):
        found = p_values(white)
        assert corrected(list(found.values())) >= LEVEL / (len(CASES) * len(LADDER)), found


def nothing(state: tw.ChainState) -> Any:
    return jnp.zeros(())


@pytest.fixture
def swaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lets a test put another rule for swaps in place, and compiles anew before and after."""

    def use(rule: Any) -> None:
        ladder.advance.clear_cache()
        monkeypatch.setattr(ladder, "of_tilts", rule)

    yield use
    ladder.advance.clear_cache()


WRONG = {
    "as if tilts were nearer": lambda s, total: 0.6 * jnp.diff(s)[:, None] * jnp.diff(total, axis=0),
    "the other way round": lambda s, total: -jnp.diff(s)[:, None] * jnp.diff(total, axis=0),
    "always": lambda s, total: jnp.ones_like(total[1:]),
}


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow) if i else x for i, x in enumerate(WRONG)])
def test_a_wrong_rule_for_swaps_is_caught(name: str, swaps: Any) -> None:
    swaps(WRONG[name])
    run = tw.exchange(line(), LADDER, steps=24, chains=CHAINS, init=exact_paths(), key=11, keep=nothing, thin=24, **QUIET)
    assert corrected([least_p(white) for white in whitened(run)]) < LEVEL / (len(CASES) * len(LADDER))


# ---- draws, from anywhere ----


@pytest.fixture(scope="module")
def placed() -> tw.ExchangeRun:
    """A ladder placed by its ends, on many chains that start far off."""
    far = np.full((LENGTH, ONE.loss.dim), 30.0)
    return tw.exchange(line(), (0.5, 200.0), rungs=8, steps=640, burn_in=256, chains=64, init=far, key=5, keep="paths", **QUIET)


def test_the_mean_loss_of_every_rung_is_the_exact_one(placed: tw.ExchangeRun) -> None:
    """Null law: standard normal, over chains that are independent; 4 standard errors, whatever the start."""
    by_chain = placed.losses.mean((2, 3), dtype=np.float64)
    error = by_chain.std(1, ddof=1) / np.sqrt(placed.chains)
    off = (by_chain.mean(1) - ONE.oracle.expected_loss(placed.s, SIGMA, LENGTH)) / error
    assert np.all(np.abs(off) < 4), off
    np.testing.assert_allclose(placed.total_losses.mean((1, 2)) / LENGTH, by_chain.mean(1), rtol=1e-5)


def test_the_partition_sum_follows_from_a_ladder(placed: tw.ExchangeRun) -> None:
    """The draws of a ladder's rungs are not independent, nor are those that follow each other; the errors know."""
    curve = tw.thermo.log_partition(placed)
    exact = ONE.oracle.log_partition(placed.s, SIGMA, LENGTH)
    assert np.all(np.abs(curve.value - (exact - exact[0])) <= 4 * curve.error), (curve, exact - exact[0])
    assert curve.error[-1] < 0.05
    loss = tw.thermo.mean_loss(placed)
    assert np.all(np.abs(loss.value - ONE.oracle.expected_loss(placed.s, SIGMA, LENGTH)) < 4 * loss.error)


def test_rungs_that_were_placed_swap_equally_often(placed: tw.ExchangeRun) -> None:
    assert placed.s[0] == 0.5 and placed.s[-1] == 200.0 and np.all(np.diff(placed.s) > 0)
    assert placed.swap_rates.max() - placed.swap_rates.min() < 0.1
    with pytest.warns(UserWarning, match="a cold gap"):
        even = tw.exchange(line(), np.linspace(0.5, 200.0, 8), steps=256, burn_in=128, chains=64, key=5, **QUIET)
    assert even.swap_rates.max() - even.swap_rates.min() > 0.3, "what is not placed is not even: the test can fail"


def test_step_sizes_fall_with_the_tilt_and_are_frozen_after_burn_in(placed: tw.ExchangeRun) -> None:
    sizes = placed.steps["sweep"]
    assert sizes.shape == (8, 64) and sizes[-1].mean() < 0.8 * sizes[0].mean()
    assert abs(placed.acceptance["sweep"][-1] - 0.3) < 0.05
    more = tw.exchange(line(), placed.s, steps=640, chains=64, init=placed, keep="paths", **QUIET)
    np.testing.assert_array_equal(more.steps["sweep"], sizes)
    assert more.step_number == placed.step_number + 640


def test_every_rung_is_a_run_of_its_own(placed: tw.ExchangeRun) -> None:
    top = placed.rung(-1)
    assert isinstance(top, tw.Run) and top.losses.shape == (64, 640, LENGTH) and np.all(top.s == 200.0)
    assert placed.paths.shape == (8, 64, 640, LENGTH, ONE.loss.dim)
    np.testing.assert_allclose(top.losses[:3, -1], np.asarray([ONE.loss(p) for p in top.paths[:3, -1]]), rtol=1e-5)
    with pytest.raises(IndexError):
        placed.rung(8)


def test_walkers_are_permutations_that_change_by_swaps_alone(placed: tw.ExchangeRun) -> None:
    walkers = placed.walkers
    np.testing.assert_array_equal(np.sort(walkers, 0), np.broadcast_to(np.arange(8)[:, None, None], walkers.shape))
    swapped = walkers[:-1, :, 1:] == walkers[1:, :, :-1]
    moved = walkers[:, :, 1:] != walkers[:, :, :-1]
    assert moved.sum() == 2 * swapped.sum() - 2 * (swapped & (walkers[1:, :, 1:] != walkers[:-1, :, :-1])).sum()
    # swaps as they are counted are those that can be seen
    np.testing.assert_allclose(swapped.mean((1, 2)) * 2, placed.swap_rates, atol=0.01)


def test_round_trips_are_those_of_the_walkers(placed: tw.ExchangeRun) -> None:
    """Counted again, walker by walker, from where each was at each draw; those under way at the start cannot be seen."""
    seen = 0
    for c in range(placed.chains):
        for w in range(8):
            at = np.argmax(placed.walkers[:, c] == w, 0)
            ends = [x for x in at if x in (0, 7)]
            ends = [x for i, x in enumerate(ends) if i == 0 or ends[i - 1] != x]
            seen += sum(ends[i : i + 3] == [0, 7, 0] for i in range(len(ends)))
    assert seen <= placed.round_trips.sum() <= seen + 2 * 8 * 64
    assert seen > 100 and placed.round_trip_steps == 640 * 8 * 64 / placed.round_trips.sum()


# ---- ladders ----


def test_the_barrier_is_half_the_mean_difference() -> None:
    totals = np.random.default_rng(0).normal(size=(2, 20_000)) * np.array([[1.0], [3.0]])
    np.testing.assert_allclose(spacing.barrier(totals), np.array([1.0, 3.0]) / np.sqrt(np.pi), rtol=0.02)
    few = np.array([[1.0, 4.0, 2.0]])
    assert spacing.barrier(few)[0] == pytest.approx((3 + 1 + 2) / 3 / 2)


def test_rungs_follow_a_known_barrier() -> None:
    """A barrier of `c / s` asks for equal ratios, a constant one for equal differences, and both for twice the integral."""
    s = np.geomspace(1.0, 64.0, 5)
    np.testing.assert_allclose(spacing.respaced(s, 1 / s, 7, 0.0), np.geomspace(1, 64, 7), rtol=1e-4)
    np.testing.assert_allclose(spacing.respaced(s, np.ones(5), 4, 0.0), np.linspace(1, 64, 4), rtol=1e-4)
    assert len(spacing.respaced(s, 1 / s, None, 0.0)) == round(2 * np.log(64)) + 1


@pytest.mark.slow
def test_a_ladder_from_zero_is_placed_where_the_walk_can_be_drawn() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(2.0)), tw.losses.double_well(height=4.0), length=2)
    s = tw.spaced_ladder(measure, 0.0, 20.0, key=1, **QUIET)
    assert s[0] == 0 and s[-1] == 20 and np.all(np.diff(s) > 0) and 4 <= len(s) <= 12
    run = tw.exchange(measure, s, steps=1000, burn_in=200, chains=32, key=2, **QUIET)
    assert run.swap_rates.min() > 0.4 and run.swap_rates.max() - run.swap_rates.min() < 0.12


def test_a_flat_start_has_no_rung_at_zero() -> None:
    with pytest.raises(ValueError, match=r"spaced_ladder.ladder must be above 0 for a flat start"):
        tw.spaced_ladder(line(), 0.0, 1.0, **QUIET)


def test_a_cold_gap_is_told_with_what_to_do() -> None:
    gap = [0.5, 1.0, 2.0, 1e6]
    with pytest.warns(UserWarning, match=r"Rungs 3 and 4 \(s = 2 and 1e\+06\) swap 0.0% .* Or let all be placed: exchange"):
        tw.exchange(line(), gap, **(SMALL | {"init": exact_paths(chains=4, ladder=gap)}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tw.exchange(line(), LADDER, **SMALL)


# ---- the same again ----


@pytest.fixture(scope="module")
def whole() -> tw.ExchangeRun:
    return tw.exchange(line(), LADDER, **SMALL)


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["chains last", "chains first"])
def test_a_run_in_parts_is_the_uninterrupted_one(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if first:
        monkeypatch.setattr(tw.sampling, "SMALL_MODEL", 0)
    whole = tw.exchange(line(), LADDER, **SMALL)
    one = tw.exchange(line(), LADDER, **(SMALL | {"steps": 12}))
    two = tw.exchange(line(), LADDER, **(SMALL | {"steps": 12, "init": one}))
    for name in ("losses", "paths", "walkers"):
        joined = np.concatenate([getattr(one, name), getattr(two, name)], 2)
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
    np.testing.assert_array_equal(two.round_trips + one.round_trips, whole.round_trips)
    np.testing.assert_array_equal(two.state.path, whole.state.path)


def test_the_same_key_gives_the_same_run_however_it_is_split(whole: tw.ExchangeRun) -> None:
    split = tw.exchange(line(), LADDER, **(SMALL | {"workers": 2}))
    for name in ("losses", "walkers", "swap_rates"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(split, name))
    other = tw.exchange(line(), LADDER, **(SMALL | {"key": 9}))
    assert not np.array_equal(whole.losses, other.losses)


def test_new_tilts_trace_nothing(whole: tw.ExchangeRun) -> None:
    before = ladder.advance._cache_size()
    tw.exchange(line(walk=tw.RandomWalk(0.9)), np.asarray(LADDER) * 3, **(SMALL | {"key": 5}))
    assert ladder.advance._cache_size() == before


def test_new_data_get_new_losses_when_a_run_goes_on(whole: tw.ExchangeRun) -> None:
    other = tw.PathMeasure(line().walk, perceptron(seed=12).loss, LENGTH)
    more = tw.exchange(other, LADDER, **(SMALL | {"steps": 0, "init": whole}))
    path = np.asarray(whole.state.path).reshape(-1, LENGTH, ONE.loss.dim)
    expected = np.asarray([other.loss(p) for p in path]).reshape(4, 4, LENGTH)
    np.testing.assert_allclose(more.state.losses, expected, rtol=1e-5)
    assert more.draws == 0 and more.losses.shape == (4, 4, 0, LENGTH)


# ---- two wells ----


TO_THE_WELLS = [0.0, 0.13, 0.32, 0.59, 1.06, 1.93, 3.45, 6.0]


def wells() -> tw.PathMeasure:
    return tw.PathMeasure(tw.OrnsteinUhlenbeck(0.8, pull=0.3), tw.losses.double_well(height=6.0, distance=1.5), length=4)


def test_exchange_mixes_two_wells_where_one_tilt_does_not() -> None:
    """Every chain starts in the right well. By symmetry half of all draws belong to the left one."""
    right = np.tile([1.5, 0.0], (4, 1))
    given = {"steps": 3000, "thin": 10, "chains": 32, "init": right, "keep": side, "moves": tw.moves.Sweep(step=0.6), **QUIET}
    alone = tw.sample(wells(), 6.0, **given)
    assert np.all(alone.kept > 0), "a chain at one tilt never leaves its well"
    run = tw.exchange(wells(), TO_THE_WELLS, **given)
    left = np.mean(run.kept[-1, :, 60:] < 0, 1)
    error = left.std(ddof=1) / np.sqrt(len(left))
    assert abs(left.mean() - 0.5) < 4 * error and error < 0.04, (left.mean(), error)
    assert run.round_trips.min() > 20


def side(state: tw.ChainState) -> Any:
    return jnp.mean(state.path[:, 0])


def test_exchange_mixes_four_valleys_where_one_tilt_does_not() -> None:
    """Every chain starts in one valley of Himmelblau's function; the share of each is known by quadrature."""
    measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(3.0)), tw.losses.himmelblau("classic"), 3)
    one = np.tile([3.0, 2.0], (3, 1))
    given = {"steps": 3000, "thin": 10, "chains": 32, "init": one, "keep": quadrants, "key": 2, **QUIET}
    alone = tw.sample(measure, 0.5, moves=tw.moves.Sweep(step=0.5), **given)
    assert np.all(alone.kept == 3), "a chain at one tilt never leaves its valley"
    run = tw.exchange(measure, TO_THE_VALLEYS, burn_in=300, **given)
    exact = on_grid(measure.loss, 0.5, sigma=0.5, scale=3.0, length=3)
    for q in range(4):
        by_chain = np.mean(run.kept[-1, :, 60:] == q, (1, 2))
        error = by_chain.std(ddof=1) / np.sqrt(len(by_chain))
        right = exact.share(lambda x, q=q: 2 * (x[..., 0] > 0) + (x[..., 1] > 0) == q)
        assert abs(by_chain.mean() - right) < 4 * error and error < 0.04, (q, by_chain.mean(), right, error)
    assert run.round_trips.min() > 5


TO_THE_VALLEYS = [0.0, 0.002, 0.006, 0.015, 0.035, 0.07, 0.13, 0.25, 0.5]


def quadrants(state: tw.ChainState) -> Any:
    return 2 * (state.path[:, 0] > 0) + (state.path[:, 1] > 0)


# ---- input ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ladder": [1.0]}, r"exchange.ladder must be two or more increasing tilts; got \[1.0\]."),
        ({"ladder": [2.0, 1.0]}, r"exchange.ladder must be two or more increasing tilts; got \[2.0, 1.0\]."),
        ({"ladder": [-1.0, 1.0]}, r"exchange.ladder must be at least 0; got -1."),
        ({"ladder": [0.0, 1.0]}, r"exchange.ladder must be above 0 for a flat start"),
        ({"ladder": [0.1, 1.0, 2.0], "rungs": 4}, r"exchange.ladder must be the lowest and the highest tilt .* got 3 tilts."),
        ({"ladder": (0.1, 1.0), "rungs": 1}, r"exchange.rungs must be a whole number of at least 2; got 1."),
        ({"sigmas": [0.1, 0.2]}, r"exchange.sigmas must have one entry for each tilt .* got 2 sigmas and 4 tilts."),
        ({"swap_every": 0}, r"exchange.swap_every must be a whole number of at least 1; got 0."),
        ({"init": np.zeros((3, 3))}, r"exchange.init must have shape \(5, 2\), \(2, 5, 2\) .* got \(3, 3\)."),
        ({"keep": "all"}, r'exchange.keep must be "losses", "paths" or a function'),
        ({"moves": []}, r"exchange.moves must be a move or a list"),
    ],
)
def test_bad_input_says_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tw.exchange(line(), **({"ladder": LADDER, "steps": 5, "chains": 2} | QUIET | given))


def test_a_run_of_another_ladder_is_refused_as_a_start(whole: tw.ExchangeRun) -> None:
    with pytest.raises(ValueError, match=r"exchange.init must have 3 rungs and 4 chains; got a run of shape \(4, 4\)."):
        tw.exchange(line(), LADDER[:3], **(SMALL | {"init": whole}))
    moved = dataclasses.replace(whole.state, path=whole.state.path.at[0, 0, 0, 0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"exchange.init must be finite"):
        tw.exchange(line(), LADDER, **(SMALL | {"init": moved}))
