"""What predictions of classes and of values have in common: what more members bring, and the columns of a sample."""

from __future__ import annotations

import numpy as np

from tiltwalk import plots
from tiltwalk.ensemble import Ensemble
from tiltwalk.plots import prediction
from tiltwalk.report.figures import figure
from tiltwalk.report.markup import Html, short
from tiltwalk.report.subject import Subject, Tested, number, percent

FEATURES = 3
MOST_MEMBERS = 1024
"""Members that the accuracy against their number is found for, evenly chosen."""


def against_number(tested: Tested) -> Html:
    """Accuracy or error against the number of members."""
    m = len(tested.ensemble)
    some = np.unique(np.linspace(0, m - 1, min(m, MOST_MEMBERS)).round().astype(int))
    whole = tested.ensemble
    ensemble = whole if len(some) == m else Ensemble(whole.network, whole.thetas[some], whole.task, whole.classes)
    sizes, values = prediction.by_members(ensemble, tested.X, tested.y)
    mean = values.mean(0)
    regression = whole.task == "regression"
    what = "Root mean square error" if regression else "Accuracy"
    shown = [(size, value) for size, value in zip(sizes, mean, strict=True) if size in (1, 4, 16, sizes[-1])]
    says = f"{what} against the number of members, mean over {len(values)} orders in which they join: "
    says += ", ".join(f"{number(value) if regression else percent(value, 2)} with {size:,}" for size, value in shown) + "."
    caption = f"{what} against the number of members, over {len(values)} orders in which they join."
    return figure("members", lambda ax: plots.members(ensemble, tested.X, tested.y, ax), says, caption, height=3.7)


def features(subject: Subject, tested: Tested) -> tuple[list[str], np.ndarray]:
    """Names and values of the first few columns, in the units of the file."""
    record = subject.folder.record["data"]
    if tested.X.ndim != 2:
        return [], np.zeros((len(tested.X), 0))
    X = tested.X[:, :FEATURES].astype(float)
    if record["centre"] is not None:
        X = X * np.asarray(record["spread"])[:FEATURES] + np.asarray(record["centre"])[:FEATURES]
    return [short(name, 20) for name in record["features"][:FEATURES]], X
