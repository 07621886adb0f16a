"""Conditional laws of every site, evaluation counts, limits and invariances of the moves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tiltwalk as tw
from tests.statistics import corrected, perceptron

DRAWS = 4000
ONE = perceptron(inputs=1)


def window(walk: Any, path: np.ndarray, first: int, width: int, draws: int = DRAWS, count: int | None = None) -> Any:
    """`draws` fresh values of `width` sites from `first` given the rest of `path`."""
    noise = jax.random.normal(jax.random.key(5), (draws, width, path.shape[1]))

    def one(z: Any) -> Any:
        mean, deviation = walk.window(jnp.asarray(path), jnp.int32(first), z, None if count is None else jnp.int32(count))
        return mean + deviation

    return np.asarray(jax.jit(jax.vmap(one))(noise), np.float64)


def conditional(walk: Any, path: np.ndarray, first: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the window of one parameter, from the dense joint precision of the walk by definition."""
    length = len(path)
    a, sigma = (1.0, walk.sigma) if isinstance(walk, tw.RandomWalk) else (1 - walk.pull, walk.sigma)
    precision = np.zeros((length, length))
    for t in range(length - 1):
        step = np.zeros(length)
        step[t], step[t + 1] = -a, 1.0
        precision += np.outer(step, step) / sigma**2
    centre = 0.0
    if isinstance(walk, tw.OrnsteinUhlenbeck):
        precision[0, 0] += (1 - a**2) / sigma**2
        centre = walk.centre
    elif isinstance(walk.start, tw.Normal):
        precision[0, 0] += 1 / walk.start.scale**2
        centre = walk.start.centre
    inside = np.arange(first, first + width)
    outside = np.setdiff1d(np.arange(length), inside)
    covariance = np.linalg.inv(precision[np.ix_(inside, inside)])
    mean = centre - covariance @ precision[np.ix_(inside, outside)] @ (path[outside] - centre)
    return mean, covariance


WALKS = {
    "flat": tw.RandomWalk(0.7),
    "normal": tw.RandomWalk(0.7, start=tw.Normal(0.5, centre=0.2)),
    "stationary": tw.OrnsteinUhlenbeck(0.6, pull=0.4, centre=-0.3),
}


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(("first", "width"), [(1, 1), (2, 3), (3, 4), (0, 1), (0, 3), (7, 1), (4, 4), (1, 7)])
def test_a_window_has_the_conditional_law_of_every_site(walk: str, first: int, width: int) -> None:
    # null law: draws are N(mean, covariance); whitened they are standard normal, one test a site and one for all squares
    path = np.linspace(-1, 2, 8)[:, None] + np.sin(np.arange(8.0))[:, None]
    found = window(WALKS[walk], path.astype(np.float32), first, width)[..., 0]
    mean, covariance = conditional(WALKS[walk], path[:, 0], first, width)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (found - mean).T)
    p = [stats.kstest(site, "norm").pvalue for site in white]
    p.append(stats.chi2(white.size).sf((white**2).sum()) * 2)
    assert corrected(p) > 1e-4
    wrong = np.linalg.solve(np.linalg.cholesky(1.1**2 * covariance), (found - mean).T)
    assert stats.chi2(wrong.size).cdf((wrong**2).sum()) < 1e-4


def test_a_bridge_is_the_papers_step_by_step_law() -> None:
    # mean (x_f + n x)/(n + 1) and variance sigma^2 n/(n + 1) with n steps left, of the appendix of the paper
    sigma, path = 0.7, np.array([0.3, 0, 0, 0, 0, -1.1], np.float32)[:, None]
    found = window(tw.RandomWalk(sigma), path, 1, 4)[..., 0]
    before = np.full(DRAWS, 0.3)
    for i in range(4):
        left = 4 - i
        z = (found[:, i] - (-1.1 + left * before) / (left + 1)) / (sigma * np.sqrt(left / (left + 1)))
        assert stats.kstest(z, "norm").pvalue > 1e-3
        before = found[:, i]


def test_a_short_count_redraws_only_that_many_models() -> None:
    path = np.linspace(-1, 2, 8)[:, None].astype(np.float32)
    whole = window(WALKS["normal"], path, 2, 2)
    part = window(WALKS["normal"], path, 2, 5, count=2)[:, :2]
    np.testing.assert_allclose(part[..., 0].mean(0), whole[..., 0].mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(part[..., 0].T), np.cov(whole[..., 0].T), atol=0.05)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(("length", "first"), [(1, 0), *((n, first) for n in (2, 3, 6, 7) for first in (0, 1))])
def test_a_half_sweep_draws_each_site_from_the_law_that_a_window_of_one_has(walk: str, length: int, first: int) -> None:
    path = jnp.asarray(np.linspace(-1, 2, length)[:, None] ** 2, jnp.float32)
    sites = np.arange(first, length, 2)
    noise = jnp.linspace(-1, 1, len(sites))[:, None]
    mean, deviation = WALKS[walk].sites(path, first, noise)
    for i, site in enumerate(sites):
        one_mean, one_deviation = WALKS[walk].window(path, jnp.int32(site), noise[i : i + 1], None)
        np.testing.assert_allclose(mean[i], one_mean[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(deviation[i], one_deviation[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chains_last", [False, True])
def test_the_law_is_the_same_for_one_path_and_for_many_on_the_last_axis(chains_last: bool) -> None:
    walk = tw.RandomWalk(np.array([0.3, 0.8]), start=tw.Normal(np.array([1.0, 2.0])))
    paths = jax.random.normal(jax.random.key(0), (6, 2, 5))
    noise = jax.random.normal(jax.random.key(1), (3, 2, 5))
    many = walk.window(paths, jnp.int32(2), noise, None) if chains_last else walk.sites(paths, 1, noise)
    for c in range(5):
        path, z = paths[..., c], noise[..., c]
        one = walk.window(path, jnp.int32(2), z, None) if chains_last else walk.sites(path, 1, z)
        for a, b in zip(many, one, strict=True):
            np.testing.assert_allclose(a[..., c], b, rtol=1e-5, atol=1e-6)


# ---- what it costs ----


@pytest.mark.parametrize(
    ("move", "length", "counts"),
    [
        (tw.moves.Sweep(), 7, {7}),
        (tw.moves.Sweep(), 1, {1}),
        (tw.moves.SingleSite(), 7, {1}),
        (tw.moves.Bridge(1), 7, {1}),
        (tw.moves.Bridge(3), 7, {3}),
        (tw.moves.Bridge(None), 6, {1, 2, 3, 4}),
        (tw.moves.Shoot(), 5, {1, 2, 3, 4}),
        (tw.moves.Shoot(reach=2), 6, {2}),
        (tw.moves.Shoot(), 1, {1}),
        (tw.moves.Shoot(), 2, {1}),
    ],
    ids=lambda x: str(x),
)
def test_the_loss_is_evaluated_on_changed_models_and_on_nothing_else(move: Any, length: int, counts: set[int]) -> None:
    seen: list[int] = []

    def fn(thetas: np.ndarray) -> np.ndarray:
        seen.append(len(thetas))
        return np.sum(thetas**2, -1)

    def loss(thetas: Any) -> Any:
        return jax.pure_callback(fn, jax.ShapeDtypeStruct(thetas.shape[:1], thetas.dtype), thetas, vmap_method="sequential")

    measure = tw.PathMeasure(tw.RandomWalk(0.1), tw.losses.Function(loss, 2), length)
    state = tw.chain.init(measure, jnp.zeros((length, 2)))
    step = jax.jit(lambda key, state: tw.chain.step(key, state, 0.1, measure=measure, moves=[(move, 1.0)]))
    said, did = set(), set()
    for i in range(40):
        before = state
        seen.clear()
        state, info = jax.block_until_ready(step(jax.random.key(i), before))
        changed = int(np.sum(np.any(np.asarray(state.path != before.path), -1)))
        said.add(int(info.evaluations))
        did.add(sum(seen))
        assert int(info.evaluations) == sum(seen)
        assert changed in (0, int(info.evaluations)) or isinstance(move, tw.moves.Sweep)
    assert said == did == counts


def test_the_papers_mixture_changes_every_model_equally_often() -> None:
    length = 8
    measure = tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(), length)
    run = tw.sample(
        measure,
        0.0,
        steps=600,
        chains=1,
        moves=tw.moves.paper(length),
        keep="paths",
        progress=False,
        init=np.zeros((length, 2)),
    )
    changed = np.any(np.diff(run.paths[0], axis=0) != 0, -1).sum(0)
    # null law: every one of 599 steps changes one model, each with probability 1/8
    assert changed.sum() == 599
    assert stats.chisquare(changed).pvalue > 1e-3


def test_paper_is_always_shooting_up_to_4_models() -> None:
    for length in (1, 2, 3, 4):
        ((move, weight),) = tw.moves.paper(length)
        assert isinstance(move, tw.moves.Shoot)
        assert move.reach is None
        assert weight == 1
    (shoot, p), (bridge, q) = tw.moves.paper(10)
    assert (shoot.reach, bridge.width, p, q) == (1, 1, 0.2, 0.8)


def test_a_random_subset_leaves_the_other_parameters_alone() -> None:
    dim = 40
    measure = tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(dim=dim), 6)
    run = tw.sample(
        measure, 0.0, steps=300, moves=tw.moves.SingleSite(fraction=0.25), keep="paths", init=np.zeros((6, dim)), progress=False
    )
    changed = (np.diff(run.paths[0], axis=0) != 0).sum((1, 2))
    # null law: binomial(40, 1/4) parameters a step
    assert abs(changed.mean() - 10) < 4 * np.sqrt(40 * 0.25 * 0.75 / len(changed))
    assert changed.max() < 25


# ---- limits and invariances ----


def mean_loss(walk: Any, length: int, s: float, seed: int = 0, chains: int = 256, steps: int = 400) -> tuple[float, float]:
    measure = tw.PathMeasure(walk, ONE.loss, length)
    init = np.tile(ONE.oracle.best, (length, 1))
    run = tw.sample(measure, s, steps=steps, burn_in=600, chains=chains, key=seed, init=init, progress=False)
    means = run.losses.mean((1, 2), dtype=np.float64)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(chains))


def test_one_model_is_a_single_model_at_inverse_temperature_s() -> None:
    value, error = mean_loss(tw.RandomWalk(0.5), 1, 4.0)
    assert abs(value - (ONE.oracle.minimum + 2 / (2 * 4.0))) < 4 * error


def test_a_loose_path_is_independent_models_at_s() -> None:
    # sigma so large that neighbours do not matter, with the step small enough to be accepted
    measure = tw.PathMeasure(tw.RandomWalk(100.0), ONE.loss, 4)
    init = np.tile(ONE.oracle.best, (4, 1))
    run = tw.sample(
        measure, 4.0, steps=4000, thin=4, burn_in=2000, chains=128, init=init, moves=tw.moves.Sweep(step=0.01),
        target_acceptance=0.4, keep="paths", progress=False,
    )  # fmt: skip
    means = run.losses.mean((1, 2), dtype=np.float64)
    error = means.std(ddof=1) / np.sqrt(128)
    assert abs(means.mean() - ONE.oracle.expected_loss(4.0, 1e6, 4)) < 4 * error
    ends = run.paths[:, ::50, :, 0].reshape(-1, 4)
    assert abs(np.corrcoef(ends.T)[0, 1]) < 0.1


def test_a_stiff_path_is_one_model_at_s_tau() -> None:
    length, s = 4, 1.0
    walk = tw.RandomWalk(1e-3, start=tw.Normal(0.5))
    case = ONE.oracle
    start = case.draw(3, 256, s, 1e-3, length, start_scale=0.5)
    measure = tw.PathMeasure(walk, ONE.loss, length)
    run = tw.sample(measure, s, steps=50, chains=256, init=start, progress=False)
    means = run.losses.mean((1, 2), dtype=np.float64)
    single = case.expected_loss(s * length, 1.0, 1, start_scale=0.5)
    assert abs(means.mean() - single) < 4 * means.std(ddof=1) / 16 + 1e-3


def test_with_a_flat_start_time_has_no_direction() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.4), tw.losses.double_well(), 5)
    run = tw.sample(measure, 2.0, steps=1500, burn_in=300, thin=3, chains=256, progress=False)
    by_site = run.losses.mean(1, dtype=np.float64)
    difference = by_site - by_site[:, ::-1]
    z = difference.mean(0) / np.maximum(difference.std(0, ddof=1) / 16, 1e-12)
    assert np.max(np.abs(z)) < 4
    assert abs(by_site.mean(0)[0] - by_site.mean(0)[2]) > 4 * by_site[:, 2].std() / 16, "ends and middle do differ"


def test_a_loss_that_is_not_a_number_or_infinite_rejects() -> None:
    def loss(thetas: Any) -> Any:
        x = thetas[:, 0]
        return jnp.where(x > 1, jnp.nan, jnp.where(x < -1, jnp.inf, x * x))

    measure = tw.PathMeasure(tw.RandomWalk(1.0), tw.losses.Function(loss, 1), 3)
    for s in (0.0, 1.0):
        run = tw.sample(measure, s, steps=500, chains=8, keep="paths", init=np.zeros((3, 1)), progress=False)
        assert np.all(np.abs(run.paths) <= 1)
        assert np.all(np.isfinite(run.losses))
        assert run.acceptance["sweep"] > 0.05


@pytest.mark.parametrize("chains", [3, 300])
def test_every_proposal_whose_loss_is_not_a_number_is_counted(chains: int) -> None:
    """Losses are zero or not a number, so that what is not accepted is what failed: a share of P(x > 1) of the start."""
    loss = tw.losses.Function(lambda thetas: jnp.where(thetas[:, 0] > 1, jnp.nan, 0.0), 1)
    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(1.0)), loss, 1)
    init = jnp.zeros((1, 1))
    run = tw.sample(measure, 1.0, steps=400, chains=chains, moves=tw.moves.SingleSite(), init=init, key=1, progress=False)
    rejected = 400 * chains * (1 - run.acceptance["single_site"])
    assert run.failed == round(rejected)
    assert abs(run.failed / (400 * chains) - 0.1587) < 5 * np.sqrt(0.1587 * 0.8413 / (400 * chains))
    assert f"{run.failed} proposals with a loss that is not a number" in repr(run)
    whole = tw.sample(measure, 1.0, steps=400, chains=2, moves=tw.moves.Sweep(step=1e-6), init=init, key=1, progress=False)
    assert whole.failed == 0 and "not a number" not in repr(whole)
