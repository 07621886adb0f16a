"""Plots of how good predictions are: of true classes and probabilities, or of an ensemble and data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tiltwalk import check, metrics
from tiltwalk.ensemble import Ensemble, entropy, softmax
from tiltwalk.plots import style
from tiltwalk.plots.sampling import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDERS = 8
"""Orders in which members join, for the accuracy against their number: fixed, so that the same ensemble gives the same line."""

NUMBERS = 25
"""Counts that can be read in the cells of a table of so many classes; with more, shades alone."""


def reliability(y: ArrayLike, probabilities: ArrayLike, ax: Axes | None = None, *, bins: int = 10) -> Axes:
    """Accuracy against confidence, bin by bin: on the diagonal, probabilities can be believed. Dots grow with their samples."""
    table = metrics.reliability(y, probabilities, bins=bins)
    some = table.count > 0
    error = metrics.calibration_error(y, probabilities, bins=bins)
    ax = style.axes_for(ax, 4.4, 4.2)
    ax.plot([0, 1], [0, 1], color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    ax.vlines(table.confidence[some], table.accuracy[some], table.confidence[some], color=style.WARM, linewidth=1.6, alpha=0.6)
    ax.plot(table.confidence[some], table.accuracy[some], color=style.COOL, linewidth=1.2)
    size = 14 + 130 * table.count[some] / table.count.sum()
    ax.scatter(table.confidence[some], table.accuracy[some], s=size, color=style.COOL, zorder=3)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.set_title(f"calibration error {error:.3f}", loc="left")
    return ax


def confusion(
    y: ArrayLike, predicted: ArrayLike, ax: Axes | None = None, *, classes: Sequence[Any] | None = None
) -> Axes:  # fmt: skip
    """How many samples of each true class (rows) were given each class (columns); shades are shares of the row."""
    counts = metrics.confusion(y, predicted, n_classes=None if classes is None else len(classes))
    size = len(counts)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax = style.axes_for(ax, 4.8, 4.6)
    ax.imshow(shares, cmap=style.shade(), vmin=0, vmax=1)
    if size <= NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                ax.text(column, row, str(count), ha="center", va="center", fontsize=9 if size <= 12 else 6)
    if size <= 2 * NUMBERS:
        names = [style.label(name, 12) for name in (range(size) if classes is None else classes)]
        turn = 0 if max(map(len, names)) <= 3 else 60
        ax.set_xticks(range(size), names, rotation=turn)
        ax.set_yticks(range(size), names)
    ax.grid(visible=False)
    ax.set(xlabel="predicted class", ylabel="true class")
    return ax


def predicted(y: ArrayLike, mean: ArrayLike, deviation: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Predicted against true value, with bars of one `deviation` where it is given: on the diagonal, predictions are right."""
    true, guess = (
        check.numeric(f"plots.predicted.{name}", x, "numbers, one a sample").ravel() for name, x in (("y", y), ("mean", mean))
    )
    if true.size == 0 or true.shape != guess.shape:
        raise ValueError(f"plots.predicted.mean must be as many as y; got {true.size} and {guess.size}.")
    bars = None if deviation is None else np.broadcast_to(np.asarray(deviation, float).ravel(), true.shape)
    some = spread(len(true))
    low, high = min(true.min(), guess.min()), max(true.max(), guess.max())
    ax = style.axes_for(ax, 4.4, 4.2)
    ax.plot([low, high], [low, high], color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if bars is not None:
        ax.vlines(true[some], (guess - bars)[some], (guess + bars)[some], color=style.COOL, linewidth=1.0, alpha=0.35)
    ax.plot(true[some], guess[some], "o", color=style.COOL, markersize=3.5, markeredgewidth=0)
    ax.set(xlabel="true value", ylabel="predicted value")
    return ax


def members(ensemble: Ensemble, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Accuracy (for regression, root mean square error) against the number of members.

    Members join in 8 fixed orders: the line is the mean over the orders, the band reaches from the least to the largest.
    """
    sizes, values = by_members(ensemble, X, y)
    ax = style.axes_for(ax)
    ax.fill_between(sizes, values.min(0), values.max(0), color=style.COOL, alpha=0.2, linewidth=0, label="least to largest")
    ax.plot(sizes, values.mean(0), "o-", color=style.COOL, markersize=4, label=f"mean of {len(values)} orders")
    if sizes[-1] > 8:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    what = "accuracy" if ensemble.task == "classification" else "root mean square error"
    ax.set(xlabel="members", ylabel=what)
    ax.legend(frameon=False, loc="best")
    return ax


def uncertain_images(
    X: ArrayLike, y: ArrayLike, probabilities: ArrayLike, ax: Axes | None = None, *, count: int = 12,
    classes: Sequence[Any] | None = None,
) -> Axes:  # fmt: skip
    """The images whose prediction has the largest entropy, most uncertain first; above each, its class and the one given."""
    p, count = np.asarray(probabilities), check.whole("plots.uncertain_images.count", count, low=1)
    return _mosaic("uncertain_images", X, y, p, most_uncertain(p, count), ax, classes)


def wrong_images(
    X: ArrayLike, y: ArrayLike, probabilities: ArrayLike, ax: Axes | None = None, *, count: int = 12,
    classes: Sequence[Any] | None = None,
) -> Axes:  # fmt: skip
    """The images whose true class was given the least probability, the worst first; only those that were taken for another."""
    p, count = np.asarray(probabilities), check.whole("plots.wrong_images.count", count, low=1)
    return _mosaic("wrong_images", X, y, p, most_wrong(y, p, count), ax, classes)


def most_uncertain(probabilities: Float[np.ndarray, "n k"], count: int) -> Int[np.ndarray, " m"]:
    """The samples of largest predictive entropy, largest first."""
    found: Int[np.ndarray, " m"] = np.argsort(-entropy(np.asarray(probabilities, float)), kind="stable")[:count]
    return found


def most_wrong(y: ArrayLike, probabilities: Float[np.ndarray, "n k"], count: int) -> Int[np.ndarray, " m"]:
    """The misclassified samples, that with the least probability of its true class first."""
    labels, p = np.asarray(y), np.asarray(probabilities, float)
    wrong = np.flatnonzero(p.argmax(1) != labels)
    order = np.argsort(p[wrong, labels[wrong]], kind="stable")
    found: Int[np.ndarray, " m"] = wrong[order][:count]
    return found


def by_members(ensemble: Ensemble, X: ArrayLike, y: ArrayLike) -> tuple[Int[np.ndarray, " c"], Float[np.ndarray, "o c"]]:
    """Numbers of members, and the accuracy or error of so many, in each of the orders.

    The sum of a subset's predictions is a product of a 0-1 matrix (subsets x members) with the members' predictions, which
    are made for some members at a time: memory does not grow with the members.
    """
    m, X, y = len(ensemble), np.asarray(X), np.asarray(y)
    sizes = np.unique(np.append(2 ** np.arange(int(np.log2(m)) + 1), m))
    orders = np.stack([np.random.default_rng(i).permutation(m) for i in range(ORDERS if m > 1 else 1)])
    rank = orders.argsort(1)  # when each member joins
    joined = (rank[:, None, :] < sizes[None, :, None]).reshape(-1, m).astype(float)
    sums = np.zeros((len(joined), len(X) * ensemble.network.n_out))
    together = max(1, (1 << 22) // sums.shape[1])
    classify = ensemble.task == "classification"
    for start in range(0, m, together):
        some = Ensemble(ensemble.network, ensemble.thetas[start : start + together], ensemble.task, block=ensemble.block)
        outputs = some.members(X).astype(float)
        values = softmax(outputs) if classify else outputs
        sums += joined[:, start : start + together] @ values.reshape(len(values), -1)
    means = (sums / joined.sum(1, keepdims=True)).reshape(len(joined), len(X), -1)
    found = (means.argmax(-1) == y).mean(1) if classify else np.sqrt(((means - y.reshape(len(X), -1)) ** 2).mean((1, 2)))
    return sizes, found.reshape(len(orders), len(sizes))


def as_pictures(name: str, X: ArrayLike) -> Float[np.ndarray, "n height width c"]:
    """Images with values in [0, 1], one channel or three."""
    images = check.numeric(f"{name}.X", X, "images (n, height, width) or (n, height, width, channels)")
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[3] not in (1, 3) or images.size == 0:
        raise ValueError(
            f"{name}.X must be images (n, height, width) or (n, height, width, 1 or 3 channels); got {np.shape(X)}."
        )
    low, high = images.min(), images.max()
    return images if low >= 0 and high <= 1 else (images - low) / max(high - low, 1e-12)


def _mosaic(
    name: str, X: ArrayLike, y: ArrayLike, p: np.ndarray[Any, Any], chosen: Int[np.ndarray, " m"], ax: Axes | None, classes: Any
) -> Axes:
    images, labels = as_pictures(f"plots.{name}", X), np.asarray(y)
    if not len(images) == len(labels) == len(p):
        raise ValueError(f"plots.{name}.X must be as many as labels and probabilities; got {len(images)}.")
    ax = style.axes_for(ax, 6.4, 4.8)
    ax.set_axis_off()
    ax.grid(visible=False)
    if not len(chosen):
        ax.text(0.5, 0.5, "none", ha="center", va="center", transform=ax.transAxes)
        return ax
    columns = min(len(chosen), 6)
    rows = -(-len(chosen) // columns)
    height, width, channels = images.shape[1:]
    above, beside = max(3, height // 3), max(1, width // 8)
    sheet = np.ones((rows * (height + above), columns * (width + beside), channels + 1))
    sheet[..., -1] = 0  # between the images, nothing
    named = [style.label(i, 10) for i in (range(p.shape[1]) if classes is None else classes)]
    for place, index in enumerate(chosen):
        top, left = place // columns * (height + above) + above, place % columns * (width + beside)
        sheet[top : top + height, left : left + width] = np.append(images[index], np.ones((height, width, 1)), axis=2)
        given = int(p[index].argmax())
        text = f"{named[labels[index]]}: {named[given]} {p[index, given]:.0%}"
        ax.text(left + width / 2, top - 1, text, ha="center", va="bottom", fontsize=7.5)
    shown = np.concatenate([np.repeat(sheet[..., :1], 3, 2), sheet[..., 1:]], 2) if channels == 1 else sheet
    ax.imshow(shown, interpolation="nearest", extent=(-0.5, sheet.shape[1] - 0.5, sheet.shape[0] - 0.5, -0.5))
    return ax
