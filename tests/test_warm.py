"""Warm starts: models that are better than where they began, in a form that every sampler takes."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tests.test_stochastic import classifier
from tiltwalk.warm import adaptive, paths

optax = pytest.importorskip("optax")

WELL = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(3.0)), tw.losses.bowl(2.0, 1.5), 5)


def warm(measure: Any = WELL, **given: Any) -> tw.Run:
    return tw.warm_start(measure, **{"steps": 300, "progress": False, **given})


GRADIENT_FREE: dict[str, dict[str, Any]] = {
    "metropolis": {"s": 300.0, "steps": 1500},
    "amc": {"method": "amc", "steps": 1500},
    "amc with a tilt": {"method": "amc", "s": 300.0, "steps": 1500},
}
WITH_GRADIENTS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": optax.adam(1e-2)},
    "every model": {"optimizer": optax.adam(1e-2), "models": "all", "batch": 32},
    "default": {"method": "gradient", "batch": 64, "steps": 1500},
}


@pytest.mark.parametrize("given", [pytest.param(v, id=k) for k, v in (GRADIENT_FREE | WITH_GRADIENTS).items()])
def test_networks_learn_and_sampling_goes_on_from_there(given: dict[str, Any]) -> None:
    measure = classifier(length=4)
    start = warm(measure, chains=2, key=3, **given)
    assert start.state.path.shape == (2, 4, measure.dim)
    assert np.asarray(start.state.losses).mean() < 0.2
    np.testing.assert_allclose(start.state.losses[1], measure.loss(start.state.path[1]), rtol=1e-4)
    equal = bool(np.all(start.state.path == start.state.path[:, :1]))
    assert equal == (given.get("models") != "all")
    assert not np.array_equal(start.state.path[0], start.state.path[1])
    assert start.step_number == given.get("steps", 300)
    if "optimizer" in given and "models" not in given:
        later = tw.sample(measure, 50.0, steps=4, chains=2, init=start, progress=False)
        assert later.losses.mean() < 0.5


def test_gradients_find_the_minimum_and_with_a_tilt_the_most_likely_path() -> None:
    found = warm(optimizer=optax.sgd(0.1), models="all", chains=2)
    np.testing.assert_allclose(found.state.path, 1.5, atol=1e-4)
    s = 0.5
    likely = warm(optimizer=optax.sgd(0.02), models="all", s=s, steps=1500).state.path[0]
    slope = jax.grad(lambda path: WELL.log_density(path, s))(likely)
    assert np.abs(slope).max() < 1e-3, "no direction is more likely"
    assert np.all(np.asarray(likely[0]) < np.asarray(likely[-1])), "the start pulls the first model towards 0"
    single = np.asarray(warm(optimizer=optax.sgd(0.1), s=s).state.path[0, 0])
    np.testing.assert_allclose(single, 1.5 * 2 * s / (2 * s + 1 / 9), rtol=1e-3)


def test_chains_do_not_share_the_norm_of_their_gradient() -> None:
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01))
    near, far = np.full(2, 1.6), np.full(2, 50.0)
    both = warm(optimizer=clipped, chains=2, steps=5, init=np.stack([near, far])[:, None])
    alone = warm(optimizer=clipped, chains=1, steps=5, init=near)
    np.testing.assert_allclose(both.state.path[0], alone.state.path[0], rtol=1e-5)


def test_a_landscape_without_a_gradient_is_climbed_down_by_amc() -> None:
    black_box = tw.losses.BlackBox(lambda thetas: np.floor(4 * np.abs(thetas - 1).sum(1)), 2)
    measure = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(2.0)), black_box, 3)
    start = warm(measure, method="amc", steps=3000, init=np.array([3.0, -2.0]))
    assert np.all(np.asarray(start.state.losses) <= 1.0)


def test_amc_only_goes_downhill_and_shrinks_where_it_is_stuck() -> None:
    one = paths.single(WELL)
    walker = adaptive._begin(one, jnp.full((3, 2), 1.5))  # at the minimum: everything is rejected
    key = jnp.asarray([0, 1], jnp.uint32)
    after = adaptive._advance(one, None, key, jnp.uint32(0), jnp.int32(2 * adaptive.PATIENCE), jnp.ones((3, 2)), walker)
    np.testing.assert_allclose(after.width, adaptive.WIDTH * adaptive.SHRINK**2, rtol=1e-5)
    np.testing.assert_array_equal(after.theta, 1.5)
    walker = adaptive._begin(one, jnp.full((3, 2), 9.0))
    losses = []
    for i in range(20):
        walker = adaptive._advance(one, None, key, jnp.uint32(10 * i), jnp.int32(10), jnp.ones((3, 2)), walker)
        losses.append(np.asarray(walker.loss))
    assert np.all(np.diff(losses, axis=0) <= 0)
    assert np.all(np.asarray(walker.mean) < 0), "the mean follows what was accepted"


def test_amc_steps_change_every_neuron_alike() -> None:
    """The definition: with a step of `width * scale * noise`, pre-activations of the first layers change by `width`."""
    rng = np.random.default_rng(0)
    X = (5 * rng.random((40, 8, 8, 1))).astype(np.float32)
    network = tw.networks.lenet(4, 1, 16)
    X = np.pad(X, ((0, 0), (4, 4), (4, 4), (0, 0)))
    loss = tw.losses.Supervised(network, X, rng.integers(0, 4, 40))
    np.testing.assert_allclose(adaptive._some_inputs(loss), X, err_msg="as they were given, from any layout")
    theta = network.init(0)
    scale = np.asarray(adaptive._scales(tw.PathMeasure(tw.RandomWalk(1.0, tw.Normal(1.0)), loss, 1), theta[None]))[0]
    first = network.program[0]
    size = network.layout["conv1.weight"].size + network.layout["conv1.bias"].size
    noise = rng.normal(size=(200, size))
    assert len(set(scale[:size])) == 1
    from tiltwalk.networks import plain

    changes = [plain.forward((first,), jnp.asarray(scale[:size] * z, jnp.float32), X) for z in noise]
    assert np.sqrt(np.mean(np.square(changes))) == pytest.approx(1.0, rel=0.05)


def test_other_losses_take_their_scales_from_the_start_or_the_network() -> None:
    scaled = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(np.array([1.0, 3.0]))), tw.losses.bowl(), 1)
    np.testing.assert_array_equal(adaptive._scales(scaled, jnp.zeros((2, 2))), [[1, 3], [1, 3]])
    rng = np.random.default_rng(0)
    gaussian = tw.losses.Supervised(tw.networks.linear(2, 1), rng.normal(size=(20, 2)), rng.normal(size=20), "gaussian")
    measure = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(1.0)), gaussian, 2)
    assert adaptive._scales(measure, jnp.zeros((2, 4)))[0, 3] == 1, "the log noise"
    begun, _ = paths.begin(measure, None, 2, jnp.asarray([0, 1], jnp.uint32))
    assert begun.shape == (2, 1, 4) and np.all(np.asarray(begun)[..., 3] == 0)


def test_the_same_key_gives_the_same_start_and_another_key_another() -> None:
    for given in ({"method": "amc"}, {"optimizer": optax.sgd(0.01), "steps": 5}):
        one, same, other = (np.asarray(warm(key=k, **given).state.path) for k in (1, 1, 2))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_a_start_goes_on_from_a_start() -> None:
    first = warm(method="amc", chains=2)
    again = warm(method="amc", chains=2, init=first)
    assert again.step_number == 600
    assert np.all(np.asarray(again.state.losses) <= np.asarray(first.state.losses))
    assert warm(s=10.0, chains=2, init=again, steps=20).state.path.shape == (2, 5, 2)


def test_without_optax_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r"tiltwalk\[gradients\]"):
        warm(method="gradient")


def test_a_rate_that_is_too_large_says_so() -> None:
    with pytest.raises(ValueError, match=r"warm_start\.optimizer must keep the losses finite"):
        warm(optimizer=optax.sgd(10.0), init=np.full(2, 5.0))


BLACK_BOX = tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(1.0)), tw.losses.BlackBox(lambda thetas: thetas[:, 0], 2), 3)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"measure": 3}, TypeError, ["warm_start.measure", "PathMeasure", "3"]),
        ({}, ValueError, ["warm_start.s", "metropolis", "None"]),
        ({"s": -1.0}, ValueError, ["warm_start.s", "-1"]),
        ({"s": 1.0, "first_s": 0.0}, ValueError, ["warm_start.first_s", "0"]),
        ({"steps": 0}, ValueError, ["warm_start.steps", "at least 1", "0"]),
        ({"chains": 0, "s": 1.0}, ValueError, ["warm_start.chains"]),
        ({"method": "magic"}, ValueError, ["warm_start.method", "amc, gradient, metropolis", "magic"]),
        ({"models": "some"}, ValueError, ["warm_start.models", "all, first", "some"]),
        ({"optimizer": 3}, TypeError, ["warm_start.optimizer", "optax.adam(1e-3)", "3"]),
        ({"method": "amc", "optimizer": optax.adam(1e-3)}, ValueError, ["warm_start.optimizer", "gradient", "amc"]),
        ({"s": 1.0, "batch": 8}, ValueError, ["warm_start.batch", "gradient", "8"]),
        ({"s": 1.0, "models": "all"}, ValueError, ["warm_start.models", "gradient", "all"]),
        ({"method": "gradient", "batch": 8}, TypeError, ["warm_start.batch", "losses.Supervised", "Bowl"]),
        ({"method": "gradient", "measure": BLACK_BOX}, TypeError, ["warm_start needs a differentiable loss", "BlackBox"]),
        ({"method": "amc", "init": np.zeros(3)}, ValueError, ["warm_start.init", "(2,)", "(3,)"]),
        ({"method": "amc", "init": np.zeros((4, 5, 2))}, ValueError, ["warm_start.init", "(4, 5, 2)"]),
        ({"method": "amc", "init": np.full(2, np.inf)}, ValueError, ["warm_start.init", "finite"]),
        ({"method": "amc", "init": "here"}, TypeError, ["warm_start.init", "'here'"]),
    ],
)  # fmt: skip
def test_bad_input_is_named(change: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as error:
        warm(**change)
    assert all(word in str(error.value) for word in words), str(error.value)
