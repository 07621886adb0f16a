"""How good predictions are: accuracy, negative log-likelihood, Brier score, calibration, confusion.

With `p[n, c]` the probability given to class `c` of sample `n`, and `y[n]` its true class:

    accuracy            mean over n of [prediction = y]
    nll                 mean over n of -log p[n, y[n]], in nats
    brier               mean over n of sum_c (p[n, c] - [c = y[n]])^2, between 0 and 2 (Brier 1950)
    calibration_error   sum over bins of (samples in the bin / samples) |accuracy - mean confidence| there, where the
                        confidence is the largest probability and the prediction its class (Naeini et al. 2015)

All in float64. Probabilities must be probabilities: what is not finite, is out of [0, 1] or does not sum to one is refused.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tiltwalk import check

TOLERANCE = 1e-4  # of a sum of probabilities, for what was computed in float32


@dataclass(frozen=True, eq=False)
class Reliability:
    """Samples sorted into bins by confidence: each bin's edges, samples, mean confidence and accuracy.

    A bin reaches from above `edges[b]` up to and with `edges[b + 1]`. An empty bin has NaN for its means.
    """

    edges: Float[np.ndarray, " bins+1"]
    count: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]


def accuracy(y: ArrayLike, predicted: ArrayLike) -> float:
    """Share of the samples whose label was predicted. Labels may be of any type."""
    true, given = np.asarray(y), np.asarray(predicted)
    if true.ndim != 1 or true.size == 0:
        raise ValueError(f"accuracy.y must be one label for each of at least one sample; got {check.shown(true)}.")
    if given.shape != true.shape:
        raise ValueError(f"accuracy.predicted must have shape {true.shape}, as y; got {check.shown(given)}.")
    return float(np.mean(true == given))


def nll(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean negative log-likelihood of the true classes, in nats; infinite where one was given no probability at all."""
    labels, p = _checked("nll", y, probabilities)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(p)), labels])))


def brier(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean squared distance of the probabilities from the truth, summed over the classes: 0 is perfect, 2 the worst."""
    labels, p = _checked("brier", y, probabilities)
    truth = np.zeros_like(p)
    truth[np.arange(len(p)), labels] = 1.0
    return float(np.mean(np.sum((p - truth) ** 2, axis=1)))


def calibration_error(y: ArrayLike, probabilities: ArrayLike, *, bins: int = 15, adaptive: bool = False) -> float:
    """Expected calibration error: how far confidence is from accuracy, on average over the samples.

    Bins of equal width in [0, 1], or, when `adaptive`, of as equal numbers of samples as ties allow.
    """
    table = _table("calibration_error", y, probabilities, bins, adaptive)
    full = table.count > 0
    gaps = np.abs(table.accuracy[full] - table.confidence[full])
    return float(np.sum(table.count[full] * gaps) / table.count.sum())


def reliability(y: ArrayLike, probabilities: ArrayLike, *, bins: int = 15, adaptive: bool = False) -> Reliability:
    """Confidence and accuracy bin by bin: what a reliability diagram shows."""
    return _table("reliability", y, probabilities, bins, adaptive)


def confusion(y: ArrayLike, predicted: ArrayLike, *, n_classes: int | None = None) -> Int[np.ndarray, "c c"]:
    """How many samples of class `row` were predicted as class `column`."""
    highest = None if n_classes is None else check.whole("confusion.n_classes", n_classes, low=1)
    true, given = _labels("confusion.y", y, highest), _labels("confusion.predicted", predicted, highest)
    if given.shape != true.shape:
        raise ValueError(f"confusion.predicted must have shape {true.shape}, as y; got {check.shown(given)}.")
    size = highest or int(max(true.max(), given.max())) + 1
    return np.bincount(true * size + given, minlength=size * size).reshape(size, size)


def _table(name: str, y: ArrayLike, probabilities: ArrayLike, bins: int, adaptive: bool) -> Reliability:
    labels, p = _checked(name, y, probabilities)
    check.whole(f"{name}.bins", bins, low=1)
    confidence = p.max(axis=1)
    right = p.argmax(axis=1) == labels
    if adaptive:
        # Inner edges are confidences that came, so that equal confidences share a bin whatever the order of the samples.
        inner = np.quantile(confidence, np.arange(1, bins) / bins, method="inverted_cdf")
        edges = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    else:
        edges = np.linspace(0.0, 1.0, bins + 1)
    where = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, len(edges) - 2)
    count = np.bincount(where, minlength=len(edges) - 1)
    with np.errstate(invalid="ignore"):
        return Reliability(
            edges=edges,
            count=count,
            confidence=np.bincount(where, confidence, len(count)) / count,
            accuracy=np.bincount(where, right, len(count)) / count,
        )


def _checked(name: str, y: ArrayLike, probabilities: ArrayLike) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n c"]]:
    p = check.numeric(f"{name}.probabilities", probabilities, "an array of shape (samples, classes)").astype(np.float64)
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2:
        raise ValueError(
            f"{name}.probabilities must be of shape (samples, classes), with two classes or more; got {check.shown(p)}."
        )
    if not np.isfinite(p).all() or p.min() < 0 or p.max() > 1 + TOLERANCE:
        worst = p[~np.isfinite(p)][0] if not np.isfinite(p).all() else (p.min() if p.min() < 0 else p.max())
        raise ValueError(f"{name}.probabilities must be between 0 and 1; got {worst}. Are these logits?")
    sums = p.sum(axis=1)
    row = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[row] - 1) > TOLERANCE:
        raise ValueError(f"{name}.probabilities must sum to 1 for each sample; got {sums[row]:.6g} for sample {row}.")
    labels = _labels(f"{name}.y", y, p.shape[1])
    if len(labels) != len(p):
        raise ValueError(f"{name}.y must have {len(p)} labels, one for each row of probabilities; got {len(labels)}.")
    return labels, p


def _labels(name: str, value: ArrayLike, n_classes: int | None) -> Int[np.ndarray, " n"]:
    labels: np.ndarray[Any, Any] = np.asarray(value)
    if labels.dtype.kind not in "iub":
        raise TypeError(f"{name} must be whole numbers, the classes; got {check.shown(labels)}.")
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"{name} must be one class for each of at least one sample; got {check.shown(labels)}.")
    if labels.min() < 0 or (n_classes is not None and labels.max() >= n_classes):
        allowed = "0 or more" if n_classes is None else f"between 0 and {n_classes - 1}"
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise ValueError(f"{name} must be {allowed}; got {wrong}.")
    return labels.astype(np.int64)
