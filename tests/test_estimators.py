"""The scikit-learn estimators: labels, weights and units mean what scikit-learn's users expect, and its own checks pass."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw

pytest.importorskip("sklearn", reason="estimators need the extra sklearn")
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import estimator_checks

SMALL: dict[str, Any] = {"hidden": (6,), "evaluations": 2000, "n_members": 7, "length": 2, "random_state": 0}
NAMES = np.array(["ant", "bee", "cat"])

# The checks of scikit-learn that train on nothing, or fail before they would: these run each time, the others when slow.
QUICK = (
    "check_parameters_default_constructible",
    "check_no_attributes_set_in_init",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_set_params",
    "check_fit1d",
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimator_sparse_tag",
    "check_mixin_order",
)


def flowers(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in the plane, far from the origin and in unequal units."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    return (centres[y] + 0.3 * rng.normal(size=(n, 2))) * [100.0, 0.01] + [1e4, 7.0], y


@pytest.fixture(scope="module")
def fitted() -> Any:
    X, y = flowers()
    return tw.TrajectoryClassifier(**SMALL).fit(X, NAMES[y])


def test_labels_of_any_type_come_back(fitted: Any) -> None:
    X, y = flowers(seed=1)
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert fitted.score(X, NAMES[y]) > 0.9
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert (NAMES[p.argmax(1)] == fitted.predict(X)).all()
    assert fitted.uncertainty(X).total.shape == (60,)


def test_as_many_members_as_were_asked_for_of_paths_that_can_be_judged(fitted: Any) -> None:
    assert len(fitted.ensemble_) == 7 and len(np.unique(fitted.ensemble_.thetas, axis=0)) > 3
    assert fitted.run_.losses.shape == (2, 2, 2)  # 2 chains of 2 draws of 2 models hold 7
    assert fitted.s_ == 10.0 * 60 / 2
    assert "Not judged" in fitted.run_.verdict().words


def test_a_weight_of_nought_is_a_sample_left_out_and_of_two_is_two_samples(fitted: Any) -> None:
    X, y = flowers()
    other, _ = flowers(seed=1)
    more_X, more_y = np.concatenate([X, other]), np.concatenate([NAMES[y], np.full(60, "cat")])
    left_out = clone(fitted).fit(more_X, more_y, np.repeat([1.0, 0.0], 60))
    np.testing.assert_array_equal(left_out.predict_proba(other), fitted.predict_proba(other))
    twice = clone(fitted).fit(np.concatenate([X[:30], X[:30]]), NAMES[np.concatenate([y[:30], y[:30]])])
    weighted = clone(fitted).fit(X, NAMES[y], np.repeat([2.0, 0.0], 30))
    np.testing.assert_allclose(weighted.predict_proba(other), twice.predict_proba(other), rtol=1e-5)
    assert weighted.s_ == twice.s_ == fitted.s_
    assert not np.allclose(weighted.predict_proba(other), fitted.predict_proba(other), rtol=1e-3)


def test_regression_gives_values_and_deviations_in_the_units_of_the_target() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    signal, noise = 2 * X[:, 0] - X[:, 1], 0.2 * rng.normal(size=60)
    one = tw.TrajectoryRegressor("linear", **SMALL).fit(X, signal + noise)
    mean, deviation = one.predict(X, return_std=True)
    assert mean.shape == (60,) and one.score(X, signal) > 0.95
    assert 0.1 < np.mean(deviation) < 0.4
    np.testing.assert_allclose(deviation, np.hypot(one.ensemble_.std(X_scaled(one, X))[:, 0] * one.target_unit_, one.noise_))
    both = tw.TrajectoryRegressor("linear", **SMALL).fit(X, 1000 * np.stack([signal, -signal], 1) + 5e4)
    assert both.predict(X).shape == (60, 2)
    np.testing.assert_allclose(both.predict(X), 1000 * np.stack([signal, -signal], 1) + 5e4, atol=600)


def X_scaled(model: Any, X: np.ndarray) -> np.ndarray:
    return ((X - model.centre_) / model.unit_).astype(np.float32)


def test_it_works_in_a_pipeline_on_images_with_a_network_of_ones_own() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 40)
    images = rng.integers(0, 256, (40, 4, 4)) // 4 + 150 * y[:, None, None] * (np.arange(4) < 2)
    network = tw.networks.sequential((4, 4, 1), (tw.networks.Conv(3, 1, 2), tw.networks.Flatten(), tw.networks.Dense(8, 2)))
    model = tw.TrajectoryClassifier(network, **SMALL).fit(images, y)
    assert model.score(images, y) > 0.9 and np.ndim(model.centre_) == 0
    rows = make_pipeline(MinMaxScaler(), clone(model)).fit(images.reshape(40, -1), y)
    assert rows.score(images.reshape(40, -1), y) > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "resnet"}, "TrajectoryClassifier.network must be one of mlp, linear, lenet, or a Network; got 'resnet'"),
        ({"network": "lenet"}, "square images of one channel and at least 16 x 16 for lenet; got 2 features"),
        ({"network": tw.networks.linear(3, 3)}, "must take 2 features and give 3 outputs; got one that takes 3 and gives 3"),
        ({"n_members": 0}, "TrajectoryClassifier.n_members must be a whole number of at least 1; got 0"),
        ({"chains": 1.5}, "TrajectoryClassifier.chains must be a whole number"),
        ({"evaluations": None}, "evaluations and TrajectoryClassifier.seconds must not both be None"),
        ({"evaluations": 3}, "train.evaluations must be a whole number of at least 100; got 3"),
        ({"hidden": (0,)}, "TrajectoryClassifier.hidden must be a whole number of at least 1; got 0"),
    ],
)
def test_settings_are_refused_in_fit_and_not_before(settings: Any, message: str) -> None:
    model = tw.TrajectoryClassifier(**settings)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(*flowers())


def test_one_class_is_refused_also_where_weights_leave_one() -> None:
    X, y = flowers()
    for labels, weight in ((np.zeros(60), None), (y, (y == 1).astype(float))):
        with pytest.raises(ValueError, match="at least 2 classes of some weight; got 1 class"):
            tw.TrajectoryClassifier(**SMALL).fit(X, labels, weight)


def of(kind: Any) -> Any:
    return kind(hidden=(4,), evaluations=1500, n_members=8, length=2)


@pytest.mark.parametrize("kind", [tw.TrajectoryClassifier, tw.TrajectoryRegressor], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", QUICK)
def test_check_of_scikit_learn_that_needs_no_training(kind: Any, name: str) -> None:
    found = [check for _, check in estimator_checks.estimator_checks_generator(of(kind)) if check.func.__name__ == name]
    if not found:
        pytest.skip(f"this version of scikit-learn has no {name} for it")
    for check in found:
        check(of(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tw.TrajectoryClassifier, tw.TrajectoryRegressor], ids=lambda kind: kind.__name__)
def test_all_checks_of_scikit_learn_pass(kind: Any) -> None:
    estimator_checks.check_estimator(of(kind))


def test_without_scikit_learn_the_package_works_and_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import tiltwalk as tw; tw.networks.mlp([2, 3, 2])\n"
        "for name in ('TrajectoryClassifier', 'TrajectoryRegressor'):\n"
        "    try: getattr(tw, name)\n"
        "    except ImportError as error: print(error)\n"
        "try: tw.Trajectory\n"
        "except AttributeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    said = 'TrajectoryClassifier and TrajectoryRegressor need scikit-learn: pip install "tiltwalk[sklearn]".\n'
    assert done.stdout == 2 * said + "module 'tiltwalk' has no attribute 'Trajectory'\n"
