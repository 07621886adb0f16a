"""Settings that are one number or one per parameter, against models that may carry a trailing axis of chains."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Scale = float | Float[Array, " d"] | np.ndarray
"""One number for all parameters of a model, or one each."""


def like_models(value: Array, path: Float[Array, "n d ..."]) -> Array:
    """`value`, one number or one per parameter, shaped to broadcast against the models of `path`, with or without chains."""
    return value.reshape(value.shape + (1,) * (path.ndim - 2)) if value.ndim else value


def per_parameter(value: Any, theta: Float[Array, "d ..."]) -> Float[Array, "d ..."]:
    """`value` spread over one model `(d,)`, or over the same model of many chains `(d, c)`."""
    return jnp.broadcast_to(like_models(jnp.asarray(value, theta.dtype), theta[None]), theta.shape)
