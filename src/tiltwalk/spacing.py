"""Where tilts should be: those of a ladder, for swaps that are made equally often all along, and the next one after some draws.

With `L, L'` the total losses of two draws at the same `s`, rungs that are `ds` apart refuse a share `barrier(s) ds` of swaps,

    barrier(s) = E|L - L'| / 2,

so the integral of `barrier` between neighbours must be the same for all (Syed, Bouchard-Côté, Deligiannidis, Doucet 2022, where
it is the local communication barrier). A round trip takes the fewest steps where neighbours swap about every other time, which
is for about twice as many rungs as the integral over the whole ladder.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def barrier(totals: Float[np.ndarray, "rungs n"]) -> Float[np.ndarray, " rungs"]:
    """`E|L - L'| / 2` at each rung, from draws of the total loss."""
    n = totals.shape[1]
    weights = (2 * np.arange(1, n + 1) - n - 1) / (n * (n - 1))
    return np.asarray(np.sort(totals, 1) @ weights)


def respaced(
    s: Float[np.ndarray, " k"], barriers: Float[np.ndarray, " k"], rungs: int | None, offset: float
) -> Float[np.ndarray, " rungs"]:
    """Tilts from `s[0]` to `s[-1]` with equal integrals of the barrier between neighbours.

    Between the tilts where it was measured, the barrier is a power of `s + offset`.
    """
    place = np.log(s + offset)
    fine = np.linspace(place[0], place[-1], 4001)
    height = np.exp(np.interp(fine, place, np.log(np.maximum(barriers, 1e-12 * barriers.max() + 1e-300))) + fine)
    total = np.concatenate([[0.0], np.cumsum((height[1:] + height[:-1]) / 2 * np.diff(fine))])
    rungs = max(2, round(2 * float(total[-1])) + 1) if rungs is None else rungs
    new = np.exp(np.interp(np.linspace(0, total[-1], rungs), total, fine)) - offset
    new[0], new[-1] = s[0], s[-1]
    return np.asarray(new)


def share(totals: Float[np.ndarray, " n"], ds: float) -> float:
    """What share of draws counts, in effect, when their tilt is raised by `ds`: `(sum w)^2 / (n sum w^2)`, `w = exp(-ds L)`."""
    exponents = -ds * totals
    weights = np.exp(exponents - exponents.max())
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


def farthest(totals: Float[np.ndarray, " n"], now: float, end: float, least: float) -> float:
    """The tilt farthest from `now` towards `end` (which may be infinite) at which a share `least` of the draws still counts."""
    totals = np.asarray(totals, np.float64)
    far = end - now
    if np.isinf(far):
        far = 1 / max(float(np.std(totals)), 1e-12 * float(np.abs(totals).max()), 1e-30)
        while share(totals, far) >= least and far < 1e6 * max(now, 1.0):
            far *= 2
        end = now + far
    if share(totals, far) >= least:
        return end
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if share(totals, middle * far) >= least else (low, middle)
    # a step that rounding would swallow is still a step
    found = now + max(low, 1e-9) * far
    return found if found != now else end
