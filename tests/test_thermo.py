"""Partition sums, mean losses and their relatives agree with the closed form, with errors that hold for draws with a memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tests.statistics import perceptron
from tiltwalk import thermo

ONE = perceptron(inputs=1)
LENGTH, SIGMA, SCALE = 5, 0.5, 1.0
TILTS = np.array([0.0, 0.3, 1.0, 3.0, 8.0])
SEEDS = 40


def totals_of(paths: np.ndarray) -> np.ndarray:
    """The loss of every model, by the definition."""
    oracle = ONE.oracle
    wide = np.column_stack([oracle.X, np.ones(len(oracle.X))])
    answers = np.einsum("ni,...ik->...nk", wide, paths.reshape(*paths.shape[:-1], wide.shape[1], -1))
    return np.sum((answers - oracle.Y) ** 2, (-1, -2)) / (2 * len(wide))


def paths_with_memory(s: float, seed: int, chains: int, draws: int, memory: float, sigma: float = SIGMA) -> np.ndarray:
    """Paths of the exact law, each a partial refresh of the one before."""
    law = {"sigma": sigma, "length": LENGTH, "start_scale": SCALE}
    fresh = ONE.oracle.draw(seed, chains * draws, s, **law).reshape(chains, draws, LENGTH, -1)
    mean = ONE.oracle.mean(s, **law)
    for t in range(1, draws if memory else 0):
        fresh[:, t] = mean + memory * (fresh[:, t - 1] - mean) + np.sqrt(1 - memory**2) * (fresh[:, t] - mean)
    return fresh


def run_at(s: float, seed: int, chains: int = 4, draws: int = 500, memory: float = 0.0) -> tw.Run:
    losses = totals_of(paths_with_memory(s, seed, chains, draws, memory))
    return tw.Run(
        losses=losses, paths=None, kept=None, s=np.full(draws, s), acceptance={}, acceptance_by_chain={}, steps={},
        state=tw.ChainState(losses[:, -1, :, None], losses[:, -1]), step_number=0, evaluations=0, seconds=0.0,
        first_draw_seconds=0.0,
    )  # fmt: skip


def exact_log_z(s: Any = TILTS) -> np.ndarray:
    """Z(0) = 1."""
    value = ONE.oracle.log_partition(np.append(0.0, s), SIGMA, LENGTH, start_scale=SCALE)
    return np.asarray(value[1:] - value[0])


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_log_partition_is_the_exact_one_with_an_honest_error(memory: float) -> None:
    """Null law: standard normal deviations. The mean square over seeds and tilts, which are correlated, is about 1: were the
    memory forgotten it would be 19 times that, since 0.9 remembers so long."""
    off = []
    for seed in range(SEEDS):
        curve = thermo.log_partition([run_at(s, 100 * seed + i, memory=memory) for i, s in enumerate(TILTS)])
        assert curve.value[0] == curve.error[0] == 0
        off.append((curve.value - exact_log_z())[1:] / curve.error[1:])
    assert 0.5 < np.mean(np.square(off)) < 1.6
    assert np.max(np.abs(off)) < 4.5
    assert abs(np.mean(off)) < 4 / np.sqrt(SEEDS)


def test_the_other_curves_are_the_exact_ones_too() -> None:
    runs = [run_at(s, 7 + i, draws=2000, memory=0.5) for i, s in enumerate(TILTS)]
    exact_loss = ONE.oracle.expected_loss(TILTS, SIGMA, LENGTH, start_scale=SCALE)
    loss = thermo.mean_loss(runs)
    assert np.all(np.abs(loss.value - exact_loss) < 4 * loss.error)
    ds = 1e-4
    slope = (ONE.oracle.expected_loss(TILTS + ds, SIGMA, LENGTH, start_scale=SCALE) - exact_loss) / ds
    found = thermo.susceptibility(runs)
    assert np.all(np.abs(found.value - slope) < 4 * found.error) and np.all(found.error < 0.2 * np.abs(slope))
    rate = thermo.rate_function(runs)
    assert np.all(np.abs(rate.value - (-TILTS * exact_loss - exact_log_z() / LENGTH)) <= 4 * rate.error + 1e-12)
    assert rate.value[0] == 0 and np.all(np.diff(rate.value) > 0)
    np.testing.assert_array_equal(rate.loss, loss.value)


def test_the_rate_is_the_largest_of_all_tilts() -> None:
    """`rate(l) >= -s l - psi(s)` for every other tilt: what makes it a Legendre transform."""
    runs = [run_at(s, 70 + i, draws=2000) for i, s in enumerate(TILTS)]
    rate, psi = thermo.rate_function(runs), thermo.log_partition(runs).value / LENGTH
    others = -TILTS[:, None] * rate.loss - psi[:, None]
    assert np.all(rate.value >= others - 1e-2) and np.allclose(np.diag(others), rate.value)


def test_integration_over_close_tilts_agrees_with_reweighting() -> None:
    tilts = np.geomspace(1.0, 8.0, 9)
    runs = [run_at(s, 40 + i, draws=1000) for i, s in enumerate(tilts)]
    one, other = thermo.log_partition(runs), thermo.log_partition(runs, method="integration")
    exact = exact_log_z(tilts) - exact_log_z(tilts)[0]
    for curve in (one, other):
        assert np.all(np.abs(curve.value - exact) <= 4 * curve.error)
    assert np.all(np.abs(one.value - other.value)[1:] < 2 * one.error[1:])


def test_tilts_may_come_in_any_order_and_in_several_runs() -> None:
    runs = [run_at(s, 3 + i) for i, s in enumerate([3.0, 0.3, 0.3, 1.0])]
    curve = thermo.log_partition(runs)
    np.testing.assert_array_equal(curve.s, [0.3, 1.0, 3.0])
    pooled = thermo.mean_loss(runs).value[0]
    assert pooled == pytest.approx(np.mean([runs[1].losses.mean(), runs[2].losses.mean()]))
    assert thermo.log_partition(runs[:1]).value == [0.0]


def test_tilts_without_common_draws_are_told() -> None:
    runs = [run_at(s, 3 + i, draws=50) for i, s in enumerate([0.3, 1.0, 1e9])]
    with pytest.warns(UserWarning, match=r"at s = 1 and below share nothing with those at s = 1e\+09 and above"):
        curve = thermo.log_partition(runs)
    assert np.isinf(curve.error[2]) and np.all(np.isfinite(curve.error[:2]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thermo.log_partition(runs[:2])


def ladder_of_sigmas() -> tuple[tw.ExchangeRun, np.ndarray]:
    """Exact draws at one tilt and four sigmas as a run with rungs, and log Z of the normalised walks."""
    s, sigmas, chains, draws = 2.0, np.array([0.8, 0.65, 0.5, 0.4]), 4, 500
    paths = np.stack([paths_with_memory(s, 60 + i, chains, draws, 0.5, x) for i, x in enumerate(sigmas)])
    losses = totals_of(paths)
    measures = tuple(tw.PathMeasure(tw.RandomWalk(x, start=tw.Normal(SCALE)), ONE.loss, LENGTH) for x in sigmas)
    steps = np.zeros((4, chains))
    run = tw.ExchangeRun(
        s=np.full(4, s), measures=measures, losses=losses, paths=paths, kept=None, walkers=np.zeros((4, chains, draws), int),
        swap_rates=np.ones(3), round_trips=np.zeros(chains, int), acceptance={}, acceptance_by_chain={}, steps={},
        state=tw.ChainState(paths[:, :, -1], losses[:, :, -1]), walker=steps, heading=steps, made=draws, step_number=0,
        evaluations=0, gradients=0, seconds=0.0,
    )  # fmt: skip
    increments = (LENGTH - 1) * ONE.dim * np.log(2 * np.pi * sigmas**2) / 2
    law = {"length": LENGTH, "start_scale": SCALE}
    exact = np.array([ONE.oracle.log_partition(s, x, **law) for x in sigmas]) - increments
    return run, exact - exact[0]


def test_a_ladder_of_sigmas_is_reweighted_by_its_paths() -> None:
    run, exact = ladder_of_sigmas()
    curve = thermo.log_partition(run)
    assert np.all(np.abs(curve.value - exact) <= 4 * curve.error) and curve.error[-1] < 0.3 * abs(exact[-1])
    without = tw.ExchangeRun(**{**vars(run), "paths": None})
    with pytest.raises(ValueError, match=r'must hold the paths where rungs differ in sigma: exchange with keep="paths"'):
        thermo.log_partition(without)
    with pytest.raises(ValueError, match="must be reweighting where rungs differ in sigma; got integration"):
        thermo.log_partition(run, method="integration")
    with pytest.raises(ValueError, match="must be a single run where rungs differ in sigma; got a list"):
        thermo.log_partition([run, run])


def test_bad_input_says_what_is_allowed() -> None:
    run = run_at(1.0, 0, draws=20)
    rising = tw.Run(**{**vars(run), "s": np.linspace(0, 1, 20)})
    short = run_at(1.0, 0, draws=1)
    longer = tw.Run(**{**vars(run), "losses": np.ones((4, 20, 7))})
    infinite = tw.Run(**{**vars(run), "losses": np.full((4, 20, LENGTH), np.inf)})
    for given, message in (
        ([], "must be a run or a list of runs; got an empty list"),
        (rising, "must each be at one tilt; got a run from s = 0 to 1"),
        (short, "must hold at least 2 draws a chain; got 1"),
        ([run, longer], r"must be of paths of one length; got lengths \[5, 7\]"),
        (infinite, "must hold finite losses"),
    ):
        with pytest.raises(ValueError, match=message):
            thermo.log_partition(given)
    with pytest.raises(TypeError, match=r"must be a run or a list of runs; got 3."):
        thermo.mean_loss(3)
    with pytest.raises(ValueError, match=r"log_partition.method must be one of"):
        thermo.log_partition(run, method="guess")
