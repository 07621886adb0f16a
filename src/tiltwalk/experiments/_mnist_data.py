"""What the MNIST figure works on: images, network, and how well the models of a path do on images."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

import tiltwalk as tw
from tiltwalk import check
from tiltwalk.ensemble import softmax

Labels = Int[np.ndarray, " n"]


def images(settings: dict[str, Any]) -> tuple[Any, Int[np.ndarray, " n"], Any, Int[np.ndarray, " k"]]:
    """As even a share of each class as the number of images allows, in the order of the data; test images from the first on."""
    check.one_of("settings.data", settings["data"], tw.data.NAMED)
    data = tw.data.NAMED[settings["data"]]()
    rank = np.empty(len(data.y_train), int)
    for c in range(len(data.classes)):
        of_class = np.flatnonzero(data.y_train == c)
        rank[of_class] = np.arange(len(of_class))
    chosen = np.sort(np.argsort(rank, kind="stable")[: settings["images"]])
    X, test_X = data.X_train[chosen], data.X_test[: settings["test_images"]]
    if settings["network"] != "lenet":
        X, test_X = X.reshape(len(X), -1), test_X.reshape(len(test_X), -1)
    return X, data.y_train[chosen], test_X, data.y_test[: settings["test_images"]]


def network(name: Any) -> tw.networks.Network:
    return tw.networks.lenet() if name == "lenet" else tw.networks.mlp(name)


def digits(X: Any, y: Int[np.ndarray, " n"]) -> list[str]:
    """The first image of each class: bytes in hexadecimal, row by row."""
    return [np.rint(255 * np.ravel(X[np.argmax(y == c)])).astype(np.uint8).tobytes().hex() for c in range(10)]


def accuracies(
    network: tw.networks.Network, path: Float[np.ndarray, "tau d"], X: Any, y: Int[np.ndarray, " n"]
) -> dict[str, float]:
    """Of the ensemble, by mean probability and by vote, and of its models on average."""
    outputs = np.asarray(tw.Ensemble(network, path).members(X), np.float64)
    mean = softmax(outputs).mean(0)
    chosen = outputs.argmax(-1)
    votes = (chosen[..., None] == np.arange(outputs.shape[-1])).sum(0)
    # where votes are equal the mean probability decides, which is below 1
    return {
        "mean_probability": tw.metrics.accuracy(y, mean.argmax(-1)),
        "vote": tw.metrics.accuracy(y, (votes + mean / 2).argmax(-1)),
        "models": float(np.mean(chosen == y)),
    }
