"""A random permutation of `0 .. size - 1`, of which any places can be asked for.

Walked through from the front, it draws without replacement, and the whole of it is never held.

Swap or not (Hoang, Morris, Rogaway 2012): in each round `x` and its partner `k - x` modulo `size` change places, or do
not, by a bit that belongs to the pair. A round is a permutation for every `k` and all bits, and so is every number of rounds.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32


def rounds(size: int) -> int:
    """Rounds after which places look independent, in proportion to the bits of a number below `size`."""
    return 4 * max(1, (size - 1).bit_length()) + 8


def places(
    x: Int[Array, " n"], size: int, words: tuple[UInt32[Array, "rounds b"], UInt32[Array, "rounds b"]]
) -> Int[Array, "b n"]:
    """Where the permutations, one for each column of the random words, take the numbers `x`, all below `size`."""
    partners, salts = words[0] % jnp.uint32(size), words[1]
    start = jnp.broadcast_to(jnp.asarray(x).astype(jnp.uint32), (salts.shape[1], *jnp.shape(x)))

    def once(i: Any, y: Any) -> Any:
        partner = partners[i][:, None] + (jnp.uint32(size) - y)
        partner = jnp.where(partner >= size, partner - jnp.uint32(size), partner)
        return jnp.where(_bit(jnp.maximum(y, partner), salts[i][:, None]), partner, y)

    found: Array = jax.lax.fori_loop(0, salts.shape[0], once, start)
    return found.astype(jnp.int32)


def _bit(x: Any, salt: Any) -> Any:
    """A bit that belongs to `x` and `salt`: the finaliser of MurmurHash3."""
    x = (x * jnp.uint32(0x9E3779B1)) ^ salt
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return (x ^ (x >> 16)) >> 31 == 1
