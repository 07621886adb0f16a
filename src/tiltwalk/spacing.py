"""Where the rungs of a ladder should be, for swaps that are made equally often all along.

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
