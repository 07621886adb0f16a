"""The random numbers of a run: a counter-based generator that gives any step of any chain its own noise.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw 2011, the generator behind JAX's own keys), with the counter set
to (element, chain) and the key to (seed, step, part): what a chain draws depends on neither how many chains run beside it
nor on how the steps were grouped, which is what makes a resumed run equal an uninterrupted one. The noise of many steps is
drawn at once, so that a small model does not pay for the start of a loop in every step.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from tiltwalk.types import Noise

Words = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_NORMAL, _UNIFORM, _CHOICE, _SPARE = 0, 1, 2, 3
_PURPOSES = 4


def threefry(key: Words, counter: Words) -> Words:
    """The Threefry-2x32 block function with 20 rounds, elementwise."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << r) | (y >> (32 - r))) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y


def seed(key: int | Array) -> UInt32[Array, " 2"]:
    """Two key words from an int or a JAX key of any kind."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -(2**63) <= key < 2**64:
            raise ValueError(f"key must be an int of at most 64 bits or a JAX key; got {key}.")
        return jnp.asarray([(int(key) >> 32) & 0xFFFFFFFF, int(key) & 0xFFFFFFFF], jnp.uint32)
    if jnp.issubdtype(getattr(key, "dtype", np.dtype(object)), jax.dtypes.prng_key):
        if jnp.shape(key) != ():
            raise ValueError(f"key must be an int or one JAX key; got an array of keys of shape {jnp.shape(key)}.")
        return jax.random.bits(key, (2,), jnp.uint32)
    if isinstance(key, np.ndarray | jax.Array) and key.shape == (2,) and key.dtype == jnp.uint32:
        return jnp.asarray(key)  # an old-style key, or the words of a key: taken as they are
    raise TypeError(f"key must be an int or a JAX key; got {key!r}.")


def step_key(words: UInt32[Array, " 2"], step: UInt32[Array, "..."], part: int, purpose: int) -> Words:
    """The key of one use of randomness in one step."""
    return threefry((words[0], words[1]), (step, jnp.uint32(part * _PURPOSES + purpose)))


def _unit(word: UInt32[Array, "..."]) -> Float[Array, ...]:
    """Uniform on the 2^23 midpoints of (0, 1), which float32 holds exactly: never 0 and never 1."""
    return ((word >> 9).astype(jnp.int32).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def _unit64(high: UInt32[Array, "..."], low: UInt32[Array, ...]) -> Float[Array, ...]:
    """Uniform on the 2^52 midpoints of (0, 1)."""
    whole = (high >> 6).astype(jnp.float64) * 2.0**26 + (low >> 6).astype(jnp.float64)
    return (whole + 0.5) * 2.0**-52


def _cosine(word: UInt32[Array, "..."]) -> Float[Array, "..."]:
    """The cosine of a uniform angle: 30 bits within a quarter turn, two bits for the quarter.

    Minimax polynomials on [-pi/4, pi/4], good to 1 ulp of float32; a library's cosine would spend its time on large angles.
    """
    x = (word << 2).astype(jnp.int32).astype(jnp.float32) * np.float32(math.pi / 4 * 2.0**-31)
    z = x * x
    sine = x + x * z * _polynomial(z, -1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
    cosine = 1 - np.float32(0.5) * z + z * z * _polynomial(z, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
    quarter = word >> 30
    size = jnp.where((quarter & 1) == 1, sine, cosine)
    return jnp.where((quarter == 1) | (quarter == 2), -size, size)


def _polynomial(z: Float[Array, "..."], a: float, b: float, c: float) -> Float[Array, "..."]:
    return np.float32(a) + z * (np.float32(b) + z * np.float32(c))


def normal(words: Words) -> Float[Array, "..."]:
    """A standard normal in float32 from the two words of a block (Box-Muller)."""
    return jnp.sqrt(np.float32(-2) * jnp.log(_unit(words[0]))) * _cosine(words[1])


def _normal64(first: Words, second: Words) -> Float[Array, "..."]:
    return jnp.sqrt(-2 * jnp.log(_unit64(*first))) * jnp.cos(2 * math.pi * _unit64(*second))


def _draw(key: Words, n: int, chains: UInt32[Array, " c"], last: bool, dtype: np.dtype, made: str) -> Array:
    """`(k, n, c)` or `(k, c, n)` numbers for `k` steps, whose keys `key` holds.

    One number a block, although Box-Muller could give two: joining two halves, or weaving them, costs more than the second
    half saves, since the compiler then no longer runs the whole in vectors (measured: 46 ns a number against 7).
    """
    keys = (key[0][:, None, None], key[1][:, None, None])
    index = jnp.arange(n, dtype=jnp.uint32)
    x, y = (index[:, None], chains[None, :]) if last else (index[None, :], chains[:, None])
    words = threefry(keys, (x[None], y[None]))
    if dtype != np.float64:
        return (normal(words) if made == "normal" else _unit(words[0])).astype(dtype)
    more = threefry(keys, (x[None] + jnp.uint32(2**31), y[None]))
    return _normal64(words, more) if made == "normal" else _unit64(*words)


def steps_noise(
    words: UInt32[Array, " 2"],
    steps: UInt32[Array, " k"],
    part: int,
    shape: tuple[int, int, int],
    chains: UInt32[Array, " c"],
    *,
    last: bool,
    dtype: np.dtype,
) -> Noise:
    """The noise of one part of a move in `k` steps of `c` chains: leading axis steps, and chains last or second."""
    b, w, d = shape
    k, c = steps.shape[0], chains.shape[0]
    normals = _draw(step_key(words, steps, part, _NORMAL), b * w * d, chains, last, dtype, "normal")
    uniforms = _draw(step_key(words, steps, part, _UNIFORM), b, chains, last, dtype, "uniform")
    chosen = step_key(words, steps, part, _CHOICE)
    return Noise(
        normal=normals.reshape((k, b, w, d, c) if last else (k, c, b, w, d)),
        uniform=uniforms,
        choice=jnp.stack([_unit(chosen[0]), _unit(chosen[1])], -1),
        key=jnp.stack(step_key(words, steps, part, _SPARE), -1),
    )


def step_noise(
    words: UInt32[Array, " 2"], step: Any, part: int, shape: tuple[int, int, int], dtype: np.dtype, chain: Any = 0
) -> Noise:
    """The noise of one part of a move in one step of one chain."""
    many = steps_noise(
        words, jnp.asarray(step, jnp.uint32)[None], part, shape, jnp.asarray(chain, jnp.uint32)[None], last=False, dtype=dtype
    )
    return Noise(many.normal[0, 0], many.uniform[0, 0], many.choice[0], many.key[0])


def own_words(noise: Noise, count: int) -> Words:
    """More random words for each block of one chain, `(count, b)` twice.

    The key is that of the step, and the counter the block's own uniform number, which the key takes anywhere: so they are
    independent of that number, and of those of other blocks and chains unless two draw the same one of 2^23.
    """
    own = jax.lax.bitcast_convert_type(noise.uniform.astype(jnp.float32), jnp.uint32)
    key = (noise.key[0] ^ jnp.uint32(0x0B0C5EED), noise.key[1])
    return threefry(key, (jnp.arange(count, dtype=jnp.uint32)[:, None], own[None, :]))


def move_choice(words: UInt32[Array, " 2"], steps: UInt32[Array, "..."]) -> Float[Array, ...]:
    """A uniform number a step, the same for all chains: which move of a mixture is made."""
    return _unit(step_key(words, steps, 2**16, _CHOICE)[0])


def swap_uniforms(
    words: UInt32[Array, " 2"], steps: UInt32[Array, " k"], pairs: int, ladders: UInt32[Array, " c"], dtype: np.dtype
) -> Float[Array, "k pairs c"]:
    """Uniform numbers that decide swaps between neighbouring rungs of ladders, for each pair of rungs."""
    return _draw(step_key(words, steps, 2**16 + 1, _UNIFORM), pairs, ladders, True, dtype, "uniform")
