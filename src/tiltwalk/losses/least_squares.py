"""The loss of the linear perceptron, from sufficient statistics: its cost does not grow with the data.

`L(W) = |W x - y|^2 / 2` averaged over the data `= (tr W A W' - 2 tr W B + tr C) / 2`, the paper's mean squared error, with
a bias as the last input. It is evaluated as a square, `|R (W - W*)|^2 / 2 + L_min` with `A = R'R`, so that float32 keeps
its digits near the minimum, where the other form subtracts large numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.pytree import pytree, static

_WRITTEN_OUT = 4
"""Up to this many inputs the product is a sum over pairs, which vectorises over chains; above, a matrix product."""


@pytree
class LeastSquares:
    """Mean squared error (with the factor 1/2) of `y = W x + b`; `theta.reshape(inputs + 1, outputs)`, the bias last."""

    root: Float[Array, "r i"]
    best: Float[Array, " d"]
    least: Float[Array, ""]
    inputs: int = static()
    outputs: int = static()
    differentiable: ClassVar[bool] = True
    trailing: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        return (self.inputs + 1) * self.outputs

    def __call__(self, thetas: Float[Array, "m d ..."]) -> Float[Array, "m ..."]:
        rank, width = self.root.shape
        best = self.best.reshape(self.best.shape + (1,) * (thetas.ndim - 2)).astype(thetas.dtype)
        away = (thetas - best).reshape(thetas.shape[0], width, self.outputs, *thetas.shape[2:])
        if width > _WRITTEN_OUT:
            # inputs first: one product of matrices for all models, outputs and chains
            inputs_first = jnp.moveaxis(away, 1, 0)
            product = self.root.astype(thetas.dtype) @ inputs_first.reshape(width, -1)
            product = product.reshape(rank, *inputs_first.shape[1:])
            return jnp.sum(product * product, (0, 2)) / 2 + self.least.astype(thetas.dtype)
        value = jnp.zeros((), thetas.dtype)
        for k in range(self.outputs):
            for r in range(rank):
                # the root is upper triangular: row r starts at column r
                row = sum(self.root[r, i].astype(thetas.dtype) * away[:, i, k] for i in range(r, width))
                value = value + row * row
        return value / 2 + self.least.astype(thetas.dtype)


def least_squares(X: Any, Y: Any) -> LeastSquares:
    """The linear perceptron's loss on features `X (N, d)` and targets `Y (N, k)` or `(N,)`; a bias is added."""
    features = check.finite_array("least_squares.X", X, (2,), "(N, d)")
    targets = check.finite_array("least_squares.Y", Y, (1, 2), "(N,) or (N, k)")
    if len(features) != len(targets):
        raise ValueError(f"least_squares.Y must have one row for each of the {len(features)} rows of X; got {len(targets)}.")
    targets = targets.reshape(len(targets), -1)
    wide = np.column_stack([features, np.ones(len(features))])
    best = np.linalg.lstsq(wide, targets, rcond=None)[0]
    # R from a QR of the data, not from A: A would square the condition number. Padded to a square where samples are few.
    root = np.linalg.qr(np.vstack([wide, np.zeros((max(0, wide.shape[1] - len(wide)), wide.shape[1]))]), mode="r")
    least = np.sum((wide @ best - targets) ** 2) / (2 * len(wide))
    return LeastSquares(
        jnp.asarray(root / np.sqrt(len(wide))), jnp.asarray(best.ravel()), jnp.asarray(least),
        features.shape[1], targets.shape[1],
    )  # fmt: skip
