"""Holds an installed wheel to what it promises: the kernel is in it, and its losses and gradients are those of plain JAX.

    python scripts/check_kernel.py [target ...]

Every target that this machine runs, on a LeNet and a small dense network; the targets that are named must be among them.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import tiltwalk as tw
from tiltwalk import native
from tiltwalk.native import library
from tiltwalk.networks import plain


def main() -> None:
    if not native.available():
        sys.exit(f"The kernel is not in use: {native.reason()}.")
    targets = [name for name in library.TARGETS if library.runs_target(name)]
    missing = sorted(set(sys.argv[1:]) - set(targets))
    if missing:
        sys.exit(f"This machine should run the targets {', '.join(missing)}; it runs {', '.join(targets)}.")
    rng = np.random.default_rng(0)
    for name, network in {"lenet": tw.networks.lenet(), "mlp": tw.networks.mlp([20, 13, 10], "gelu")}.items():
        inside = network.input_shape
        X = rng.standard_normal((37, *inside)).astype(np.float32)
        y = rng.integers(0, 10, 37)
        thetas = jnp.stack([network.init(key) for key in range(3)])
        last = X.transpose(0, 3, 1, 2) if X.ndim == 4 else X
        packed, shape = native.pack(last, y), last.shape[1:]

        def mean(theta, network=network, X=X, y=y):
            scores = jax.nn.log_softmax(plain.forward(network.program, theta, X))
            return -jnp.mean(scores[jnp.arange(len(y)), y])

        value, gradient = jax.vmap(jax.value_and_grad(mean))(thetas)
        for target in targets:
            got = native.value_and_grad(network.program, shape, "cross_entropy", thetas, packed, target=target)
            np.testing.assert_allclose(got[0], value, rtol=1e-5)
            np.testing.assert_allclose(got[1], gradient, rtol=0, atol=1e-5 * np.abs(gradient).max())
            print(f"{name}: {target} gives the losses and gradients of plain JAX")
    print(f"tiltwalk {tw.__version__}: {native.reason()}")


if __name__ == "__main__":
    main()
