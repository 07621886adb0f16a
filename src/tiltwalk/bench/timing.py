"""Times on a machine that others use too: the best of many calls, with the machine's own limit measured in between.

The limit is the float32 product of two 2048 x 2048 matrices by JAX. A slow moment slows both, so each round times the product
and then every call, and of each the best is kept.
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

SIDE = 2048
SLICE = 0.03
"""Seconds that a call gets in a round, and at least one call: short ones are repeated, long ones are not."""


def once(call: Callable[[], Any]) -> float:
    """Seconds of one call, its results waited for."""
    began = time.perf_counter()
    jax.block_until_ready(call())  # type: ignore[no-untyped-call]
    return time.perf_counter() - began


def product(side: int = SIDE) -> Callable[[], Any]:
    """The matrix product, compiled and called once."""
    square = jax.random.normal(jax.random.key(0), (side, side), jnp.float32)
    multiply = jax.jit(lambda a: a @ a)
    jax.block_until_ready(multiply(square))  # type: ignore[no-untyped-call]
    return lambda: multiply(square)


def interleaved(
    calls: Mapping[str, Callable[[], Any]], seconds: float, limit: Callable[[], Any] | None = None, side: int = SIDE
) -> tuple[dict[str, float], float]:
    """The best seconds of each call, and the product's best FLOP/s; about `seconds` a call, and at least three rounds."""
    limit = limit or product(side)
    for call in calls.values():
        once(call)  # compiles
    best, fastest = dict.fromkeys(calls, float("inf")), float("inf")
    began, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - began < seconds * len(calls):
        fastest = min(fastest, once(limit))
        for name, call in calls.items():
            until = time.perf_counter() + SLICE
            best[name] = min(best[name], once(call))
            while time.perf_counter() < until:
                best[name] = min(best[name], once(call))
        rounds += 1
    return best, 2.0 * side**3 / fastest


def peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # Linux lets ru_maxrss of a new process begin with that of the process that started it; VmHWM is its own
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError as error:
        raise ImportError("Peak memory is measured on Linux and macOS alone.") from error
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
