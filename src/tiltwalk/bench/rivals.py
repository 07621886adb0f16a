"""The same LeNet, with the same weights, as users of Flax and of PyTorch would write it; and the prototypes' figures."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk.networks import Network

MODELS = 16
"""At a time, here as in the prototypes."""

ROW = re.compile(r"^(.*?)\s*([\d.]+) ms a model,?\s+(\d+) GFLOP/s", re.MULTILINE)


def flax_losses(network: Network, thetas: Any, X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """The losses of all models by `vmap` and by a loop, images as Flax has them: channels last."""
    from flax import linen

    def pool(x: Any) -> Any:
        return linen.max_pool(x, (2, 2), (2, 2))

    def flat(x: Any) -> Any:
        return x.reshape(len(x), -1)

    module = linen.Sequential(
        [
            *(linen.Conv(6, (5, 5), padding="VALID"), linen.relu, pool),
            *(linen.Conv(16, (5, 5), padding="VALID"), linen.relu, pool, flat),
            *(linen.Dense(120), linen.relu, linen.Dense(84), linen.relu, linen.Dense(10)),
        ]
    )
    names = list(jax.eval_shape(module.init, jax.random.key(0), X[:1])["params"])
    names.sort(key=lambda name: int(name.rsplit("_", 1)[1]))

    def weights(theta: Any) -> Any:
        parts = iter(network.unflatten(theta).values())
        found = {name: {"kernel": next(parts), "bias": next(parts)} for name in names}
        first = found[names[2]]  # reads pixels channels last, ours channels first
        first["kernel"] = first["kernel"].reshape(16, 4, 4, -1).transpose(1, 2, 0, 3).reshape(256, -1)
        return found

    def loss(weights: Any, X: Any, y: Any) -> Any:
        logits = module.apply({"params": weights}, X)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))

    stacked = jax.block_until_ready(jax.vmap(weights)(thetas))  # type: ignore[no-untyped-call]
    X, y = jnp.asarray(X), jnp.asarray(y)
    batched = jax.jit(jax.vmap(loss, (0, None, None)))
    looped = jax.jit(lambda all_weights, X, y: jax.lax.map(lambda w: loss(w, X, y), all_weights))
    return {"JAX, vmap of Flax": lambda: batched(stacked, X, y), "JAX, loop over Flax": lambda: looped(stacked, X, y)}


def torch_losses(network: Network, thetas: Any, X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """The losses of all models, one after another in eager mode, and by `torch.func.vmap`."""
    import torch
    from torch import nn

    module: Any = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    ).requires_grad_(False)
    names = [name for name, _ in module.named_parameters()]

    def weights(theta: Any) -> Any:
        parts = [np.asarray(part) for part in network.unflatten(theta).values()]
        # outputs first: (y, x, in, out) -> (out, in, y, x), (in, out) -> (out, in)
        turned = [p.transpose(3, 2, 0, 1) if p.ndim == 4 else p.T for p in parts]
        return {name: torch.tensor(np.ascontiguousarray(p)) for name, p in zip(names, turned, strict=True)}

    def loss(weights: Any, X: Any) -> Any:
        return nn.functional.cross_entropy(torch.func.functional_call(module, weights, (X,)), labels)

    def eager(each: Any, X: Any) -> Callable[[], Any]:
        def call() -> Any:
            with torch.inference_mode():
                return [float(loss(w, X)) for w in each]

        return call

    def batched() -> Any:
        with torch.inference_mode():
            return torch.func.vmap(loss, (0, None))(stacked, first).numpy()

    labels = torch.tensor(np.asarray(y), dtype=torch.int64)
    first = torch.tensor(np.ascontiguousarray(np.asarray(X).transpose(0, 3, 1, 2)))
    each = [weights(theta) for theta in thetas]
    stacked = {name: torch.stack([w[name] for w in each]) for name in names}

    def last(tensor: Any) -> Any:
        return tensor.to(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor

    each_last = [{name: last(tensor) for name, tensor in w.items()} for w in each]
    return {
        "PyTorch eager": eager(each, first),
        "PyTorch eager, channels_last": eager(each_last, last(first)),
        "PyTorch func.vmap": batched,
    }


def torch_product(side: int) -> Callable[[], Any]:
    """PyTorch's own matrix product, the limit that its rows are measured beside."""
    import torch

    square = torch.randn(side, side)
    return lambda: square @ square


def prototype(script: pathlib.Path, *args: str) -> tuple[str, float]:
    """The fastest row that a prototype prints: its name, and its seconds a model."""
    done = subprocess.run([sys.executable, str(script), *args], capture_output=True, text=True, check=False)
    rows = ROW.findall(done.stdout)
    if done.returncode or not rows:
        lines = done.stderr.strip().splitlines() or ["it printed no figures"]
        raise RuntimeError(f"{script.name}: {lines[-1]}")
    name, milliseconds, _ = min(rows, key=lambda row: float(row[1]))
    return name, float(milliseconds) / 1e3
