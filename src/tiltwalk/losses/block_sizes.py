"""How many samples in a block and how many models at a time: a rule of thumb, or what was measured on this machine.

`measure_block(network)` tries a few of each and writes the fastest to a small JSON file in the user's cache folder
(`TILTWALK_CACHE`, else `XDG_CACHE_HOME/tiltwalk`, else `~/.cache/tiltwalk`); losses made afterwards take it. Sums over samples
depend on the block in their last digit, so a run that must be repeated bit for bit should name its block:
`Supervised(..., block=64)`.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tiltwalk.networks import Network
from tiltwalk.networks.layers import Conv


def rule_of_thumb(network: Network) -> tuple[int, int]:
    """Samples in a block and models in a group, where nothing was measured."""
    if jax.default_backend() != "cpu":
        return 2048, 64
    if network.program is None:
        return 128, 4
    if any(isinstance(layer, Conv) for layer in network.program):
        return 64, 4
    return 1024, 16


def cache_file() -> pathlib.Path:
    """Where measured sizes are kept."""
    folder = os.environ.get("TILTWALK_CACHE")
    if folder:
        return pathlib.Path(folder) / "blocks.json"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "tiltwalk" / "blocks.json"


def measured(network: Network) -> tuple[int, int] | None:
    """The sizes that were measured for this network on this machine, if they were."""
    if network.program is None:
        return None
    found = _read(str(cache_file())).get(_name(network))
    return (int(found[0]), int(found[1])) if found else None


def measure_block(
    network: Network, *, samples: int = 1024, models: int = 16, tries: Sequence[tuple[int, int]] | None = None
) -> tuple[int, int]:
    """Times the mean loss in plain JAX at several sizes `(samples in a block, models in a group)`, and keeps the fastest."""
    from tiltwalk.losses.supervised import Supervised  # above this file: it asks for sizes

    if network.program is None:
        raise ValueError("measure_block.network must be a network of our own layers; got an adapted one.")
    rule = rule_of_thumb(network)
    if tries is None:
        tries = [(max(1, int(rule[0] * a)), max(1, int(rule[1] * b))) for a in (0.5, 1, 2) for b in (0.5, 1, 2)]
    rng = np.random.default_rng(0)
    X, y = rng.random((samples, *network.input_shape)), rng.standard_normal((samples, network.n_out))
    thetas = jax.vmap(network.init)(jax.random.split(jax.random.key(0), models))
    times = {}
    for block, group in tries:
        loss = Supervised(network, X, y, _half_square, block=block).grouped(group)
        times[block, group] = _best(jax.jit(type(loss).__call__), loss, thetas)
    fastest = min(times, key=lambda sizes: times[sizes])
    _write(cache_file(), _name(network), fastest)
    return fastest


def _half_square(outputs: Any, y: Any) -> Any:
    """A loss that the kernel does not know, so that plain JAX is what is measured."""
    return ((outputs - y) ** 2).sum(1) / 2


def _best(function: Any, *args: Any) -> float:
    jax.block_until_ready(function(*args))  # type: ignore[no-untyped-call]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
    return min(times)


def _name(network: Network) -> str:
    device = jax.devices()[0]
    return f"{device.platform} {device.device_kind} {os.cpu_count()} jax {jax.__version__}: {network.program}"


@functools.cache
def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):  # nothing measured, or a file that was cut short: the rule of thumb serves
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: pathlib.Path, name: str, sizes: tuple[int, int]) -> None:
    _read.cache_clear()
    known = dict(_read(str(path)))
    known[name] = list(sizes)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(known, indent=1))
    aside.replace(path)
    _read.cache_clear()
