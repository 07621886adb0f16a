"""The estimated curvature: exact where the Hessian is diagonal, honest where it is not, and refused where there is none."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk.moves import estimate_curvature
from tiltwalk.pytree import pytree

HESSIAN = np.array([[3.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, -2.0]])


@pytree
class Quadratic:
    """`theta H theta / 2`."""

    hessian: Any

    @property
    def dim(self) -> int:
        return 3

    def __call__(self, thetas: Any) -> Any:
        return jnp.einsum("mi,ij,mj->m", thetas, self.hessian, thetas) / 2


def measure(hessian: np.ndarray = HESSIAN, length: int = 4) -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(0.1, tw.Normal(1.0)), Quadratic(jnp.asarray(hessian, jnp.float32)), length)


PATH = np.random.default_rng(0).normal(size=(4, 3))


def test_a_diagonal_hessian_is_found_by_one_probe_and_hills_count_as_flat() -> None:
    found = estimate_curvature(measure(np.diag([3.0, 1.0, -2.0])), PATH, probes=1)
    np.testing.assert_allclose(found, [3, 1, 0], atol=2e-3)


def test_the_estimate_converges_to_the_diagonal_of_any_hessian() -> None:
    """One probe of one model errs by the sum of a row off the diagonal, with random signs: deviations 0.5, 0.54, 0.2."""
    found = estimate_curvature(measure(), PATH, probes=200)
    np.testing.assert_allclose(found, [3, 1, 0], atol=4 * 0.54 / np.sqrt(4 * 200))
    one = estimate_curvature(measure(), PATH, probes=1)
    assert np.abs(one - found).max() > 0.05, "a single probe is noisy: the test could not fail"


def test_groups_share_their_mean_and_times_multiplies() -> None:
    found = estimate_curvature(measure(np.diag([3.0, 1.0, 5.0])), PATH, groups=[slice(0, 2)], probes=1, times=4.0)
    np.testing.assert_allclose(found, [8, 8, 20], rtol=2e-3)


def test_moves_take_it_as_it_is() -> None:
    curvature = estimate_curvature(measure(np.diag([3.0, 1.0, 2.0])), PATH, probes=1)
    moves = tw.moves.Hamiltonian(leaps=3, curvature=curvature)
    run = tw.sample(measure(np.diag([3.0, 1.0, 2.0])), 5.0, steps=50, moves=moves, chains=4, progress=False)
    assert run.acceptance["hamiltonian"] > 0.9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": PATH[:, :2]}, r"estimate_curvature.path must have 3 parameters a model; got 2."),
        ({"path": PATH[0]}, r"estimate_curvature.path must have shape \(tau, d\); got \(3,\)."),
        ({"probes": 0}, r"estimate_curvature.probes must be a whole number of at least 1; got 0."),
        ({"times": 0.0}, r"estimate_curvature.times must be a number in \(0, inf\); got 0.0."),
        ({"scale": np.nan}, r"estimate_curvature.scale must be finite; got nan."),
    ],
)
def test_bad_input_says_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_curvature(measure(), **{"path": PATH} | given)


def test_a_loss_without_gradient_is_refused() -> None:
    box = tw.losses.BlackBox(lambda thetas: thetas.sum(1), 3)
    with pytest.raises(TypeError, match="estimate_curvature needs a differentiable loss"):
        estimate_curvature(tw.PathMeasure(tw.RandomWalk(0.1, tw.Normal(1.0)), box, 4), PATH)
