"""Effective samples a second: a sampler is called for pieces of a run until its time is up; the fastest piece says its rate.

What is kept of a path is two numbers: the time-integrated loss `Lsum` and the norm of the first model. Their effective sample
sizes (bulk ESS by ArviZ, of up to 64 chains, scaled to all) are those of all pieces together. The first piece compiles and
does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from tiltwalk.bench.perceptron import effective

NAMES = ("Lsum", "norm")


@dataclass(frozen=True)
class Piece:
    """What a call found: `kept (chains, draws, 2)`, losses of single models evaluated (a loss with its gradient is one), how
    many of them with a gradient, and the share of proposals that were accepted."""

    kept: np.ndarray
    evaluations: float
    gradients: float
    acceptance: float


Go = Callable[[], Piece]


def seen(total: Any, first: Any) -> Any:
    """What is kept of a path: its `Lsum`, and the norm of its first model."""
    return jnp.stack([total, jnp.sqrt(jnp.sum(first**2))])


def clocked(go: Go, seconds: float, length: int, exact: float) -> dict[str, Any]:
    """The rates of a sampler that was called for about `seconds`, and at least twice."""
    go()
    pieces: list[Piece] = []
    times: list[float] = []
    while len(pieces) < 2 or sum(times) < seconds:
        began = time.perf_counter()
        pieces.append(go())
        times.append(time.perf_counter() - began)
    kept = np.concatenate([piece.kept for piece in pieces], 1)
    each = np.array([piece.evaluations / t for piece, t in zip(pieces, times, strict=True)])
    rate, evaluations = float(each.max()), sum(piece.evaluations for piece in pieces)
    row: dict[str, Any] = {"chains": len(kept), "draws": kept.shape[1], "evaluations_per_second": rate}
    for i, name in enumerate(NAMES):
        size = effective(kept[:, :, i])
        row[f"ess_per_evaluation_{name}"] = size / evaluations
        row[f"ess_per_second_{name}"] = size / evaluations * rate
        if name == "Lsum":
            error = float(np.std(kept[:, :, 0], dtype=np.float64)) / np.sqrt(size) / length
    mean = float(np.mean(kept[:, :, 0], dtype=np.float64)) / length
    return row | {
        "with_gradient": bool(pieces[0].gradients),
        "acceptance": float(np.mean([piece.acceptance for piece in pieces])),
        "mean_loss": mean,
        "mean_loss_error": error,
        "exact": exact,
        "agrees": bool(abs(mean - exact) < 4.5 * error),
        "seconds": sum(times),
    }
