"""Supervised losses: their values, blocks, subsets, weights, gradients, behaviour under `vmap`, memory, and bad inputs.

Each claim is checked in plain JAX (`block=10`) and, where it is built, in the compiled kernel (`block=16`).
"""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tiltwalk import Normal, OrnsteinUhlenbeck, PathMeasure, RandomWalk, networks
from tiltwalk.losses import block_sizes, blocks, supervised
from tiltwalk.losses.supervised import Supervised
from tiltwalk.networks import Activation, Conv, Dense, Flatten, MaxPool

rng = np.random.default_rng(0)
N = 53
NETWORK = networks.mlp([5, 8, 3], "tanh")
X = rng.standard_normal((N, 5))
LABELS = rng.integers(0, 3, N)
VALUES = rng.standard_normal((N, 3))
THETAS = jax.vmap(NETWORK.init)(jax.random.split(jax.random.key(0), 4))
KINDS = ("mse", "cross_entropy", "gaussian", "zero_one", "callable")
BLOCKS = (10, 16)


def huber(outputs, y):
    away = jnp.abs(outputs - y)
    return jnp.sum(jnp.where(away < 1, away**2 / 2, away - 0.5), 1)


def made(kind, block=10, **more):
    y = LABELS if kind in ("cross_entropy", "zero_one") else VALUES
    if kind == "gaussian":
        more = {"noise": 0.7, **more}
    return Supervised(NETWORK, X, y, huber if kind == "callable" else kind, block=block, **more)


def by_hand(kind, thetas):
    """Losses (m, N) in NumPy, in double precision."""
    out = np.stack([np.asarray(NETWORK.apply(t, X), float) for t in thetas])
    if kind == "cross_entropy":
        return special.logsumexp(out, axis=2) - out[:, np.arange(N), LABELS]
    if kind == "zero_one":
        return (out.argmax(2) != LABELS).astype(float)
    if kind == "callable":
        return np.stack([huber(o, VALUES) for o in out])
    half = ((out - VALUES) ** 2).sum(2) / 2
    return half if kind == "mse" else half / 0.7**2 + 3 * np.log(0.7) + 1.5 * np.log(2 * np.pi)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_mean_of_the_per_sample_losses_of_the_definition(kind, block):
    loss, wanted = made(kind, block), by_hand(kind, THETAS)
    np.testing.assert_allclose(loss(THETAS), wanted.mean(1), rtol=2e-5)
    np.testing.assert_allclose(loss.per_sample(THETAS), wanted, rtol=2e-4, atol=2e-5)
    assert loss.dim == NETWORK.dim


@pytest.mark.parametrize(
    ("n", "block"),
    [(1, 1), (1, 16), (1, None), (2, 1), (15, 7), (15, 16), (16, 16), (17, 16), (17, 17), (53, 7), (53, 64), (53, None)],
)
def test_any_number_of_samples_and_any_block_give_the_same_loss(n, block):
    loss = Supervised(NETWORK, X[:n], LABELS[:n], block=block)
    np.testing.assert_allclose(loss(THETAS), by_hand("cross_entropy", THETAS)[:, :n].mean(1), rtol=2e-5)


@pytest.mark.parametrize("models", [1, 5, 9, 17])
def test_any_number_of_models_gives_the_same_losses(models):
    thetas = jax.vmap(NETWORK.init)(jax.random.split(jax.random.key(1), models))
    loss = made("mse").grouped(4)
    np.testing.assert_allclose(loss(thetas), by_hand("mse", thetas).mean(1), rtol=2e-5)


def test_groups_of_models_waste_little():
    for m in range(1, 200):
        for wanted in (1, 4, 8, 16):
            groups, size = blocks.even_groups(m, wanted)
            assert groups * size >= m and size <= wanted + wanted // 4 + 1
            assert m <= wanted or groups * size - m <= max(1, m // 8)


def test_the_paper_s_mean_squared_error_has_a_half_and_sums_over_outputs():
    network = networks.linear(1, 2)
    loss = Supervised(network, [[0.0], [0.0]], [[3.0, 4.0], [0.0, 0.0]], "mse")
    np.testing.assert_allclose(loss(jnp.zeros((1, 4))), 25 / 4)


# ---- subsets ----


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_losses_on_any_index_set_are_those_of_the_samples(kind, block):
    loss, each = made(kind, block), made(kind, block).per_sample(THETAS)
    indices = np.array([52, 0, 7, 7, 31])
    np.testing.assert_allclose(loss.per_sample(THETAS, indices), each[:, indices], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss.on(indices)(THETAS), each[:, indices].mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss.on(indices).per_sample(THETAS), each[:, indices], rtol=1e-5, atol=1e-6)
    traced = jax.jit(lambda i: (loss.per_sample(THETAS, i), loss.on(i)(THETAS)))(indices)
    np.testing.assert_allclose(traced[0].mean(1), traced[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", BLOCKS)
def test_parts_add_up_to_the_loss(block):
    loss = made("cross_entropy", block)
    whole = sum(loss.part(THETAS, i, 2 if i < 2 else 1) for i in (0, *range(2, loss.data.weight.shape[0])))
    np.testing.assert_allclose(whole, loss(THETAS), rtol=1e-5)


def test_each_chain_may_look_at_samples_of_its_own():
    loss = made("cross_entropy", 16)
    chains, own = jnp.stack([THETAS, THETAS + 1]), jnp.array([[3, 1, 52], [0, 9, 9]])
    found = jax.jit(jax.vmap(loss.per_sample))(chains, own)
    for c in range(2):
        np.testing.assert_allclose(found[c], loss.per_sample(chains[c])[:, own[c]], rtol=1e-5)
    plain = jax.jit(jax.vmap(made("cross_entropy").per_sample))(chains, own)
    np.testing.assert_allclose(plain, found, rtol=1e-5)


# ---- weights ----


@pytest.mark.parametrize("block", BLOCKS)
def test_weights_make_a_weighted_mean(block):
    sample, classes = rng.random(N), np.array([1.0, 0.0, 2.5])
    weight = sample * classes[LABELS]
    loss = made("cross_entropy", block, sample_weight=sample, class_weight=classes)
    wanted = (by_hand("cross_entropy", THETAS) * weight).sum(1) / weight.sum()
    np.testing.assert_allclose(loss(THETAS), wanted, rtol=2e-5)
    np.testing.assert_allclose(loss.per_sample(THETAS).mean(1), wanted, rtol=2e-5)


def test_balanced_classes_count_the_same():
    each = by_hand("cross_entropy", THETAS)
    wanted = np.mean([each[:, c == LABELS].mean(1) for c in range(3)], 0)
    np.testing.assert_allclose(made("cross_entropy", class_weight="balanced")(THETAS), wanted, rtol=2e-5)


# ---- likelihoods ----


@pytest.mark.parametrize("block", BLOCKS)
def test_the_gaussian_likelihood_is_the_negative_log_density_and_learns_its_noise(block):
    loss = Supervised(NETWORK, X, VALUES, "gaussian", block=block)
    assert loss.dim == NETWORK.dim + 1
    thetas = jnp.column_stack([THETAS, jnp.linspace(-1, 1, 4)])
    given = [
        Supervised(NETWORK, X, VALUES, "gaussian", noise=float(np.exp(t[-1])), block=block)(t[None, :-1])[0] for t in thetas
    ]
    np.testing.assert_allclose(loss(thetas), given, rtol=1e-5)
    value, grad = loss.value_and_grad(thetas)
    squares = 2 * by_hand("mse", THETAS).mean(1)
    np.testing.assert_allclose(grad[:, -1], 3 - squares * np.exp(-2 * np.linspace(-1, 1, 4)), rtol=1e-4)
    np.testing.assert_allclose(value, given, rtol=1e-5)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("size", [1e4, -1e4, 1e30])
def test_cross_entropy_is_stable_at_large_logits(size, block):
    network = networks.linear(1, 3)
    loss = Supervised(network, np.ones((2, 1)), [0, 1], block=block)
    theta = jnp.array([[0.0, 0, 0, size, 0, 1]])
    wanted = (special.logsumexp([size, 0, 1]) * 2 - size) / 2
    np.testing.assert_allclose(loss(theta)[0], wanted, rtol=1e-6)
    grad = loss.value_and_grad(theta)[1]
    assert np.all(np.isfinite(grad))


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", ["cross_entropy", "mse", "zero_one"])
def test_models_with_nan_outputs_have_nan_losses_and_others_do_not(kind, block):
    thetas = THETAS.at[1].set(jnp.nan)
    found = np.isnan(made(kind, block)(thetas))
    assert list(found) == [False, True, False, False]


# ---- gradients ----


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", ["mse", "cross_entropy", "gaussian", "callable"])
def test_the_gradient_is_that_of_the_definition(kind, block):
    loss = made(kind, block)
    value, grad = loss.value_and_grad(THETAS)
    direction = jax.random.normal(jax.random.key(2), THETAS.shape)
    step = 1e-2
    ahead, behind = by_hand(kind, THETAS + step * direction), by_hand(kind, THETAS - step * direction)
    slope = (ahead - behind).mean(1) / (2 * step)
    np.testing.assert_allclose(np.sum(grad * direction, 1), slope, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(value, loss(THETAS), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda t: jnp.sum(loss(t)))(THETAS), grad, rtol=1e-5, atol=1e-7)
    weighted = jax.vmap(jax.grad(lambda t: jnp.sum(loss(t) * jnp.arange(4))))(jnp.stack([THETAS, THETAS]))
    np.testing.assert_allclose(weighted[1], grad * jnp.arange(4)[:, None], rtol=1e-5, atol=1e-6)


def test_zero_one_has_no_gradient_and_says_so():
    loss = made("zero_one")
    assert not loss.differentiable and made("mse").differentiable
    for call in (lambda: loss.value_and_grad(THETAS), lambda: jax.grad(lambda t: loss(t).sum())(THETAS)):
        with pytest.raises(TypeError, match=r"needs a differentiable loss; got kind=\"zero_one\""):
            call()


# ---- transformations ----


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_chains_first_or_last_give_the_same_losses(kind, block):
    loss = made(kind, block)
    chains = jnp.stack([THETAS, THETAS + 1, -THETAS])
    wanted = jnp.stack([loss(t) for t in chains])
    np.testing.assert_allclose(jax.vmap(loss, in_axes=-1)(jnp.moveaxis(chains, 0, -1)), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(loss)))(chains[None])[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_loss_runs_inside_a_scan(block):
    loss = made("cross_entropy", block)
    values = jax.jit(lambda t: jax.lax.scan(lambda t, _: (t + 1, loss(t)), t, None, length=2))(THETAS)[1]
    np.testing.assert_allclose(values, [loss(THETAS), loss(THETAS + 1)], rtol=1e-5)


def test_all_rows_of_all_chains_are_one_evaluation(monkeypatch):
    rows, plain = [], blocks._plain
    monkeypatch.setattr(
        blocks, "_plain", lambda task, data, thetas, want: rows.append(thetas.shape) or plain(task, data, thetas, want)
    )
    loss = made("callable", 9)
    jax.make_jaxpr(jax.vmap(jax.vmap(loss, in_axes=-1)))(jnp.zeros((2, 4, NETWORK.dim, 3)))
    assert rows[-1] == (24, NETWORK.dim)


def test_data_are_leaves_and_new_values_compile_nothing():
    traces = []

    @jax.jit
    def run(loss, thetas):
        traces.append(1)
        return loss(thetas)

    for seed in range(3):
        more = np.random.default_rng(seed).standard_normal((N, 5))
        network = networks.mlp([5, 8, 3], "tanh")
        loss = Supervised(network, more, np.roll(LABELS, seed), sample_weight=np.arange(N) + seed)
        run(loss, THETAS)
    assert len(traces) == 1
    assert any(leaf.size >= X.size for leaf in jax.tree.leaves(loss))
    before = supervised._sums._cache_size()
    for seed in range(3):
        Supervised(network, X + seed, LABELS)(THETAS)
    assert supervised._sums._cache_size() <= before + 1


CONVOLUTION = networks.sequential((12, 12, 1), [Conv(5, 1, 4), Activation("relu"), MaxPool(2), Flatten(), Dense(64, 3)])


def temporary(samples, models, network, block=32):
    y = np.zeros((samples, network.n_out))
    loss = Supervised(network, np.zeros((samples, *network.input_shape)), y, huber, block=block)
    thetas = jnp.zeros((models, network.dim))
    compiled = jax.jit(lambda loss, t: loss(t)).lower(loss, thetas).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("network", [networks.mlp([30, 64, 3]), CONVOLUTION], ids=["dense", "convolutions"])
def test_memory_is_bounded_by_the_block_and_not_by_the_samples(network):
    few, many, models = temporary(64, 8, network), temporary(4096, 8, network), temporary(64, 64, network)
    assert many <= 1.1 * few + 4096
    assert models <= few + 2 * 4 * 64 * network.dim  # the models themselves, once more


def test_the_loss_runs_in_double_precision_where_it_is_enabled():
    with jax.enable_x64(True):
        thetas = jnp.asarray(np.asarray(THETAS), jnp.float64)
        loss = Supervised(NETWORK, X, LABELS)
        out = np.stack([np.asarray(NETWORK.apply(t, X)) for t in thetas])
        wanted = (special.logsumexp(out, axis=2) - out[:, np.arange(N), LABELS]).mean(1)
        assert loss(thetas).dtype == jnp.float64
        np.testing.assert_allclose(loss(thetas), wanted, rtol=1e-13)


def test_a_measured_block_is_kept_and_taken_and_a_broken_file_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TILTWALK_CACHE", str(tmp_path))
    monkeypatch.setattr(blocks.compiled, "block", lambda network, kind: None)
    assert made("mse", None).block == N  # the rule of thumb: all samples at once for a small dense network
    best = blocks.measure_block(NETWORK, samples=64, models=4, tries=[(8, 2), (24, 4)])
    assert best in [(8, 2), (24, 4)] and made("mse", None).block == best[0]
    assert list(json.loads((tmp_path / "blocks.json").read_text()).values()) == [list(best)]
    (tmp_path / "blocks.json").write_text('{"cut sho')
    block_sizes._read.cache_clear()
    assert made("mse", None).block == N


# ---- the start that classes need ----


@pytest.mark.parametrize("kind", ["cross_entropy", "zero_one"])
def test_a_flat_start_is_warned_of_where_a_constant_on_all_logits_costs_nothing(kind):
    loss = made(kind)
    shifted = {**NETWORK.unflatten(THETAS[0])}
    last = list(shifted)[-1]
    shifted[last] = shifted[last] + 50.0
    far = NETWORK.flatten(shifted)
    assert float(jnp.linalg.norm(far - THETAS[0])) > 80
    np.testing.assert_allclose(loss(far[None]), loss(THETAS[:1]), rtol=1e-4)
    with pytest.warns(UserWarning, match=r"flat start cannot be normalised .* Normal\(network.scale\(\)\)") as caught:
        PathMeasure(RandomWalk(0.1), loss, 2)
    assert caught[0].filename == __file__, "the line of the user is shown"


def test_no_other_start_or_loss_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PathMeasure(RandomWalk(0.1, Normal(NETWORK.scale())), made("cross_entropy"), 2)
        PathMeasure(OrnsteinUhlenbeck(0.1, 0.1), made("cross_entropy"), 2)
        for kind in ("mse", "callable"):
            PathMeasure(RandomWalk(0.1), made(kind), 2)


def test_a_loss_says_what_it_is_and_not_its_data():
    assert repr(made("cross_entropy")) == f"Supervised(Network(5 in, 3 out, 75 parameters), {N} samples, cross_entropy)"
    measure = PathMeasure(RandomWalk(np.full(75, 0.1), Normal(np.full(75, 2.0))), made("mse"), 3)
    assert repr(measure.walk) == "RandomWalk(sigma=float64[75], start=Normal(scale=float64[75], centre=0.0))"
    assert repr(measure).startswith("PathMeasure(walk=RandomWalk(") and repr(measure).endswith("mse), length=3)")
    assert repr(RandomWalk(0.1)) == "RandomWalk(sigma=0.1, start=Flat())"


# ---- bad inputs ----

IMAGES = networks.lenet(3, 1, 16)
PIXELS = rng.random((4, 16, 16, 1))
FOUR = np.array([0, 1, 2, 0])


def bad(network, X, y, kind="cross_entropy", **more):
    return lambda: Supervised(network, X, y, kind, **more)


def with_entry(array, value):
    out = np.array(array, float)
    out.flat[3] = value
    return out


BAD = {
    "label too large": (bad(NETWORK, X, LABELS + 1), ValueError, r"whole numbers from 0 to 2.*got labels from 1 to 3"),
    "label negative": (bad(NETWORK, X, LABELS - 1), ValueError, r"got labels from -1 to 1"),
    "labels as floats": (bad(NETWORK, X, LABELS * 1.0), TypeError, r"must be class labels, whole numbers.*float64"),
    "labels as text": (bad(NETWORK, X, LABELS.astype(str)), TypeError, r"got text: number them with"),
    "labels as objects": (bad(NETWORK, X, np.array([None] * N)), TypeError, r"y must be an array of real numbers"),
    "one-hot labels": (bad(NETWORK, X, np.eye(3)[LABELS]), ValueError, r"for one-hot rows, y.argmax\(1\)"),
    "labels in a column": (bad(NETWORK, X, LABELS[:, None]), ValueError, r"of shape \(53,\); got an array of shape \(53, 1\)"),
    "fewer labels": (bad(NETWORK, X, LABELS[:9]), ValueError, r"one entry for each of the 53 samples"),
    "no labels": (bad(NETWORK, X, None), TypeError, r"Supervised.y must be an array of real numbers; got None"),
    "one output for classes": (bad(networks.linear(5, 1), X, LABELS * 0), ValueError, r"at least 2 classes.*got 1"),
    "NaN features": (bad(NETWORK, with_entry(X, np.nan), LABELS), ValueError, r"X must be finite; got 1 entries"),
    "NaN pixels": (bad(IMAGES, with_entry(PIXELS, np.nan), FOUR), ValueError, r"X must be finite; got 1 entries"),
    "infinite features": (bad(NETWORK, with_entry(X, np.inf), LABELS), ValueError, r"X must be finite"),
    "no samples": (bad(NETWORK, X[:0], LABELS[:0]), ValueError, r"X must hold at least one sample"),
    "too few features": (bad(NETWORK, X[:, :4], LABELS), ValueError, r"X must have shape \(N, 5\).*got \(53, 4\)"),
    "features first": (bad(NETWORK, X.T, LABELS), ValueError, r"samples first; got \(5, 53\)"),
    "object features": (bad(NETWORK, X.astype(object), LABELS), TypeError, r"X must be an array of real numbers"),
    "ragged features": (bad(NETWORK, [[1.0, 2], [3.0]], [0, 1]), ValueError, r"all rows of one length"),
    "complex features": (bad(NETWORK, X * 1j, LABELS), TypeError, r"X must be an array of real numbers.*complex128"),
    "channels first": (
        bad(networks.lenet(3, 3, 16), np.ones((4, 3, 16, 16)) / 2, FOUR),
        ValueError,
        r"channels last: transpose with X.transpose\(0, 2, 3, 1\)",
    ),
    "flat images": (bad(IMAGES, PIXELS.reshape(4, -1), FOUR), ValueError, r"reshape with X.reshape\(-1, 16, 16, 1\)"),
    "bytes as images": (bad(IMAGES, (PIXELS * 255).astype(np.uint8), FOUR), ValueError, r"must be scaled, such as X / 25"),
    "whole numbers as images": (bad(IMAGES, np.floor(PIXELS * 255), FOUR), ValueError, r"must be scaled"),
    "bytes as features": (bad(NETWORK, (np.abs(X) * 50).astype(np.uint8), LABELS), ValueError, r"must be scaled"),
    "too few targets": (bad(NETWORK, X, VALUES[:, :2], "mse"), ValueError, r"values of shape \(53, 3\).*got .*\(53, 2\)"),
    "a vector of targets": (bad(NETWORK, X, VALUES[:, 0], "mse"), ValueError, r"values of shape \(53, 3\), one for each"),
    "NaN targets": (bad(NETWORK, X, with_entry(VALUES, np.nan), "mse"), ValueError, r"y must be finite; got 1"),
    "unknown kind": (bad(NETWORK, X, LABELS, "hinge"), ValueError, r"kind must be one of cross_entropy.*'hinge'"),
    "kind as a list": (bad(NETWORK, X, LABELS, ["mse"]), ValueError, r"kind must be one of .* or a callable"),
    "no network": (bad(lambda t, x: x, X, LABELS), TypeError, r"Supervised.network must be a network"),
    "empty class": (
        bad(NETWORK, X, np.minimum(LABELS, 1), class_weight="balanced"),
        ValueError,
        r"needs samples of every class; got none of class 2",
    ),
    "class weights too few": (bad(NETWORK, X, LABELS, class_weight=[1, 2]), ValueError, r"for each class, 3 in all; got 2"),
    "class weight negative": (bad(NETWORK, X, LABELS, class_weight=[1, -1, 1]), ValueError, r"at least 0.*from -1 to 1"),
    "class weights by another name": (bad(NETWORK, X, LABELS, class_weight="even"), ValueError, r"one of balanced; got 'even'"),
    "class weights of values": (bad(NETWORK, X, VALUES, "mse", class_weight=[1, 1, 1]), ValueError, r"None unless kind is"),
    "sample weight negative": (bad(NETWORK, X, LABELS, sample_weight=-np.ones(N)), ValueError, r"sample_weight.*at least 0"),
    "sample weights too few": (bad(NETWORK, X, LABELS, sample_weight=np.ones(9)), ValueError, r"53 in all; got 9 numbers"),
    "sample weights all zero": (bad(NETWORK, X, LABELS, sample_weight=np.zeros(N)), ValueError, r"together must be positive"),
    "NaN sample weight": (bad(NETWORK, X, LABELS, sample_weight=with_entry(np.ones(N), np.nan)), ValueError, r"must be finite"),
    "noise zero": (bad(NETWORK, X, VALUES, "gaussian", noise=0), ValueError, r"Supervised.noise must be a number in \(0"),
    "noise of classes": (bad(NETWORK, X, LABELS, noise=0.1), ValueError, r"None unless kind is gaussian; got 0.1"),
    "block zero": (bad(NETWORK, X, LABELS, block=0), ValueError, r"Supervised.block .* at least 1; got 0"),
    "block as a float": (bad(NETWORK, X, LABELS, block=8.0), TypeError, r"Supervised.block must be a whole number"),
    "a callable that sums": (
        bad(NETWORK, X, VALUES, lambda o, y: jnp.sum(o - y)),
        ValueError,
        r"one loss a sample, shape \(n,\)",
    ),
    "thetas of another size": (
        lambda: made("mse")(THETAS[:, 1:]),
        ValueError,
        r"thetas must have shape \(m, 75\); got \(4, 74\)",
    ),
    "one theta": (lambda: made("mse")(THETAS[0]), ValueError, r"thetas must have shape \(m, 75\); got \(75,\)"),
    "index too large": (lambda: made("mse").on([0, 53]), ValueError, r"between 0 and 52; got 0 to 53"),
    "indices as a mask": (lambda: made("mse").on(np.ones(N, bool)), TypeError, r"a vector of at least one whole number"),
    "no indices": (lambda: made("mse").on([]), TypeError, r"a vector of at least one whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_supervised_loss_refuses(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
