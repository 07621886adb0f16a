"""Predictions of classes: how good they are, calibration, confusion, the most uncertain and the most wrong samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltwalk import metrics, plots
from tiltwalk.ensemble import ClassUncertainty, entropy
from tiltwalk.plots import prediction
from tiltwalk.report import members
from tiltwalk.report.figures import figure, picture
from tiltwalk.report.markup import Html, element, items, joined, paragraph, short, table
from tiltwalk.report.subject import Subject, Tested, counted, number, percent

MOST_CLASSES = 12
"""Classes whose table of confusion is written out; of more, shades are drawn and the commonest mistakes are listed."""

BINS = 15
"""Of confidence: as many as `metrics.calibration_error` has by default, so that one figure is said everywhere."""

HARDEST = 12


def quality(tested: Tested) -> dict[str, tuple[float, float]]:
    """Each figure of one member, the mean of some, and of the ensemble."""
    y, p, single = tested.y, tested.mean, tested.single
    found = {
        "accuracy": (np.mean([metrics.accuracy(y, one.argmax(1)) for one in single]), metrics.accuracy(y, p.argmax(1))),
        "nll": (np.mean([metrics.nll(y, one) for one in single]), metrics.nll(y, p)),
        "brier": (np.mean([metrics.brier(y, one) for one in single]), metrics.brier(y, p)),
        "calibration": (
            np.mean([metrics.calibration_error(y, one) for one in single]),
            metrics.calibration_error(y, p),
        ),
    }
    return {name: (float(one), float(all_of_them)) for name, (one, all_of_them) in found.items()}


def section(subject: Subject, tested: Tested) -> Html:
    """Of the test data."""
    y, p = tested.y, tested.mean
    found, names = quality(tested), tested.class_names()
    errors_of = [float(np.sqrt(share * (1 - share) / len(y))) for share in found["accuracy"]]
    rows = [
        ("Accuracy", *(percent(x, 2) for x in found["accuracy"])),
        ("Its standard error", *(percent(x, 2) for x in errors_of)),
        ("Negative log-likelihood, in nats", *(f"{x:.4f}" for x in found["nll"])),
        ("Brier score", *(f"{x:.4f}" for x in found["brier"])),
        ("Calibration error", *(f"{x:.4f}" for x in found["calibration"])),
    ]
    one = f"One member, mean of {len(tested.chosen)}"
    uncertainty = tested.ensemble.uncertainty(tested.X)
    assert isinstance(uncertainty, ClassUncertainty)
    total, expected = uncertainty.total.mean(), uncertainty.expected.mean()
    right = p.argmax(1) == y
    spoken = f"The mean predictive entropy is {total:.3f} nats: {expected:.3f} that members expect themselves, and "
    spoken += f"{uncertainty.mutual_information.mean():.3f} that they disagree about."
    if right.any() and not right.all():
        both = uncertainty.total[right].mean(), uncertainty.total[~right].mean()
        spoken += f" It is {both[0]:.3f} where the prediction is right and {both[1]:.3f} where it is wrong."
    quality_table = table("Quality of the predictions; all but the accuracy are better when lower", ("", one, "Ensemble"), rows)
    pictures = tested.X.ndim == 4 and tested.X.shape[3] in (1, 3)
    hardest = _pictures if pictures else _samples
    return joined(
        [
            quality_table,
            paragraph(spoken),
            element("div", _reliability(tested), members.against_number(tested), class_="figures"),
            element("h3", "Confusion"),
            _confusion(y, p.argmax(1), names),
            element("h3", "The most uncertain"),
            paragraph(
                "The predictions of largest entropy, the most uncertain first."
                + (
                    " Below each: its true class; ✓, or the class that it was taken for; the probability given to that."
                    * pictures
                )
            ),
            hardest(subject, tested, prediction.most_uncertain(p, HARDEST), names, "The most uncertain predictions"),
            element("h3", "The most wrong"),
            paragraph("The mistakes that gave the true class the least probability, the worst first."),
            hardest(subject, tested, prediction.most_wrong(y, p, HARDEST), names, "The most wrong predictions"),
        ]
    )


def _reliability(tested: Tested) -> Html:
    bins = metrics.reliability(tested.y, tested.mean, bins=BINS)
    some = bins.count > 0
    gap = bins.accuracy[some] - bins.confidence[some]
    worst = np.abs(gap).argmax()
    way = "less" if gap[worst] < 0 else "more"
    mean = np.average(gap, weights=bins.count[some])
    says = (
        f"Accuracy against confidence in {len(gap)} bins. Accuracy is {percent(abs(mean))} "
        f"{'below' if mean < 0 else 'above'} confidence on average; the bin farthest off has a confidence of "
        f"{percent(bins.confidence[some][worst])} and {way} accuracy, {percent(bins.accuracy[some][worst])}, over "
        f"{counted(bins.count[some][worst], 'sample')}."
    )
    caption = (
        "Reliability: on the dashed diagonal, a confidence of 80 % is right 8 times in 10. Below it, the ensemble is too sure "
    )
    caption += "of itself; above it, not sure enough."
    return figure("reliability", lambda ax: plots.reliability(tested.y, tested.mean, ax, bins=BINS), says, caption, height=3.7)


def _confusion(y: Any, predicted: Any, names: list[str]) -> Html:
    counts = metrics.confusion(y, predicted, n_classes=len(names))
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:5]
    pairs = [np.unravel_index(i, wrong.shape) for i in order if wrong.flat[i]]
    spoken = [
        f"{short(names[a], 24)} taken for {short(names[b], 24)}, {wrong[a, b]:,} of {counts[a].sum():,}" for a, b in pairs
    ]
    said = (
        joined([paragraph("The commonest mistakes:"), items(spoken)])
        if spoken
        else paragraph("No sample was taken for another.")
    )
    if len(names) > MOST_CLASSES:
        says = f"{number(np.trace(counts))} of {counted(counts.sum(), 'sample')} lie on the diagonal of {len(names)} classes. "
        says += f"The commonest mistakes: {'; '.join(spoken) or 'none'}."
        caption = "Samples of each true class (rows) by predicted class (columns); shades are shares of the row."
        drawn = figure("confusion", lambda ax: plots.confusion(y, predicted, ax, classes=names), says, caption, height=4.3)
        return joined([said, element("div", drawn, class_="figures")])
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    rows = [
        (short(name, 24), *(element("td", str(n), style=f"--share:{share:.3f}") for n, share in zip(row, part, strict=True)))
        for name, row, part in zip(names, counts, shares, strict=True)
    ]
    head = ["true class", *(short(name, 14) for name in names)]
    caption = "Samples of each true class, in rows, by predicted class, in columns; shades are shares of the row"
    long = max(map(len, names)) > 3
    return joined([said, table(caption, head, rows, class_="confusion long" if long else "confusion")])


def _pictures(subject: Subject, tested: Tested, chosen: np.ndarray, names: list[str], what: str) -> Html:
    if not len(chosen):
        return paragraph("There are none.", class_="aside")
    images = prediction.as_pictures("report", tested.X)
    cells = []
    for i in chosen:
        p = tested.mean[i]
        true, given = int(tested.y[i]), int(p.argmax())
        nats = float(entropy(p[None])[0])
        says = (
            f"Test image {i}: {short(names[true])}, predicted {short(names[given])} with {percent(p[given], 0)}; the true "
            f"class has {percent(p[true])}; entropy {nats:.2f} nats."
        )
        mark = "right" if true == given else "wrong"
        line = [element("strong", short(names[true], 16)), " "]
        line += ["✓ " if true == given else f"→ {short(names[given], 16)}, ", percent(p[given], 0)]
        cells.append(
            element("li", element("figure", picture(images[i], says), element("figcaption", *line), class_=mark)),
        )
    return element("ul", *cells, class_="gallery")


def _samples(subject: Subject, tested: Tested, chosen: np.ndarray, names: list[str], what: str) -> Html:
    if not len(chosen):
        return paragraph("There are none.", class_="aside")
    features, values = members.features(subject, tested)
    rows = []
    for i in chosen:
        p = tested.mean[i]
        true, given = int(tested.y[i]), int(p.argmax())
        cells = [short(names[true], 24), f"{short(names[given], 24)}, {percent(p[given], 0)}", percent(p[true])]
        rows.append((f"{i}", *cells, f"{float(entropy(p[None])[0]):.3f}", *(number(v) for v in values[i])))
    head = ("Test sample", "True class", "Predicted", "Given to the true class", "Entropy, nats", *features)
    return table(what, head, rows)
