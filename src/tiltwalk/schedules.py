"""Schedules of the tilt: functions of the step, `schedule(step) -> s`, for a step or an array of steps.

A schedule is a frozen value without state: the same step always has the same `s`, so a run that is resumed has the schedule
it was started with. Past its end a schedule keeps its last value. They join with `then`:

>>> import tiltwalk as tw
>>> warm = tw.schedules.linear(0.0, 10.0, steps=100).then(tw.schedules.constant(10.0), after=100)
>>> [float(warm(t)) for t in (0, 50, 100, 500)]
[0.0, 5.0, 10.0, 10.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltwalk import check

_AT_ONCE = 2**16


@dataclass(frozen=True)
class Schedule:
    """A tilt for every step. Build one with the functions of this module, or from your own function of an array of steps."""

    function: Callable[[np.ndarray], np.ndarray]
    text: str

    def __call__(self, step: Any) -> np.ndarray:
        at = np.asarray(step, dtype=float)
        found = np.asarray(self.function(at))
        if found.dtype.kind not in "fiu" or found.shape not in ((), at.shape):
            raise TypeError(
                f"{self!r} must give one number for each step of an array of steps; "
                f"for steps of shape {at.shape} it gave {check.shown(found)}."
            )
        tilts = np.broadcast_to(found.astype(float), at.shape)
        wrong = ~(np.isfinite(tilts) & (tilts >= 0))
        if np.any(wrong):
            raise ValueError(f"{self!r} must be finite and at least 0; got {tilts[wrong][0]} at step {at[wrong][0]:g}.")
        return tilts

    def then(self, other: Schedule, after: int) -> Schedule:
        """This schedule for the first `after` steps, then `other` from its own step 0."""
        check.whole("Schedule.then.after", after, low=1)
        if not isinstance(other, Schedule):
            raise TypeError(f"Schedule.then.other must be a schedule; got {check.shown(other)}.")
        return Schedule(
            lambda step: np.where(step < after, self(step), other(np.maximum(step - after, 0))),
            f"{self.text} for {after} steps, then {other.text}",
        )

    def __repr__(self) -> str:
        return f"Schedule({self.text})"


def constant(s: float) -> Schedule:
    """The same `s` at every step."""
    check.number("constant.s", s, low=0)
    value = float(s)
    return Schedule(lambda step: np.full(step.shape, value), f"s = {value:g}")


def linear(a: float, b: float, steps: int) -> Schedule:
    """From `a` at step 0 to `b` at step `steps`, in equal differences."""
    check.number("linear.a", a, low=0)
    check.number("linear.b", b, low=0)
    check.whole("linear.steps", steps, low=1)
    return Schedule(lambda step: a + (b - a) * np.clip(step / steps, 0, 1), f"linear from {a:g} to {b:g} in {steps} steps")


def geometric(a: float, b: float, steps: int) -> Schedule:
    """From `a` at step 0 to `b` at step `steps`, in equal ratios; both above 0."""
    check.number("geometric.a", a, low=0, low_open=True)
    check.number("geometric.b", b, low=0, low_open=True)
    check.whole("geometric.steps", steps, low=1)
    return Schedule(lambda step: a * (b / a) ** np.clip(step / steps, 0, 1), f"geometric from {a:g} to {b:g} in {steps} steps")


def staircase(values: Sequence[float], steps_each: int | Sequence[int]) -> Schedule:
    """`values` in turn, each for `steps_each` steps, one number for all or one for each; the last one stays."""
    stairs = check.finite_array("staircase.values", values, (1,), "(k,)")
    if np.any(stairs < 0):
        raise ValueError(f"staircase.values must be at least 0; got {float(stairs.min()):g}.")
    many = isinstance(steps_each, list | tuple | np.ndarray)
    lengths = [check.whole("staircase.steps_each", n, low=1) for n in (steps_each if many else [steps_each] * stairs.size)]  # type: ignore[union-attr]
    if len(lengths) != stairs.size:
        raise ValueError(
            f"staircase.steps_each must be one number or one for each of {stairs.size} values; got {len(lengths)}."
        )
    ends = np.cumsum(lengths)
    each = f"{steps_each} steps each" if not many else f"{min(lengths)} to {max(lengths)} steps each"
    return Schedule(
        lambda step: stairs[np.clip(np.searchsorted(ends, step, side="right"), 0, stairs.size - 1)],
        f"staircase over {', '.join(f'{v:g}' for v in stairs)}, {each}",
    )


def as_schedule(s: Any, steps: int) -> Schedule:
    """`s` as a schedule: a number, an array with one value a step (`steps` of them), or a schedule itself.

    A schedule is looked at over all `steps` here, so that a wrong value ends a run before it begins and not on the way.
    """
    if callable(s):
        schedule = s if isinstance(s, Schedule) else Schedule(s, getattr(s, "__name__", "s"))
        for first in range(0, steps, _AT_ONCE):
            schedule(np.arange(first, min(first + _AT_ONCE, steps)))
        return schedule
    array = check.numeric("s", s, "a number of at least 0, an array over steps, or a schedule")
    if array.ndim == 0:
        check.number("s", s, low=0)
        return constant(float(array))
    if array.shape != (steps,):
        raise ValueError(
            f"s must be a number, a schedule, or one value for each of the burn_in + steps = {steps} steps; "
            f"got shape {array.shape}."
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        wrong = int(np.argmax(~(np.isfinite(array) & (array >= 0))))
        raise ValueError(f"s must be finite and at least 0 at every step; got {array[wrong]} at step {wrong}.")
    return Schedule(lambda step: array[np.clip(step.astype(int), 0, steps - 1)], f"{steps} given values")
