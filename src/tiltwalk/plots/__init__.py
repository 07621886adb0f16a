"""Plots of runs and of predictions: each a function of a run, an ensemble or arrays, on axes of yours or new ones.

    ax = plots.loss(run)                                        # new axes; ax.figure.savefig("loss.png")
    plots.loss(run, ax); plots.by_position(run, other_ax)       # yours
    plots.reliability(y, ensemble.predict_proba(X))

Each returns the axes. matplotlib is imported when something is drawn: `pip install "tiltwalk[plots]"`.
"""

from tiltwalk.plots.paths import components, landscape
from tiltwalk.plots.prediction import confusion, members, predicted, reliability, uncertain_images, wrong_images
from tiltwalk.plots.sampling import acceptance, autocorrelation, by_position, curve, loss, step_sizes

__all__ = [
    "acceptance",
    "autocorrelation",
    "by_position",
    "components",
    "confusion",
    "curve",
    "landscape",
    "loss",
    "members",
    "predicted",
    "reliability",
    "step_sizes",
    "uncertain_images",
    "wrong_images",
]
