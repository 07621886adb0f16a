"""What a user hands to a supervised loss, checked: every error says what is allowed, what came, and where it helps a remedy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tiltwalk import check
from tiltwalk.losses.heads import CLASSES, VALUES
from tiltwalk.networks import Network


def checked_features(network: Network, X: Any) -> Any:
    """Finite inputs in the network's shape and in JAX's floating type."""
    if not check.concrete(X):
        return network.as_inputs(X)
    X = _array("Supervised.X", X)
    if X.ndim == 0 or X.shape[0] == 0:
        raise ValueError(f"Supervised.X must hold at least one sample; got {check.shown(X)}.")
    raw = X.dtype == np.uint8 and X.max(initial=0) > 1
    X = network.as_inputs(X)
    bad = X.size - int(np.count_nonzero(np.isfinite(X))) if X.dtype.kind == "f" else 0
    if bad:
        raise ValueError(f"Supervised.X must be finite; got {bad} entries that are NaN or infinite.")
    image = len(network.input_shape) == 3
    if raw or (image and network.adapted is None and max(X.max(), -X.min()) > 1 and np.array_equal(X, np.round(X))):
        raise ValueError(
            f"Supervised.X must be scaled, such as X / {X.max():g}; got whole numbers from {X.min():g} to {X.max():g}."
        )
    keep = network.adapted is not None and X.dtype.kind in "iu"
    return X if keep else np.asarray(X, dtype=jnp.zeros(0).dtype)


def checked_targets(network: Network, y: Any, kind: Any, n: int) -> Any:
    """Labels of the network's classes as int32, or values `(n, k)`; a callable's targets as they come."""
    if check.concrete(y):
        if isinstance(y, list | tuple) or hasattr(y, "__array__"):
            _refuse_text(y)
        y = _array("Supervised.y", y)
    if y.ndim == 0 or y.shape[0] != n:
        raise ValueError(f"Supervised.y must have one entry for each of the {n} samples; got {check.shown(y)}.")
    if kind in CLASSES:
        return _labels(network, y, kind, n)
    if kind in VALUES:
        return _values(network, y, n)
    return y if y.dtype.kind in "iu" else y.astype(jnp.zeros(0).dtype)


def _labels(network: Network, y: Any, kind: str, n: int) -> Any:
    k = network.n_out
    if k < 2:
        raise ValueError(f"Supervised.network must have an output for each of at least 2 classes for {kind}; got {k}.")
    wanted = f"class labels, whole numbers from 0 to {k - 1}, of shape ({n},)"
    if y.ndim != 1:
        hint = ": for one-hot rows, y.argmax(1)" if y.shape == (n, k) else ""
        raise ValueError(f"Supervised.y must be {wanted}{hint}; got {check.shown(y)}.")
    if y.dtype.kind not in "iub":
        raise TypeError(f"Supervised.y must be {wanted}; got {check.shown(y)}.")
    if check.concrete(y) and (y.min() < 0 or y.max() >= k):
        raise ValueError(f"Supervised.y must be {wanted}; got labels from {y.min()} to {y.max()}.")
    return y.astype(np.int32)


def _values(network: Network, y: Any, n: int) -> Any:
    k = network.n_out
    wanted = f"values of shape ({n}, {k})" + (f" or ({n},)" if k == 1 else "")
    y = y[:, None] if y.ndim == 1 and k == 1 else y
    if y.shape != (n, k):
        raise ValueError(f"Supervised.y must be {wanted}, one for each output; got {check.shown(y)}.")
    if check.concrete(y) and not np.all(np.isfinite(y)):
        raise ValueError(f"Supervised.y must be finite; got {int(np.sum(~np.isfinite(y)))} entries that are not.")
    return y.astype(jnp.zeros(0).dtype)


def checked_weights(network: Network, y: Any, kind: Any, n: int, class_weight: Any, sample_weight: Any) -> Any:
    """One weight a sample, with mean 1."""
    dtype = jnp.zeros(0).dtype
    if class_weight is None and sample_weight is None:
        return np.ones(n, dtype)
    weight: Any = np.ones(n)
    if sample_weight is not None:
        weight = _nonnegative("Supervised.sample_weight", sample_weight, n, "sample")
    if class_weight is not None:
        if kind not in CLASSES:
            raise ValueError(f"Supervised.class_weight must be None unless kind is one of {', '.join(CLASSES)}.")
        k = network.n_out
        if isinstance(class_weight, str):
            check.one_of("Supervised.class_weight", class_weight, ("balanced",))
            counts = np.bincount(np.asarray(y), minlength=k)
            if np.any(counts == 0):
                empty = ", ".join(map(str, np.flatnonzero(counts == 0)))
                raise ValueError(f'Supervised.class_weight="balanced" needs samples of every class; got none of class {empty}.')
            per_class: Any = n / (k * counts)
        else:
            per_class = _nonnegative("Supervised.class_weight", class_weight, k, "class")
        weight = weight * per_class[np.asarray(y)]
    total = weight.sum()
    if not total > 0:
        raise ValueError("Supervised: the weights of all samples together must be positive; got 0.")
    return (weight * (n / total)).astype(dtype)


def _nonnegative(name: str, value: Any, length: int, each: str) -> np.ndarray:
    found = check.finite_array(name, value, (1,), f"({length},)")
    if len(found) != length or np.any(found < 0):
        raise ValueError(f"{name} must hold one number of at least 0 for each {each}, {length} in all; got {_range(found)}.")
    return found


def _range(found: np.ndarray) -> str:
    return f"{len(found)} numbers from {found.min():g} to {found.max():g}"


def _array(name: str, value: Any) -> np.ndarray:
    """`value` as a NumPy array of numbers; tables and Torch tensors come through their own conversion."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be an array of numbers, all rows of one length; got {check.shown(value)}.") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers; got {check.shown(array if array.ndim else value)}.")
    return array


def _refuse_text(y: Any) -> None:
    found = np.asarray(y)
    if found.dtype.kind in "USO" and found.size and isinstance(found.flat[0], str):
        raise TypeError(
            "Supervised.y must be class labels as whole numbers; got text: number them with "
            "`classes, y = numpy.unique(y, return_inverse=True)`."
        )
