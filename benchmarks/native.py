"""The compiled kernel against this machine's matrix product: GFLOP/s and share, for each target. python benchmarks/native.py

Every figure is the best of many calls, and the float32 matrix product of 2048 x 2048 is measured between them, so that what
else the machine does falls on both. "gradient" is the time of loss and gradient over that of the loss.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk import native
from tiltwalk.native.library import TARGETS, runs_target
from tiltwalk.networks.layers import Activation, Conv, Dense, Flatten, MaxPool, Program, Shape, parameter_shapes, shapes

SAMPLES = 2048
SIDE = 2048
RELU, POOL = Activation("relu"), MaxPool(2)
NETWORKS: dict[str, tuple[Program, Shape, int]] = {
    "LeNet": (
        (
            *(Conv(5, 1, 6), RELU, POOL, Conv(5, 6, 16), RELU, POOL, Flatten()),
            *(Dense(256, 120), RELU, Dense(120, 84), RELU, Dense(84, 10)),
        ),
        (1, 28, 28),
        16,
    ),
    "MLP 784-64-10": ((Dense(784, 64), RELU, Dense(64, 10)), (784,), 64),
    "3x3, 16-32-64": (
        (
            *(Conv(3, 3, 16, 1, "same"), RELU, POOL, Conv(3, 16, 32, 1, "same"), RELU, POOL),
            *(Conv(3, 32, 64, 1, "same"), RELU, POOL, Flatten(), Dense(1024, 10)),
        ),
        (3, 32, 32),
        4,
    ),
}


def operations(program: Program, shape: Shape) -> float:
    """Multiplications and additions of one sample."""
    total = 0
    for layer, out in zip(program, shapes(program, shape)[1:], strict=True):
        if isinstance(layer, Conv):
            total += 2 * layer.kernel**2 * layer.in_channels * int(np.prod(out))
        elif isinstance(layer, Dense):
            total += 2 * layer.n_in * layer.n_out
    return float(total)


def seconds(run: Callable[..., Any], *args: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - start


def measure(name: str, target: str, models: int, rounds: int) -> tuple[float, float, float]:
    """Seconds of the loss, of loss and gradient, and of the matrix product."""
    program, shape, _ = NETWORKS[name]
    keys = jax.random.split(jax.random.key(0), 4)
    X = jax.random.uniform(keys[0], (SAMPLES, *shape))
    packed = native.pack(X, jax.random.randint(keys[1], (SAMPLES,), 0, 10))
    d = sum(int(np.prod(s)) for layer in program for s in parameter_shapes(layer))
    thetas = 0.1 * jax.random.normal(keys[2], (models, d))
    square = jax.random.normal(keys[3], (SIDE, SIDE))

    product = jax.jit(jnp.matmul)
    loss = jax.jit(lambda t, p: native.losses(program, shape, "cross_entropy", t, p, target=target))
    slope = jax.jit(lambda t, p: native.value_and_grad(program, shape, "cross_entropy", t, p, target=target))
    best = [np.inf] * 3
    for i in range(rounds + 1):
        found = seconds(loss, thetas, packed), seconds(slope, thetas, packed), seconds(product, square, square)
        if i:
            best = [min(a, b) for a, b in zip(best, found, strict=True)]
    return best[0], best[1], best[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="calls of each, of which the fastest counts")
    parser.add_argument("--targets", nargs="+", default=[t for t in TARGETS if runs_target(t)])
    options = parser.parse_args()
    print(native.reason())
    if not native.available():
        return
    print(
        f"{'network':14s} {'target':8s} {'models':>6s} {'ms a model':>11s} {'GFLOP/s':>8s} {'of product':>10s} {'gradient':>9s}"
    )
    for target in options.targets:
        for name, (program, shape, many) in NETWORKS.items():
            for models in (many, 1):
                loss, slope, product = measure(name, target, models, options.rounds)
                rate, peak = operations(program, shape) * SAMPLES * models / loss, 2 * SIDE**3 / product
                figures = f"{loss / models * 1e3:11.3f} {rate / 1e9:8.0f} {rate / peak:10.0%} {slope / loss:8.2f}x"
                print(f"{name:14s} {target:8s} {models:6d} {figures}", flush=True)


if __name__ == "__main__":
    main()
