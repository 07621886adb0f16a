"""Whether a series has settled: long against its own memory, and with no difference between its halves.

With `t` the autocorrelation time of a series of `n` values, `n / t` of them count as independent, and the error of its mean is

    error = sqrt(variance * t / n).

The halves' means differ by `2 * error` in the mean square where nothing drifts. A series has settled if `n / t` is at least
`ENOUGH` and the difference of the halves at most 2 of its standard errors. Neither condition does alone: a slow drift looks
like a long memory, which makes the error large and the difference unremarkable, and is caught by the first; a drift under
much noise leaves the memory short, and is caught by the second. Variance and autocorrelation are taken within the halves,
the sum over lags ends with the first pair whose sum is negative (Geyer 1992, the initial monotone sequence), and what taking
out the means of the halves took from it is given back: a fifth of the error, where 40 values count.

A chain that is caught in one of two parts of the space looks settled to any test of one series: `settled` is necessary for
equilibrium, and no proof of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

ENOUGH = 40
LARGEST_Z = 2.0
FEWEST = 16
LARGEST_BIAS = 0.5
"""Of the sum of autocovariances, at most: a window as long as the series says nothing."""


@dataclass(frozen=True)
class Settling:
    """Mean of a series and its error, `z` of the halves' difference, how many values count, and what follows."""

    mean: float
    standard_error: float
    z: float
    effective: float
    settled: bool
    why: str


def judge(series: Float[np.ndarray, " n"], *, enough: float = ENOUGH) -> Settling:
    """Judges a series; one that has not settled has the mean of its second half, which is nearer to where it is going."""
    x = np.asarray(series, np.float64)
    half = len(x) // 2
    if len(x) < FEWEST:
        mean = float(x[half:].mean()) if len(x) else 0.0
        return Settling(mean, 0.0, 0.0, 0.0, False, f"only {len(x)} values")
    first, second = x[:half], x[-half:]
    covariance = (autocovariance(first - first.mean()) + autocovariance(second - second.mean())) / 2
    # rounding leaves a little variance in a series that never changed
    if covariance[0] <= 1e-14 * max(1.0, float(np.mean(x)) ** 2):
        return Settling(float(second.mean()), 0.0, 0.0, 0.0, False, "nothing moved")
    total, lags = _summed(covariance / covariance[0])
    # the mean of a half, taken out, has lowered the autocovariance at each lag by its own variance: the sum over half
    spectrum = covariance[0] * max(1.0, total) / (1 - min(lags / half, LARGEST_BIAS))
    effective = float(len(x) * (covariance[0] + spectrum / half) / spectrum)
    error = float(np.sqrt(spectrum / len(x)))
    z = float((second.mean() - first.mean()) / (2 * error))
    if effective < enough:
        why = f"too short: {effective:.0f} independent values of {enough:.0f}"
    elif abs(z) > LARGEST_Z:
        why = f"drifts: the halves differ by {z:+.1f} standard errors"
    else:
        why = "settled"
    if why == "settled":
        return Settling(float(x.mean()), error, z, effective, True, why)
    return Settling(float(second.mean()), float(np.sqrt(2)) * error, z, effective, False, why)


def autocorrelation_time(covariance: Float[np.ndarray, " lags"]) -> float:
    """`1 + 2 * sum of the autocorrelations`, at least 1, from autocovariances at lags 0, 1, ..."""
    return max(1.0, _summed(covariance / covariance[0])[0])


def _summed(rho: Float[np.ndarray, " lags"]) -> tuple[float, int]:
    """The sum over lags on both sides of 0, and how many lags it is over."""
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(1)
    negative = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: negative[0] if len(negative) else len(pairs)])
    return float(2 * kept.sum() - 1), 4 * len(kept) - 1


def autocovariance(x: Float[np.ndarray, "*many n"]) -> Float[np.ndarray, "*many n"]:
    """Autocovariances at lags 0, 1, ... of series along the last axis whose mean is known to be 0 (or was taken out)."""
    n = x.shape[-1]
    power = np.abs(np.fft.rfft(x, 2 * n)) ** 2
    covariance: Float[np.ndarray, "*many n"] = np.fft.irfft(power, 2 * n)[..., :n] / n
    return covariance
