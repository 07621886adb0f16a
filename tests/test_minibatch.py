"""The minibatch rule: its parts by their definitions, Barker's rule on all data, and a bias that goes with the tolerance."""

from __future__ import annotations

import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import tiltwalk as tw
from tests.statistics import LEVEL, least_p, whitened_after
from tests.test_exactness import WALKS
from tests.test_rules import LINEAR, linear
from tiltwalk import noise as noise_
from tiltwalk.pytree import pytree
from tiltwalk.rules import _barker, _shuffle

ROOT = Path(__file__).parent.parent
TESTS = 40


# ---- the correction ----


@pytest.mark.parametrize("row", _barker.table(), ids=lambda row: f"deviation {row.deviation}")
def test_normal_plus_correction_is_logistic_within_the_stated_error(row: Any) -> None:
    z = np.linspace(-45, 45, 40001)[:, None]
    law = (
        (stats.norm.cdf((z - row.atoms) / row.deviation) + stats.norm.cdf((z + row.atoms) / row.deviation))
        @ row.probabilities
        / 2
    )
    assert np.isclose(row.probabilities.sum(), 1, atol=1e-12) and np.all(row.probabilities > 0)
    worst = np.max(np.abs(law - special.expit(z[:, 0])))
    assert worst <= 1.001 * row.error
    assert row.error < {0.8: 1e-6, 1.0: 1e-6, 1.2: 2e-5, 1.4: 6e-4}.get(row.deviation, 5e-3)


def test_the_script_makes_the_table_that_is_kept() -> None:
    script = runpy.run_path(str(ROOT / "scripts/make_barker_table.py"))
    kept = {row["deviation"]: row for row in json.loads((ROOT / "src/tiltwalk/rules/barker.json").read_text())}
    atoms, _, error = script["correction"](1.5)
    np.testing.assert_allclose(error, kept[1.5]["error"], rtol=1e-6)
    np.testing.assert_allclose(atoms, kept[1.5]["atoms"], atol=1e-6)
    assert sorted(kept) == sorted(script["DEVIATIONS"])


def test_quantiles_of_the_correction_follow_its_law() -> None:
    row = _barker.widest(1e-3)
    assert row.deviation == 1.4
    u = (np.arange(200_000) + 0.5) / 200_000
    drawn = np.asarray(row.quantile(jnp.asarray(u, jnp.float32)))
    for atom, p in zip(row.atoms, row.probabilities, strict=True):
        assert abs(np.mean(np.isclose(np.abs(drawn), atom, atol=1e-5)) - p) < 2e-5
    assert abs(drawn.mean()) < 1e-3


# ---- the permutation ----


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 375, 3750])
def test_every_key_gives_a_permutation(size: int) -> None:
    words = tuple(jax.random.bits(jax.random.key(i), (_shuffle.rounds(size), 8)) for i in (0, 1))
    found = np.asarray(_shuffle.places(jnp.arange(size), size, words))  # type: ignore[arg-type]
    assert all(np.array_equal(np.sort(row), np.arange(size)) for row in found)


def test_pairs_of_places_are_uniform() -> None:
    size, keys = 7, 42_000
    words = tuple(jax.random.bits(jax.random.key(i), (_shuffle.rounds(size), keys)) for i in (2, 3))
    found = np.asarray(_shuffle.places(jnp.arange(3), size, words))  # type: ignore[arg-type]
    for a, b in ((0, 1), (1, 2)):
        counts = np.bincount(found[:, a] * size + found[:, b], minlength=size**2).reshape(size, size)
        off = counts[~np.eye(size, dtype=bool)]
        assert np.all(np.diag(counts) == 0)
        assert stats.chisquare(off).pvalue > 0.01


def test_own_words_are_those_of_the_block_and_the_step() -> None:
    noise = noise_.step_noise(noise_.seed(3), 5, 0, (4, 1, 2), np.dtype("float32"), 2)
    words = np.asarray(noise_.own_words(noise, 50))
    assert words.shape == (2, 50, 4) and np.unique(words).size == words.size
    other = dataclasses.replace(noise, key=noise.key + jnp.uint32(1))
    assert not np.any(words == np.asarray(noise_.own_words(other, 50)))
    alone = dataclasses.replace(noise, uniform=noise.uniform[2:3])
    np.testing.assert_array_equal(np.asarray(noise_.own_words(alone, 50))[..., 0], words[..., 2])


# ---- one decision ----

LARGE = linear(samples=1999, seed=5)


def decided(
    rule: Any, old: Any, new: Any, s: float, count: int, loss: Any = LARGE.loss, seed: int = 0, correction: float = 0.0
) -> Any:
    """`count` independent decisions between the same two models, each a chain of one model."""
    measure = tw.PathMeasure(tw.RandomWalk(0.5), loss, 1)
    state = tw.ChainState(jnp.asarray(old, jnp.float32)[None], jnp.full(1, jnp.nan))
    rows = jnp.asarray(new, jnp.float32)[None, None]
    proposal = tw.Proposal(jnp.zeros((1, 1), jnp.int32), rows, jnp.full(1, correction, jnp.float32))

    def one(chain: Any) -> Any:
        noise = noise_.step_noise(noise_.seed(seed), 0, 0, (1, 1, 2), np.dtype("float32"), chain)
        return rule.decide(noise, measure, state, proposal, jnp.float32(s))

    return jax.jit(jax.vmap(one))(jnp.arange(count))


OLD, NEW = np.array([0.4, 0.6]), np.array([0.55, 0.45])


def change() -> float:
    return float(LARGE.loss(jnp.asarray(NEW)[None])[0] - LARGE.loss(jnp.asarray(OLD)[None])[0])


@pytest.mark.parametrize("wanted", [-1.0, 0.5, 2.0])
def test_decisions_have_barkers_probability_within_the_tolerance(wanted: float) -> None:
    s, count = -wanted / change(), 10_000
    if s < 0:
        s, old, new = -s, NEW, OLD
    else:
        old, new = OLD, NEW
    found = decided(tw.rules.Minibatch(0.02, 64, 4), old, new, s, count)
    p = special.expit(wanted)
    assert np.mean(found.evaluations) < 1.9  # of two models: it did not look at all data
    assert abs(np.mean(found.accepted) - p) < 0.02 + 4 * np.sqrt(p * (1 - p) / count)
    np.testing.assert_allclose(np.mean(found.log_ratio), wanted, atol=0.1)


def test_on_all_data_it_is_barkers_rule() -> None:
    s = 1.3 / abs(change())
    rule, count = tw.rules.Minibatch(0.02, 2048, 4), 500
    found = decided(rule, OLD, NEW, s, count, correction=0.7)  # 2,048 samples are more than there are
    losses = np.asarray(LARGE.loss(jnp.asarray(np.stack([NEW, OLD]), jnp.float32)))
    log_ratio = 0.7 - s * (losses[0] - losses[1])
    np.testing.assert_allclose(found.log_ratio, log_ratio, rtol=1e-3)
    uniform = jax.vmap(lambda c: noise_.step_noise(noise_.seed(0), 0, 0, (1, 1, 2), np.dtype("float32"), c).uniform[0])
    u = np.asarray(uniform(jnp.arange(count)))
    np.testing.assert_array_equal(np.asarray(found.accepted)[:, 0], u > special.expit(-log_ratio))
    np.testing.assert_allclose(found.losses[:, 0, 0], losses[0], rtol=1e-5)
    np.testing.assert_allclose(found.stayed[:, 0, 0], losses[1], rtol=1e-5)
    np.testing.assert_array_equal(found.evaluations, 2)


def test_a_decision_that_is_hard_looks_at_all_data_and_one_that_is_clear_at_one_batch() -> None:
    hard = decided(tw.rules.Minibatch(1e-6, 64, 4), OLD, mirrored(OLD), 1e4, 50)
    np.testing.assert_array_equal(hard.evaluations, 2)
    clear = decided(tw.rules.Minibatch(0.02, 64, 4), OLD, NEW + 9, 50.0, 50)
    np.testing.assert_allclose(clear.evaluations, 2 * 16 / 500)
    assert not np.any(clear.accepted)
    back = decided(tw.rules.Minibatch(0.02, 64, 4), NEW + 9, OLD, 50.0, 50)
    assert np.all(back.accepted)


def mirrored(theta: Any) -> Any:
    """The model on the other side of the best one, whose mean loss is the same although no sample's is."""
    return 2 * LARGE.oracle.mean(1.0, 1e3, 1)[0] - theta


def test_the_variance_is_that_of_drawing_without_replacement_in_whatever_order_the_data_lie() -> None:
    X = np.sort(np.random.default_rng(1).normal(size=(1600, 1)), 0)  # sorted: neighbours are alike
    loss = tw.losses.Supervised(tw.networks.linear(1, 1), X, 2 * X, "mse", block=16)
    rule = tw.rules.Minibatch(0.5, 512, 16)
    found = decided(rule, OLD, NEW, 1.0, 4000, loss=loss)  # s = 1: the first batch is enough
    share = 0.32
    np.testing.assert_allclose(found.evaluations, 2 * share)
    each = np.asarray(loss.per_sample(jnp.asarray(np.stack([NEW, OLD]), jnp.float32)), np.float64)
    units = (each[0] - each[1]).reshape(100, 16).sum(1)
    wanted = 100**2 * np.var(units, ddof=1) / 32 * (1 - share) / 1600**2
    assert stats.chi2(3999).cdf(3999 * np.var(found.log_ratio, ddof=1) / wanted) == pytest.approx(0.5, abs=0.4995)
    np.testing.assert_allclose(np.mean(found.log_ratio), -(each[0] - each[1]).mean(), atol=5 * np.sqrt(wanted / 4000))


def test_a_loss_that_is_not_a_number_rejects_and_an_infinite_one_is_left() -> None:
    assert not np.any(decided(tw.rules.Minibatch(0.02, 64, 4), OLD, NEW * np.nan, 1.0, 20).accepted)
    assert np.all(decided(tw.rules.Minibatch(0.02, 64, 4), NEW * 1e30, OLD, 1.0, 20).accepted)


# ---- chains ----


def test_on_all_data_the_law_is_unchanged() -> None:
    rule = tw.rules.Minibatch(0.01, 64, 1)
    move = tw.moves.Sweep(step=0.8)
    white, moved = whitened_after(LINEAR, WALKS["density"], 5, move, s=3.0, steps=8, chains=2048, seed=6000, rule=rule)
    assert moved > 0.1 and least_p(white) >= LEVEL / TESTS


@pytree
class TooSteep(tw.rules.Minibatch):  # type: ignore[misc]
    """Barker's test at a tilt that is a fifth too large."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        return tw.rules.Minibatch.decide(self, noise, measure, state, proposal, 1.2 * s)


def test_a_wrong_tilt_is_caught_on_all_data() -> None:
    rule = TooSteep(0.01, 64, 1)
    move = tw.moves.Sweep(step=0.8)
    white, _ = whitened_after(LINEAR, WALKS["flat"], 5, move, s=3.0, steps=12, chains=2048, seed=6001, rule=rule)
    assert least_p(white) < LEVEL / TESTS


def test_noted_losses_are_estimates_of_the_losses_and_kernel_and_plain_jax_decide_alike() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    y = (X @ rng.normal(size=5) > 0).astype(int)
    ends = []
    for block in (None, 64):
        loss = tw.losses.Supervised(tw.networks.mlp([5, 6, 2]), X, y, block=block)
        measure = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(1.0)), loss, 6)
        run = tw.sample(
            measure, 100.0, steps=200, moves=tw.moves.Sweep(step=0.4), chains=2, rule=tw.rules.Minibatch(), progress=False
        )
        true = np.asarray(jax.vmap(loss)(run.state.path))
        assert np.max(np.abs(np.asarray(run.state.losses) - true)) < 6 * np.sqrt(0.5 / 512)
        assert 0 < run.evaluations < 0.8 * 200 * 2 * 6 * 2
        ends.append(run)
    np.testing.assert_allclose(ends[0].state.path, ends[1].state.path, atol=1e-5)


def test_bad_input_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"Minibatch.batch must be a whole number of at least 128; got 100."):
        tw.rules.Minibatch(batch=100)
    with pytest.raises(ValueError, match=r"Minibatch.tolerance must be a number in \[1e-06, 0.5\]; got 0."):
        tw.rules.Minibatch(tolerance=0)
    measure = tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(), 4)
    with pytest.raises(TypeError, match=r"Minibatch needs a loss on data, losses.Supervised; got Bowl"):
        tw.sample(measure, 1.0, steps=1, rule=tw.rules.Minibatch(), progress=False)
