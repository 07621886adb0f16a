"""Modules of Flax, Equinox and Torch that are a row of our layers take the kernel; others do not, and say why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.test_adapters import (
    LABELS,
    X,
    close,
    equinox_lenet,
    flax_lenet,
    needs_equinox,
    needs_flax,
    needs_torch,
    to_flax,
    to_torch,
    torch_lenet,
)
from tiltwalk import native, networks
from tiltwalk.losses import blocks
from tiltwalk.losses.supervised import Supervised
from tiltwalk.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, MaxPool

needs_kernel = pytest.mark.skipif(not native.available(), reason=native.reason())
rng = np.random.default_rng(1)
FIRST = X.transpose(0, 3, 1, 2)
RELU = Activation("relu")


def lenet_of(library):
    """The module as a network, images as it takes them, and our weights in its form."""
    if library == "flax":
        return networks.from_flax(flax_lenet(), X[:2]), X, to_flax
    if library == "torch":
        torch = pytest.importorskip("torch")
        state = lambda params: {k: torch.from_numpy(np.array(v)) for k, v in to_torch(params).items()}  # noqa: E731
        return networks.from_torch(torch_lenet(), FIRST[:2]), FIRST, state
    module = equinox_lenet()

    def filled(params):
        import equinox as eqx

        weights, rest = eqx.partition(module, eqx.is_array)
        leaves, structure = jax.tree.flatten(weights)
        found = [jnp.asarray(v).reshape(leaf.shape) for v, leaf in zip(to_torch(params).values(), leaves, strict=True)]
        return eqx.combine(jax.tree.unflatten(structure, found), rest)

    return networks.from_equinox(module, FIRST[:2]), FIRST, filled


@pytest.mark.parametrize(
    "library", [pytest.param(n, marks=m) for n, m in (("flax", needs_flax), ("equinox", needs_equinox), ("torch", needs_torch))]
)
def test_a_lenet_is_recognised_and_gives_what_ours_gives_both_ways(library):
    ours = networks.lenet()
    network, images, theirs = lenet_of(library)
    assert network.layers == ours.program and "Conv(5x5, 1 to 6)" in network.why and network.why in repr(network)
    thetas = jnp.stack([ours.init(k) for k in range(2)])
    rows = jnp.stack([network.flatten(theirs(ours.unflatten(t))) for t in thetas])
    again = network.flatten(network.unflatten(rows[0]))
    np.testing.assert_array_equal(again, rows[0])  # its own order stays

    one, two = Supervised(ours, X, LABELS), Supervised(network, images, LABELS)
    assert two.network is network and two.dim == 44_426
    assert two.data.last == native.available()  # as the kernel reads them
    np.testing.assert_allclose(two(rows), one(thetas), rtol=1e-5)
    close(blocks.outputs(network, rows, images), network.apply_many(rows, images))
    if library == "torch":
        assert not two.differentiable
        with pytest.raises(TypeError, match="Torch module"):
            two.value_and_grad(rows)
        return
    back = jnp.stack([network.flatten(theirs(ours.unflatten(g))) for g in one.value_and_grad(thetas)[1]])
    close(two.value_and_grad(rows)[1], back)
    close(jax.grad(lambda t: two(t).sum())(rows), back)


@needs_kernel
@needs_flax
def test_every_way_of_asking_for_a_loss_takes_a_recognised_module():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.avg_pool(nn.tanh(nn.Conv(5, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.max_pool(nn.gelu(nn.Conv(4, (3, 3), strides=2, use_bias=False)(x)), (2, 2), (2, 2))
            x = nn.sigmoid(nn.Dense(6)(x.reshape(len(x), -1)))  # flattened channels last
            return nn.Dense(3)(x)

    images, y = rng.random((37, 18, 14, 2), dtype=np.float32), rng.integers(0, 3, 37)
    network = networks.from_flax(Net(), images[:2])
    assert network.layers == (
        *(Conv(3, 2, 5, 1, "same"), Activation("tanh"), AvgPool(2)),
        *(Conv(3, 5, 4, 2, "same"), Activation("gelu"), MaxPool(2), Flatten()),
        *(Dense(4 * 2 * 2, 6), Activation("sigmoid"), Dense(6, 3)),
    )
    thetas = jnp.stack([network.init(k) for k in range(3)])
    fast, slow = Supervised(network, images, y), Supervised(network, images, y, block=8)
    assert fast.data.last and not slow.data.last
    each, live = slow.per_sample(thetas), jnp.asarray([True, False, True])
    lists = jnp.asarray(rng.integers(0, 37, (3, 9)))
    close(fast(thetas), slow(thetas))
    close(fast.per_sample(thetas), each)
    close(fast.per_sample(thetas, lists[0]), each[:, lists[0]])
    close(fast.per_sample(thetas, lists), jnp.take_along_axis(each, lists, 1))
    close(fast.on(lists[0])(thetas), each[:, lists[0]].mean(1))
    close(fast.where(thetas, live), jnp.where(live, slow(thetas), 0))
    close(sum(fast.part(thetas, i, 1) for i in range(3)), slow(thetas))
    sums, seen = fast.until(thetas[:, None], jnp.full(3, 1e9), jnp.ones((3, 1), bool), 2)
    close(sums[:, 0], slow(thetas))
    assert np.all(seen == 1)
    close(jax.vmap(fast)(thetas[None]), slow(thetas)[None])
    for a, b in zip(fast.value_and_grad(thetas), slow.value_and_grad(thetas), strict=True):
        close(a, b)
    values = rng.standard_normal((37, 3))
    for kind, truth in (("gaussian", values), ("zero_one", y)):
        fast, slow = Supervised(network, images, truth, kind), Supervised(network, images, truth, kind, block=8)
        these = jnp.concatenate([thetas, jnp.full((3, 1), 0.3)], 1) if kind == "gaussian" else thetas
        close(fast(these), slow(these))
        if kind != "zero_one":
            close(fast.value_and_grad(these)[1], slow.value_and_grad(these)[1])


@needs_flax
def test_nnx_modules_with_dropout_in_evaluation_mode_are_recognised():
    from flax import nnx

    keys = nnx.Rngs(0)
    middle = nnx.Dropout(0.5, deterministic=True, rngs=keys)
    module = nnx.Sequential(nnx.Linear(3, 8, rngs=keys), jnp.tanh, middle, nnx.Linear(8, 2, use_bias=False, rngs=keys))
    network = networks.from_flax(module, rng.standard_normal((2, 3)))
    assert network.layers == (Dense(3, 8), Activation("tanh"), Dense(8, 2))
    x = rng.standard_normal((7, 3)).astype(np.float32)
    theta = network.init(0)
    close(blocks.outputs(network, theta[None], x)[0], network.unflatten(theta)(x))


@needs_torch
def test_torch_modules_are_followed_through_functions_and_shapes():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.Identity()
            self.last = nn.Linear(32, 3)  # parameters in another order than the layers'
            self.conv = nn.Conv2d(2, 8, 3, padding=1)
            self.second = nn.Conv2d(8, 8, 3, padding="same", bias=False)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv(self.norm(x))), 2)
            x = F.avg_pool2d(torch.tanh(self.second(x)), kernel_size=3)
            return self.last(self.drop(x).view(x.size(0), -1))

    images = rng.standard_normal((9, 2, 13, 12)).astype(np.float32)
    network = networks.from_torch(Net().eval(), images[:2])
    assert network.layers == (
        *(Conv(3, 2, 8, 1, "same"), RELU, MaxPool(2), Conv(3, 8, 8, 1, "same"), Activation("tanh"), AvgPool(3)),
        *(Flatten(), Dense(32, 3)),
    )
    thetas = jnp.stack([network.init(k) for k in range(2)])
    close(blocks.outputs(network, thetas, images), network.apply_many(thetas, images))
    assert set(network.unflatten(thetas[0])) == set(Net().state_dict())


def flax_modules():
    from flax import linen as nn

    class Residual(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x + nn.relu(nn.Dense(3)(x)))

    class Scaled(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)((x - jnp.arange(3.0)) / 2)

    class Reversed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x)[:, ::-1]

    yield nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.Dense(2)]), "sum over a layer's values"
    yield Residual(), "residual connection"
    yield Scaled(), "constants that differ"
    yield Reversed(), "another order"
    yield nn.Sequential([nn.Dense(4), nn.swish, nn.Dense(2)]), "a function of single values that is none of"
    yield nn.Sequential([nn.Dense(4, dtype=jnp.bfloat16), nn.relu, nn.Dense(2)]), "bfloat16"


def torch_modules():
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.two(x + self.one(x).relu())

    tied = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3, bias=False))
    tied[2].weight = tied[0].weight
    yield nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)), "LayerNorm"
    yield nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), "a function of single values"  # the one with erf
    yield nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "BatchNorm1d"
    yield Residual(), "residual connection"
    yield tied, "weights that are used twice"


@pytest.mark.parametrize("library", [pytest.param("flax", marks=needs_flax), pytest.param("torch", marks=needs_torch)])
def test_what_is_no_row_of_our_layers_runs_as_it_is_and_says_why(library):
    x, y = rng.standard_normal((5, 3)).astype(np.float32), np.zeros(5, int)
    for module, why in (flax_modules if library == "flax" else torch_modules)():
        network = networks.from_flax(module, x) if library == "flax" else networks.from_torch(module.eval())
        assert (
            network.layers is None
            and why in network.why
            and network.why.startswith("no row of layers")
            and why in repr(network)
        )
    loss = Supervised(network, x, y)
    assert not loss.data.last and np.isfinite(loss(network.init(0)[None])).all()


@needs_torch
def test_torch_convolutions_with_another_padding_or_stride_are_not_taken_for_ours():
    from torch import nn

    images = rng.standard_normal((2, 1, 8, 8))
    cases = [
        (nn.Conv2d(1, 2, 3, stride=2, padding=1), "neither valid nor same"),  # Torch's zeros stand before, ours behind
        (nn.Conv2d(1, 2, 3, dilation=2), "dilation"),
        (nn.Conv2d(1, 2, (3, 1)), "not square"),
        (nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(3, 2)), "overlap"),
    ]
    for layer, why in cases:
        body = nn.Sequential(layer, nn.Flatten()).eval()
        network = networks.from_torch(body, images)
        assert network.layers is None and why in network.why


def test_own_networks_say_what_they_are():
    network = networks.mlp([4, 3, 2])
    assert network.layers == network.program
    assert network.why == "layers that the kernel knows: Dense(4 to 3), relu, Dense(3 to 2)"
