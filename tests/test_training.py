"""Training without gradients, on data small enough to learn in seconds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk.evolution import weights


def clusters(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in the plane, a little mixed."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    return (centres[y] + 0.6 * rng.normal(size=(n, 2))).astype(np.float32), y


def test_an_ensemble_learns_and_its_members_differ() -> None:
    X, y = clusters()
    test_X, test_y = clusters(seed=1)
    said: list[str] = []
    trained = tw.train(
        tw.networks.mlp([2, 12, 3]),
        X,
        y,
        evaluations=6000,
        s=600.0,
        length=4,
        chains=2,
        draws=5,
        progress=False,
        report=said.append,
    )
    p = trained.ensemble.predict_proba(test_X)
    assert len(trained.ensemble) == 2 * 5 * 4
    assert tw.metrics.accuracy(test_y, p.argmax(-1)) > 0.93
    assert tw.metrics.nll(test_y, p) < 0.3
    assert trained.ensemble.uncertainty(test_X).mutual_information.mean() > 1e-5
    steps = [h["step"] for h in trained.warm_up[:-1]]
    assert steps == sorted(steps, reverse=True), "the step of the evolution falls"
    assert trained.warm_up[-1]["loss"] < 0.3
    assert len(said) == len(trained.warm_up) + 1
    assert 0.02 < trained.run.acceptance["sweep"] < 0.9


def test_the_same_key_trains_the_same_ensemble() -> None:
    X, y = clusters(100)
    paths = [
        tw.train(tw.networks.mlp([2, 4, 3]), X, y, evaluations=300, draws=2, key=k, progress=False).ensemble.thetas
        for k in (3, 3, 4)
    ]
    np.testing.assert_array_equal(paths[0], paths[1])
    assert not np.array_equal(paths[0], paths[2])


def test_a_budget_of_seconds_is_turned_into_steps() -> None:
    X, y = clusters(200)
    trained = tw.train(tw.networks.mlp([2, 8, 3]), X, y, seconds=5.0, chains=2, draws=2, progress=False)
    assert len(trained.ensemble) == 2 * 2 * 4
    assert all(h["steps"] >= 1 for h in trained.warm_up)


def test_a_loss_with_no_gradient_trains_too() -> None:
    X, y = clusters()
    trained = tw.train(tw.networks.linear(2, 3), X, y, kind="zero_one", evaluations=4000, s=300.0, progress=False)
    assert tw.metrics.accuracy(y, trained.ensemble.vote(X)) > 0.9


def test_regression_with_learnt_noise_drops_the_noise_from_the_members() -> None:
    X, _ = clusters()
    y = X @ np.array([1.0, -2.0], np.float32) + 0.5
    trained = tw.train(tw.networks.linear(2, 1), X, y, kind="gaussian", evaluations=6000, progress=False)
    assert trained.ensemble.thetas.shape[1] == 3
    assert np.mean((trained.ensemble.mean(X).ravel() - y) ** 2) < 0.05


def test_warm_start_and_grow_give_a_path_to_start_from() -> None:
    X, y = clusters()
    loss = tw.losses.Supervised(tw.networks.mlp([2, 6, 3]), X, y)
    measure = tw.PathMeasure(tw.RandomWalk(0.02, start=tw.Normal(1.0)), loss, 6)
    run = tw.warm_start(measure, s=300.0, steps=1500, chains=3, progress=False)
    path = tw.grow(run, measure.length)
    assert path.shape == (3, 6, loss.dim)
    assert np.all(path == path[:, :1])
    assert np.asarray(run.state.losses).mean() < 0.5
    later = tw.sample(measure, 50.0, steps=20, chains=3, init=path, progress=False)
    assert later.losses.mean() < 0.7


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"seconds": 3.0}, ValueError, ["either seconds or evaluations"]),
        ({"evaluations": None}, ValueError, ["either seconds or evaluations"]),
        ({"evaluations": 5}, ValueError, ["train.evaluations", "at least 100", "5"]),
        ({"evaluations": None, "seconds": -1.0}, ValueError, ["train.seconds", "-1"]),
        ({"length": 0}, ValueError, ["train.length", "at least 1"]),
        ({"chains": 0}, ValueError, ["train.chains"]),
        ({"draws": 0}, ValueError, ["train.draws"]),
        ({"s": -2.0}, ValueError, ["train.s", "-2"]),
        ({"sigma": 0.0}, ValueError, ["train.sigma"]),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    X, y = clusters(60)
    settings: dict[str, Any] = {"evaluations": 200, "draws": 1, "progress": False, **change}
    with pytest.raises(kind) as error:
        tw.train(tw.networks.linear(2, 3), X, y, **settings)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_evolution_learns_from_parts_of_the_data_and_counts_what_it_looked_at() -> None:
    X, y = clusters(600)
    loss = tw.losses.Supervised(tw.networks.mlp([2, 12, 3]), X, y)
    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(loss.network.scale())), loss, 4)
    run = tw.evolve(measure, steps=400, step=0.03, batch=60, directions=16, chains=2, progress=False)
    assert run.state.path.shape == (2, 1, loss.dim)
    assert run.evaluations == 2 * 400 * 16 / 10
    assert np.asarray(loss(run.state.path[:, 0])).max() < 0.5
    assert np.abs(run.state.path[0] - run.state.path[1]).max() > 0.1, "chains begin apart and stay apart"
    further = tw.evolve(measure, steps=100, step=0.01, batch=60, directions=16, chains=2, init=run, progress=False)
    assert further.step_number == 500
    assert np.allclose(further.steps["evolution"], 0.01)


def test_the_weights_of_directions_prefer_low_losses_and_leave_out_what_is_no_number() -> None:
    weight, spread = weights(jnp.asarray([1.0, 3.0, jnp.nan, jnp.inf, 2.0]))
    assert weight[0] > 0 > weight[1]
    np.testing.assert_array_equal(weight[2:], 0)
    np.testing.assert_allclose(jnp.mean(weight**2), 1, rtol=1e-6)
    assert spread > 0
    for alike in ([2.0, 2.0, 2.0], [jnp.nan] * 3):
        weight, spread = weights(jnp.asarray(alike))
        np.testing.assert_array_equal(weight, 0)
        assert spread == 0


def test_evolution_without_selection_stays_at_the_scale_of_the_start() -> None:
    """With losses that say nothing of the model, a long evolution leaves its parameters with the variance of the start."""
    loss = tw.losses.Function(lambda thetas: jnp.sin(1e6 * jnp.sum(thetas, -1)), 200)
    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(3.0)), loss, 1)
    run = tw.evolve(measure, steps=400, step=0.2, directions=4, chains=20, progress=False)
    assert abs(np.asarray(run.state.path).std() / 3 - 1) < 0.1


def test_evolution_stays_where_all_directions_are_alike() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(1.0)), tw.losses.Function(lambda t: 0 * t[:, 0], 3), 1)
    init = np.full((1, 3), 0.7, np.float32)
    run = tw.evolve(measure, steps=10, step=0.5, directions=4, init=init, progress=False)
    np.testing.assert_array_equal(run.state.path[0], init)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 0.0}, "evolve.step"),
        ({"radius": -1.0}, "evolve.radius"),
        ({"directions": 1}, "evolve.directions"),
        ({"batch": 0}, "evolve.batch"),
    ],
)
def test_bad_settings_of_an_evolution_are_named(change: dict[str, Any], words: str) -> None:
    measure = tw.PathMeasure(tw.RandomWalk(1.0, start=tw.Normal(1.0)), tw.losses.double_well(), 1)
    with pytest.raises(ValueError, match=words):
        tw.evolve(measure, **{"steps": 5, "progress": False, **change})
