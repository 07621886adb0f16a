"""Networks on flat vectors: layout, initialisation, and two plain forms that agree with each other and with NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal, special

from tiltwalk import networks
from tiltwalk.networks import Activation, AvgPool, Conv, Dense, Flatten, MaxPool, plain
from tiltwalk.networks.layers import shapes

rng = np.random.default_rng(0)


def by_hand(network, theta, X):
    """The layer program in NumPy and SciPy, one sample and one channel at a time."""
    functions = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "sigmoid": special.expit,
        "identity": lambda x: x,
        "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    }
    rows = []
    for x in np.asarray(X, float):
        h = x if x.ndim == 1 else x.transpose(2, 0, 1)
        parts = [np.asarray(theta, float)[p.slice].reshape(p.shape) for p in network.parameters]
        for layer in network.program:
            if isinstance(layer, Conv):
                w, b = parts.pop(0), parts.pop(0)
                h = np.pad(h, ((0, 0), layer.pads(h.shape[1]), layer.pads(h.shape[2])))
                each = [
                    sum(signal.correlate(h[c], w[:, :, c, f], "valid") for c in range(len(h))) + b[f] for f in range(len(b))
                ]
                h = np.stack(each)[:, :: layer.stride, :: layer.stride]
            elif isinstance(layer, Dense):
                h = h @ parts.pop(0) + parts.pop(0)
            elif isinstance(layer, MaxPool | AvgPool):
                k, a, b = layer.size, h.shape[1] // layer.size, h.shape[2] // layer.size
                tiles = h[:, : a * k, : b * k].reshape(len(h), a, k, b, k)
                h = tiles.max((2, 4)) if isinstance(layer, MaxPool) else tiles.mean((2, 4))
            elif isinstance(layer, Flatten):
                h = h.reshape(-1)
            else:
                h = functions[layer.name](h)
        rows.append(h)
    return np.stack(rows)


def conv_network(activation, pool, *conv):
    layers = [Conv(conv[0], 3, 4, *conv[1:]), Activation(activation), pool, Conv(3, 4, 5, 1, "same"), Flatten()]
    return networks.sequential((13, 10, 3), [*layers, Dense(shapes(tuple(layers), (3, 13, 10))[-1][0], 3)])


PROGRAMS = {
    "linear": networks.linear(6, 3),
    "mlp relu": networks.mlp([6, 5, 4, 2]),
    "mlp gelu": networks.mlp([6, 5, 2], "gelu"),
    "mlp sigmoid": networks.mlp([6, 5, 2], "sigmoid"),
    "mlp identity": networks.mlp([6, 5, 2], "identity"),
    "window of a max pool": conv_network("tanh", MaxPool(2), 5),
    "window of a mean pool": conv_network("relu", AvgPool(2), 5),
    "window with gelu, which does not rise": conv_network("gelu", MaxPool(2), 5),
    "same padding, 3x3": conv_network("relu", MaxPool(2), 3, 1, "same"),
    "stride 2, same padding": conv_network("sigmoid", AvgPool(3), 3, 2, "same"),
    "even kernel, same padding": conv_network("relu", MaxPool(2), 4, 1, "same"),
    "1x1 kernel": conv_network("relu", MaxPool(3), 1),
    "stride 3": conv_network("identity", MaxPool(1), 2, 3),
    "lenet, 3 channels, 18x18": networks.lenet(4, 3, 18),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_plain_forms_compute_the_layer_program(name):
    network = PROGRAMS[name]
    X = rng.standard_normal((3, *network.input_shape)).astype(np.float32)
    theta = network.init(1)
    wanted = by_hand(network, theta, X)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(network.apply(theta, X), wanted, rtol=0, atol=2e-6 * size)

    @jax.jit
    def samples_last(theta, X):
        return plain.forward_last(network.program, plain.prepare(network.program, theta), plain.samples_last(X))

    last = samples_last(theta, X)
    np.testing.assert_allclose(last.T, wanted, rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize(("models", "samples"), [(1, 1), (5, 70), (9, 64)])
def test_the_ensemble_path_equals_one_model_at_a_time(models, samples):
    layers = [Conv(5, 1, 3), Activation("relu"), MaxPool(2), Flatten(), Dense(27, 3)]
    network = networks.sequential((10, 10, 1), layers)
    X = rng.random((samples, 10, 10), dtype=np.float32)  # the axis of a single channel may be missing
    thetas = jax.vmap(network.init)(jax.random.split(jax.random.key(0), models))
    one_by_one = jnp.stack([network.apply(t, X) for t in thetas])
    np.testing.assert_allclose(network.apply_many(thetas, X), one_by_one, rtol=0, atol=1e-5)


def test_lenet_has_44426_parameters_in_the_published_order():
    network = networks.lenet()
    assert network.dim == 44_426 and network.n_in == 784 and network.n_out == 10
    wanted = [(5, 5, 1, 6), (6,), (5, 5, 6, 16), (16,), (256, 120), (120,), (120, 84), (84,), (84, 10), (10,)]
    assert [p.shape for p in network.parameters] == wanted
    starts = np.cumsum([0] + [int(np.prod(s)) for s in wanted])
    assert [p.start for p in network.parameters] == list(starts[:-1])


def test_the_linear_network_is_the_perceptron_with_the_bias_in_the_last_row():
    network = networks.linear(4, 3)
    theta, X = network.init(0), rng.standard_normal((5, 4)).astype(np.float32)
    matrix = np.asarray(theta).reshape(5, 3)
    np.testing.assert_allclose(network.apply(theta, X), np.column_stack([X, np.ones(5)]) @ matrix, atol=1e-6)


def test_equal_networks_are_equal_and_share_compiled_code():
    traces = []

    def run(network, theta, X):
        traces.append(1)
        return network.apply(theta, X)

    compiled = jax.jit(run, static_argnums=0)
    for seed in range(3):
        network = networks.mlp([3, 4, 2])
        compiled(network, network.init(seed), np.ones((2, 3), np.float32))
    assert len(traces) == 1
    assert networks.mlp([3, 4, 2]) != networks.mlp([3, 4, 2], "tanh")
    assert hash(networks.lenet()) == hash(networks.lenet())


@pytest.mark.parametrize(("initialiser", "variance"), [("glorot", 2 / 500), ("he", 2 / 400), ("lecun", 1 / 400)])
def test_initial_weights_have_the_named_variance_and_biases_a_small_one(initialiser, variance):
    network = networks.mlp([400, 100, 10], "tanh", initialiser=initialiser)
    scale, layout = np.asarray(network.scale()), network.layout
    assert scale.shape == (network.dim,) and np.all(scale > 0)
    np.testing.assert_allclose(scale[layout["dense1.weight"].slice], variance**0.5, rtol=1e-6)
    np.testing.assert_allclose(scale[layout["dense1.bias"].slice], 0.1, rtol=1e-6)
    # whitened, init is standard normal: the mean square of d values has deviation sqrt(2 / d)
    white = np.asarray(network.init(0)) / scale
    assert abs(np.mean(white**2) - 1) < 5 * np.sqrt(2 / network.dim)
    assert jnp.array_equal(network.init(0), network.init(jax.random.key(0)))


def test_the_layout_names_every_parameter_once_and_weights_come_back_exactly():
    network = networks.lenet(3, 1, 16)
    covered = np.concatenate([np.arange(network.dim)[p.slice] for p in network.layout.values()])
    assert np.array_equal(np.sort(covered), np.arange(network.dim))
    theta = network.init(0)
    params = network.unflatten(theta)
    assert params["conv1.weight"].shape == (5, 5, 1, 6)
    assert jnp.array_equal(network.flatten(params), theta)
    with pytest.raises(ValueError, match=r"Network.flatten: params must be a mapping with the names conv1.weight"):
        network.flatten({"conv1.weight": 0})
    with pytest.raises(ValueError, match=r"conv1.bias must have shape \(6,\); got \(5,\)"):
        network.flatten({**params, "conv1.bias": jnp.zeros(5)})


BAD = {
    "no sizes": (lambda: networks.mlp([3]), ValueError, r"mlp.sizes must hold at least"),
    "size zero": (lambda: networks.mlp([3, 0, 2]), ValueError, r"mlp.sizes must be a whole number of at least 1; got 0"),
    "a float size": (lambda: networks.mlp([3, 4.0, 2]), TypeError, r"mlp.sizes must be a whole number"),
    "activation": (lambda: networks.mlp([3, 2], "swish"), ValueError, r"mlp.activation must be one of gelu, .*got 'swish'"),
    "initialiser": (lambda: networks.mlp([3, 2], initialiser="zero"), ValueError, r"initialiser must be one of glorot"),
    "small images": (lambda: networks.lenet(image_size=8), ValueError, r"lenet.image_size .* at least 16; got 8"),
    "wide kernel": (lambda: networks.sequential((3, 3, 1), [Conv(5, 1, 2)]), ValueError, r"at least as large as its kernel"),
    "channels": (lambda: networks.sequential((9, 9, 3), [Conv(3, 1, 2)]), ValueError, r"image of 1 channels; got \(3, 9, 9\)"),
    "dense on images": (lambda: networks.sequential((9, 9, 1), [Dense(81, 2)]), ValueError, r"must follow a vector of 81"),
    "dense size": (lambda: networks.sequential((9,), [Dense(8, 2)]), ValueError, r"vector of 8 values; got \(9,\)"),
    "no vector": (lambda: networks.sequential((9, 9, 1), [Conv(3, 1, 2)]), ValueError, r"end in a vector of outputs"),
    "no parameters": (lambda: networks.sequential((9,), [Activation("relu")]), ValueError, r"must hold parameters"),
    "no layer": (lambda: networks.sequential((9,), ["dense"]), TypeError, r"A layer must be Conv, .*got 'dense'"),
    "two axes": (lambda: networks.sequential((9, 9), [Flatten()]), ValueError, r"must be \(features,\) or \(height"),
    "padding": (lambda: Conv(3, 1, 1, padding="full"), ValueError, r"Conv.padding must be one of same, valid"),
    "features": (
        lambda: networks.linear(3, 1).apply(jnp.zeros(4), np.ones((2, 5))),
        ValueError,
        r"X must have shape \(N, 3\), samples first; got \(2, 5\)",
    ),
    "channels first": (
        lambda: networks.lenet().apply(networks.lenet().init(0), np.ones((2, 1, 28, 28))),
        ValueError,
        r"channels last: transpose with X.transpose\(0, 2, 3, 1\); got \(2, 1, 28, 28\)",
    ),
    "flat images": (
        lambda: networks.lenet().apply(networks.lenet().init(0), np.ones((2, 784))),
        ValueError,
        r"reshape with X.reshape\(-1, 28, 28, 1\)",
    ),
    "theta": (
        lambda: networks.linear(3, 1).apply(jnp.zeros(5), np.ones((2, 3))),
        ValueError,
        r"theta must have shape \(4,\); got \(5,\)",
    ),
    "thetas": (
        lambda: networks.linear(3, 1).apply_many(jnp.zeros(4), np.ones((2, 3))),
        ValueError,
        r"thetas must have shape \(m, 4\); got \(4,\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_network_refuses(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
