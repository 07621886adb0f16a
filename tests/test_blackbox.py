"""Any NumPy function as a loss: one call for all rows, exceptions as themselves, NaN passed on, no gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiltwalk.losses.blackbox import BlackBox, surfaced


class Recorder:
    """A loss with memory: what shapes it was called with."""

    def __init__(self, function=lambda t: (t**2).sum(1)):
        self.function, self.shapes = function, []

    def __call__(self, thetas):
        self.shapes.append(thetas.shape)
        return self.function(thetas)


def test_it_gives_what_the_function_gives_inside_and_outside_compiled_programs():
    loss = BlackBox(lambda t: np.floor(t).sum(1), 3)
    thetas = jnp.arange(12.0).reshape(4, 3) / 5
    wanted = np.floor(np.asarray(thetas)).sum(1)
    assert np.array_equal(loss(thetas), wanted)
    assert np.array_equal(jax.jit(loss)(thetas), wanted)
    assert loss.dim == 3 and not loss.differentiable


@pytest.mark.parametrize(
    ("shape", "mapped", "rows"),
    [
        ((5, 4, 3), lambda f: jax.vmap(f), 20),
        ((4, 3, 5), lambda f: jax.vmap(f, in_axes=-1), 20),
        ((2, 5, 4, 3), lambda f: jax.vmap(jax.vmap(f)), 40),
    ],
)
def test_all_rows_of_all_chains_are_one_call(shape, mapped, rows):
    function = Recorder()
    thetas = jax.random.normal(jax.random.key(0), shape)
    values = jax.jit(mapped(BlackBox(function, 3)))(thetas)
    assert function.shapes == [(rows, 3)]
    np.testing.assert_allclose(values, mapped(lambda t: jnp.sum(t**2, 1))(thetas), rtol=1e-6)


def test_it_runs_inside_a_scan_once_a_step():
    function = Recorder()
    loss = BlackBox(function, 2)
    jax.block_until_ready(jax.jit(lambda t: jax.lax.scan(lambda t, _: (t + 1, loss(t)), t, None, length=7))(jnp.zeros((3, 2))))
    assert function.shapes == [(3, 2)] * 7


def test_an_exception_surfaces_as_itself():
    class TooHot(Exception):
        pass

    def function(thetas):
        raise TooHot("the reactor reads 4,000 K")

    loss = BlackBox(function, 2)
    with pytest.raises(TooHot, match="4,000 K"):
        loss(jnp.zeros((3, 2)))
    with pytest.raises(TooHot, match="4,000 K"), surfaced():
        jax.block_until_ready(jax.jit(loss)(jnp.zeros((3, 2))))
    with pytest.raises(jax.errors.JaxRuntimeError):  # without the context, JAX's error, and then ours by hand
        jax.block_until_ready(jax.jit(loss)(jnp.zeros((3, 2))))
    with pytest.raises(TooHot):
        loss.raise_pending()
    loss.raise_pending()  # raised once


def test_surfaced_lets_other_errors_and_results_through():
    with pytest.raises(ZeroDivisionError), surfaced():
        1 / 0  # noqa: B018
    with surfaced():
        value = jax.jit(BlackBox(lambda t: t.sum(1), 2))(jnp.ones((1, 2))).block_until_ready()
    assert value[0] == 2


def test_nan_and_infinity_pass_through():
    loss = BlackBox(lambda t: np.where(t[:, 0] > 1, np.nan, np.inf), 1)
    assert np.isnan(jax.jit(loss)(jnp.array([[2.0], [0.0]]))[0]) and np.isposinf(loss(jnp.zeros((1, 1)))[0])


@pytest.mark.parametrize("made", [np.float64, np.float16, np.int64, bool, list])
def test_whatever_real_type_it_returns_becomes_that_of_the_models(made):
    def function(t):
        out = (t > 0).sum(1)
        return list(out) if made is list else out.astype(made)

    values = jax.jit(BlackBox(function, 2))(jnp.ones((3, 2), jnp.float32))
    assert values.dtype == jnp.float32 and values.shape == (3,)


def test_what_the_function_writes_stays_its_own():
    def function(thetas):
        thetas[:] = 7
        return thetas.sum(1)

    thetas = jnp.ones((2, 2))
    assert np.array_equal(jax.jit(lambda t: (BlackBox(function, 2)(t), t))(thetas)[1], np.ones((2, 2)))


def test_a_function_that_cannot_be_hashed_is_taken():
    class Table(dict):
        def __call__(self, thetas):
            return thetas.sum(1)

    assert jax.jit(lambda b, t: b(t))(BlackBox(Table(), 2), jnp.ones((1, 2)))[0] == 2


BAD = {
    "no function": (lambda: BlackBox(3, 2), TypeError, r"BlackBox.fn must be a function"),
    "no dimension": (lambda: BlackBox(np.sum, 0), ValueError, r"BlackBox.dim must be a whole number of at least 1; got 0"),
    "wrong rows": (
        lambda: BlackBox(np.sum, 2)(jnp.zeros((1, 3))),
        ValueError,
        r"thetas must have shape \(m, 2\); got \(1, 3\)",
    ),
    "one number": (lambda: BlackBox(np.sum, 2)(jnp.zeros((3, 2))), ValueError, r"for m = 3 it returned shape \(\)"),
    "a column": (lambda: BlackBox(lambda t: t[:, :1], 2)(jnp.zeros((3, 2))), ValueError, r"returned shape \(3, 1\)"),
    "complex": (lambda: BlackBox(lambda t: t[:, 0] * 1j, 2)(jnp.zeros((3, 2))), TypeError, r"must return real numbers"),
    "nothing": (lambda: BlackBox(lambda t: None, 2)(jnp.zeros((3, 2))), TypeError, r"must return real numbers"),
    "gradient": (lambda: BlackBox(np.sum, 2).value_and_grad(jnp.zeros((3, 2))), TypeError, r"has no gradient"),
    "compiled gradient": (
        lambda: jax.jit(jax.grad(lambda t: BlackBox(np.sum, 2)(t).sum()))(jnp.zeros((3, 2))),
        TypeError,
        r"needs a differentiable loss; a BlackBox has no gradient",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_black_box_refuses(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


def test_a_wrong_shape_inside_a_compiled_program_is_named():
    with pytest.raises(ValueError, match=r"for m = 3 it returned shape \(\)"), surfaced():
        jax.block_until_ready(jax.jit(BlackBox(np.sum, 2))(jnp.zeros((3, 2))))
