"""The compiled kernel's one Python door: losses of many networks on one data set, at the machine's speed.

Data lie in blocks of 16 samples, samples last: `pack` makes them once. The calls work inside `jit`, `scan`, `vmap` and
`shard_map`; under `vmap` the models of all chains become the rows of one call. Arithmetic is float32, sums over samples are
in double and do not depend on the number of threads.

`program` is a layer program of `tiltwalk.networks.layers` and `shape` the shape of one sample, channels first. `kind` is
"cross_entropy", "mse" (half the sum of squares over the outputs), "zero_one" or "outputs".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltwalk.native.library import load

if TYPE_CHECKING:
    from tiltwalk.networks.layers import Program, Shape

from tiltwalk.native.calls import BLOCK, Packed, losses, outputs, pack, per_sample, value_and_grad

__all__ = [
    "BLOCK",
    "Packed",
    "available",
    "losses",
    "outputs",
    "pack",
    "per_sample",
    "reason",
    "supports",
    "target",
    "value_and_grad",
]


def available() -> bool:
    """Whether the compiled kernel can be used in this process, on its CPU."""
    return load().handle is not None


def reason() -> str:
    """Which kernel is in use, or why none is."""
    return load().reason


def target() -> str:
    """The instructions in use: "avx512", "avx2", "neon", "plain", or "none"."""
    return load().target


def supports(program: Program, shape: Shape, kind: str = "cross_entropy") -> bool:
    """Whether the kernel is there and computes this program with this loss."""
    from tiltwalk.native.library import wrong_with
    from tiltwalk.native.program import KINDS, encode

    if not available() or kind not in KINDS:
        return False
    try:
        return wrong_with(encode(program, shape)) == ""
    except TypeError:
        return False
