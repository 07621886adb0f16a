"""Stochastic gradients on paths: exact with all data and a quadratic loss, biased as measured with minibatches."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tests.statistics import LEVEL, law_of, least_p, perceptron
from tiltwalk import stochastic

CASE = perceptron()
S, CHAINS = 8.0, 8000
WALKS = {
    "flat": (tw.RandomWalk(0.3), 6),
    "normal": (tw.RandomWalk(0.3, start=tw.Normal(0.8)), 5),
    "pulled": (tw.OrnsteinUhlenbeck(0.3, 0.2, 0.5), 6),
    "one model": (tw.RandomWalk(0.3), 1),
}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {"sgld": (tw.sgld, {}), "sghmc": (tw.sghmc, {"memory": 0.7})}
CASES = [(walk, kind, step) for walk in WALKS for kind in KINDS for step in (0.3, 1.0)]


def whitened(walk: Any, length: int, kind: str, s: float = S, steps: int = 12, **more: Any) -> np.ndarray:
    """Whitened paths after some steps from exact draws; standard normal where the law is left as it was."""
    law = law_of(walk)
    sampler, given = KINDS[kind]
    start = CASE.oracle.draw(5, CHAINS, s, length=length, **law)
    measure = tw.PathMeasure(walk, CASE.loss, length)
    run = sampler(measure, s, steps=steps, thin=steps, chains=CHAINS, key=2, init=start, progress=False, **given, **more)
    return CASE.oracle.whiten(np.asarray(run.state.path, np.float64), s, length=length, **law)


@pytest.mark.parametrize(("walk", "kind", "step"), CASES, ids=lambda x: str(x))
def test_with_all_data_and_a_quadratic_loss_every_step_size_is_exact(walk: str, kind: str, step: float) -> None:
    """Null law: whitened paths are N(0, I)."""
    assert least_p(whitened(*WALKS[walk], kind, step=step)) > LEVEL / len(CASES)


def test_a_kick_that_is_not_corrected_for_the_rotation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = stochastic.dynamics_of

    def wrong(modes: Any, s: float, step: float, memory: float, curvature: Any) -> Any:
        made = right(modes, s, step, memory, curvature)
        values = np.asarray(modes.values)[:, None]
        return stochastic.Dynamics(
            made.cosine, made.forward, made.back, step / 2 / np.sqrt(values + s * np.asarray(modes.sigma) ** 2), made.memory
        )

    assert least_p(whitened(*WALKS["flat"], "sgld", s=20.0, step=1.4)) > LEVEL
    monkeypatch.setattr(stochastic, "dynamics_of", wrong)
    assert least_p(whitened(*WALKS["flat"], "sgld", s=20.0, step=1.4)) < 1e-6


def test_a_walk_without_tilt_is_left_exactly_as_it_is_at_any_step() -> None:
    """Null law: N(0, I). Nothing but the walk is integrated here, and that exactly."""
    assert least_p(whitened(*WALKS["normal"], "sgld", s=0.0, step=2.0)) > LEVEL


def test_parameters_with_their_own_sigma_and_start_keep_their_law_at_a_small_step() -> None:
    """Their masses differ, so that the law is exact to second order in the step only."""
    walk = tw.RandomWalk(np.array([0.2, 0.4]), start=tw.Normal(np.array([0.9, 0.5])))
    assert least_p(whitened(walk, 4, "sgld", step=0.15, steps=30)) > LEVEL


def test_curvature_is_a_matter_of_speed_and_not_of_law() -> None:
    assert least_p(whitened(*WALKS["flat"], "sghmc", step=0.5, curvature=3.0)) > LEVEL


def test_minibatches_heat_and_smaller_steps_larger_batches_and_anchors_help() -> None:
    path = Path(__file__).parent.parent / "benchmarks" / "stochastic.py"
    spec = importlib.util.spec_from_file_location("stochastic_bias", path)
    bench = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(bench)  # type: ignore[union-attr]
    bench.CHAINS, bench.DRAWS = 64, 40

    coarse, error = bench.bias(tw.sgld, 0.8, 5, False)
    assert coarse > 10 * error, "the bias is there to be seen"
    for better in (bench.bias(tw.sgld, 0.2, 5, False), bench.bias(tw.sgld, 0.8, 50, False), bench.bias(tw.sgld, 0.8, 5, True)):
        assert better[0] < 0.6 * coarse


def test_the_anchor_of_a_gradient_at_itself_leaves_no_noise() -> None:
    import jax

    from tiltwalk import batches

    measure = classifier()
    theta = np.asarray(measure.loss.network.init(1))
    anchor = batches.anchored(measure, theta)
    noisy = batches.value_and_grad(measure, theta[None], jax.random.key(0), 8)[1]
    still = batches.value_and_grad(measure, theta[None], jax.random.key(0), 8, anchor)[1]
    exact = measure.value_and_grad(theta[None])[1]
    np.testing.assert_allclose(still, exact, atol=1e-6)
    assert np.abs(noisy - exact).max() > 1e-3
    many = [batches.value_and_grad(measure, theta[None], k, 8)[1][0] for k in jax.random.split(jax.random.key(1), 400)]
    error = np.std(many, 0) / np.sqrt(len(many))
    assert np.all(np.abs(np.mean(many, 0) - exact[0]) < 4.5 * error + 1e-6), "unbiased"


def classifier(n: int = 200, length: int = 4) -> tw.PathMeasure:
    """Three classes in the plane."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = (np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])[y] + 0.6 * rng.normal(size=(n, 2))).astype(np.float32)
    network = tw.networks.mlp([2, 8, 3])
    walk = tw.RandomWalk(0.05 * np.asarray(network.scale()), start=tw.Normal(network.scale()))
    return tw.PathMeasure(walk, tw.losses.Supervised(network, X, y), length)


def test_a_path_of_networks_learns_from_minibatches_and_goes_on_by_sampling() -> None:
    measure = classifier()
    given: dict[str, Any] = {"batch": 32, "chains": 2, "step": 0.3, "progress": False}
    run = tw.sgld(measure, 200.0, steps=200, burn_in=1500, thin=50, keep="paths", key=1, **given)
    assert run.losses.shape == (2, 4, 4) and run.paths.shape == (2, 4, 4, measure.dim)
    assert run.losses.mean() < 0.35
    np.testing.assert_allclose(run.losses[1, 2], measure.loss(run.paths[1, 2]), rtol=1e-4, err_msg="losses are of all data")
    assert len(tw.Ensemble(measure.loss.network, run.paths)) == 32
    later = tw.sample(measure, 200.0, steps=5, chains=2, init=run, progress=False)
    assert later.losses.mean() < 0.4
    assert "approximate" in str(run)
    assert run.gradients == round(2 * 4 * 1701 * 32 / 200)
    assert run.step_number == 1700


def test_the_same_key_gives_the_same_run_whatever_the_number_of_chains() -> None:
    measure = classifier()
    given: dict[str, Any] = {"steps": 6, "batch": 16, "keep": "paths", "progress": False}
    two = tw.sghmc(measure, 50.0, chains=2, key=4, **given)
    np.testing.assert_array_equal(two.paths, tw.sghmc(measure, 50.0, chains=2, key=4, **given).paths)
    start = np.asarray(measure.draw(two_key(), None))
    one = tw.sghmc(measure, 50.0, chains=1, key=4, init=start, **given)
    same = tw.sghmc(measure, 50.0, chains=2, key=4, init=start, **given)
    np.testing.assert_allclose(one.paths[0], same.paths[0], rtol=1e-4, atol=1e-6)
    assert not np.array_equal(same.paths[0], same.paths[1])


def two_key() -> Any:
    import jax

    return jax.random.key(2)


def test_a_step_that_is_too_large_says_so() -> None:
    with pytest.raises(ValueError, match=r"sgld\.step must be small enough .* with 2 the losses were not finite"):
        tw.sgld(tw.PathMeasure(tw.RandomWalk(1.0), tw.losses.bowl(40.0), 4), 50.0, steps=400, step=2, progress=False)


BLACK_BOX = tw.losses.BlackBox(lambda thetas: thetas[:, 0], 2)


def bowl(walk: Any = None, loss: Any = None) -> tw.PathMeasure:
    return tw.PathMeasure(walk or tw.RandomWalk(0.5), loss or tw.losses.bowl(), 4)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"measure": 3}, TypeError, ["sghmc.measure", "PathMeasure", "3"]),
        ({"s": -1.0}, ValueError, ["sghmc.s", "-1"]),
        ({"s": 0.0}, ValueError, ["sghmc.s", "above 0", "flat"]),
        ({"step": 0.0}, ValueError, ["sghmc.step", "0"]),
        ({"step": 3.0}, ValueError, ["sghmc.step", "(0, 2]", "3"]),
        ({"memory": 1.0}, ValueError, ["sghmc.memory", "below 1"]),
        ({"memory": -0.1}, ValueError, ["sghmc.memory", "-0.1"]),
        ({"curvature": [1.0, 2.0, 3.0]}, ValueError, ["sghmc.curvature", "one number or 2", "3"]),
        ({"curvature": 0.0}, ValueError, ["sghmc.curvature", "positive"]),
        ({"steps": -1}, ValueError, ["sghmc.steps"]),
        ({"chains": 0}, ValueError, ["sghmc.chains"]),
        ({"burn_in": -1}, ValueError, ["sghmc.burn_in"]),
        ({"thin": 0}, ValueError, ["sghmc.thin"]),
        ({"keep": "all"}, ValueError, ["sghmc.keep", "all"]),
        ({"batch": 8}, TypeError, ["sghmc.batch", "losses.Supervised", "Bowl"]),
        ({"anchor": np.zeros(2)}, ValueError, ["sghmc.anchor", "batch"]),
        ({"init": np.zeros((3, 2))}, ValueError, ["sghmc.init", "(4, 2)", "(3, 2)"]),
        ({"init": np.full((4, 2), np.nan)}, ValueError, ["sghmc.init", "finite"]),
        ({"measure": bowl(tw.RandomWalk(0.5, start=tw.Uniform()))}, TypeError, ["sghmc.measure", "Gaussian walk", "Uniform"]),
        ({"measure": bowl(tw.OrnsteinUhlenbeck(0.5, np.array([0.1, 0.2])))}, ValueError, ["sghmc.measure", "one pull"]),
        ({"measure": bowl(loss=BLACK_BOX)}, TypeError, ["sghmc needs a differentiable loss", "BlackBox"]),
    ],
)  # fmt: skip
def test_bad_input_is_named(change: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    call: dict[str, Any] = {"measure": bowl(), "s": 1.0, "steps": 4, "progress": False, **change}
    with pytest.raises(kind) as error:
        tw.sghmc(call.pop("measure"), call.pop("s"), **call)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_batches_and_anchors_are_checked_against_the_data() -> None:
    measure = classifier()
    for given, words in (({"batch": 201}, "batch must be .* 200; got 201"), ({"batch": 8, "anchor": np.zeros(3)}, "anchor")):
        with pytest.raises(ValueError, match=rf"sgld\.{words}"):
            tw.sgld(measure, 1.0, steps=1, progress=False, **given)
