"""The mean loss of sampled paths is the closed form's, over a grid of tilt, walk and length, in float32 and float64."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import tiltwalk as tw
from tests.statistics import perceptron

TILTS = (0.3, 1.0, 5.0, 30.0, 200.0)
SIGMAS = (0.05, 0.2, 0.7, 3.0)
LENGTHS = (1, 4, 16)
CHAINS = 256


def worst_deviation() -> tuple[float, int]:
    """The largest distance of a sampled mean from the exact one in standard errors, over the grid, and the grid's size.

    Chains are independent and start from exact draws, so each chain's mean is unbiased at any number of steps, and the
    standard error over chains is the right one; what could go wrong is what the sampler does to the law.
    """
    case = perceptron(inputs=1)
    found = []
    for length in LENGTHS:
        for i, (s, sigma) in enumerate((s, sigma) for s in TILTS for sigma in SIGMAS):
            measure = tw.PathMeasure(tw.RandomWalk(sigma), case.loss, length)
            start = case.oracle.draw(100 * length + i, CHAINS, s, sigma, length)
            run = tw.sample(measure, s, steps=400, thin=2, chains=CHAINS, key=i, init=start, progress=False)
            means = run.losses.mean((1, 2), dtype=np.float64)
            error = means.std(ddof=1) / np.sqrt(CHAINS)
            found.append((means.mean() - case.oracle.expected_loss(s, sigma, length)) / error)
    return float(np.max(np.abs(found))), len(found)


def test_every_mean_loss_is_within_4_standard_errors_in_float32() -> None:
    worst, points = worst_deviation()
    print(f"\nfloat32: {points} points, the farthest {worst:.2f} standard errors from the closed form")
    assert points == 60
    assert worst < 4


def test_every_mean_loss_is_within_4_standard_errors_in_float64() -> None:
    code = "from tests.test_grid import worst_deviation; print(*worst_deviation())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "JAX_ENABLE_X64": "1"}, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    worst, points = done.stdout.split()
    print(f"\nfloat64: {points} points, the farthest {float(worst):.2f} standard errors from the closed form")
    assert int(points) == 60
    assert float(worst) < 4


@pytest.mark.parametrize("s", [0.8, 1.25])
def test_a_tilt_that_is_off_would_be_seen(s: float) -> None:
    case = perceptron(inputs=1)
    measure = tw.PathMeasure(tw.RandomWalk(0.2), case.loss, 4)
    start = case.oracle.draw(1, CHAINS, 5.0, 0.2, 4)
    run = tw.sample(measure, 5.0 * s, steps=400, thin=2, chains=CHAINS, init=start, progress=False)
    means = run.losses.mean((1, 2), dtype=np.float64)
    away = (means.mean() - case.oracle.expected_loss(5.0, 0.2, 4)) / (means.std(ddof=1) / np.sqrt(CHAINS))
    assert abs(away) > 4
