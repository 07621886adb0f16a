"""A user's own file as numbers: CSV, TSV, Parquet, NPZ or IDX, with one column or array as the target.

    X, y, info = read("wine.csv", target="quality")

`X` is float32 and finite. `y` is int32 class numbers with the labels kept in `info.classes`, or float32 values, or None
where no target is named. Whatever cannot be read as that is refused: the error names the column, and the row if there
is one. Rows count from 1, without the header.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int32

from tiltwalk.check import number, shown
from tiltwalk.data import idx, npz, tables

Task = Literal["classification", "regression"]
Columns = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None, "Info"]
# Whole numbers are taken as classes up to this many different ones; more are taken as values.
MOST_CLASSES = 100


@dataclass(frozen=True)
class Info:
    """What was read: the features' names where there are any, the target's, the task, and the labels of the classes."""

    path: Path
    features: tuple[str, ...] = ()
    target: str | None = None
    task: Task | None = None
    classes: tuple[Any, ...] = ()


def read(
    path: str | Path, target: str | None = None, *, task: Task | None = None, scale: float | None = None
) -> tuple[Float32[np.ndarray, "n ..."], Int32[np.ndarray, " n"] | Float32[np.ndarray, "n ..."] | None, Info]:
    """Features, target and what they are, from the file at `path`.

    CSV, TSV and Parquet: `target` names a column, all others are features. A first row of numbers alone is no header:
    columns are then named "0", "1", and so on. NPZ: `target` names an array, such as `y` or `y_train`; the features are
    the array named alike with `x` or `X` for the `y`. IDX: `target` is the file of labels.

    `task` is found from the target where it is not given: text and truth values are classes, and so are whole numbers
    with at most 100 different values that come up twice or more on average; all else are values for regression.

    `scale` is what images are divided by. Images of whole numbers (NPZ) are refused without it, because networks
    are made for values of order one; IDX images of bytes are divided by 255. Tables are never scaled.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"read.path must be a file; {path} is not there or is a folder.")
    if task not in (None, "classification", "regression"):
        raise ValueError(f"read.task must be 'classification' or 'regression'; got {shown(task)}.")
    if scale is not None:
        number("read.scale", scale, low=0.0, low_open=True)
    reader = READERS.get(kind(path))
    if reader is None:
        raise ValueError(f"read.path must end in .csv, .tsv, .parquet, .npz or be an IDX file; got {path.name!r}.")
    X, y, info = reader(path, target)
    X = features(path, X, info, scale)
    if y is None:
        return X, None, info
    if len(y) != len(X):
        raise ValueError(f"{path.name}: target {info.target!r} must have {len(X)} rows, one for each of X; got {len(y)}.")
    y, task, classes = encoded(path, y, info.target, task)
    return X, y, replace(info, task=task, classes=classes)


def kind(path: Path) -> str:
    """The format, as the file's name says."""
    return "idx" if re.search(r"[-.]idx\d?(-ubyte)?(\.gz|\.xz)?$", path.name) else path.suffix.lower().lstrip(".")


def features(path: Path, X: np.ndarray[Any, Any], info: Info, scale: float | None) -> Float32[np.ndarray, "n ..."]:
    """`X` as finite float32 with at least one row and one column, images scaled."""
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{path.name}: features must be numbers; got {shown(X)}.")
    if X.ndim < 2 or X.size == 0:
        raise ValueError(f"{path.name}: features must be at least one row of at least one column; got {shown(X)}.")
    images = X.ndim >= 3
    if images and scale is None and X.dtype.kind in "iu":
        if kind(path) != "idx" or X.dtype != np.uint8:
            raise ValueError(
                f"{path.name}: images must be scaled; got whole numbers from {X.min()} to {X.max()}. "
                "Pass scale=255 to divide by it, or scale=1 to keep them as they are."
            )
        scale = 255
    with np.errstate(over="ignore"):  # what is too large is named just below
        X = X.astype(np.float32)
    if images and scale is not None:
        X /= np.float32(scale)
    if not np.isfinite(X).all():
        where = np.argwhere(~np.isfinite(X))[0]
        column = repr(info.features[where[1]]) if info.features else ", ".join(str(i) for i in where[1:])
        raise ValueError(
            f"{path.name}: features must be finite in float32; got {X[tuple(where)]} in column {column}, row {where[0] + 1}."
        )
    return X


def encoded(
    path: Path, y: np.ndarray[Any, Any], name: str | None, task: Task | None
) -> tuple[np.ndarray[Any, Any], Task, tuple[Any, ...]]:
    """The target as class numbers with their labels, or as float32 values."""
    where = f"{path.name}: target {name!r}"
    if y.dtype.kind not in "fiubU":
        raise ValueError(f"{where} must be numbers, truth values or text; got {shown(y)}.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(
            f"{where} must be finite; got {y[~np.isfinite(y)][0]} in row {np.argwhere(~np.isfinite(y))[0][0] + 1}."
        )
    if task == "regression":
        if y.dtype.kind == "U":
            raise ValueError(f"{where} must be numbers for regression; got text, such as {str(y.flat[0])!r}.")
        return y.astype(np.float32), "regression", ()
    if y.ndim != 1 and task == "classification":
        raise ValueError(f"{where} must be one column for classification; got {shown(y)}.")
    labels, codes = np.unique(y, return_inverse=True)
    if task is None and (y.ndim != 1 or not looks_like_classes(y, labels)):
        return y.astype(np.float32), "regression", ()
    if len(labels) < 2:
        raise ValueError(f"{where} must have two classes or more; got {labels.tolist()[0]!r} alone.")
    return codes.astype(np.int32), "classification", tuple(labels.tolist())


def looks_like_classes(y: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> bool:
    return y.dtype.kind in "Ub" or (y.dtype.kind in "iu" and len(labels) <= MOST_CLASSES and 2 * len(labels) <= len(y))


def from_csv(path: Path, target: str | None) -> Columns:
    names, (X, y) = tables.csv(path, target)
    return X, y, Info(path, tuple(name for name in names if name != target), target)


def from_parquet(path: Path, target: str | None) -> Columns:
    names, (X, y) = tables.parquet(path, target)
    return X, y, Info(path, tuple(name for name in names if name != target), target)


def from_npz(path: Path, target: str | None) -> Columns:
    names = npz.names(path)
    if target is not None and target not in names:
        raise ValueError(f"{path.name}: target must be one of its arrays, {', '.join(names) or 'none'}; got {target!r}.")
    if target is None:
        wanted = ["X", "x"] if len(names) != 1 else list(names)
    else:
        wanted = [target.replace("y", x, 1).replace("Y", x, 1) for x in "Xx"]
    there = [name for name in wanted if name in names and name != target]
    if not there:
        raise ValueError(f"{path.name} must hold an array of features named {' or '.join(wanted)}; got {', '.join(names)}.")
    y = None if target is None else npz.read(path, target)
    return npz.read(path, there[0]), y, Info(path, (), target)


def from_idx(path: Path, target: str | None) -> Columns:
    X = idx.read(path)
    if target is None:
        return X, None, Info(path)
    labels = Path(target) if Path(target).is_absolute() else path.parent / target
    if not labels.is_file():
        raise FileNotFoundError(f"{path.name}: target must be the IDX file of labels; {labels} is not there.")
    return X, idx.read(labels), Info(path, (), target)


READERS: dict[str, Callable[[Path, str | None], Columns]] = {
    "csv": from_csv,
    "tsv": from_csv,
    "parquet": from_parquet,
    "pq": from_parquet,
    "npz": from_npz,
    "idx": from_idx,
}
