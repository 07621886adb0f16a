"""Rules that look at less data: what is exact is, what is spared is spared, and what is wrong is caught."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tests.statistics import LEVEL, Perceptron, least_p, whitened_after
from tests.test_exactness import WALKS
from tiltwalk.pytree import pytree

rng = np.random.default_rng(3)
X = rng.normal(size=(530, 5))
LABELS = (X @ rng.normal(size=5) > 0).astype(int)
NETWORK = tw.networks.mlp([5, 6, 2])
BLOCKS = [None, 64]  # the kernel's, where there is one, and plain JAX


def classified(block: int | None = None, **more: Any) -> tw.losses.Supervised:
    return tw.losses.Supervised(NETWORK, X, LABELS, block=block, **more)


def linear(samples: int = 24, seed: int = 11) -> Perceptron:
    """The linear perceptron with a loss that knows its samples."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 1)) + 0.3
    Y = X @ rng.normal(size=(1, 1)) + 0.5 + 0.3 * rng.normal(size=(samples, 1))
    loss = tw.losses.Supervised(tw.networks.linear(1, 1), X, Y, "mse", block=8)
    return Perceptron(tw.exact.LinearPerceptron(X, Y), loss)


LINEAR = linear()
TESTS = 40


MIXTURE = [(tw.moves.Sweep(step=0.8), 0.6), (tw.moves.Shoot(), 0.4)]


def run_with(rule: Any, loss: Any, moves: Any, s: float = 200.0, **more: Any) -> Any:
    measure = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(1.0)), loss, 6)
    return tw.sample(measure, s, moves=moves, chains=3, key=1, keep="paths", rule=rule, progress=False, **more)


# ---- losses in pieces ----


@pytest.mark.parametrize("block", BLOCKS)
def test_a_group_of_models_is_given_up_once_its_sum_exceeds_the_limit(block: int | None) -> None:
    loss = classified(block)
    thetas = jax.random.normal(jax.random.key(0), (4, 2, NETWORK.dim))
    each = np.asarray(loss.per_sample(thetas.reshape(8, -1))).reshape(4, 2, -1)
    whole = each.mean(-1).sum(1)
    limits = jnp.asarray(whole) * jnp.array([1.01, 0.3, 0.6, -1.0])
    sums, seen = jax.jit(lambda limits: loss.until(thetas, limits, jnp.ones((4, 2), bool), 5))(limits)
    np.testing.assert_allclose(sums[0].sum(), whole[0], rtol=1e-5)
    size = max(1, -(-loss.data.weight.shape[0] // 5)) * loss.block
    for g in range(4):
        # the first number of pieces after which the sum is above the limit, by hand
        so_far = [each[g, :, : k * size].sum() / loss.n for k in range(6)]
        pieces = next((k for k, total in enumerate(so_far) if total > limits[g]), 5)
        np.testing.assert_allclose(seen[g], min(1.0, pieces * size / loss.data.weight.size), rtol=1e-6)
        np.testing.assert_allclose(sums[g].sum(), so_far[pieces] if seen[g] < 1 else whole[g], rtol=1e-4, atol=1e-6)
    assert seen[0] == 1 and seen[1] < seen[2] < 1 and seen[3] == 0


@pytest.mark.parametrize("block", BLOCKS)
def test_models_that_are_not_wanted_cost_nothing_and_count_as_zero(block: int | None) -> None:
    loss = classified(block)
    thetas = jax.random.normal(jax.random.key(0), (9, NETWORK.dim))
    live = jnp.array([1, 0, 1, 1, 0, 0, 1, 0, 0], bool)
    wanted = np.where(live, loss(thetas), 0)
    # NaN would spread from a model that was looked at
    poisoned = jnp.where(live[:, None], thetas, jnp.nan)
    np.testing.assert_allclose(loss.where(poisoned, live), wanted, rtol=1e-5)
    lists = jnp.asarray(rng.integers(0, 530, (9, 37)))
    own = loss.per_sample(poisoned, lists, live)
    all_of_them = np.asarray(loss.per_sample(thetas))
    for m in range(9):
        np.testing.assert_allclose(own[m], all_of_them[m, lists[m]] if live[m] else 0, rtol=1e-5, atol=1e-6)
    many = jax.vmap(loss.per_sample)(jnp.stack([thetas, thetas]), jnp.stack([lists, lists]), jnp.stack([live, ~live]))
    np.testing.assert_allclose(many[0] + many[1], np.take_along_axis(all_of_them, np.asarray(lists), 1), rtol=1e-5, atol=1e-6)


# ---- early rejection ----


@pytest.mark.parametrize(("block", "move"), [(None, tw.moves.Sweep(step=0.5)), (64, tw.moves.Bridge(None))])
def test_early_rejection_makes_the_decisions_of_metropolis_on_less_data(block: int | None, move: Any) -> None:
    loss = classified(block)
    full = run_with(None, loss, move, steps=60)
    early = run_with(tw.rules.EarlyReject(pieces=9), loss, move, steps=60)
    np.testing.assert_array_equal(early.paths, full.paths)
    np.testing.assert_allclose(early.losses, full.losses, rtol=1e-5)
    assert 0.02 < full.acceptance[move.name] < 0.9
    assert early.evaluations < 0.97 * full.evaluations


def test_early_rejection_with_weights_and_a_bound_below_zero_makes_the_decisions_of_metropolis() -> None:
    targets = LABELS.astype(float)[:, None] @ np.ones((1, 2))
    loss = tw.losses.Supervised(NETWORK, X, targets, lower_by_two, block=64, sample_weight=rng.random(530))
    full = run_with(None, loss, tw.moves.Sweep(step=0.5), steps=30)
    early = run_with(tw.rules.EarlyReject(bound=-2.0, pieces=9), loss, tw.moves.Sweep(step=0.5), steps=30)
    np.testing.assert_array_equal(early.paths, full.paths)
    assert early.evaluations < full.evaluations


def lower_by_two(outputs: Any, y: Any) -> Any:
    return jnp.sum((outputs - y) ** 2, 1) - 2


def test_early_rejection_without_a_tilt_accepts_everything() -> None:
    assert run_with(tw.rules.EarlyReject(pieces=9), classified(), tw.moves.Sweep(step=0.5), steps=60, s=0.0).acceptance == {
        "sweep": 1.0
    }


def test_a_loss_that_is_not_a_number_rejects_at_once() -> None:
    loss = tw.losses.Supervised(NETWORK, X, LABELS, block=64)
    sums, seen = loss.until(jnp.full((1, 1, NETWORK.dim), jnp.nan), jnp.array([1.0]), jnp.ones((1, 1), bool), 9)
    assert np.isnan(sums[0, 0]) and seen[0] < 0.2


@pytest.mark.parametrize("walk", ["density", "stationary"])
def test_early_rejection_leaves_the_law_unchanged(walk: str) -> None:
    rule = tw.rules.EarlyReject(pieces=3)
    white, moved = whitened_after(LINEAR, WALKS[walk], 5, MIXTURE, s=3.0, steps=12, chains=4096, seed=5000, rule=rule)
    assert moved > 0.1 and least_p(white) >= LEVEL / TESTS


@pytree
class DrawnAgain(tw.rules.EarlyReject):  # type: ignore[misc]
    """Rejects early by one uniform number and late by another."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        other = dataclasses.replace(noise, uniform=1 - noise.uniform)
        early = tw.rules.EarlyReject.decide(self, other, measure, state, proposal, s)
        late = tw.rules.EarlyReject.decide(self, noise, measure, state, proposal, s)
        return dataclasses.replace(late, accepted=late.accepted & early.accepted)


def test_an_early_rejection_by_another_number_than_the_late_one_is_caught() -> None:
    rule = DrawnAgain(pieces=3)
    white, _ = whitened_after(LINEAR, WALKS["flat"], 5, MIXTURE, s=3.0, steps=12, chains=4096, seed=5001, rule=rule)
    assert least_p(white) < LEVEL / TESTS


def test_early_rejection_needs_a_loss_on_data_that_has_a_bound() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(), 4)
    with pytest.raises(TypeError, match=r"EarlyReject needs a loss on data, losses.Supervised.*; got Bowl"):
        tw.sample(measure, 1.0, steps=1, rule=tw.rules.EarlyReject(), progress=False)
    own = tw.losses.Supervised(NETWORK, X, np.zeros((530, 2)), lower_by_two)
    with pytest.raises(ValueError, match=r"EarlyReject.bound must be given .* got None"):
        run_with(tw.rules.EarlyReject(), own, None, steps=1)
    with pytest.raises(ValueError, match=r"EarlyReject.pieces must be a whole number of at least 1; got 0."):
        tw.rules.EarlyReject(pieces=0)


# ---- delayed acceptance ----

NOISY = tw.losses.bowl(curvature=np.array([2.5, 0.4]), centre=np.array([0.6, -0.2]))
"""A surrogate of the perceptron's loss that is far off."""

INFORMED = [(tw.moves.LangevinSweep(step=0.7), 1.0), (tw.moves.Sweep(step=0.6), 1.0)]
DELAYED = [
    ("density", 5, MIXTURE, tw.rules.Delayed(share=0.34)),
    ("stationary", 6, [(tw.moves.Bridge(None, step=0.7), 0.5), *MIXTURE], tw.rules.Delayed(share=0.6)),
    ("normal", 4, MIXTURE, tw.rules.Delayed(share=0.34, trust=0.4)),
    ("flat", 1, tw.moves.SingleSite(), tw.rules.Delayed(LINEAR.loss.on(np.array([3, 7, 9])))),
    ("returning", 6, MIXTURE, tw.rules.Delayed(NOISY, trust=0.6)),
    ("density", 4, INFORMED, tw.rules.Delayed(share=0.34)),
]


@pytest.mark.parametrize("case", [0, 4, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3, 5))])
def test_delayed_acceptance_leaves_the_law_unchanged(case: int) -> None:
    walk, length, moves, rule = DELAYED[case]
    more = {"steps": 12, "chains": 4096, "seed": 5100 + case, "rule": rule}
    white, moved = whitened_after(LINEAR, WALKS[walk], length, moves, s=3.0, **more)
    assert moved > 0.1 and least_p(white) >= LEVEL / TESTS


@pytree
class FirstForgotten(tw.rules.Delayed):  # type: ignore[misc]
    """Decides the second stage on the whole loss, as if the first had not been."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        def with_number(u: float) -> Any:
            other = dataclasses.replace(noise, uniform=jnp.full_like(noise.uniform, u))
            return tw.rules.Delayed.decide(self, other, measure, state, proposal, s)

        first, whole = with_number(jnp.inf), with_number(0.0)
        both = jnp.minimum(first.log_ratio, 0) + jnp.minimum(whole.log_ratio, 0)
        return dataclasses.replace(whole, accepted=noise.uniform < jnp.exp(both))


@pytest.mark.parametrize("rule", [FirstForgotten(share=0.34), FirstForgotten(NOISY)], ids=["share", "surrogate"])
def test_a_second_stage_that_forgets_the_first_is_caught(rule: Any) -> None:
    white, _ = whitened_after(LINEAR, WALKS["flat"], 5, MIXTURE, s=3.0, steps=12, chains=4096, seed=5200, rule=rule)
    assert least_p(white) < LEVEL / TESTS


@pytest.mark.parametrize(("block", "move"), [(None, tw.moves.Sweep(step=0.5)), (64, tw.moves.Bridge(None))])
def test_delayed_acceptance_spares_data_and_notes_the_loss_on_all_of_them(block: int | None, move: Any) -> None:
    loss = classified(block)
    full = run_with(None, loss, move, steps=60)
    delayed = run_with(tw.rules.Delayed(share=0.2), loss, move, steps=60)
    assert 0.02 < delayed.acceptance[move.name] < 1.001 * full.acceptance[move.name]
    assert 2 * 0.15 < delayed.evaluations / full.evaluations < 0.97
    np.testing.assert_allclose(delayed.losses, np.asarray(jax.vmap(jax.vmap(loss))(delayed.paths)), rtol=1e-4)


def test_the_loss_is_asked_for_models_that_passed_alone() -> None:
    """On the host, where every row can be counted: of 4 sites, those that a surrogate of its own turned away are not seen."""
    seen: list[int] = []

    def parabola(thetas: np.ndarray) -> np.ndarray:
        seen.append(len(thetas))
        return np.sum(thetas**2, 1) / 2

    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(1.0)), tw.losses.BlackBox(parabola, 2), 4)
    rule = tw.rules.Delayed(tw.losses.bowl())
    seen.clear()
    given = {"steps": 50, "chains": 8, "key": 2, "progress": False}
    run = tw.sample(measure, 40.0, rule=rule, **given)
    asked = sum(seen)
    # the surrogate is the loss: what passes the first stage passes the second, by the numbers that Metropolis accepts by
    plain = tw.sample(measure, 40.0, **given)
    assert run.acceptance["sweep"] == plain.acceptance["sweep"] < 0.3
    np.testing.assert_allclose(run.losses, plain.losses, rtol=1e-5)
    assert run.evaluations == round(50 * 8 * 4 * run.acceptance["sweep"])
    assert asked < 0.6 * 50 * 8 * 4, "rounded up to groups"


def test_a_chain_leaves_an_infinite_loss_behind() -> None:
    infinite = tw.losses.Function(lambda thetas: jnp.where(thetas[:, 0] > 0, jnp.inf, thetas[:, 0] ** 2), 1)
    measure = tw.PathMeasure(tw.RandomWalk(1.0), infinite, 2)
    for surrogate in (infinite, tw.losses.bowl(dim=1)):
        run = tw.sample(measure, 1.0, steps=60, init=np.ones((2, 1)), rule=tw.rules.Delayed(surrogate), progress=False)
        assert np.isfinite(run.losses[0, -1]).all()


def test_delayed_acceptance_says_what_it_needs() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(), 4)
    with pytest.raises(TypeError, match=r"Delayed needs a loss on data, losses.Supervised, .* or a cheaper loss.*; got Bowl"):
        tw.sample(measure, 1.0, steps=1, rule=tw.rules.Delayed(), progress=False)
    with pytest.raises(ValueError, match=r"Delayed.surrogate must be a loss of the same 2 parameters; got one of 3."):
        tw.sample(measure, 1.0, steps=1, rule=tw.rules.Delayed(tw.losses.bowl(dim=3)), progress=False)
    with pytest.raises(ValueError, match=r"Delayed.share needs data in two blocks or more; got 530 samples in one block"):
        run_with(tw.rules.Delayed(), classified(600), None, steps=1)
    for given, message in (
        ({"share": 0.0}, r"Delayed.share must be a number in \(0, 0.9\]; got 0"),
        ({"trust": 1.5}, r"Delayed.trust must be a number in \(0, 1\]; got 1.5"),
        ({"surrogate": tw.losses.bowl(), "share": 0.2}, r"Delayed.share must be None where a surrogate is given; got 0.2"),
        ({"surrogate": 3}, r"Delayed.surrogate must be a loss of models, such as loss.on\(indices\); got 3."),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            tw.rules.Delayed(**given)
