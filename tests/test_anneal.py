"""Annealing: the curve is the exact one, tilts follow from the draws, targets are met where they can be, budgets are said."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import tiltwalk as tw
from tests.statistics import perceptron
from tiltwalk import chain, spacing
from tiltwalk.anneal_stages import Keeper
from tiltwalk.pytree import pytree
from tiltwalk.rules import Metropolis

ONE = perceptron(inputs=1)
SIGMA, LENGTH, SCALE = 0.5, 5, 2.0
QUIET: dict[str, Any] = {"progress": False}
GIVEN: dict[str, Any] = {"chains": 16, "key": 1} | QUIET
LOW = {"s_min": 0.2} | GIVEN


def line(walk: Any = None) -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(SIGMA) if walk is None else walk, ONE.loss, LENGTH)


def started() -> tw.PathMeasure:
    return line(tw.RandomWalk(SIGMA, start=tw.Normal(SCALE)))


def off(run: tw.AnnealRun, **law: Any) -> np.ndarray:
    """How far the curve is from the exact one, in standard errors."""
    law = {"sigma": SIGMA} | law
    sigmas = law.pop("sigma") * run.curve.sigma
    exact = [ONE.oracle.expected_loss(s, sigma, LENGTH, **law) for s, sigma in zip(run.curve.s, sigmas, strict=True)]
    return (run.curve.loss - np.asarray(exact)) / run.curve.error


@pytest.fixture(scope="module")
def flat() -> tw.AnnealRun:
    return tw.anneal(line(), 20.0, **LOW)


# ---- the curve ----


def test_the_curve_is_the_exact_one(flat: tw.AnnealRun) -> None:
    """Null law: about standard normal at each stage, over about 6 of them; 4 standard errors."""
    assert np.all(np.abs(off(flat)) < 4), off(flat)
    assert flat.curve.settled.all() and flat.curve.s[0] == 0.2 and flat.curve.s[-1] == 20.0
    assert flat.curve.error[-1] < 0.02 * flat.curve.loss[-1], "an error that is wide says nothing"
    assert flat.verdict().converged and "Settled at each of" in flat.verdict().words


def test_a_start_that_can_be_normalised_is_annealed_from_zero() -> None:
    run = tw.anneal(started(), 20.0, **GIVEN)
    assert run.curve.s[0] == 0 and run.curve.settled.all() and np.all(np.abs(off(run, start_scale=SCALE)) < 4), off(
        run, start_scale=SCALE
    )
    found = tw.thermo.log_partition(run)
    exact = ONE.oracle.log_partition(found.s, SIGMA, LENGTH, start_scale=SCALE)
    assert np.all(np.abs(found.value - (exact - exact[0])) <= 4 * found.error) and found.error[-1] < 0.1


@pytree
class Colder:
    """Decides as if the tilt were 20 % higher: wrong."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        return Metropolis().decide(noise, measure, state, proposal, 1.2 * s)


def test_a_wrong_rule_is_caught_by_the_curve() -> None:
    assert np.max(np.abs(off(tw.anneal(line(), 20.0, **LOW, rule=Colder())))) > 6


@pytest.mark.slow
def test_the_errors_of_the_curve_are_its_errors() -> None:
    """Null law: `off` has mean 0 and mean square 1 over seeds, but for 20 % since stages end when they look settled."""
    found = np.concatenate([off(tw.anneal(line(), 20.0, **(LOW | {"key": key}))) for key in range(100, 140)])
    assert len(found) > 200 and abs(found.mean()) < 4 / np.sqrt(len(found)) and 0.8 < np.sqrt(np.mean(found**2)) < 1.2


@pytest.mark.parametrize(("start", "end"), [(0.6, 0.06), pytest.param(0.1, 1.0, marks=pytest.mark.slow)])
def test_sigma_anneals_either_way(start: float, end: float) -> None:
    run = tw.anneal(started(), 10.0, sigma=(start, end), **GIVEN)
    np.testing.assert_allclose(run.curve.sigma[[0, -1]], [1.0, end / start])
    assert len(run.curve.s) > 4 and np.all(run.curve.s == 10.0)
    found = off(run, sigma=start, start_scale=SCALE)
    assert np.all(np.abs(found) < 4), found


WALKS = {
    "random walk": tw.RandomWalk(jnp.asarray([0.3, 0.6]), start=tw.Normal(2.0)),
    "stationary": tw.OrnsteinUhlenbeck(jnp.asarray([0.3, 0.6]), pull=0.3, centre=0.5),
}


@pytest.mark.parametrize("name", list(WALKS))
def test_a_path_is_weighted_by_its_spread_when_sigma_changes(name: str) -> None:
    """The ratio of the densities is what the module says, but for a constant: differences between paths show it."""
    walk = WALKS[name]
    paths = jax.random.normal(jax.random.key(0), (3, 4, 2))
    keeper = Keeper(lambda state: None, walk)
    spread = np.asarray([keeper(tw.ChainState(path, jnp.zeros(4)))["spread"] for path in paths])
    r = 0.6
    other = dataclasses.replace(walk, sigma=r * walk.sigma)
    ratio = np.asarray([other.log_density(path) - walk.log_density(path) for path in paths])
    np.testing.assert_allclose(np.diff(ratio), -np.diff(spread) * (0.5 / r**2 - 0.5), rtol=1e-4)


# ---- the next tilt ----


def test_the_next_tilt_keeps_the_share_that_was_asked_for() -> None:
    """Of a total loss with a Gamma law of shape `a` at tilt `s`, a share `(s (s + 2 ds) / (s + ds)^2)^a` counts at `s + ds`."""
    s, a = 2.0, 3.0
    totals = np.random.default_rng(0).gamma(a, 1 / s, 400_000)
    exact = optimize.brentq(lambda ds: (s * (s + 2 * ds) / (s + ds) ** 2) ** a - 0.5, 1e-6, 100.0)
    assert spacing.farthest(totals, s, np.inf, 0.5) == pytest.approx(s + exact, rel=0.01)
    assert spacing.farthest(totals, s, s + exact / 2, 0.5) == s + exact / 2
    assert spacing.share(totals, spacing.farthest(totals, s, 1e9, 0.5) - s) == pytest.approx(0.5, rel=1e-3)


def test_stages_overlap_as_they_were_asked_to(flat: tw.AnnealRun) -> None:
    for here, there in zip(flat.stages[:-2], flat.stages[1:-1], strict=True):
        assert spacing.share(here.total_losses.ravel(), there.s[0] - here.s[0]) == pytest.approx(0.5, abs=0.01)
    dense = tw.anneal(line(), 20.0, overlap=0.9, **(LOW | {"most_steps": 256}))
    assert len(dense.stages) > 1.5 * len(flat.stages)


# ---- what is returned ----


def test_all_draws_are_there_with_their_tilt(flat: tw.AnnealRun) -> None:
    assert isinstance(flat, tw.Run) and flat.losses.shape == (16, len(flat.s), LENGTH)
    np.testing.assert_array_equal(np.unique(flat.s), flat.curve.s)
    for stage, loss in zip(flat.stages, flat.curve.loss, strict=True):
        np.testing.assert_allclose(flat.losses[:, flat.s == stage.s[0]].mean(), loss, rtol=1e-5)
    assert flat.acceptance == flat.stages[-1].acceptance


def test_the_schedule_replays_every_step(flat: tw.AnnealRun) -> None:
    again = tw.sample(line(), flat.schedule, steps=flat.schedule_steps, chains=16, init=flat.state.path, **QUIET)
    assert again.s[0] == flat.curve.s[0] and again.s[-1] == 20.0
    assert again.step_number == flat.schedule_steps == flat.step_number
    stay = [int(np.sum(again.s == s)) for s in flat.curve.s]
    kept = [stage.draws for stage in flat.stages]
    assert all(a >= b + 128 for a, b in zip(stay, kept, strict=True))


def test_a_run_goes_on_where_annealing_ended(flat: tw.AnnealRun) -> None:
    more = tw.sample(line(), 20.0, steps=512, chains=16, init=flat, key=1, **QUIET)
    assert more.step_number == flat.step_number + 512
    np.testing.assert_array_equal(more.steps["sweep"], flat.steps["sweep"])
    exact = ONE.oracle.expected_loss(20.0, SIGMA, LENGTH)
    assert more.losses.mean() == pytest.approx(exact, rel=0.05)


def test_new_tilts_compile_nothing_and_steps_are_tuned_to_them(flat: tw.AnnealRun) -> None:
    before = chain.advance._cache_size()
    again = tw.anneal(line(tw.RandomWalk(0.7)), 500.0, **(LOW | {"key": 3}))
    assert chain.advance._cache_size() == before and again.curve.s[-1] == 500.0
    assert abs(again.acceptance["sweep"] - 0.3) < 0.05
    assert again.steps["sweep"].mean() < 0.5 * again.stages[0].steps["sweep"].mean()


def test_the_same_key_gives_the_same_run(flat: tw.AnnealRun) -> None:
    again = tw.anneal(line(), 20.0, **LOW)
    np.testing.assert_array_equal(again.losses, flat.losses)
    np.testing.assert_array_equal(again.curve.s, flat.curve.s)


def test_what_has_not_settled_is_said() -> None:
    far = np.full((LENGTH, ONE.loss.dim), 30.0)
    slow = tw.moves.Sweep(step=0.003)
    given = GIVEN | {"burn_in": 0, "steps": 64, "most_steps": 128, "target_acceptance": None}
    run = tw.anneal(line(), 20.0, s_min=20.0, init=far, moves=slow, **given)
    assert not run.curve.settled.any() and run.schedule_steps == 128
    verdict = run.verdict()
    assert verdict.converged is False and "Not settled at 1 of 1 stages" in verdict.words and "most_steps" in verdict.advice[0]


def test_a_budget_that_is_spent_is_said() -> None:
    given = GIVEN | {"most_steps": 256}
    run = tw.anneal(line(), 20.0, stages=2, **given)
    assert len(run.stages) == 2 and "It ended after 2 stages, its budget." in run.verdict().words
    assert run.verdict().converged is False
    spent = tw.anneal(line(), 20.0, evaluations=1000, **given)
    assert len(spent.stages) == 1 and "evaluations, its budget" in str(spent.verdict())


# ---- targets ----


def test_a_target_loss_is_first_met_where_it_is_found() -> None:
    exact = 7.3
    goal = float(ONE.oracle.expected_loss(exact, SIGMA, LENGTH, start_scale=SCALE))
    run = tw.anneal(started(), target_loss=goal, tolerance=0.02, **GIVEN)
    found = run.found
    assert found is not None and found.met and found.error < 0.04 * exact
    assert abs(found.s - exact) < 0.02 * exact + 4 * found.error, found
    assert run.s[-1] == found.s and found.words in run.verdict().words
    assert run.curve.s.max() > exact, "it was bracketed"


def test_a_target_that_is_not_met_or_met_at_once_is_said() -> None:
    given = GIVEN | {"most_steps": 256}
    run = tw.anneal(started(), 5.0, target_loss=0.0, **given)
    assert run.found is not None and not run.found.met and "No tilt up to s = 5 met" in run.verdict().words
    run = tw.anneal(started(), 5.0, target_loss=1e3, **given)
    assert run.found is not None and run.found.met and run.found.s == 0 and len(run.stages) == 1


def blobs() -> tw.losses.Supervised:
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    return tw.losses.Supervised(tw.networks.linear(2, 3), X, y)


def test_a_target_accuracy_is_met_at_the_smallest_tilt() -> None:
    """Half the tilt has less accuracy, twice the tilt more, by far more than the errors."""
    measure = tw.PathMeasure(tw.RandomWalk(0.1, start=tw.Normal(1.0)), blobs(), 2)
    run = tw.anneal(measure, target_accuracy=0.8, tolerance=0.05, chains=8, **QUIET)
    found = run.found
    assert found is not None and found.met and found.quantity == "accuracy"
    assert abs(found.value - 0.8) < 0.02
    half, twice = (np.interp([x * found.s], *np.sort([run.curve.s, run.curve.accuracy], 1))[0] for x in (0.5, 1.5))
    assert half < 0.79 and (twice > 0.81 or run.curve.s.max() < 1.5 * found.s)
    np.testing.assert_array_less(0, run.curve.accuracy_error[run.curve.settled])


def test_the_share_of_wrong_classes_is_that_of_the_scores() -> None:
    loss = blobs()
    theta = jax.random.normal(jax.random.key(3), (4, loss.dim))
    kind = tw.losses.Supervised(loss.network, *_data(), kind="zero_one")
    np.testing.assert_allclose(loss.zero_one()(theta), kind(theta), atol=1e-6)
    values = tw.losses.Supervised(tw.networks.linear(2, 1), np.zeros((5, 2)), np.zeros((5, 1)), kind="mse")
    with pytest.raises(TypeError, match=r"Supervised.zero_one needs a loss with classes"):
        values.zero_one()


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y], y


# ---- input ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"s_max": None}, "anneal.s_max must be given, or a target_loss or target_accuracy in its place; got neither."),
        ({"s_max": -1.0}, "anneal.s_max must be a number in (0, inf); got -1.0."),
        ({"s_min": 0.0}, "anneal.s_min must be above 0 for a flat start"),
        ({"s_min": 5.0}, "anneal.s_min must be at most s_max = 2; got 5."),
        ({"s_max": None, "target_loss": 1.0}, "anneal.s_min must be given for a flat start where a target takes the place"),
        ({"target_loss": 1.0, "target_accuracy": 0.5}, "must not both be given."),
        ({"sigma": (1.0, 0.5), "target_loss": 1.0}, "anneal.sigma must stand beside s_max alone"),
        ({"sigma": (1.0, [0.5, 0.2])}, "anneal.sigma must change by one factor for all parameters; got factors from 0.2"),
        ({"sigma": (1.0, -0.5)}, "anneal.sigma must be"),
        ({"steps": 8}, "anneal.steps must be a whole number of at least 16; got 8."),
        ({"overlap": 1.0}, "anneal.overlap must be a number in (0, 0.99]; got 1.0."),
        ({"keep": "all"}, 'anneal.keep must be "losses" or "paths"; got \'all\'.'),
    ],
)
def test_bad_input_says_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tw.anneal(line(), **({"s_max": 2.0} | QUIET | given))


def test_accuracy_needs_classes() -> None:
    with pytest.raises(TypeError, match=r"anneal.target_accuracy needs losses.Supervised with classes"):
        tw.anneal(line(), 2.0, target_accuracy=0.9, **QUIET)
    with pytest.raises(TypeError, match=r"anneal.sigma must be a start and an end, \(from, to\); got 0.5."):
        tw.anneal(line(), 2.0, sigma=0.5, **QUIET)  # type: ignore[arg-type]


def test_a_run_is_drawn_as_it_is(flat: tw.AnnealRun) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    line = tw.plots.curve(flat).containers[0][0]
    np.testing.assert_allclose(line.get_xdata(), flat.curve.s)
    np.testing.assert_allclose(line.get_ydata(), flat.curve.loss)
