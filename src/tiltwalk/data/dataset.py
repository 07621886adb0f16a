"""A data set of images in two fixed parts, ready to train on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from tiltwalk.check import shown


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with values in [0, 1], channels last, and the number of each one's class.

    `classes[c]` is the name of class `c`; `licence` says who made the images and what one may do with them.
    """

    X_train: Float32[np.ndarray, "n height width channels"]
    y_train: Int32[np.ndarray, " n"]
    X_test: Float32[np.ndarray, "k height width channels"]
    y_test: Int32[np.ndarray, " k"]
    name: str
    classes: tuple[str, ...]
    licence: str

    def __repr__(self) -> str:
        shape = "x".join(str(n) for n in self.X_train.shape[1:])
        return (
            f"Dataset({self.name!r}, {len(self.X_train)} + {len(self.X_test)} images of {shape}, {len(self.classes)} classes)"
        )


Part = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def from_parts(train: Part, test: Part, *, name: str, classes: tuple[str, ...], licence: str, white: int) -> Dataset:
    """Scales whole-numbered images from `0..white` to [0, 1], adds the axis of channels, and checks the labels."""
    X_train, y_train = checked(f"{name}.train", *train, n_classes=len(classes), white=white)
    X_test, y_test = checked(f"{name}.test", *test, n_classes=len(classes), white=white)
    if X_train.shape[1:] != X_test.shape[1:]:
        raise ValueError(f"{name}.test must hold images of {X_train.shape[1:]}, as {name}.train; got {X_test.shape[1:]}.")
    return Dataset(X_train, y_train, X_test, y_test, name, classes, licence)


def checked(
    name: str, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], *, n_classes: int, white: int
) -> tuple[Float32[np.ndarray, "n height width 1"], Int32[np.ndarray, " n"]]:
    if images.ndim != 3 or images.size == 0:
        raise ValueError(f"{name}.images must be of shape (images, height, width); got {shown(images)}.")
    if images.dtype.kind not in "iu" or images.min() < 0 or images.max() > white:
        raise ValueError(f"{name}.images must be whole numbers from 0 to {white}; got {shown(images)}.")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{name}.labels must be one for each of {len(images)} images; got {shown(labels)}.")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(f"{name}.labels must be whole numbers from 0 to {n_classes - 1}; got {shown(labels)}.")
    scaled = images[..., None].astype(np.float32)
    scaled /= white
    return scaled, labels.astype(np.int32)
