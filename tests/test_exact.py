"""The closed form of the linear perceptron against dense linear algebra, numerical integration and its definition."""

import itertools

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from tiltwalk.exact import LinearPerceptron

LENGTHS = (1, 2, 3, 5)


def data(k=1, d=2, n=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 0.3, rng.normal(size=(n, k)) * 1.5 + 0.7


def loss(theta, X, Y):
    """The definition, with the documented order of the parameters."""
    weights = theta.reshape(X.shape[1] + 1, Y.shape[1])
    return np.sum((X @ weights[:-1] + weights[-1] - Y) ** 2) / (2 * len(X))


def dense(X, Y, s, sigma, length, start_scale=None, pull=None, centre=0.0):
    """log p(theta_1) - S = -½ x Q x + h x + c, put together term by term: returns Q, h, c."""
    width, k = X.shape[1] + 1, Y.shape[1]
    dim = width * k
    sigma, centre = np.broadcast_to(sigma, dim), np.broadcast_to(centre, dim)
    keep = 1.0 if pull is None else 1 - pull
    rows, targets, weights = [], [], []  # ½ weight (row x - target)²

    def unit(t, i):
        row = np.zeros((length, dim))
        row[t, i] = 1.0
        return row

    for t, i in itertools.product(range(length - 1), range(dim)):
        rows.append(unit(t + 1, i) - keep * unit(t, i))
        targets.append((1 - keep) * centre[i])
        weights.append(1 / sigma[i] ** 2)
    for t, n, j in itertools.product(range(length), range(len(X)), range(k)):
        row = np.zeros((length, width, k))
        row[t, :, j] = np.append(X[n], 1.0)
        rows.append(row.reshape(length, dim))
        targets.append(Y[n, j])
        weights.append(s / len(X))
    c = 0.0
    if pull is not None or start_scale is not None:
        deviation = np.broadcast_to(start_scale, dim) if pull is None else sigma / np.sqrt(1 - keep**2)
        for i in range(dim):
            rows.append(unit(0, i))
            targets.append(0.0 if pull is None else centre[i])
            weights.append(deviation[i] ** -2)
            c -= np.log(deviation[i]) + 0.5 * np.log(2 * np.pi)
    rows, targets, weights = np.array(rows).reshape(len(rows), -1), np.array(targets), np.array(weights)
    Q = (rows.T * weights) @ rows
    return Q, rows.T @ (weights * targets), c - 0.5 * np.sum(weights * targets**2)


def walks(dim):
    """Every kind of walk and start, by name: keyword arguments without s and length."""
    rng = np.random.default_rng(5)
    each, scales, centre = rng.uniform(0.1, 1.5, dim), rng.uniform(0.3, 3.0, dim), rng.normal(size=dim)
    return {
        "flat": {"sigma": 0.4},
        "flat, sigma for each": {"sigma": each},
        "normal": {"sigma": 0.4, "start_scale": 1.3},
        "normal, sigma for each": {"sigma": each, "start_scale": 1.3},
        "normal, both for each": {"sigma": each, "start_scale": scales},
        "normal, start for each": {"sigma": 0.4, "start_scale": scales},
        "ou": {"sigma": 0.4, "pull": 0.3},
        "ou, centre": {"sigma": 0.4, "pull": 0.3, "centre": 1.7},
        "ou, all for each": {"sigma": each, "pull": 0.2, "centre": centre},
        "ou, overshooting": {"sigma": each, "pull": 1.6, "centre": centre},
        "ou, without memory": {"sigma": 0.4, "pull": 1.0, "centre": centre},
    }


WALKS = tuple(walks(6))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("walk", WALKS)
def test_every_quantity_equals_dense_linear_algebra(walk, length, k):
    X, Y = data(k)
    model = LinearPerceptron(X, Y)
    law = walks(model.dim)[walk] | {"s": 3.7, "length": length}
    Q, h, c = dense(X, Y, **law)
    mean, covariance = np.linalg.solve(Q, h), np.linalg.inv(Q)

    np.testing.assert_allclose(model.precision(**law), Q, rtol=1e-12, atol=1e-12 * np.max(Q))
    np.testing.assert_allclose(model.mean(**law), mean.reshape(length, -1), rtol=1e-10, atol=1e-10)

    log_z = c + 0.5 * h @ mean - 0.5 * np.linalg.slogdet(Q)[1] + 0.5 * len(Q) * np.log(2 * np.pi)
    assert model.log_partition(**law) == pytest.approx(log_z, rel=1e-11)

    A = np.kron(model.A, np.eye(k))
    blocks = [slice(t * model.dim, (t + 1) * model.dim) for t in range(length)]
    by_site = [loss(mean[b], X, Y) + 0.5 * np.trace(A @ covariance[b, b]) for b in blocks]
    np.testing.assert_allclose(model.expected_loss_by_site(**law), by_site, rtol=1e-10)
    assert model.expected_loss(**law) == pytest.approx(np.mean(by_site), rel=1e-10)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("walk", WALKS)
def test_whiten_is_a_root_of_the_precision_and_draw_its_inverse(walk, length, k):
    """Whitening is affine, `M (path - mean)`: the law is N(0, I) exactly where `M^T M = Q`. No statistics needed."""
    X, Y = data(k)
    model = LinearPerceptron(X, Y)
    law = walks(model.dim)[walk] | {"s": 3.7, "length": length}
    Q, mean, size = dense(X, Y, **law)[0], model.mean(**law), length * model.dim
    shifts = np.eye(size).reshape(size, length, model.dim)
    zero = model.whiten(mean[None], **law)
    np.testing.assert_allclose(zero, 0, atol=1e-9)
    M = (model.whiten(mean + shifts, **law) - zero).reshape(size, size).T
    np.testing.assert_allclose(M.T @ M, Q, rtol=1e-9, atol=1e-9 * np.max(Q))

    # the normal numbers behind a draw come back from whitening, in the same order of models and modes
    drawn = model.whiten(model.draw(3, 4, **law), **law)
    noise = np.random.default_rng(3).standard_normal((length, 4, k, X.shape[1] + 1))
    noise = np.moveaxis(np.swapaxes(noise, -1, -2).reshape(length, 4, -1), 0, 1)
    np.testing.assert_allclose(drawn[:, 1:], noise[:, 1:], atol=1e-9)
    # at the first model the two roots of the precision may differ by a rotation, not in length
    np.testing.assert_allclose(np.sum(drawn[:, 0] ** 2, -1), np.sum(noise[:, 0] ** 2, -1), rtol=1e-9)


@pytest.mark.parametrize("walk", ["flat", "normal, both for each", "ou, all for each"])
def test_whitened_draws_are_standard_normal_and_wrong_draws_are_caught(walk):
    """Null law: all n·tau·dim whitened numbers are independent N(0, 1) (Kolmogorov-Smirnov, chi-square)."""
    model = LinearPerceptron(*data(2))
    law = walks(model.dim)[walk] | {"s": 5.0, "length": 5}

    def p_value(paths):
        white = model.whiten(paths, **law)
        energy = stats.chi2(white.size).cdf(np.sum(white**2))
        return min(stats.kstest(white.ravel(), "norm").pvalue, 2 * min(energy, 1 - energy))

    paths, mean = model.draw(17, 4000, **law), model.mean(**law)
    assert p_value(paths) > 0.01
    assert p_value(mean + 1.1 * (paths - mean)) < 1e-8
    assert p_value(paths + 0.1) < 1e-8
    assert p_value(model.draw(17, 4000, **(law | {"s": 6.0}))) < 1e-8
    white = model.whiten(paths, **law).reshape(4000, -1)
    between = np.corrcoef(white.T)[np.triu_indices(white.shape[1], 1)] * np.sqrt(4000)
    assert np.max(np.abs(between)) < 4.5  # 435 correlations, each N(0, 1)


def test_draws_have_the_stated_mean_and_covariance():
    X, Y = data(2)
    model = LinearPerceptron(X, Y)
    law = walks(model.dim)["ou, all for each"] | {"s": 2.0, "length": 3}
    paths = model.draw(1, 50_000, **law).reshape(50_000, -1)
    deviations = np.sqrt(np.diag(np.linalg.inv(model.precision(**law))))
    errors = (paths.mean(0) - model.mean(**law).ravel()) / deviations * np.sqrt(len(paths))
    assert np.max(np.abs(errors)) < 4
    np.testing.assert_allclose(np.cov(paths.T), np.linalg.inv(model.precision(**law)), atol=0.03 * np.max(deviations) ** 2)


# corrections to the paper


def test_precision_has_the_corrected_blocks():
    model = LinearPerceptron(*data(2))
    s, sigma, length, dim = 3.0, 0.5, 4, model.dim
    blocks = model.precision(s, sigma, length).reshape(length, dim, length, dim).swapaxes(1, 2)
    tilt, step = s * np.kron(model.A, np.eye(2)), np.eye(dim) / sigma**2
    for t, u in itertools.product(range(length), repeat=2):
        ends = t in (0, length - 1)
        expected = {0: tilt + (1 if ends else 2) * step, 1: -step}.get(abs(t - u), 0 * step)
        np.testing.assert_allclose(blocks[t, u], expected, atol=1e-12)
    np.testing.assert_allclose(model.precision(s, sigma, 1), tilt)


@pytest.mark.parametrize("k", [1, 3])
def test_partition_sum_has_the_corrected_signs_and_the_power_of_k(k):
    model = LinearPerceptron(*data(k))
    s, sigma, length = 3.0, 0.5, 4
    one_output = LinearPerceptron(model.X, model.Y[:, 0])
    A = one_output.precision(s, sigma, length)
    B = s * np.tile(model.B, (length, 1))
    square = 0.5 * np.trace(B.T @ np.linalg.solve(A, B))
    log_det, targets = np.linalg.slogdet(A)[1], s / 2 * length * np.trace(model.C)
    corrected = square - k / 2 * log_det - targets + k * len(A) / 2 * np.log(2 * np.pi)
    printed = -square - 0.5 * log_det + targets + k * len(A) / 2 * np.log(2 * np.pi)
    assert model.log_partition(s, sigma, length) == pytest.approx(corrected, rel=1e-11)
    assert abs(printed - corrected) > 1


@pytest.mark.parametrize("start_scale", [None, 0.8])
def test_partition_sum_of_one_model_is_the_integral(start_scale):
    X, Y = np.array([[-1.0], [0.5], [2.0]]), np.array([[0.3], [1.0], [-0.4]])
    prior = (lambda v: 1.0) if start_scale is None else (lambda v: np.prod(stats.norm.pdf(v, scale=start_scale)))
    weigh = lambda b, a: prior([a, b]) * np.exp(-2.0 * loss(np.array([a, b]), X, Y))  # noqa: E731
    value, _ = integrate.dblquad(weigh, -12, 12, -12, 12)
    assert LinearPerceptron(X, Y).log_partition(2.0, 0.7, 1, start_scale) == pytest.approx(np.log(value), abs=1e-8)


@pytest.mark.parametrize("law", [{}, {"start_scale": 0.8}, {"pull": 0.4, "centre": 0.3}])
def test_partition_sum_of_two_models_is_the_integral(law):
    """The trapezoidal rule in four dimensions: for Gaussians its error falls faster than any power of the spacing."""
    X, Y = np.array([[-1.0], [0.5], [2.0]]), np.array([[0.3], [1.0], [-0.4]])
    s, sigma = 4.0, 0.7
    axis = np.linspace(-4.5, 4.5, 37)
    a, b = (m.ravel() for m in np.meshgrid(axis, axis, indexing="ij"))
    one = np.exp(-s * np.mean((a[:, None] * X[:, 0] + b[:, None] - Y[:, 0]) ** 2 / 2, axis=1))
    keep, centre = 1 - law.get("pull", 0.0), law.get("centre", 0.0)
    jump = np.exp(-((axis - centre - keep * (axis[:, None] - centre)) ** 2) / (2 * sigma**2))
    scale = law.get("start_scale", sigma / np.sqrt(1 - keep**2) if "pull" in law else None)
    start = np.ones_like(a) if scale is None else np.prod(stats.norm.pdf([a, b], centre, scale), axis=0)
    value = (start * one) @ np.kron(jump, jump) @ one * (axis[1] - axis[0]) ** 4
    assert LinearPerceptron(X, Y).log_partition(s, sigma, 2, **law) == pytest.approx(np.log(value), abs=1e-7)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("length", [1, 4, 50])
def test_expected_loss_is_the_derivative_of_the_partition_sum(walk, length):
    model = LinearPerceptron(*data(2))
    law = walks(model.dim)[walk] | {"length": length}
    s, step = np.array([0.3, 5.0, 80.0]), 1e-4
    high, low = (model.log_partition(s * (1 + sign * step), **law) for sign in (1, -1))
    np.testing.assert_allclose(-(high - low) / (2 * step * s) / length, model.expected_loss(s, **law), rtol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0, 30.0])
def test_expected_loss_is_the_sum_over_cosine_modes(length, sigma):
    X, Y = data(3, d=4, n=40)
    model = LinearPerceptron(X, Y)
    s = np.geomspace(0.1, 1000, 9)
    a = np.linalg.eigvalsh(model.A)
    rates = 2 * (1 - np.cos(np.pi * np.arange(length) / length)) / sigma**2
    modes = 3 / (2 * length) * np.sum(a / (rates[:, None] + s[:, None, None] * a), axis=(1, 2))
    minimum = 0.5 * np.trace(model.C) - 0.5 * np.trace(model.B.T @ np.linalg.solve(model.A, model.B))
    assert model.minimum == pytest.approx(minimum, rel=1e-12)
    np.testing.assert_allclose(model.expected_loss(s, sigma, length), minimum + modes, rtol=1e-12)


@pytest.mark.parametrize(("regime", "s", "sigma", "length"), [
    ("stiff", 1.0, 1e-4, 64),
    ("middle", 1.0, 3e-3, 200_000),
    ("loose", 10.0, 1e3, 64),
])  # fmt: skip
def test_expected_loss_tends_to_its_three_regimes(regime, s, sigma, length):
    """Exact in the limit: what is left is of relative order s sigma² tau², sqrt(s) sigma or 1/(sigma sqrt(s) tau)."""
    model = LinearPerceptron(*data(2, d=3, n=200))
    above = {name: value - model.minimum for name, value in model.asymptotic_loss(s, sigma, length)._asdict().items()}
    exact = model.expected_loss(s, sigma, length) - model.minimum
    assert exact == pytest.approx(above.pop(regime), rel=0.01)
    assert all(abs(other / exact - 1) > 0.5 for other in above.values())


def test_asymptotic_loss_follows_the_shape_of_s():
    model = LinearPerceptron(*data())
    assert all(isinstance(value, float) for value in model.asymptotic_loss(2.0, 0.1, 4))
    assert all(value.shape == (3, 2) for value in model.asymptotic_loss(np.ones((3, 2)), 0.1, 4))


# limits


def test_one_model_does_not_depend_on_sigma():
    model = LinearPerceptron(*data(2))
    assert model.expected_loss(3.0, 0.1, 1) == pytest.approx(model.expected_loss(3.0, 10.0, 1), rel=1e-12)
    assert model.log_partition(3.0, 0.1, 1) == pytest.approx(model.log_partition(3.0, 10.0, 1), rel=1e-12)


@pytest.mark.parametrize("length", [2, 5, 1000])
def test_large_sigma_gives_independent_models_at_s(length):
    model = LinearPerceptron(*data(2))
    one = model.expected_loss(3.0, 1.0, 1)
    assert model.expected_loss(3.0, 1e8, length) == pytest.approx(one, rel=1e-12)
    paths = model.draw(0, 3000, 3.0, 1e8, 2)
    assert stats.kstest(model.whiten(paths.reshape(6000, 1, -1), 3.0, 1.0, 1).ravel(), "norm").pvalue > 0.01


@pytest.mark.parametrize("length", [2, 5, 1000])
def test_small_sigma_gives_one_model_at_s_times_length(length):
    model = LinearPerceptron(*data(2))
    one = model.expected_loss(3.0 * length, 1.0, 1)
    assert model.expected_loss(3.0, 1e-8, length) == pytest.approx(one, rel=1e-9)
    paths = model.draw(0, 3000, 3.0, 1e-8, length)[:, -1:]
    assert stats.kstest(model.whiten(paths, 3.0 * length, 1.0, 1).ravel(), "norm").pvalue > 0.01


def test_the_flat_start_is_the_limit_of_wide_starts():
    model = LinearPerceptron(*data(2))
    flat, wide = (model.expected_loss(3.0, 0.3, 6, start) for start in (None, 1e6))
    assert flat == pytest.approx(wide, rel=1e-10)
    normaliser = model.dim * np.log(1e6 * np.sqrt(2 * np.pi))
    assert model.log_partition(3.0, 0.3, 6, 1e6) + normaliser == pytest.approx(model.log_partition(3.0, 0.3, 6))


def test_a_flat_start_is_symmetric_in_time():
    by_site = LinearPerceptron(*data(2)).expected_loss_by_site(np.array([0.5, 9.0]), 0.3, 7)
    assert by_site.shape == (2, 7)
    np.testing.assert_allclose(by_site, by_site[:, ::-1], rtol=1e-12)


# hard cases


@pytest.mark.parametrize("X", [
    np.random.default_rng(0).normal(size=(3, 5)),
    np.tile(np.random.default_rng(0).normal(size=(9, 1)), 2),
    np.ones((9, 1)),
], ids=["more features than samples", "duplicated column", "a column of ones"])  # fmt: skip
@pytest.mark.parametrize("law", [{"start_scale": 1.3}, {"pull": 0.2, "centre": 0.5}], ids=["normal", "ou"])
def test_rank_deficient_data_need_a_proper_start_and_work_with_one(X, law):
    Y = np.random.default_rng(1).normal(size=(len(X), 2))
    model = LinearPerceptron(X, Y)
    for call in (model.expected_loss, model.log_partition, model.mean, model.precision):
        with pytest.raises(ValueError, match=r"LinearPerceptron\.X must have rank .* got rank .* give start_scale"):
            call(2.0, 0.3, 3)
    Q, h, c = dense(X, Y, 2.0, 0.3, 3, **law)
    mean = np.linalg.solve(Q, h)
    log_z = c + 0.5 * h @ mean - 0.5 * np.linalg.slogdet(Q)[1] + 0.5 * len(Q) * np.log(2 * np.pi)
    np.testing.assert_allclose(model.mean(2.0, 0.3, 3, **law).ravel(), mean, atol=1e-10)
    assert model.log_partition(2.0, 0.3, 3, **law) == pytest.approx(log_z, rel=1e-10)
    white = model.whiten(model.draw(0, 3000, 2.0, 0.3, 3, **law), 2.0, 0.3, 3, **law)
    assert stats.kstest(white.ravel(), "norm").pvalue > 0.01


def test_without_tilt_the_walk_itself_comes_out():
    model = LinearPerceptron(*data(2))
    assert model.log_partition(0.0, 0.3, 5, 2.0) == pytest.approx(4 * model.dim / 2 * np.log(2 * np.pi * 0.3**2))
    np.testing.assert_allclose(model.mean(0.0, 0.3, 5, pull=0.1, centre=0.7), 0.7)
    paths = model.draw(0, 20_000, 0.0, 0.3, 5, 2.0)
    np.testing.assert_allclose(paths.std(0), np.sqrt(4 + 0.09 * np.arange(5))[:, None] * np.ones(model.dim), rtol=0.03)


def test_long_paths_of_many_features_stay_exact():
    """The size of the promise: `tau = 10,000`, `d = 50`; the sum over cosine modes is the check."""
    X, Y = data(1, d=50, n=300)
    model, length, s, sigma = LinearPerceptron(X, Y), 10_000, 10.0, 0.1
    a = np.linalg.eigvalsh(model.A)
    modes = 2 * (1 - np.cos(np.pi * np.arange(length) / length))[:, None] / sigma**2 + s * a
    assert model.expected_loss(s, sigma, length) == pytest.approx(model.minimum + np.sum(a / modes) / (2 * length))
    log_z = 0.5 * np.sum(np.log(2 * np.pi / modes)) - s * length * model.minimum
    assert model.log_partition(s, sigma, length) == pytest.approx(log_z, rel=1e-11)
    np.testing.assert_allclose(model.mean(s, sigma, length), np.tile(model.best, (length, 1)), atol=1e-12)
    white = model.whiten(model.draw(0, 1, s, sigma, length), s, sigma, length)
    assert stats.kstest(white.ravel(), "norm").pvalue > 0.01


def test_many_values_of_s_in_turns_equal_each_alone(monkeypatch):
    model, s = LinearPerceptron(*data(2)), np.geomspace(0.1, 100, 12).reshape(3, 4)
    each = walks(model.dim)["ou, all for each"]
    whole = model.expected_loss(s, length=5, **each), model.log_partition(s, length=5, **each)
    monkeypatch.setattr("tiltwalk.exact._WORKSPACE", 300)
    parts = model.expected_loss(s, length=5, **each), model.log_partition(s, length=5, **each)
    alone = [[f(float(x), length=5, **each) for x in s.ravel()] for f in (model.expected_loss, model.log_partition)]
    for a, b, c in zip(whole, parts, alone, strict=True):
        assert a.shape == s.shape
        np.testing.assert_allclose(b, a, rtol=1e-12)
        np.testing.assert_allclose(c, a.ravel(), rtol=1e-12)


# what goes in and what comes out


def test_results_are_float64_whatever_the_data():
    X, Y = data(2)
    for kind in (np.float32, jax.numpy.asarray, lambda v: v.tolist()):
        model = LinearPerceptron(kind(X), kind(Y))
        assert isinstance(model.expected_loss(1.0, 0.1, 3), float)
        assert isinstance(model.log_partition(jax.numpy.asarray(1.0), jax.numpy.asarray(0.1), np.int64(3)), float)
        assert model.mean(1.0, 0.1, 3).dtype == model.draw(0, 2, 1.0, 0.1, 3).dtype == np.float64
        assert model.expected_loss(1.0, 0.1, 3) == pytest.approx(LinearPerceptron(X, Y).expected_loss(1.0, 0.1, 3), rel=1e-5)


def test_one_output_may_be_a_vector():
    X, Y = data(1)
    assert LinearPerceptron(X, Y[:, 0]).log_partition(1.0, 0.1, 3) == LinearPerceptron(X, Y).log_partition(1.0, 0.1, 3)


def test_the_same_key_gives_the_same_draw():
    model = LinearPerceptron(*data())
    draw = lambda key: model.draw(key, 2, 1.0, 0.1, 3)  # noqa: E731
    keys = [7, jax.random.key(7), jax.random.PRNGKey(7)]
    for key in keys:
        np.testing.assert_array_equal(draw(key), draw(key))
    np.testing.assert_array_equal(draw(keys[1]), draw(keys[2]))
    assert not np.any(draw(jax.random.key(8)) == draw(jax.random.key(7)))
    generator = np.random.default_rng(0)
    assert not np.any(draw(generator) == draw(generator))


def test_the_callers_arrays_are_copied():
    X, Y = data()
    model = LinearPerceptron(X, Y)
    before = model.expected_loss(1.0, 0.1, 3)
    X[:] = 0.0
    assert LinearPerceptron(model.X, model.Y).expected_loss(1.0, 0.1, 3) == before


NAN_X = np.array([[1.0], [np.nan]])
GOOD = {"s": 1.0, "sigma": 0.1, "length": 3}


@pytest.mark.parametrize(("X", "Y", "error", "message"), [
    (np.ones(3), np.ones(3), ValueError, r"X must have shape \(N, d\) with no empty axis; got \(3,\)"),
    (np.ones((0, 2)), np.ones(0), ValueError, r"X must have shape \(N, d\) with no empty axis; got \(0, 2\)"),
    (np.ones((3, 2)), np.ones(4), ValueError, r"Y must have shape \(3,\) or \(3, k\), as X; got \(4,\)"),
    (np.ones((3, 2)), np.ones((3, 1, 1)), ValueError, r"Y must have shape .* got \(3, 1, 1\)"),
    (NAN_X, np.ones(2), ValueError, r"X must be .* finite; got 1 that are NaN or infinite"),
    (np.ones((2, 1)), [1.0, np.inf], ValueError, r"Y must be .* finite; got 1 that are NaN or infinite"),
    ([["a"], ["b"]], np.ones(2), TypeError, r"X must be an array of numbers of shape \(N, d\); got \[\['a'"),
    ([[1.0], [1.0, 2.0]], np.ones(2), TypeError, r"X must be an array of numbers"),
    (np.ones((2, 1)), None, TypeError, r"Y must be an array of numbers .* got None"),
])  # fmt: skip
def test_bad_data_are_refused(X, Y, error, message):
    with pytest.raises(error, match=r"LinearPerceptron\." + message):
        LinearPerceptron(X, Y)


@pytest.mark.parametrize(("bad", "error", "message"), [
    ({"s": -1.0}, ValueError, r"s must be >= 0 and not empty; got -1.0"),
    ({"s": [1.0, -1.0]}, ValueError, r"s must be >= 0"),
    ({"s": []}, ValueError, r"s must be >= 0 and not empty"),
    ({"s": np.nan}, ValueError, r"s must be .* finite; got 1 that are NaN"),
    ({"s": "5"}, TypeError, r"s must be a number or an array of numbers >= 0; got '5'"),
    ({"s": 0.0}, ValueError, r"s must be positive for a flat start.* Give start_scale"),
    ({"sigma": 0.0}, ValueError, r"sigma must be a positive number or one per parameter, shape \(3,\); got 0.0"),
    ({"sigma": -0.1}, ValueError, r"sigma must be .* got -0.1"),
    ({"sigma": np.inf}, ValueError, r"sigma must be .* finite"),
    ({"sigma": [0.1, 0.2]}, ValueError, r"sigma must be .* got an array of shape \(2,\)"),
    ({"sigma": None}, TypeError, r"sigma must be .* got None"),
    ({"length": 0}, ValueError, r"length must be a whole number of at least 1; got 0"),
    ({"length": 2.0}, TypeError, r"length must be a whole number of at least 1; got 2.0"),
    ({"length": True}, TypeError, r"length must be a whole number"),
    ({"start_scale": 0.0}, ValueError, r"start_scale must be a positive number or one per parameter"),
    ({"start_scale": 1.0, "pull": 0.1}, ValueError, r"start_scale must be None where pull is given"),
    ({"pull": 0.0}, ValueError, r"pull must be a number in \(0, 2\); got 0.0"),
    ({"pull": 2.0}, ValueError, r"pull must be a number in \(0, 2\); got 2.0"),
    ({"pull": [0.1, 0.2, 0.3]}, ValueError, r"pull must be a number in \(0, 2\)"),
    ({"centre": 1.0}, ValueError, r"centre must be 0 where no pull is given; got 1.0"),
    ({"pull": 0.1, "centre": [1.0]}, ValueError, r"centre must be a number or one per parameter"),
])  # fmt: skip
def test_bad_laws_are_refused_by_every_method(bad, error, message):
    model = LinearPerceptron(*data())
    paths = np.zeros((1, 3, model.dim))
    calls = (
        model.expected_loss,
        model.expected_loss_by_site,
        model.log_partition,
        model.mean,
        model.precision,
        lambda **law: model.draw(0, 1, **law),
        lambda **law: model.whiten(paths, **law),
    )
    several = np.ndim(bad.get("s", 0.0))
    for call in calls[:3] if several else calls:
        with pytest.raises(error, match=r"LinearPerceptron\." + message):
            call(**(GOOD | bad))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda m: m.mean([1.0, 2.0], 0.1, 3), ValueError, r"s must be one number here; got an array of shape \(2,\)"),
    (lambda m: m.draw(0, 0, 1.0, 0.1, 3), ValueError, r"n must be a whole number of at least 1; got 0"),
    (lambda m: m.draw(-1, 2, 1.0, 0.1, 3), ValueError, r"key must be a whole number of at least 0; got -1"),
    (lambda m: m.draw("a", 2, 1.0, 0.1, 3), TypeError, r"key must be a whole number, a NumPy Generator or a JAX key"),
    (lambda m: m.draw(None, 2, 1.0, 0.1, 3), TypeError, r"key must be .* got None"),
    (lambda m: m.draw(np.ones(2), 2, 1.0, 0.1, 3), TypeError, r"key must be"),
    (lambda m: m.whiten(np.zeros((3, 3)), 1.0, 0.1, 3), ValueError, r"paths must have shape \(n, 3, 3\); got \(3, 3\)"),
    (lambda m: m.whiten(np.zeros((1, 4, 3)), 1.0, 0.1, 3), ValueError, r"paths must have shape .* got \(1, 4, 3\)"),
    (lambda m: m.whiten(np.full((1, 3, 3), np.nan), 1.0, 0.1, 3), ValueError, r"paths must be .* got 9 that are NaN"),
    (lambda m: m.asymptotic_loss(1.0, [0.1] * 3, 3), ValueError, r"sigma must be one number for asymptotic_loss"),
])  # fmt: skip
def test_bad_calls_are_refused(call, error, message):
    with pytest.raises(error, match=r"LinearPerceptron\." + message):
        call(LinearPerceptron(*data()))
