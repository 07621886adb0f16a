"""Schedules: functions of the step, their values at and past both ends, how they join, and that a run follows them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltwalk as tw
from tiltwalk import schedules

TILTS = st.floats(0.001, 1e4)
STEPS = st.integers(1, 10_000)
quick = settings(max_examples=50, derandomize=True, deadline=None)


def at(schedule: Any, *steps: int) -> list[float]:
    return [float(schedule(step)) for step in steps]


def test_constant_is_the_same_everywhere() -> None:
    assert at(schedules.constant(2.5), 0, 1, 10**9) == [2.5, 2.5, 2.5]


def test_linear_goes_in_equal_differences_and_stays_at_its_end() -> None:
    assert at(schedules.linear(1, 3, steps=4), 0, 1, 2, 3, 4, 5, 10**9) == [1, 1.5, 2, 2.5, 3, 3, 3]
    assert at(schedules.linear(3, 1, steps=4), 0, 2, 4) == [3, 2, 1]


def test_geometric_goes_in_equal_ratios_and_stays_at_its_end() -> None:
    np.testing.assert_allclose(at(schedules.geometric(1, 16, steps=4), 0, 1, 2, 3, 4, 99), [1, 2, 4, 8, 16, 16], rtol=1e-12)


def test_a_staircase_has_every_value_for_as_many_steps_and_keeps_the_last() -> None:
    assert at(schedules.staircase([1, 5, 2], steps_each=3), *range(11)) == [1, 1, 1, 5, 5, 5, 2, 2, 2, 2, 2]


def test_stairs_may_differ_in_length() -> None:
    assert at(schedules.staircase([1, 5, 2], steps_each=[1, 3, 2]), *range(8)) == [1, 5, 5, 5, 2, 2, 2, 2]
    with pytest.raises(ValueError, match=r"staircase.steps_each must be one number or one for each of 2 values; got 3."):
        schedules.staircase([1, 5], steps_each=[1, 2, 3])


def test_then_starts_the_second_schedule_at_its_own_step_0() -> None:
    joined = schedules.linear(0, 10, steps=10).then(schedules.staircase([20, 30], steps_each=2), after=5)
    assert at(joined, *range(10)) == [0, 1, 2, 3, 4, 20, 20, 30, 30, 30]


def test_schedules_join_more_than_once() -> None:
    joined = schedules.constant(1).then(schedules.constant(2), after=2).then(schedules.constant(3), after=4)
    assert at(joined, *range(6)) == [1, 1, 2, 2, 3, 3]


@quick
@given(TILTS, TILTS, STEPS, st.integers(0, 20_000))
def test_linear_and_geometric_stay_between_their_ends_and_reach_both(a: float, b: float, steps: int, step: int) -> None:
    for schedule in (schedules.linear(a, b, steps), schedules.geometric(a, b, steps)):
        np.testing.assert_allclose(at(schedule, 0, steps), [a, b], rtol=1e-9)
        assert min(a, b) * (1 - 1e-9) <= float(schedule(step)) <= max(a, b) * (1 + 1e-9)


@quick
@given(st.lists(TILTS, min_size=1, max_size=6), st.integers(1, 50), TILTS, st.integers(1, 300))
def test_an_array_of_steps_gives_what_the_steps_give_one_by_one(values: list[float], each: int, end: float, after: int) -> None:
    schedule = schedules.staircase(values, each).then(schedules.linear(values[-1], end, 40), after)
    steps = np.arange(400)
    np.testing.assert_array_equal(schedule(steps), at(schedule, *steps))


def test_a_schedule_says_what_it_is() -> None:
    joined = schedules.linear(0, 10, steps=100).then(schedules.staircase([10, 20], steps_each=5), after=100)
    assert repr(joined) == (
        "Schedule(linear from 0 to 10 in 100 steps for 100 steps, then staircase over 10, 20, 5 steps each)"
    )


@pytest.mark.parametrize("s", [2, 2.0, np.float32(2), jnp.asarray(2.0), np.int64(2)], ids=lambda s: type(s).__name__)
def test_any_number_is_a_constant(s: Any) -> None:
    np.testing.assert_array_equal(schedules.as_schedule(s, 5)(np.arange(5)), np.full(5, 2.0))


@pytest.mark.parametrize("make", [list, tuple, np.asarray, jnp.asarray], ids=["list", "tuple", "numpy", "jax"])
def test_values_over_steps_are_a_schedule(make: Any) -> None:
    np.testing.assert_array_equal(schedules.as_schedule(make([0.0, 1.0, 4.0]), 3)(np.arange(3)), [0.0, 1.0, 4.0])


def test_a_function_of_the_step_is_a_schedule() -> None:
    np.testing.assert_array_equal(schedules.as_schedule(lambda step: step**2, 4)(np.arange(4)), [0, 1, 4, 9])
    np.testing.assert_array_equal(schedules.as_schedule(lambda step: 3.0, 4)(np.arange(4)), np.full(4, 3.0))


def test_a_schedule_that_goes_wrong_late_is_refused_before_the_run() -> None:
    late = 3 * 2**16 + 5
    with pytest.raises(ValueError, match=f"got -1.0 at step {late}"):
        schedules.as_schedule(lambda step: np.where(step == late, -1.0, 1.0), late + 1)
    schedules.as_schedule(lambda step: np.where(step == late, -1.0, 1.0), late)  # one step fewer never asks


def measure() -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(1.0)), tw.losses.double_well(), 2)


def test_a_run_has_the_tilt_of_each_draw_with_burn_in_and_thinning_counted() -> None:
    run = tw.sample(measure(), np.arange(14.0), steps=9, burn_in=5, thin=3, progress=False)
    np.testing.assert_array_equal(run.s, [7.0, 10.0, 13.0])


def test_the_tilt_of_a_step_is_the_one_that_decides_it() -> None:
    """Without a tilt every proposal is taken, with a huge one none that raises the loss; so a switch shows in the losses."""
    switch = schedules.constant(0.0).then(schedules.constant(1e9), after=20)
    run = tw.sample(measure(), switch, steps=40, chains=4, key=1, progress=False)
    change = np.diff(run.losses, axis=1)
    assert np.all(change[:, :19] != 0)  # steps 1 to 19: every model is redrawn at every step
    assert np.any(change[:, :19] > 0.1)
    assert np.all(change[:, 19:] <= 1e-6)  # steps 20 to 39: downhill alone


def test_equal_tilts_give_equal_runs_however_they_are_given() -> None:
    runs = [
        tw.sample(measure(), s, steps=12, burn_in=2, chains=2, key=4, progress=False).losses
        for s in (1.5, np.full(14, 1.5), schedules.constant(1.5), lambda step: 1.5, schedules.staircase([1.5, 1.5], 3))
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)
