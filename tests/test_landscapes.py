"""Landscapes: their values, their minima, any number of models, either precision, and gradients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiltwalk import losses

# Himmelblau's minima, from his book
CLASSIC = np.array([[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]])


def well(x: Any, y: Any) -> Any:
    return 2.0 * ((x / 1.5) ** 2 - 1) ** 2 + 0.3 * y**2 / 2


LANDSCAPES: dict[str, tuple[Any, Any]] = {
    "himmelblau, paper": (losses.himmelblau("paper"), lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2) ** 2),
    "himmelblau, classic": (losses.himmelblau("classic"), lambda x, y: (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2),
    "double well": (losses.double_well(2.0, 1.5, 0.3), well),
    "bowl": (losses.bowl([1.0, 4.0], [0.5, -1.0]), lambda x, y: (x - 0.5) ** 2 / 2 + 2 * (y + 1) ** 2),
}


def test_himmelblau_has_both_forms_and_the_paper_s_is_the_default() -> None:
    point = jnp.array([[1.0, 2.0]])
    assert losses.himmelblau()(point)[0] == losses.himmelblau("paper")(point)[0] == 8**2 + 5**2
    assert losses.himmelblau("classic")(point)[0] == 8**2 + 2**2


def test_the_classic_form_is_zero_at_its_four_minima_and_the_paper_s_is_not() -> None:
    points = jnp.asarray(CLASSIC)
    np.testing.assert_allclose(losses.himmelblau("classic")(points), 0, atol=1e-4)
    assert np.all(losses.himmelblau("paper")(points) > 40)


@pytest.mark.parametrize("name", LANDSCAPES)
@pytest.mark.parametrize("m", [1, 7])
def test_a_landscape_gives_one_value_a_model(name: str, m: int) -> None:
    loss, by_hand = LANDSCAPES[name]
    thetas = np.random.default_rng(m).normal(size=(m, 2)) * 3
    assert loss.dim == 2 and loss.differentiable
    found = loss(jnp.asarray(thetas, jnp.float32))
    assert found.shape == (m,) and found.dtype == jnp.float32
    np.testing.assert_allclose(found, by_hand(*thetas.T), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LANDSCAPES)
def test_chains_may_lie_last(name: str) -> None:
    loss, by_hand = LANDSCAPES[name]
    thetas = np.random.default_rng(3).normal(size=(4, 2, 6))
    np.testing.assert_allclose(loss(jnp.asarray(thetas)), by_hand(thetas[:, 0], thetas[:, 1]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LANDSCAPES)
def test_the_gradient_is_the_slope(name: str) -> None:
    loss, by_hand = LANDSCAPES[name]
    theta, step = np.array([0.7, -1.3]), 1e-5
    shifts = step * np.eye(2)
    slope = [(by_hand(*(theta + e)) - by_hand(*(theta - e))) / (2 * step) for e in shifts]
    np.testing.assert_allclose(jax.grad(lambda t: loss(t[None])[0])(jnp.asarray(theta)), slope, rtol=1e-3)


def test_a_bowl_has_any_number_of_parameters() -> None:
    np.testing.assert_allclose(losses.bowl(2.0, dim=5)(jnp.ones((3, 5))), 5.0)


def test_the_double_well_is_zero_at_both_bottoms_and_as_high_as_said_between() -> None:
    points = jnp.array([[1.5, 0.0], [-1.5, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(losses.double_well(2.0, 1.5)(points), [0, 0, 2], atol=1e-6)


def test_landscapes_are_in_double_precision_where_it_is_enabled() -> None:
    program = (
        "import jax; jax.config.update('jax_enable_x64', True); import jax.numpy as jnp; from tiltwalk import losses\n"
        "for loss in (losses.himmelblau(), losses.double_well(), losses.bowl()):\n"
        "    assert loss(jnp.full((3, 2), 0.1)).dtype == jnp.float64\n"
        "assert abs(float(losses.himmelblau()(jnp.array([[0.1, 0.2]]))[0]) - ((0.01 + 0.2 - 11)**2 + 0.14**2)) < 1e-13\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
