"""Predictions of values: how good they are, how sure, and the worst of them."""

from __future__ import annotations

import numpy as np

from tiltwalk import plots
from tiltwalk.report import members
from tiltwalk.report.figures import figure
from tiltwalk.report.markup import Html, element, joined, paragraph, table
from tiltwalk.report.subject import Subject, Tested, counted, number, percent

HARDEST = 12


def errors(tested: Tested) -> tuple[float, float]:
    """Root mean square error of the ensemble, and of one member on average."""
    y = tested.y.reshape(len(tested.y), -1)
    alone = np.sqrt(((tested.single - y) ** 2).mean((1, 2))).mean()
    return float(np.sqrt(((tested.mean - y) ** 2).mean())), float(alone)


def section(subject: Subject, tested: Tested) -> Html:
    """Of the test data."""
    y = tested.y.reshape(len(tested.y), -1).astype(float)
    error = y - tested.mean
    single = y - tested.single
    variance = float(((y - y.mean(0)) ** 2).mean())
    rows = [
        ("Root mean square error", number(np.sqrt((single**2).mean((1, 2))).mean()), number(np.sqrt((error**2).mean()))),
        ("Mean absolute error", number(np.abs(single).mean()), number(np.abs(error).mean())),
    ]
    if variance > 0:
        rows.append(
            ("R², the share of the variance that is explained", f"{1 - (single**2).mean() / variance:.4f}",
             f"{1 - (error**2).mean() / variance:.4f}")
        )  # fmt: skip
    spread = tested.ensemble.std(tested.X)
    noise = _noise(subject)
    deviation = np.sqrt(spread**2 + (noise or 0.0) ** 2)
    spoken = f"Members differ by {number(spread.mean(), 3)} on average, the standard deviation of their predictions."
    if noise is not None:
        inside = [float((np.abs(error) <= width * deviation).mean()) for width in (0.6745, 1.6449)]
        spoken += (
            f" With the noise of the loss, {number(noise, 3)}, half of the values should lie within 0.67 standard deviations "
        )
        spoken += f"of the mean and nine tenths within 1.64: {percent(inside[0])} and {percent(inside[1])} do."
    one = f"One member, mean of {len(tested.chosen)}"
    hardest = np.argsort(-np.abs(error).max(1), kind="stable")[:HARDEST]
    features, values = members.features(subject, tested)
    listed = [
        (
            f"{i}",
            number(y[i, k]),
            number(tested.mean[i, k]),
            number(spread[i, k], 3),
            number(error[i, k], 3),
            *map(number, values[i]),
        )
        for i in hardest
        for k in [int(np.abs(error[i]).argmax())]
    ]
    head = ("Test sample", "True value", "Predicted", "Spread of members", "Error", *features)
    return joined(
        [
            table("Quality of the predictions", ("", one, "Ensemble"), rows),
            paragraph(spoken),
            element("div", _predicted(y, tested.mean, deviation, noise), members.against_number(tested), class_="figures"),
            element("h3", "The most wrong"),
            table("The predictions of largest error", head, listed),
            paragraph(
                "Accuracy, calibration of probabilities and confusion are for classes; this run predicts values.",
                class_="aside",
            ),
        ]
    )


def _noise(subject: Subject) -> float | None:
    """The noise of a Gaussian loss: given, or the mean of what the kept models have learnt. None for other losses."""
    loss = subject.folder.config.loss
    if loss.kind != "gaussian":
        return None
    return loss.noise if loss.noise is not None else subject.folder.noise


def _predicted(y: np.ndarray, mean: np.ndarray, deviation: np.ndarray, noise: float | None) -> Html:
    flat, guess = y.ravel(), mean.ravel()
    related = float(np.corrcoef(flat, guess)[0, 1]) if np.ptp(flat) > 0 and np.ptp(guess) > 0 else float("nan")
    says = (
        f"Predicted against true value of {counted(len(flat), 'value')}: true {number(flat.min())} to {number(flat.max())}, "
        f"predicted {number(guess.min())} to {number(guess.max())}; correlation {number(related, 3)}."
    )
    bars = "the spread of the members" + (" and the noise of the loss" if noise is not None else "")
    caption = f"Predicted against true value; the bars are one standard deviation, {bars}. On the diagonal, it is right."
    return figure("predicted", lambda ax: plots.predicted(y, mean, deviation, ax), says, caption, height=3.7)
