"""The exactness harness: whitened paths, for any move, rule, walk and start.

The linear perceptron's path law is Gaussian and known (`tiltwalk.exact`). Many chains start from exact draws, `k` steps of
the thing under test are applied, and the result, whitened by the exact precision, must be N(0, I): no burn-in, no
tolerance, fixed seeds. What is tested of the whitened numbers, each a p-value under that null law:

- the distribution of all of them together (Kolmogorov-Smirnov against the standard normal);
- their sum of squares (chi-square), which a deviation that is off by a few per cent moves most;
- every site on its own (chi-square, the least p-value corrected for their number);
- neighbouring coordinates' products, which a wrong coupling moves (normal for many terms).

A chain that was never moved passes all of them, so every case also asserts that the moves moved something.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

import tiltwalk as tw

LEVEL = 0.05
"""The chance, over all tests of a family together, of failing where everything is right."""


@dataclasses.dataclass(frozen=True)
class Perceptron:
    """A small linear perceptron with its oracle and its loss."""

    oracle: tw.exact.LinearPerceptron
    loss: Any

    @property
    def dim(self) -> int:
        return int(self.loss.dim)


def perceptron(inputs: int = 1, outputs: int = 1, samples: int = 24, seed: int = 11) -> Perceptron:
    """Noisy linear data, whose features differ in scale and overlap a little."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, inputs)) * np.linspace(0.6, 1.4, inputs) + 0.3
    Y = X @ rng.normal(size=(inputs, outputs)) + 0.5 + 0.3 * rng.normal(size=(samples, outputs))
    return Perceptron(tw.exact.LinearPerceptron(X, Y), tw.losses.least_squares(X, Y))


def law_of(walk: Any) -> dict[str, Any]:
    """The arguments by which the oracle knows a walk."""
    if isinstance(walk, tw.OrnsteinUhlenbeck):
        return {"sigma": walk.sigma, "pull": float(walk.pull), "centre": walk.centre}
    scale = getattr(walk.start, "scale", None)
    return {"sigma": walk.sigma} if scale is None else {"sigma": walk.sigma, "start_scale": scale}


def whitened_after(
    case: Perceptron, walk: Any, length: int, moves: Any, *, s: float, steps: int, chains: int, seed: int, **more: Any
) -> tuple[np.ndarray, float]:
    """Whitened paths `(chains, tau, d)` after `steps` steps from exact draws, and the share of models that moved."""
    law = law_of(walk)
    start = case.oracle.draw(seed, chains, s, length=length, **law)
    measure = tw.PathMeasure(walk, case.loss, length)
    run = tw.sample(
        measure, s, steps=steps, chains=chains, key=seed, init=start, moves=moves, progress=False,
        keep=lambda state: jnp.zeros(()), thin=steps, **more,
    )  # fmt: skip
    end = np.asarray(run.state.path, np.float64)
    moved = float(np.mean(np.any(end != start.astype(end.dtype).astype(np.float32).astype(np.float64), -1)))
    return case.oracle.whiten(end, s, length=length, **law), moved


def p_values(white: np.ndarray) -> dict[str, float]:
    """The p-values of whitened paths `(n, tau, d)` under N(0, I)."""
    n, length, dim = white.shape
    flat = white.ravel()
    squares = np.sum(white**2, (0, 2))
    of_sites = _two_sided(stats.chi2(n * dim), squares)
    coupling = [1.0]
    for first, second in ((white[:, 1:], white[:, :-1]), (white[:, :, 1:], white[:, :, :-1])):
        if first.size:
            terms = first.shape[0] * first.shape[2] if first.shape[1] < length else first.shape[0] * length
            axes = (0, 2) if first.shape[1] < length else (0, 1)
            coupling += list(2 * stats.norm.sf(np.abs(np.sum(first * second, axes)) / np.sqrt(terms)))
    return {
        "distribution": float(stats.kstest(flat, "norm").pvalue),
        "mean": float(2 * stats.norm.sf(abs(flat.sum()) / np.sqrt(flat.size))),
        "squares": float(_two_sided(stats.chi2(flat.size), np.asarray([squares.sum()]))[0]),
        "sites": corrected(of_sites),
        "coupling": corrected(coupling),
    }  # fmt: skip


def _two_sided(law: Any, values: np.ndarray) -> np.ndarray:
    return 2 * np.minimum(law.cdf(values), law.sf(values))


def corrected(p: Sequence[float] | np.ndarray) -> float:
    """The least of several p-values as one p-value (Šidák)."""
    least = float(np.min(p))
    return float(-np.expm1(np.size(p) * np.log1p(-min(least, 1 - 1e-16))))


def least_p(white: np.ndarray) -> float:
    """One p-value for whitened paths."""
    return corrected(list(p_values(white).values()))
