"""Tuned sweeps: acceptance is even over models, groups get steps by their curvature, and bad input is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tiltwalk as tw

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 2)) * [3.0, 0.1]
LOSS = tw.losses.least_squares(X, X @ [0.5, -1.0])
LENGTH, S, CHAINS = 7, 30.0, 256


@pytest.fixture(scope="module")
def measure() -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(1.0, tw.Normal(1.0)), LOSS, LENGTH)


@pytest.fixture(scope="module")
def tuned(measure: tw.PathMeasure) -> tw.TunedSweep:
    groups = [slice(0, 1), slice(1, 2), slice(2, 3)]
    return tw.tuned_sweep(measure, S, groups=groups, chains=CHAINS, steps=100, key=1)


def test_every_model_is_accepted_as_often_as_asked(measure: tw.PathMeasure, tuned: tw.TunedSweep) -> None:
    """The ends of a path are looser than its inside: with one step for all their acceptance is another."""
    one = tw.tuned_sweep(measure, S, sites=False, chains=CHAINS, steps=100, key=1)
    assert np.ptp(one.acceptance) > 0.06, "the models are alike: the test could not fail"
    assert np.abs(tuned.acceptance - 0.3).max() < 0.03
    assert one.move.sites is None and one.move.parameters is None


def test_groups_get_steps_by_their_curvature(tuned: tw.TunedSweep) -> None:
    """Inputs of deviation 3 and 0.1, and the bias: the first parameter is held most, the second hardly at all."""
    steps = np.asarray(tuned.move.parameters)
    assert steps[1] == 1.0 and steps[0] < steps[2] < steps[1] and steps[0] < 0.5


def test_what_was_tuned_samples_the_same_law_with_less_work(measure: tw.PathMeasure, tuned: tw.TunedSweep) -> None:
    """The mean loss is the exact one; for the same number of sweeps the free parameter moves farther than with one step."""
    exact = tw.exact.LinearPerceptron(X, X @ [0.5, -1.0])

    def seen(state: tw.ChainState) -> Any:
        return {"loss": state.losses.mean(), "free": state.path[:, 1]}

    common = {"steps": 400, "chains": CHAINS, "burn_in": 100, "keep": seen, "progress": False, "init": tuned.paths}
    run = tw.sample(measure, S, moves=tuned.move, key=2, **common)
    loss = np.asarray(run.kept["loss"], np.float64).mean(1)
    wanted = exact.expected_loss(S, 1.0, LENGTH, start_scale=1.0)
    assert abs(loss.mean() - wanted) < 4 * loss.std(ddof=1) / np.sqrt(CHAINS)
    plain = tw.sample(measure, S, moves=tw.moves.Sweep(step=0.3), key=2, target_acceptance=0.3, **common)
    jumps = [np.mean(np.diff(np.asarray(r.kept["free"]), axis=1) ** 2) for r in (run, plain)]
    assert jumps[0] > 1.5 * jumps[1], jumps


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": [slice(0, 2)]}, r"tuned_sweep.groups must be slices that hold each of 3 parameters once; got"),
        ({"groups": [slice(0, 2), slice(1, 3)]}, r"tuned_sweep.groups must be slices that hold each of 3 parameters once"),
        ({"steps": 1}, r"tuned_sweep.steps must be a whole number of at least 2; got 1."),
        ({"rounds": 0}, r"tuned_sweep.rounds must be a whole number of at least 1; got 0."),
        ({"target_acceptance": 1.5}, r"tuned_sweep.target_acceptance must be a number in \(0, 1\]; got 1.5."),
    ],
)
def test_bad_input_says_what_is_allowed(measure: tw.PathMeasure, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tw.tuned_sweep(measure, S, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sites": [1.0, -1.0]}, r"Sweep.sites must be at least 0; got"),
        ({"sites": 1.0}, r"Sweep.sites must have shape \(length,\); got \(\)."),
        ({"sites": np.ones(3)}, r"Sweep.sites must have one number for each of 7 models; got 3."),
        ({"parameters": np.ones(2)}, r"Sweep.parameters must"),
    ],
)
def test_a_sweep_refuses_steps_that_do_not_fit(measure: tw.PathMeasure, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tw.sample(measure, S, steps=1, moves=tw.moves.Sweep(**given), progress=False)
