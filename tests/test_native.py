"""The compiled kernel gives what the layer program says, on every target, whatever the shapes, samples and transforms."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import native_cases as cases
from tiltwalk import native
from tiltwalk.losses import heads
from tiltwalk.native import library
from tiltwalk.networks import plain
from tiltwalk.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, MaxPool

TARGETS = [name for name in library.TARGETS if library.runs_target(name)]
needs_kernel = pytest.mark.skipif(not native.available(), reason=native.reason())

LENET = (
    Conv(5, 1, 6),
    Activation("relu"),
    MaxPool(2),
    Conv(5, 6, 16),
    Activation("relu"),
    MaxPool(2),
    Flatten(),
    Dense(256, 120),
    Activation("relu"),
    Dense(120, 84),
    Activation("relu"),
    Dense(84, 10),
)
LENET_SHAPE = (1, 28, 28)
MLP = (Dense(20, 13), Activation("tanh"), Dense(13, 4))


def agree(got, wanted, tolerance=1e-5):
    """Largest difference relative to the largest value; NaN and infinity in the same places."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    fine = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~fine & ~np.isnan(wanted)], wanted[~fine & ~np.isnan(wanted)])
    if fine.any():
        scale = max(np.abs(wanted[fine]).max(), 1e-3)
        np.testing.assert_array_less(np.abs(got - wanted)[fine], tolerance * scale)


def plain_outputs(program, shape, theta, X):
    """The package's plain path, which takes images channels last."""
    images = X.transpose(0, 2, 3, 1) if len(shape) == 3 else X
    out = plain.forward(program, theta, images)
    return out.reshape(len(X), -1) if out.ndim < 4 else out.transpose(0, 3, 1, 2).reshape(len(X), -1)


def small(seed=0, n=37, m=3, kind="cross_entropy", program=MLP, shape=(20,)):
    rng = np.random.default_rng(seed)
    k = 4 if program is MLP else 10
    thetas = jnp.asarray(rng.standard_normal((m, cases.dim(program))) * 0.3, jnp.float32)
    X = rng.standard_normal((n, *shape)).astype(np.float32)
    y = rng.standard_normal((n, k)).astype(np.float32) if kind == "mse" else rng.integers(0, k, n)
    return thetas, X, y


def wanted_each(program, kind, thetas, X, y):
    return np.stack([cases.sample_losses(kind, cases.outputs(program, np.asarray(t), X), y) for t in thetas])


def check_case(seed, targets, reference):
    case = cases.random_case(seed)
    assert native.supports(case.program, case.shape, case.kind)
    thetas, packed = jnp.asarray(case.thetas), native.pack(case.X, case.y, case.weights)
    wanted = reference(case)
    each = np.stack([cases.sample_losses(case.kind, out, case.y) for out in wanted])
    each = each * (1 if case.weights is None else case.weights)
    for target in targets:
        agree(native.outputs(case.program, case.shape, thetas, packed, target=target), wanted)
        if case.kind == "zero_one":  # a tie to within rounding may fall either way
            top = np.sort(wanted, -1)
            if wanted.shape[-1] > 1 and (top[..., -1] - top[..., -2]).min() < 1e-4:
                continue
        agree(native.per_sample(case.program, case.shape, case.kind, thetas, packed, target=target), each)
        agree(native.losses(case.program, case.shape, case.kind, thetas, packed, target=target), each.mean(1))


def by_definition(case):
    return np.stack([cases.outputs(case.program, t, case.X) for t in case.thetas])


def by_plain_path(case):
    run = jax.jit(lambda t: plain_outputs(case.program, case.shape, t, case.X))
    return np.stack([np.asarray(run(t), np.float64) for t in case.thetas])


@needs_kernel
@pytest.mark.parametrize("chunk", range(5))
def test_random_programs_equal_their_definition(chunk):
    for seed in range(20 * chunk, 20 * chunk + 20):
        check_case(seed, [TARGETS[seed % len(TARGETS)]], by_definition)


@needs_kernel
def test_random_programs_equal_the_plain_path():
    for seed in range(1000, 1012):
        check_case(seed, [""], by_plain_path)


def plain_gradients(case):
    def loss(theta):
        out = plain_outputs(case.program, case.shape, theta, jnp.asarray(case.X))
        each = heads.Named(case.kind, False)(out, jnp.asarray(case.y), None)
        return jnp.mean(each * (1 if case.weights is None else case.weights))

    return jax.jit(jax.vmap(jax.value_and_grad(loss)))(jnp.asarray(case.thetas))


def check_gradients(seed, targets):
    case = cases.random_case(seed)
    if case.kind == "zero_one":
        return
    thetas, packed = jnp.asarray(case.thetas), native.pack(case.X, case.y, case.weights)
    value, gradient = plain_gradients(case)
    for target in targets:
        got = native.value_and_grad(case.program, case.shape, case.kind, thetas, packed, target=target)
        agree(got[0], value)
        agree(got[1], gradient)


@needs_kernel
def test_gradients_of_random_programs_equal_the_plain_path():
    for seed in range(3000, 3015):
        check_gradients(seed, [TARGETS[seed % len(TARGETS)]])


@needs_kernel
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_gradients_of_many_random_programs_equal_the_plain_path(chunk):
    for seed in range(4000 + 30 * chunk, 4030 + 30 * chunk):
        check_gradients(seed, TARGETS)
    jax.clear_caches()


@needs_kernel
def test_gradients_do_not_depend_on_the_models_beside_it_and_see_only_the_chosen_samples():
    thetas, X, y = small(n=900, m=3, program=LENET, shape=LENET_SHAPE)
    thetas, X = thetas / 4, X.copy()
    X[[5, 899]] = np.nan
    packed = native.pack(X, y)
    which = jnp.asarray([[6, 893]])

    @jax.jit
    def run(t):
        return native.value_and_grad(LENET, LENET_SHAPE, "cross_entropy", t, packed, ranges=which)

    together = run(thetas)
    assert np.isfinite(together[1]).all()
    for i, t in enumerate(thetas):
        np.testing.assert_array_equal(run(t[None])[1][0], together[1][i])
    case = cases.Case(LENET, LENET_SHAPE, "cross_entropy", np.asarray(thetas), X[6:899], np.asarray(y[6:899]), None)
    agree(together[1], plain_gradients(case)[1], 1e-3)  # where two of a window tie to within rounding, either may win


@needs_kernel
def test_grad_and_vmap_take_the_kernel_both_ways():
    thetas, X, y = small(m=4)
    packed = native.pack(X, y)

    def loss(t):
        return jnp.sum(native.losses(MLP, (20,), "cross_entropy", t, packed) * jnp.arange(1.0, len(t) + 1))

    _, wanted = native.value_and_grad(MLP, (20,), "cross_entropy", thetas, packed)
    agree(jax.grad(loss)(thetas), wanted * np.arange(1, 5)[:, None])
    pairs = thetas.reshape(2, 2, -1)
    agree(jax.vmap(jax.grad(loss))(pairs).reshape(4, -1), wanted * np.array([1, 2, 1, 2])[:, None])
    with pytest.raises(TypeError, match="alone"):
        jax.grad(lambda t: native.losses(MLP, (20,), "zero_one", t, packed).sum())(thetas)
    with pytest.raises(ValueError, match="must be one of"):
        native.value_and_grad(MLP, (20,), "zero_one", thetas, packed)


@needs_kernel
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_a_thousand_random_programs_equal_the_plain_path(chunk):
    for seed in range(2000 + 50 * chunk, 2050 + 50 * chunk):
        check_case(seed, TARGETS, by_plain_path)
    jax.clear_caches()


@needs_kernel
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_lenet_equals_its_definition_at_any_number_of_samples(target, n):
    thetas, X, y = small(n, n, 2, program=LENET, shape=LENET_SHAPE)
    packed = native.pack(X, y)
    each = wanted_each(LENET, "cross_entropy", thetas, X, y)
    agree(native.per_sample(LENET, LENET_SHAPE, "cross_entropy", thetas, packed, target=target), each)
    agree(native.losses(LENET, LENET_SHAPE, "cross_entropy", thetas, packed, target=target), each.mean(1))


@needs_kernel
@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "gelu"])
@pytest.mark.parametrize("target", TARGETS)
def test_activations_are_accurate_over_the_whole_line(name, target):
    x = np.concatenate([np.linspace(-100, 100, 2001), np.linspace(-1, 1, 2001), [0, 1e-30, -1e-30, 1e30, -1e30]])
    x = x.astype(np.float32)
    program = (Dense(1, 1), Activation(name))
    got = native.outputs(program, (1,), jnp.asarray([[1.0, 0.0]]), native.pack(x[:, None]), target=target)[0, :, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = cases.outputs(program, np.asarray([1.0, 0.0]), x[:, None])[:, 0]
    # the formula of gelu loses digits where 1 + tanh is near 0, in JAX as here; sigmoid stops at e^-88
    scale = {"gelu": np.abs(x) + 1e-30, "sigmoid": np.maximum(np.abs(wanted), 1e-2)}.get(name, np.abs(wanted) + 1e-30)
    assert np.max(np.abs(np.asarray(got) - wanted) / scale) < 4e-7


@needs_kernel
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_go_where_they_go_on_the_plain_path(target, value):
    programs = [(LENET, LENET_SHAPE), ((Conv(3, 1, 3, 2, "same"), AvgPool(2), Flatten(), Dense(147, 10)), LENET_SHAPE)]
    for program, shape in programs:
        clean, X, y = small(3, 18, 6, program=program, shape=shape)
        thetas, X = np.array(clean), X.copy()
        for row, at in enumerate([0, 20, cases.dim(program) // 2, -1]):  # first weight, ..., last bias
            thetas[row, at] = value
        X[5, 0, 3, 3] = value
        packed = native.pack(X, y)
        out = jnp.stack([plain_outputs(program, shape, t, jnp.asarray(X)) for t in jnp.asarray(thetas)])
        got = native.outputs(program, shape, jnp.asarray(thetas), packed, target=target)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(out))
        each = native.per_sample(program, shape, "cross_entropy", jnp.asarray(thetas), packed, target=target)
        with np.errstate(invalid="ignore"):
            wanted = np.stack([cases.sample_losses("cross_entropy", np.asarray(o, np.float64), y) for o in out])
        np.testing.assert_array_equal(np.isnan(each), np.isnan(wanted))
        np.testing.assert_array_equal(np.isinf(each), np.isinf(wanted))


@needs_kernel
@pytest.mark.parametrize("target", TARGETS)
def test_max_pooling_and_relu_keep_nan_wherever_it_stands(target):
    program = (Conv(1, 1, 2), Activation("relu"), MaxPool(2), Flatten())
    theta = jnp.asarray([[1.0, -1.0, 0.0, 0.0]])
    for place in range(4):
        X = np.zeros((1, 1, 2, 2), np.float32)
        X[0, 0, place // 2, place % 2] = np.nan
        assert np.isnan(native.outputs(program, (1, 2, 2), theta, native.pack(X), target=target)).all()


@needs_kernel
def test_labels_that_are_no_class_give_what_the_plain_path_gives():
    thetas, X, y = small(n=20)
    y = np.asarray(y)
    y[[1, 7, 19]] = [4, -1, 1000]
    for kind in ("cross_entropy", "zero_one"):
        got = native.per_sample(MLP, (20,), kind, thetas, native.pack(X, y))
        agree(got, wanted_each(MLP, kind, thetas, X, y))


@needs_kernel
@pytest.mark.parametrize(("start", "count"), [(0, 37), (0, 1), (5, 9), (16, 16), (15, 2), (20, 17)])
def test_a_range_is_the_mean_over_its_samples(start, count):
    thetas, X, y = small()
    packed = native.pack(X, y)
    each = wanted_each(MLP, "cross_entropy", thetas, X, y)[:, start : start + count]
    got = native.losses(MLP, (20,), "cross_entropy", thetas, packed, ranges=jnp.asarray([[start, count]]))
    agree(got, each.mean(1))
    agree(native.per_sample(MLP, (20,), "cross_entropy", thetas, packed, start=start, count=count), each)


@needs_kernel
def test_each_model_may_have_its_own_range_or_list():
    thetas, X, y = small(m=2)
    packed = native.pack(X, y)
    each = wanted_each(MLP, "cross_entropy", thetas, X, y)
    got = native.losses(MLP, (20,), "cross_entropy", thetas, packed, ranges=jnp.asarray([[3, 30], [0, 2]]))
    agree(got, [each[0, 3:33].mean(), each[1, :2].mean()])
    lists = np.random.default_rng(1).integers(0, 37, (2, 21))
    got = native.losses(MLP, (20,), "cross_entropy", thetas, packed, index=jnp.asarray(lists))
    agree(got, [each[0, lists[0]].mean(), each[1, lists[1]].mean()])


@needs_kernel
@pytest.mark.parametrize("kind", ["cross_entropy", "mse"])
@pytest.mark.parametrize("size", [1, 16, 33])
def test_a_list_of_samples_may_repeat_and_come_in_any_order(kind, size):
    thetas, X, y = small(kind=kind)
    weights = np.random.default_rng(5).uniform(0.5, 2, 37).astype(np.float32)
    packed = native.pack(X, y, weights)
    chosen = np.random.default_rng(size).integers(0, 37, size)
    each = wanted_each(MLP, kind, thetas, X, y)[:, chosen] * weights[chosen]
    agree(native.per_sample(MLP, (20,), kind, thetas, packed, index=jnp.asarray(chosen)), each)
    agree(native.losses(MLP, (20,), kind, thetas, packed, index=jnp.asarray(chosen)), each.mean(1))
    out = np.stack([cases.outputs(MLP, np.asarray(t), X)[chosen] for t in thetas])
    agree(native.outputs(MLP, (20,), thetas, packed, index=jnp.asarray(chosen)), out)


@needs_kernel
def test_lists_and_ranges_beyond_the_data_are_brought_back_and_read_nothing_else():
    thetas, X, y = small()
    packed = native.pack(X, y)
    each = wanted_each(MLP, "cross_entropy", thetas, X, y)
    got = native.per_sample(MLP, (20,), "cross_entropy", thetas, packed, index=jnp.asarray([-1, 99, -99]))
    agree(got, each[:, [36, 36, 0]])
    got = native.losses(MLP, (20,), "cross_entropy", thetas, packed, ranges=jnp.asarray([[30, 99]]))
    agree(got, each[:, 30:].mean(1))
    assert np.isnan(native.losses(MLP, (20,), "cross_entropy", thetas, packed, ranges=jnp.asarray([[37, 5]]))).all()
    got = native.per_sample(MLP, (20,), "cross_entropy", thetas, packed, start=30, count=10)
    agree(got[:, :7], each[:, 30:])
    assert np.isnan(got[:, 7:]).all()


@needs_kernel
def test_a_sum_does_not_depend_on_the_models_beside_it():
    thetas, X, y = small(n=900, m=9, program=LENET, shape=LENET_SHAPE)
    packed = native.pack(X, y)
    run = jax.jit(lambda t: native.losses(LENET, LENET_SHAPE, "cross_entropy", t, packed))
    together = np.asarray(run(thetas))
    alone = np.concatenate([np.asarray(run(t[None])) for t in thetas])
    np.testing.assert_array_equal(together, alone)
    for _ in range(5):
        np.testing.assert_array_equal(together, np.asarray(run(thetas)))


@needs_kernel
def test_vmap_is_more_rows_of_one_call():
    thetas, X, y = small(m=12)
    packed = native.pack(X, y)

    def loss(t, packed=packed, **which):
        return native.losses(MLP, (20,), "cross_entropy", t, packed, **which)

    flat = loss(thetas)
    np.testing.assert_array_equal(jax.vmap(loss)(thetas.reshape(4, 3, -1)).reshape(-1), flat)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(loss))(thetas.reshape(2, 2, 3, -1)).reshape(-1), flat)
    last = jax.vmap(loss, in_axes=-1, out_axes=-1)(jnp.moveaxis(thetas.reshape(4, 3, -1), 0, -1))
    np.testing.assert_array_equal(last.T.reshape(-1), flat)
    calls = str(jax.make_jaxpr(jax.vmap(loss))(thetas.reshape(4, 3, -1))).count("tiltwalk_evaluate")
    assert calls == 1

    starts = jnp.asarray([[[0, 5]], [[3, 9]]])
    got = jax.vmap(lambda r: loss(thetas[:2], ranges=r))(starts)
    agree(got, np.stack([loss(thetas[:2], ranges=r) for r in starts]))
    lists = jnp.asarray(np.random.default_rng(0).integers(0, 37, (2, 8)))
    got = jax.vmap(lambda t, i: loss(t, index=i))(thetas.reshape(2, 6, -1), lists)
    agree(got, np.stack([loss(t, index=i) for t, i in zip(thetas.reshape(2, 6, -1), lists, strict=True)]))

    others = native.pack(X[::-1], np.asarray(y))
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), packed, others)
    got = jax.vmap(lambda p: loss(thetas, p))(both)
    agree(got, np.stack([loss(thetas), loss(thetas, others)]))


@needs_kernel
def test_scan_and_cond_call_the_kernel():
    thetas, X, y = small(m=4)
    packed = native.pack(X, y)

    @jax.jit
    def walk(t):
        def step(carry, scale):
            here = native.losses(MLP, (20,), "cross_entropy", carry * scale, packed)
            return carry, jax.lax.cond(scale > 1, lambda: here, lambda: -here)

        return jax.lax.scan(step, t, jnp.asarray([0.5, 1.5]))[1]

    got = walk(thetas)
    for row, scale, sign in ((0, 0.5, -1), (1, 1.5, 1)):
        agree(got[row], sign * wanted_each(MLP, "cross_entropy", thetas * scale, X, y).mean(1))


@needs_kernel
def test_new_values_do_not_compile_again():
    thetas, X, y = small()
    traces = []

    @jax.jit
    def run(t, packed, which):
        traces.append(1)
        return native.losses(MLP, (20,), "cross_entropy", t, packed, ranges=which)

    for i in range(3):
        run(thetas + i, native.pack(X + i, y), jnp.asarray([[i, 20 + i]]))
    assert len(traces) == 1


@needs_kernel
def test_without_models_there_is_nothing():
    thetas, X, y = small(m=1)
    assert native.losses(MLP, (20,), "cross_entropy", thetas[:0], native.pack(X, y)).shape == (0,)


@needs_kernel
def test_wrong_use_is_said():
    thetas, X, y = small()
    packed = native.pack(X, y)
    with pytest.raises(ValueError, match="needs targets"):
        native.losses(MLP, (20,), "mse", thetas, packed)
    with pytest.raises(ValueError, match="one row a sample"):
        native.pack(X, y[:-1])
    with pytest.raises(Exception, match="parameters must have shape"):
        jax.block_until_ready(native.losses(MLP, (20,), "cross_entropy", thetas[:, :-1], packed))
    with pytest.raises(Exception, match="dense layer that cannot follow"):
        jax.block_until_ready(native.losses(MLP, (21,), "cross_entropy", thetas, packed))
    assert not native.supports(MLP, (21,))
    assert not native.supports(MLP, (20,), "gaussian")
    assert not native.supports((*MLP, object()), (20,))
    assert native.supports(LENET, LENET_SHAPE)


FORCED = """
import os
os.environ["TILTWALK_NATIVE"] = {name!r}
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import sys
import tiltwalk
assert "tiltwalk.native" not in sys.modules, "importing the package must not load the kernel"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from tests import native_cases as cases
from tiltwalk import native
from tiltwalk.networks.layers import Dense
assert native.target() == {expected!r}, native.reason()
if not native.available():
    assert not native.supports((Dense(3, 2),), (3,)) and "TILTWALK_NATIVE" in native.reason()
    try:
        native.losses((Dense(3, 2),), (3,), "cross_entropy", jnp.zeros((1, 8)), native.pack(np.ones((2, 3)), np.zeros(2, int)))
    except RuntimeError as error:
        assert "TILTWALK_NATIVE" in str(error)
    else:
        raise AssertionError
    sys.exit()
rng = np.random.default_rng(0)
thetas = jnp.asarray(rng.standard_normal((4, 8)), jnp.float32)
packed = native.pack(rng.standard_normal((50, 3)), rng.integers(0, 2, 50))
loss = lambda t, p: native.losses((Dense(3, 2),), (3,), "cross_entropy", t, p)
mesh = Mesh(np.array(jax.devices()), ("m",))
split = jax.jit(jax.shard_map(loss, mesh=mesh, in_specs=(P("m"), P()), out_specs=P("m")))
np.testing.assert_array_equal(split(thetas, packed), loss(thetas, packed))
"""


@pytest.mark.parametrize("name", ["off", "tpu", *TARGETS])
def test_the_environment_forces_a_target_and_shards_run(name):
    if not native.available() and name in TARGETS:
        pytest.skip(native.reason())
    expected = name if name in library.TARGETS else "none"
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    code = FORCED.format(name=name, expected=expected)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
