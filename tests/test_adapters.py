"""Modules of Flax, Equinox and Torch as networks: same outputs, exact round trips, and refusals of what cannot work."""

import importlib.util
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiltwalk import networks
from tiltwalk.losses.supervised import Supervised

absent = {name: importlib.util.find_spec(name) is None for name in ("flax", "equinox", "torch")}
needs_flax = pytest.mark.skipif(absent["flax"], reason="flax is not installed")
needs_equinox = pytest.mark.skipif(absent["equinox"], reason="equinox is not installed")
needs_torch = pytest.mark.skipif(absent["torch"], reason="torch is not installed")

rng = np.random.default_rng(0)
X = rng.random((11, 28, 28, 1), dtype=np.float32)
LABELS = rng.integers(0, 10, 11)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(np.asarray(theirs)).max())


# ---- LeNet three times, with our weights ----


def flax_lenet():
    from flax import linen as nn

    class LeNet(nn.Module):
        @nn.compact
        def __call__(self, x):
            for filters in (6, 16):
                x = nn.relu(nn.Conv(filters, (5, 5), padding="VALID")(x))
                x = nn.max_pool(x, (2, 2), (2, 2))
            x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
            x = nn.relu(nn.Dense(120)(x))
            x = nn.relu(nn.Dense(84)(x))
            return nn.Dense(10)(x)

    return LeNet()


def torch_lenet():
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    ).eval()


def equinox_lenet():
    from equinox import nn

    k = jax.random.split(jax.random.key(3), 5)
    return nn.Sequential(
        [
            *(nn.Conv2d(1, 6, 5, key=k[0]), nn.Lambda(jax.nn.relu), nn.MaxPool2d(2, 2)),
            *(nn.Conv2d(6, 16, 5, key=k[1]), nn.Lambda(jax.nn.relu), nn.MaxPool2d(2, 2), nn.Lambda(jnp.ravel)),
            *(nn.Linear(256, 120, key=k[2]), nn.Lambda(jax.nn.relu)),
            *(nn.Linear(120, 84, key=k[3]), nn.Lambda(jax.nn.relu), nn.Linear(84, 10, key=k[4])),
        ]
    )


def to_flax(params):
    names = {"conv1": "Conv_0", "conv2": "Conv_1", "dense3": "Dense_0", "dense4": "Dense_1", "dense5": "Dense_2"}
    out = {}
    for ours, theirs in names.items():
        out[theirs] = {"kernel": params[f"{ours}.weight"], "bias": params[f"{ours}.bias"]}
    return {"params": out}


def to_torch(params):
    """HWIO to OIHW, (in, out) to (out, in)."""
    out = {}
    for ours, index in {"conv1": 0, "conv2": 3, "dense3": 7, "dense4": 9, "dense5": 11}.items():
        w = np.asarray(params[f"{ours}.weight"])
        out[f"{index}.weight"] = w.transpose(3, 2, 0, 1) if w.ndim == 4 else w.T
        out[f"{index}.bias"] = np.asarray(params[f"{ours}.bias"])
    return out


@pytest.fixture(scope="module")
def ours():
    network = networks.lenet()
    return network, jnp.stack([network.init(k) for k in range(3)])


@needs_flax
@pytest.mark.parametrize("n", [1, 11])
def test_our_lenet_equals_the_flax_lenet_on_the_same_weights(ours, n):
    network, thetas = ours
    adapted = networks.from_flax(flax_lenet(), X[:2])
    assert adapted.dim == network.dim == 44_426
    theirs = jnp.stack([adapted.flatten(to_flax(network.unflatten(t))) for t in thetas])
    close(network.apply(thetas[0], X[:n]), flax_lenet().apply(to_flax(network.unflatten(thetas[0])), X[:n]))
    close(network.apply_many(thetas, X[:n]), adapted.apply_many(theirs, X[:n]))
    one, two = (Supervised(net, X[:n], LABELS[:n], block=4) for net in (network, adapted))
    np.testing.assert_allclose(one(thetas), two(theirs), rtol=1e-5)


@needs_flax
def test_a_flax_network_has_the_gradient_of_the_module():
    from flax import linen as nn

    module, x = nn.Sequential([nn.Dense(6), nn.tanh, nn.Dense(3)]), X.reshape(11, -1)[:, 200:210]
    network = networks.from_flax(module, x)
    theta = network.init(0)
    _, grad = Supervised(network, x, LABELS % 3, block=4).value_and_grad(theta[None])

    def mean(variables):
        return -jnp.mean(jax.nn.log_softmax(module.apply(variables, x))[jnp.arange(11), LABELS % 3])

    close(grad[0], network.flatten(jax.grad(mean)(network.unflatten(theta))))


@needs_torch
@pytest.mark.parametrize("n", [1, 11])
def test_our_lenet_equals_the_torch_lenet_on_the_same_weights(ours, n):
    import torch

    network, thetas = ours
    nchw = X[:n].transpose(0, 3, 1, 2)
    module = torch_lenet()
    adapted = networks.from_torch(module, nchw[:1])
    states = [{k: torch.from_numpy(np.array(v)) for k, v in to_torch(network.unflatten(t)).items()} for t in thetas]
    theirs = jnp.stack([adapted.flatten(s) for s in states])
    module.load_state_dict(states[1])
    with torch.no_grad():
        close(network.apply(thetas[1], X[:n]), module(torch.from_numpy(nchw)).numpy())
    one, two = Supervised(network, X[:n], LABELS[:n], block=4), Supervised(adapted, nchw, LABELS[:n], block=4)
    np.testing.assert_allclose(one(thetas), two(theirs), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(two))(jnp.stack([theirs, theirs]))[1], one(thetas), rtol=1e-5)


@needs_equinox
def test_our_lenet_equals_the_equinox_lenet_on_the_same_weights(ours):
    import equinox as eqx

    network, thetas = ours
    module, chw = equinox_lenet(), X.transpose(0, 3, 1, 2)
    adapted = networks.from_equinox(module, chw[:2])
    values = [jnp.asarray(v) for v in to_torch(network.unflatten(thetas[2])).values()]
    arrays, rest = eqx.partition(module, eqx.is_array)
    shapes, structure = jax.tree.flatten(arrays)
    arrays = jax.tree.unflatten(structure, [v.reshape(a.shape) for v, a in zip(values, shapes, strict=True)])
    filled = eqx.combine(arrays, rest)
    close(network.apply(thetas[2], X), adapted.apply(adapted.flatten(filled), chw))


# ---- weights there and back ----


@needs_flax
def test_flax_linen_weights_come_back_exactly():
    network = networks.from_flax(flax_lenet(), X[:1])
    variables = flax_lenet().init(jax.random.key(5), X[:1])
    theta = network.flatten(variables)
    back = network.unflatten(theta)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, variables, back))
    assert jnp.array_equal(network.flatten(back), theta)
    close(network.apply(theta, X), flax_lenet().apply(variables, X))


@needs_flax
def test_flax_nnx_weights_come_back_exactly():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, seed):
            keys = nnx.Rngs(seed)
            self.one, self.norm, self.two = (
                nnx.Linear(4, 8, rngs=keys),
                nnx.LayerNorm(8, rngs=keys),
                nnx.Linear(8, 2, rngs=keys),
            )

        def __call__(self, x):
            return self.two(jnp.tanh(self.norm(self.one(x))))

    module, other = Net(0), Net(1)
    network = networks.from_flax(module, np.zeros((1, 4)))
    x = rng.standard_normal((5, 4)).astype(np.float32)
    theta = network.flatten(other)
    close(network.apply(theta, x), other(x))
    back = network.unflatten(theta)
    assert jnp.array_equal(back(x), other(x))
    assert jnp.array_equal(network.flatten(back), theta)
    assert "one/kernel" in network.layout
    gain = network.layout["norm/scale"].slice
    assert abs(float(network.init(0)[gain].mean()) - 1) < 0.2  # a gain starts near one


@needs_equinox
def test_equinox_weights_come_back_exactly():
    import equinox as eqx

    module, other = (eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(k)) for k in (0, 1))
    network = networks.from_equinox(module)
    assert network.input_shape == (3,) and network.n_out == 2
    x = rng.standard_normal((5, 3)).astype(np.float32)
    theta = network.flatten(other)
    close(network.apply(theta, x), jax.vmap(other)(x))
    back = network.unflatten(theta)
    assert eqx.tree_equal(eqx.filter(back, eqx.is_array), eqx.filter(other, eqx.is_array))
    loss = Supervised(network, x, np.zeros((5, 2)), "mse")
    _, grad = loss.value_and_grad(theta[None])
    wanted = jax.grad(lambda t: jnp.mean(jnp.sum(network.apply(t, x) ** 2, 1)) / 2)(theta)
    np.testing.assert_allclose(grad[0], wanted, rtol=1e-4, atol=1e-6)


@needs_torch
def test_torch_weights_come_back_exactly_with_tied_weights_and_buffers():
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.norm(self.two(torch.tanh(self.one(x))))

    module = Tied().eval()
    network = networks.from_torch(module)
    other = Tied().eval()
    theta = network.flatten(other)
    state = network.unflatten(theta)
    assert set(state) == set(other.state_dict())
    assert all(torch.equal(state[k], v) for k, v in other.state_dict().items() if v.dtype.is_floating_point)
    module.load_state_dict(state)
    assert jnp.array_equal(network.flatten(module), theta)


# ---- refusals ----


@needs_flax
@pytest.mark.parametrize("layer", ["dropout", "batch statistics"])
def test_flax_training_mode_is_refused_and_evaluation_mode_is_not(layer):
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.Dense(8)(x)
            x = nn.Dropout(0.5, deterministic=not train)(x) if layer == "dropout" else nn.BatchNorm(not train)(x)
            return nn.Dense(2)(x)

    x = rng.standard_normal((4, 3))
    with pytest.raises(ValueError, match=r"from_flax.module must give the same outputs .* training mode"):
        networks.from_flax(Net(), x, train=True)
    network = networks.from_flax(Net(), x, train=False)
    assert network.apply(network.init(0), x).shape == (4, 2)


@needs_flax
@pytest.mark.parametrize("layer", ["dropout", "batch statistics"])
def test_nnx_training_mode_is_refused_and_evaluation_mode_is_not(layer):
    from flax import nnx

    keys = nnx.Rngs(0)
    middle = nnx.Dropout(0.5, rngs=keys) if layer == "dropout" else nnx.BatchNorm(8, rngs=keys)
    module = nnx.Sequential(nnx.Linear(3, 8, rngs=keys), middle, nnx.Linear(8, 2, rngs=keys))
    x = rng.standard_normal((4, 3))
    with pytest.raises(ValueError, match=r"from_flax.module must give the same outputs .* training mode"):
        networks.from_flax(module, x)
    module.eval()
    assert networks.from_flax(module, x).n_out == 2


@needs_equinox
def test_equinox_dropout_and_batch_norm_are_refused_in_training_mode():
    from equinox import nn

    k = jax.random.key(0)
    dropout = nn.Sequential([nn.Linear(3, 8, key=k), nn.Dropout(0.5), nn.Linear(8, 2, key=k)])
    with pytest.raises(ValueError, match="training mode"):
        networks.from_equinox(dropout)
    assert networks.from_equinox(nn.inference_mode(dropout)).n_out == 2


@needs_torch
@pytest.mark.parametrize("layer", ["dropout", "batch statistics"])
def test_torch_training_mode_is_refused_and_evaluation_mode_is_not(layer):
    from torch import nn

    middle = nn.Dropout(0.5) if layer == "dropout" else nn.BatchNorm1d(8)
    module = nn.Sequential(nn.Linear(3, 8), middle, nn.Linear(8, 2))
    with pytest.raises(ValueError, match=rf"call module.eval\(\); got {layer} in training mode: 1"):
        networks.from_torch(module)
    assert networks.from_torch(module.eval()).n_out == 2
    if layer == "batch statistics":
        with pytest.raises(ValueError, match="batch statistics"):
            networks.from_torch(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False)).eval())


@needs_flax
def test_shapes_that_depend_on_the_data_are_refused():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x[x[:, 0] > 0])

    with pytest.raises(ValueError, match="do not depend on the values of the data"):
        networks.from_flax(Net(), rng.standard_normal((4, 3)))


@needs_torch
def test_torch_shapes_that_depend_on_the_data_are_refused():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(3, 2)

        def forward(self, x):
            out = self.one(x)
            return out if out.sum() > 0 else torch.zeros_like(out)

    with pytest.raises(ValueError, match="do not depend on the values of the data"):
        networks.from_torch(Net().eval())


@needs_torch
def test_a_torch_network_has_no_gradient_and_says_so():
    from torch import nn

    network = networks.from_torch(nn.Sequential(nn.Linear(3, 2)).eval())
    loss = Supervised(network, rng.standard_normal((5, 3)), np.zeros(5, int))
    theta = network.init(0)[None]
    assert not network.differentiable and not loss.differentiable
    for call in (
        lambda: loss.value_and_grad(theta),
        lambda: jax.grad(lambda t: loss(t).sum())(theta),
        lambda: jax.jit(jax.grad(lambda t: network.apply(t, np.zeros((2, 3))).sum()))(theta[0]),
    ):
        with pytest.raises(TypeError, match=r"gradient|differentiable"):
            call()


@needs_torch
def test_an_exception_in_a_torch_module_leaves_a_compiled_loss_as_itself():
    import torch
    from torch import nn

    from tiltwalk.losses.blackbox import surfaced

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.fail = nn.Linear(3, 2), torch.zeros(())

        def forward(self, x):
            if Net.broken:
                raise LookupError("the table is gone")
            return self.one(x).square()  # no layer of ours: the module itself is what runs

    Net.broken = False
    network = networks.from_torch(Net().eval())
    loss = Supervised(network, rng.standard_normal((5, 3)), np.zeros(5, int))
    theta = network.init(0)[None]
    Net.broken = True
    with pytest.raises(LookupError, match="the table is gone"):
        loss(theta)
    with pytest.raises(LookupError, match="the table is gone"), surfaced():
        jax.block_until_ready(jax.jit(loss)(theta))


@needs_flax
def test_outputs_that_depend_on_the_rest_of_the_batch_are_refused():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x - x.mean(0))

    with pytest.raises(ValueError, match="other samples of its batch"):
        networks.from_flax(Net(), rng.standard_normal((4, 3)))


@pytest.mark.parametrize("name", ["from_flax", "from_equinox", "from_torch"])
def test_an_adapter_refuses_what_is_no_module(name):
    if absent[name.removeprefix("from_")]:
        pytest.skip(f"{name.removeprefix('from_')} is not installed")
    with pytest.raises(TypeError, match=rf"{name}.module must be"):
        getattr(networks, name)(object(), np.zeros((1, 3)))


def test_importing_the_networks_imports_no_other_library():
    code = "import sys, tiltwalk.networks; print([m for m in ('flax', 'equinox', 'torch') if m in sys.modules])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert made.stdout.strip() == "[]"


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "tiltwalk\[torch\]"'):
        networks.from_torch(object())
