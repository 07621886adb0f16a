"""From a supervised loss to the compiled kernel, and back: where the kernel serves, the data already lie as it reads them.

The kernel takes float32 and blocks of 16 samples, samples last, which is how `blocks.split` lays data out where the kernel
knows the network. It gives means over all samples of its blocks, filling included; filling has weight 0, so a sum is the mean
times their number. The Gaussian likelihood is its squared error with the noise put in afterwards.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk.losses.heads import Named
from tiltwalk.networks import Network

if TYPE_CHECKING:
    from tiltwalk.losses.blocks import Data, Task

BLOCK = 16
_KINDS = {"cross_entropy": "cross_entropy", "mse": "mse", "zero_one": "zero_one", "gaussian": "mse"}


def kernel() -> Any:
    """The kernel's Python door, or None where this installation has none."""
    try:
        return importlib.import_module("tiltwalk.native")
    except ImportError:
        return None


def block(network: Network, kind: Any) -> int | None:
    """Samples in a block where the kernel will compute this loss, else None."""
    native = kernel()
    if network.program is None or kind not in _KINDS or jax.default_backend() != "cpu" or native is None:
        return None
    if jnp.zeros(0).dtype != jnp.float32 or not native.supports(network.program, _shape(network), _KINDS[kind]):
        return None
    return BLOCK


def row_of(network: Network, kind: Any) -> Any:
    """The row of layers that an adapted module is, where it is one and the kernel will compute this loss of it, else None."""
    if network.row is None or callable(kind) or block(network.row.network, kind) is None:
        return None
    return network.row


def serves(task: Task, data: Data, thetas: Any, want: str) -> bool:
    """Whether the kernel computes this."""
    if not data.last or not isinstance(task.head, Named) or thetas.dtype != jnp.float32:
        return False
    if data.X.dtype != jnp.float32 or block(task.network, task.head.kind) != data.block:
        return False
    return want != "gradient" or task.head.kind != "zero_one"


def evaluate(task: Task, data: Data, thetas: Float[Array, "m d"], want: str) -> Any:
    """What `blocks.evaluate` gives, by the kernel."""
    native, call = kernel(), _call(task, data)
    rows, log_noise = _noise(task, data, thetas)
    if want == "gradient":
        value, grad = (a * data.weight.size for a in native.value_and_grad(*call, rows, _packed(native, data)))
        return _with_slopes(task, value, grad, jnp.sum(data.weight), log_noise)
    if want == "each":
        found = native.per_sample(*call, rows, _packed(native, data))
        return _likelihood(task, found, data.weight.reshape(-1), log_noise[:, None])
    found = native.losses(*call, rows, _packed(native, data)) * data.weight.size
    return _likelihood(task, found, jnp.sum(data.weight), log_noise)


def outputs(network: Network, thetas: Float[Array, "m d"], X: Any) -> Any:
    """The outputs `(m, n, k)` of many models, or None where the kernel does not serve."""
    native, row = kernel(), row_of(network, "cross_entropy")
    if row is not None:
        network, thetas, X = row.network, row.parameters(thetas), row.inputs(X)
    if block(network, "cross_entropy") is None or thetas.dtype != jnp.float32:
        return None
    samples = X if X.ndim == 2 else X.transpose(0, 3, 1, 2)
    return native.outputs(network.program, _shape(network), thetas, native.pack(samples))


def listed(task: Task, data: Data, thetas: Float[Array, "m d"], indices: Any) -> Any:
    """Weighted losses `(m, n)` on the samples at `indices`, read where they lie: one list, or one a model."""
    native, indices = kernel(), jnp.asarray(indices)
    rows, log_noise = _noise(task, data, thetas)
    found = native.per_sample(*_call(task, data), rows, _packed(native, data), index=jnp.atleast_2d(indices))
    weight = data.weight[indices // data.block, indices % data.block]
    return _likelihood(task, found, weight, log_noise[:, None])


def piece(task: Task, data: Data, thetas: Float[Array, "m d"], live: Any, first: Any, count: int) -> Any:
    """What `count` blocks from `first` on add to the sum, for models that are `live`; the others get no samples, and 0."""
    native, total = kernel(), data.weight.shape[0]
    rows, log_noise = _noise(task, data, thetas)
    start = jnp.full(live.shape, first * BLOCK, jnp.int32)
    ranges = jnp.stack([start, jnp.where(live, count * BLOCK, 0)], 1)
    found = native.losses(*_call(task, data), rows, _packed(native, data), ranges=ranges)
    samples = jnp.minimum(count, total - first) * BLOCK
    here = jnp.arange(total) - first
    weight = jnp.sum(jnp.where((here >= 0) & (here < count), jnp.sum(data.weight, 1), 0))
    return jnp.where(live, _likelihood(task, found * samples.astype(found.dtype), weight, log_noise), 0)


def _call(task: Task, data: Data) -> tuple[Any, ...]:
    return task.network.program, _shape(task.network), _KINDS[task.head.kind]  # type: ignore[attr-defined]


def _shape(network: Network) -> tuple[int, ...]:
    first = network.input_shape
    return first if len(first) == 1 else (first[2], first[0], first[1])


def _packed(native: Any, data: Data) -> Any:
    values = data.y.ndim == 3
    flat = data.X.reshape(data.X.shape[0], -1, data.block)
    return native.Packed(flat, None if values else data.y, data.y if values else None, data.weight, data.weight.size)


def _noise(task: Task, data: Data, thetas: Any) -> tuple[Any, Any]:
    if task.learnt:
        return thetas[:, :-1], thetas[:, -1]
    fixed = 0.0 if data.log_noise is None else data.log_noise
    return thetas, jnp.broadcast_to(jnp.asarray(fixed, thetas.dtype), thetas.shape[:1])


def _likelihood(task: Task, found: Any, weight: Any, log_noise: Any) -> Any:
    """Squared errors as negative log-likelihoods; the rest as it is."""
    if task.head.kind != "gaussian":  # type: ignore[attr-defined]
        return found
    return found * jnp.exp(-2 * log_noise) + weight * task.network.n_out * (log_noise + np.log(2 * np.pi) / 2)


def _with_slopes(task: Task, value: Any, grad: Any, weight: Any, log_noise: Any) -> Any:
    """`_likelihood` and its gradient, from the squared errors and theirs."""
    total = _likelihood(task, value, weight, log_noise)
    if task.head.kind != "gaussian":  # type: ignore[attr-defined]
        return total, grad
    precision = jnp.exp(-2 * log_noise)
    slope = -2 * value * precision + weight * task.network.n_out
    grad = grad * precision[:, None]
    return total, jnp.concatenate([grad, slope[:, None]], 1) if task.learnt else grad
