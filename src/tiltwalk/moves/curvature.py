"""The curvature of a loss in each parameter, estimated along a path: what preconditions moves that follow the gradient.

With signs `v` drawn at random, `E[v * (H v)]` is the diagonal of the Hessian `H` (Hutchinson 1990; Bekas, Kokiopoulou and
Saad 2007), and `H v` is a difference of two gradients. The noise of one parameter is as large as its row of `H`, so the
estimate is averaged over the models of the path, over probes, and over groups of parameters that are alike: the weights of
a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure


def estimate_curvature(
    measure: PathMeasure,
    path: Float[Any, "tau d"],
    *,
    groups: Sequence[slice] | None = None,
    probes: int = 4,
    scale: Any = 1.0,
    times: float = 1.0,
    key: int = 0,
) -> Float[np.ndarray, " d"]:
    """The mean second derivative of the loss in each parameter over the models of `path`, times `times`; at least 0.

    - `groups`: slices of parameters that share one value, such as `[p.slice for p in network.parameters]`; None gives each
      parameter its own.
    - `scale`: the size of the parameters, one number or one each; gradients are compared a hundredth of it apart.
    - `times`: leaps are limited by directions that are several times steeper than the mean. For LeNets on MNIST 4 let them be
      longest (of 1, 4, and the root mean square of `H v`).

    It costs `2 * probes` gradients of the path. Moves stay exact with any curvature that does not follow the chain, so estimate
    it before a run, or between burn-in and draws, and leave it.
    """
    name = "estimate_curvature"
    measure.check_gradient(name)
    check.whole(f"{name}.probes", probes, low=1)
    check.number(f"{name}.times", times, low=0, low_open=True)
    given = check.finite_array(f"{name}.path", path, (2,), "(tau, d)")
    if given.shape[1] != measure.dim:
        raise ValueError(f"{name}.path must have {measure.dim} parameters a model; got {given.shape[1]}.")
    models = jnp.asarray(given, float)
    away = 0.01 * np.broadcast_to(check.finite_array(f"{name}.scale", scale, (0, 1), "() or (d,)"), given.shape)
    rng = np.random.default_rng(key)
    found = np.zeros(measure.dim)
    for _ in range(probes):
        apart = away * rng.choice([-1.0, 1.0], size=given.shape)
        over, under = (np.asarray(_gradient(measure, models + sign * apart), np.float64) for sign in (1, -1))
        found += np.mean((over - under) / (2 * apart), 0) / probes
    for group in groups or ():
        found[group] = found[group].mean()
    return times * np.maximum(found, 0.0)


@jax.jit
def _gradient(measure: PathMeasure, models: Any) -> Any:
    return measure.value_and_grad(models)[1]
