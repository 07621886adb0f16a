"""Paths on a landscape of two parameters, by quadrature on a grid: the law of each model of a path, and log Z.

The models of a path are a Markov chain, tilted site by site. With `w = exp(-s L)` on the grid and `K` the walk's step,

    forward_1 = p w,    forward_{t+1} = w (K forward_t),    backward_tau = 1,    backward_t = K (w backward_{t+1}),

the law of model `t` is `forward_t backward_t / Z`, and `Z` their sum. Sums on an even grid are exact to rounding once it is
fine against all widths, since everything falls to zero at its border. It shares no line with the sampler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class OnGrid:
    """Log Z, and the law of the models of a path, averaged over the path, on the points `x` of the grid `(n, n, 2)`."""

    log_z: float
    law: np.ndarray
    x: np.ndarray
    losses: np.ndarray

    @property
    def mean_loss(self) -> float:
        return float(np.sum(self.law * self.losses))

    def share(self, inside: Callable[[np.ndarray], np.ndarray]) -> float:
        """The share of models for which `inside(x)` is true."""
        return float(np.sum(self.law * inside(self.x)))


def on_grid(loss: Any, s: float, *, sigma: float, scale: float, length: int, reach: float = 12.0, points: int = 600) -> OnGrid:
    """Of a random walk of `sigma` from a Gaussian start of `scale`, tilted by `s`."""
    axis = np.linspace(-reach, reach, points)
    h = axis[1] - axis[0]
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    losses = np.asarray(loss(x.reshape(-1, 2)), np.float64).reshape(points, points)
    tilt = np.exp(-s * losses)
    step = h * np.exp(-((axis[:, None] - axis[None]) ** 2) / (2 * sigma**2)) / np.sqrt(2 * np.pi * sigma**2)
    start = np.exp(-np.sum(x**2, -1) / (2 * scale**2)) / (2 * np.pi * scale**2) * h * h
    forward, backward = [start * tilt], [np.ones_like(tilt)]
    for _ in range(length - 1):
        forward.append(tilt * (step @ forward[-1] @ step))
        backward.append(step @ (tilt * backward[-1]) @ step)
    z = float(forward[-1].sum())
    law = np.mean([f * b for f, b in zip(forward, backward[::-1], strict=True)], 0) / z
    return OnGrid(float(np.log(z)), law, x, losses)
