"""Metrics against values worked out by hand, against scikit-learn, and on predictions whose quality is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltwalk import metrics

Y = [0, 1, 1, 2]
P = [[0.7, 0.2, 0.1], [0.4, 0.5, 0.1], [0.6, 0.3, 0.1], [0.0, 0.25, 0.75]]


def drawn(n, k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, k, n), rng.dirichlet(np.full(k, 0.5), n)


def test_values_agree_with_hand_computed_ones():
    assert metrics.accuracy(Y, [0, 1, 0, 2]) == 0.75
    assert metrics.nll(Y, P) == pytest.approx(-(math.log(0.7) + math.log(0.5) + math.log(0.3) + math.log(0.75)) / 4)
    assert metrics.brier(Y, P) == pytest.approx((0.14 + 0.42 + 0.86 + 0.125) / 4)
    assert metrics.confusion(Y, [0, 1, 0, 2]).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert metrics.confusion([0, 1], [1, 1], n_classes=3).tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_the_reliability_table_agrees_with_a_hand_computed_one():
    # Confidences 0.7 (right), 0.5 (right), 0.6 (wrong), 0.75 (right); bins (0, 0.5] and (0.5, 1].
    table = metrics.reliability(Y, P, bins=2)
    assert table.edges.tolist() == [0, 0.5, 1] and table.count.tolist() == [1, 3]
    assert table.confidence == pytest.approx([0.5, (0.7 + 0.6 + 0.75) / 3])
    assert table.accuracy == pytest.approx([1.0, 2 / 3])
    expected = (abs(1 - 0.5) + 3 * abs(2 / 3 - 2.05 / 3)) / 4
    assert metrics.calibration_error(Y, P, bins=2) == pytest.approx(expected)


def test_an_empty_bin_has_no_means_and_no_weight():
    table = metrics.reliability(Y, P, bins=4)
    assert table.count.tolist() == [0, 1, 3, 0] and np.isnan(table.accuracy[[0, 3]]).all()
    assert np.isfinite(metrics.calibration_error(Y, P, bins=4))


def test_adaptive_bins_hold_equally_many_samples():
    y, p = drawn(1200, 4)
    table = metrics.reliability(y, p, bins=10, adaptive=True)
    assert table.count.tolist() == [120] * 10


def test_adaptive_bins_do_not_depend_on_the_order_of_samples_even_with_ties():
    rng = np.random.default_rng(3)
    confidence = rng.choice([0.6, 0.7, 0.8, 0.9], 500)
    p, y = np.stack([confidence, 1 - confidence], 1), rng.integers(0, 2, 500)
    order = rng.permutation(500)
    for adaptive in (False, True):
        assert metrics.calibration_error(y, p, bins=7, adaptive=adaptive) == pytest.approx(
            metrics.calibration_error(y[order], p[order], bins=7, adaptive=adaptive), abs=1e-12
        )


def test_values_agree_with_scikit_learn():
    reference = pytest.importorskip("sklearn.metrics")
    y, p = drawn(500, 5)
    hard = p.argmax(1)
    assert metrics.accuracy(y, hard) == pytest.approx(reference.accuracy_score(y, hard))
    assert metrics.nll(y, p) == pytest.approx(reference.log_loss(y, p), rel=1e-10)
    assert (metrics.confusion(y, hard) == reference.confusion_matrix(y, hard)).all()
    y, p = y % 2, np.stack([1 - p[:, 0], p[:, 0]], 1)
    # For two classes scikit-learn counts the squared distance of one of them.
    assert metrics.brier(y, p) == pytest.approx(2 * reference.brier_score_loss(y, p[:, 1]), rel=1e-10)


def test_calibration_error_agrees_with_scikit_learns_curve():
    calibration = pytest.importorskip("sklearn.calibration")
    rng = np.random.default_rng(5)
    p1 = rng.uniform(0.5, 1.0, 800)
    y = (rng.uniform(size=800) < p1**2).astype(int)
    p = np.stack([1 - p1, p1], 1)
    accuracy, confidence = calibration.calibration_curve(y, p1, n_bins=10)
    table = metrics.reliability(y, p, bins=10)
    assert table.accuracy[table.count > 0] == pytest.approx(accuracy)
    assert table.confidence[table.count > 0] == pytest.approx(confidence)


def test_labels_drawn_from_the_probabilities_are_calibrated_and_sharpened_ones_are_not():
    # Under calibration a bin's gap has deviation of at most 0.5 / sqrt(samples there): at most 0.5 sqrt(10 / 40,000) on
    # average over ten bins by Cauchy and Schwarz, 0.008.
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(3), 40_000)
    y = (p.cumsum(1) > rng.uniform(size=(len(p), 1))).argmax(1)
    sharp = p**3 / (p**3).sum(1, keepdims=True)
    for adaptive in (False, True):
        assert metrics.calibration_error(y, p, bins=10, adaptive=adaptive) < 0.008
        assert metrics.calibration_error(y, sharp, bins=10, adaptive=adaptive) > 0.1
    assert metrics.nll(y, p) < metrics.nll(y, sharp)
    assert metrics.brier(y, p) < metrics.brier(y, sharp)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000), st.integers(1, 30), st.booleans())
def test_every_sample_is_in_one_bin_and_scores_keep_their_bounds(n, k, seed, bins, adaptive):
    y, p = drawn(n, k, seed)
    table = metrics.reliability(y, p, bins=bins, adaptive=adaptive)
    assert table.count.sum() == n and len(table.count) == len(table.edges) - 1 <= bins
    full = table.count > 0
    tolerance = 1e-12
    assert (table.confidence[full] <= table.edges[1:][full] + tolerance).all()
    assert (table.confidence[full] >= table.edges[:-1][full] - tolerance).all()
    assert 0 <= metrics.calibration_error(y, p, bins=bins, adaptive=adaptive) <= 1
    assert 0 <= metrics.brier(y, p) <= 2 + tolerance and metrics.nll(y, p) >= -tolerance
    assert metrics.confusion(y, p.argmax(1), n_classes=k).sum() == n


def test_perfect_and_hopeless_predictions_have_the_extreme_scores():
    perfect, wrong = np.eye(3)[[0, 1, 2]], np.eye(3)[[1, 2, 0]]
    y = [0, 1, 2]
    assert metrics.nll(y, perfect) == 0 and metrics.brier(y, perfect) == 0 and metrics.calibration_error(y, perfect) == 0
    assert metrics.nll(y, wrong) == math.inf and metrics.brier(y, wrong) == 2 and metrics.calibration_error(y, wrong) == 1


def test_probabilities_in_float32_are_taken_as_they_come():
    y, p = drawn(1000, 10)
    assert metrics.nll(y, p.astype(np.float32)) == pytest.approx(metrics.nll(y, p), rel=1e-5)


@pytest.mark.parametrize("score", [metrics.nll, metrics.brier, metrics.calibration_error, metrics.reliability])
@pytest.mark.parametrize(
    ("y", "p", "error", "message"),
    [
        (Y, [[2.0, -1.0, 0.0]] * 4, ValueError, r"probabilities must be between 0 and 1; got -1.0. Are these logits\?"),
        (Y, [[0.5, 0.4, 0.0]] * 4, ValueError, "probabilities must sum to 1 for each sample; got 0.9 for sample 0"),
        (Y, [[0.5, 0.5, math.nan]] * 4, ValueError, "probabilities must be between 0 and 1; got nan"),
        (Y, [0.5, 0.5, 0.5, 0.5], ValueError, r"probabilities must be of shape \(samples, classes\)"),
        (Y, [[1.0]] * 4, ValueError, "with two classes or more"),
        (Y, [["a", "b", "c"]] * 4, TypeError, r"probabilities must be an array of shape \(samples, classes\); got"),
        ([0, 1, 1, 3], P, ValueError, r"\.y must be between 0 and 2; got 3"),
        ([0, -1, 1, 2], P, ValueError, r"\.y must be between 0 and 2; got -1"),
        ([0, 1, 1], P, ValueError, r"\.y must have 4 labels, one for each row of probabilities; got 3"),
        ([0.0, 1.0, 1.0, 2.0], P, TypeError, r"\.y must be whole numbers, the classes; got an array .*float64"),
        ([[0], [1], [1], [2]], P, ValueError, r"\.y must be one class for each of at least one sample"),
        ([], np.zeros((0, 3)), ValueError, r"probabilities must be of shape"),
    ],
)
def test_bad_inputs_are_refused_by_every_score(score, y, p, error, message):
    with pytest.raises(error, match=f"{score.__name__}.*{message}"):
        score(y, p)


def test_bad_settings_and_labels_are_refused():
    with pytest.raises(ValueError, match=r"calibration_error.bins must be a whole number of at least 1; got 0"):
        metrics.calibration_error(Y, P, bins=0)
    with pytest.raises(TypeError, match=r"reliability.bins must be a whole number of at least 1; got 1.5"):
        metrics.reliability(Y, P, bins=1.5)
    with pytest.raises(ValueError, match=r"accuracy.predicted must have shape \(4,\), as y; got .*\(3,\)"):
        metrics.accuracy(Y, [0, 1, 2])
    with pytest.raises(ValueError, match=r"accuracy.y must be one label for each of at least one sample"):
        metrics.accuracy([], [])
    with pytest.raises(ValueError, match=r"confusion.predicted must be between 0 and 2; got 5"):
        metrics.confusion(Y, [0, 1, 2, 5], n_classes=3)
    with pytest.raises(ValueError, match=r"confusion.y must be 0 or more; got -2"):
        metrics.confusion([-2, 0], [0, 0])
