"""The parts of the benchmark of networks, each measured in a process of its own: `python -m tiltwalk.bench.parts name json`.

A process of its own, since the kernel's target is chosen once a process, PyTorch's threads and XLA's must not compete, and
peak memory belongs to a process. A part takes `Sizes` and returns what it measured; the last line printed is that, as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tiltwalk as tw
from tiltwalk import native
from tiltwalk.bench import rivals, subjects, timing

SIGMA, TILT = 0.05, 10.0


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured: images, seconds a call, the most models at a time, the length of a path, the product's side."""

    samples: int = 2048
    seconds: float = 3.0
    most_models: int = 64
    length: int = 32
    side: int = timing.SIDE


def supervised(name: str, samples: int) -> tw.losses.Supervised:
    """The loss that is measured: cross entropy of a network on its images."""
    X, y = subjects.images(samples)
    return tw.losses.Supervised(subjects.networks()[name], subjects.inputs(name, X), y)


def row(kind: str, how: str, name: str, models: int, seconds: float, loss: Any = None) -> dict[str, Any]:
    """A measurement: `seconds` for one call with `models` models, and the loss of the first as proof of what was computed."""
    found = {"kind": kind, "how": how, "network": name, "models": models, "seconds_per_model": seconds / models}
    return found if loss is None else {**found, "loss": float(np.asarray(loss).ravel()[0])}


def losses(sizes: Sizes, gradients: bool = True) -> dict[str, Any]:
    """Many models at a time, one alone, and the gradient, through the public loss object."""
    value: Any = jax.jit(lambda loss, thetas: loss(thetas))
    gradient: Any = jax.jit(lambda loss, thetas: loss.value_and_grad(thetas))
    calls: dict[tuple[str, str, int], Callable[[], Any]] = {}
    for name, network in subjects.networks().items():
        loss, count = supervised(name, sizes.samples), min(subjects.MODELS[name], sizes.most_models)
        for models in (count, 1):
            thetas = subjects.models(network, subjects.MODELS[name])[:models]
            calls["loss", name, models] = functools.partial(value, loss, thetas)
            if gradients and models > 1:
                calls["gradient", name, models] = functools.partial(gradient, loss, thetas)
    best, peak = timing.interleaved({json.dumps(key): call for key, call in calls.items()}, sizes.seconds, side=sizes.side)
    how = f"ours, {native.target()} kernel" if native.available() else "ours, plain JAX"
    rows = []
    for (kind, name, models), call in calls.items():
        rows.append(row(kind, how, name, models, best[json.dumps([kind, name, models])], jax.tree.leaves(call())[0]))
    return {"rows": rows, "peak": peak, "target": native.target(), "reason": native.reason()}


def forward(sizes: Sizes) -> dict[str, Any]:
    """As `losses`, without gradients."""
    return losses(sizes, gradients=False)


def flax(sizes: Sizes) -> dict[str, Any]:
    """The Flax LeNet."""
    return _rivals(rivals.flax_losses, sizes, None)


def torch(sizes: Sizes) -> dict[str, Any]:
    """The PyTorch LeNet, beside PyTorch's matrix product."""
    found = _rivals(rivals.torch_losses, sizes, rivals.torch_product(sizes.side))
    return {**found, "peak": None, "torch_peak": found["peak"]}


def _rivals(make: Callable[..., dict[str, Callable[[], Any]]], sizes: Sizes, limit: Any) -> dict[str, Any]:
    name = subjects.LENET
    network, (X, y) = subjects.networks()[name], subjects.images(sizes.samples)
    count = min(rivals.MODELS, sizes.most_models)
    calls = make(network, subjects.models(network, subjects.MODELS[name])[:count], X, y)
    best, peak = timing.interleaved(calls, sizes.seconds, limit, sizes.side)
    return {"rows": [row("loss", how, name, count, best[how], call()) for how, call in calls.items()], "peak": peak}


def sampling(sizes: Sizes) -> dict[str, Any]:
    """Updates a second of `tw.sample`: the paper's moves, one model an update, and sweeps, half a path at once."""
    rows, fastest, limit = [], float("inf"), timing.product(sizes.side)
    mixtures: dict[str, Any] = {"the paper's moves": tw.moves.paper(sizes.length), "sweeps": tw.moves.Sweep(step=0.1)}
    for name, how in ((subjects.LENET, "the paper's moves"), (subjects.LENET, "sweeps"), (subjects.MLP, "the paper's moves")):
        network, loss = subjects.networks()[name], supervised(name, sizes.samples)
        measure = tw.PathMeasure(tw.RandomWalk(SIGMA, start=tw.Normal(network.scale())), loss, sizes.length)
        init: Any = jnp.broadcast_to(network.init(0), (sizes.length, network.dim))
        steps, rate, until = 8, 0.0, time.perf_counter() + 2 * sizes.seconds
        for i in range(100):
            fastest = min(fastest, timing.once(limit))
            began = time.perf_counter()
            init = tw.sample(measure, TILT, steps=steps, moves=mixtures[how], init=init, key=i, keep=_total, progress=False)
            taken = time.perf_counter() - began
            if i > 1:  # the first two compile
                rate = max(rate, init.evaluations / taken)
                if i > 3 and time.perf_counter() > until:
                    break
            steps = max(8, int(steps * min(8.0, sizes.seconds / 4 / taken)))
        rows.append(row("updates", f"ours, {how}", name, 1, 1 / rate))
    return {"rows": rows, "peak": 2.0 * sizes.side**3 / fastest}


def _total(state: tw.ChainState) -> Any:
    return jnp.sum(state.losses)


def memory(sizes: Sizes) -> dict[str, Any]:
    """The most memory of a process that evaluates 32 LeNets on `samples` images, data included."""
    network = subjects.networks()[subjects.LENET]
    X, y = subjects.images(sizes.samples)
    before = timing.peak_memory()
    loss = tw.losses.Supervised(network, X, y)
    made = timing.peak_memory()
    thetas = subjects.models(network, min(subjects.MODELS[subjects.LENET], sizes.most_models))
    jax.block_until_ready(loss(thetas))  # type: ignore[no-untyped-call]
    how = f"ours, {native.target()} kernel" if native.available() else "ours, plain JAX"
    found = {"bytes": timing.peak_memory(), "bytes_made": made, "bytes_before": before, "data_bytes": X.nbytes}
    row = {"kind": "memory", "how": how, "network": subjects.LENET, "models": len(thetas), "samples": sizes.samples}
    return {"rows": [{**row, **found}], "peak": None}


PARTS = {part.__name__: part for part in (losses, forward, flax, torch, sampling, memory)}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](Sizes(**json.loads(sys.argv[2])))))
