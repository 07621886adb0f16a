"""Errors in one form: which parameter, what is allowed, what came. Traced values pass: they were checked when concrete."""

from collections.abc import Collection
from typing import Any

import jax
import numpy as np


def concrete(value: Any) -> bool:
    """Whether `value` is a number or array whose entries can be looked at."""
    return not isinstance(value, jax.core.Tracer)


def shown(value: Any) -> str:
    """What came, short enough for an error message."""
    if isinstance(value, np.ndarray | jax.Array) and getattr(value, "ndim", 0) > 0:
        return f"an array of shape {tuple(value.shape)} and type {value.dtype}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def of_json(value: Any) -> Any:
    """`value` as JSON has it, which knows no NaN and no infinity: None in their place."""
    if isinstance(value, dict):
        return {name: of_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [of_json(part) for part in value]
    return None if isinstance(value, float | np.floating) and not np.isfinite(value) else value


def numeric(name: str, value: Any, allowed: str) -> np.ndarray:
    """`value` as a float array, or a TypeError that says what is allowed."""
    try:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in "fiub":
            raise TypeError
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {allowed}; got {shown(value)}.") from None
    return array.astype(float)


def is_instance_of(protocol: Any, value: Any) -> bool:
    """Whether `value` is an object with what `protocol` asks for; a class has it too, but was not called."""
    return isinstance(value, protocol) and not isinstance(value, type)


def positive(name: str, value: Any, *, shape: str = "a positive number or one per parameter") -> None:
    """Raises unless `value` is a finite positive number, or a vector of them."""
    if not concrete(value):
        return
    array = _no_boolean(name, value, shape)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"{name} must be {shape}; got an array of shape {array.shape}.")
    wrong = ~(np.isfinite(array) & (array > 0))
    if np.any(wrong):
        came = shown(value) if array.ndim == 0 else f"{array[wrong][0]} for parameter {np.argmax(wrong)}"
        raise ValueError(f"{name} must be {shape}, finite; got {came}.")


def number(name: str, value: Any, *, low: float = -np.inf, high: float = np.inf, low_open: bool = False) -> None:
    """Raises unless `value` is one finite number between `low` and `high`."""
    if not concrete(value):
        return
    interval = f"a number in {'(' if low_open or low == -np.inf else '['}{low:g}, {high:g}{')' if high == np.inf else ']'}"
    array = _no_boolean(name, value, interval)
    if array.ndim:
        raise ValueError(f"{name} must be {interval}; got an array of shape {array.shape}.")
    x = float(array)
    if not np.isfinite(x) or x < low or x > high or (low_open and x == low):
        raise ValueError(f"{name} must be {interval}; got {shown(value)}.")


def _no_boolean(name: str, value: Any, allowed: str) -> np.ndarray:
    array = numeric(name, value, allowed)
    if np.asarray(value).dtype == bool:
        raise TypeError(f"{name} must be {allowed}; got {shown(value)}.")
    return array


def whole(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """`value` as an int, or an error unless it is a whole number between `low` and `high`."""
    allowed = f"a whole number of at least {low}" if high is None else f"a whole number between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be {allowed}; got {shown(value)}.")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {allowed}; got {value}.")
    return int(value)


def one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """Raises unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(sorted(allowed))}; got {shown(value)}.")


def finite_array(name: str, value: Any, ndims: tuple[int, ...], shape: str) -> np.ndarray:
    """`value` as a finite float array with one of `ndims` axes, or an error that names `shape`."""
    array = numeric(name, value, f"an array of numbers of shape {shape}")
    if array.ndim not in ndims:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} must have shape {shape} with no empty axis; got {array.shape}.")
    if not np.all(np.isfinite(array)):
        if array.ndim == 0:
            raise ValueError(f"{name} must be finite; got {array}.")
        raise ValueError(f"{name} must be finite; got {int(np.sum(~np.isfinite(array)))} entries that are NaN or infinite.")
    return array


def entries(name: str, value: Any, dim: int) -> None:
    """Raises where `value` is a vector of another length than the number of parameters."""
    if np.ndim(value) == 1 and np.shape(value)[0] != dim:
        raise ValueError(f"{name} must be one number or one per parameter, {dim} of them; got {np.shape(value)[0]}.")
