"""Torch modules as networks on flat vectors: all models of a batch in one call of `torch.func.vmap`, with no gradient.

JAX sees a callback to NumPy, so such a network runs on Torch's own threads, inside compiled programs but not compiled into
them. Gradient-free moves need nothing more; others are refused.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk import check
from tiltwalk.networks import adapt, callback
from tiltwalk.networks.network import Adapted, Network
from tiltwalk.networks.recognise_torch import follow


def from_torch(module: Any, example: Any = None) -> Network:
    """A Torch module in evaluation mode, with its weights. `example`, samples first, gives the shape of a sample; it may be
    left out where the module's first layer is dense. `network.flatten` takes a module or its state dict,
    `network.unflatten` gives a state dict for `module.load_state_dict`.
    """
    torch = adapt.library("torch")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"from_torch.module must be a torch.nn.Module; got {check.shown(module)}.")
    _refuse_training(torch, module)
    few = adapt.samples("from_torch", _example(torch, module) if example is None else example)
    module = copy.deepcopy(module).requires_grad_(False)  # what is done to the module later must not change the network
    named = list(module.named_parameters())
    parts = adapt.parameters("from_torch", named)
    buffers = dict(module.named_buffers())
    dtypes = {name: leaf.dtype for name, leaf in named}

    def cut(thetas: Any) -> Any:
        rows = torch.from_numpy(np.array(thetas))
        lead = rows.shape[:-1]
        return {p.name: rows[..., p.slice].reshape(*lead, *p.shape).to(dtypes[p.name]) for p in parts}

    def one(weights: Any, X: Any) -> Any:
        return torch.func.functional_call(module, (weights, buffers), (X,))

    def host(thetas: Any, X: Any) -> Any:
        """Any leading axes of the models, as `vmap` adds them; samples are shared, or have the same axes."""
        lead = thetas.shape[:-2]
        if X.ndim > few.ndim and any(n > 1 for n in X.shape[: X.ndim - few.ndim]):
            X = np.broadcast_to(X, (*lead, *X.shape[len(lead) :])).reshape(-1, *X.shape[len(lead) :])
            found = [host(t, x) for t, x in zip(thetas.reshape(-1, *thetas.shape[-2:]), X, strict=True)]
            return np.stack(found).reshape(*lead, *found[0].shape)
        X = X.reshape(X.shape[X.ndim - few.ndim :])
        with torch.no_grad():
            out = torch.vmap(one, (0, None))(cut(thetas.reshape(-1, thetas.shape[-1])), torch.from_numpy(np.array(X)))
        out = out[..., None] if out.ndim == 2 else out
        values = out.to(torch.float64 if thetas.dtype == np.float64 else torch.float32).numpy()
        return values.reshape(*thetas.shape[:-1], *values.shape[1:])

    def forward_many(thetas: Any, X: Any) -> Any:
        if check.concrete(thetas) and check.concrete(X):
            return jnp.asarray(host(np.asarray(thetas), np.asarray(X)))
        return _traced(host, (thetas.shape[0], X.shape[0], k), thetas, X)

    def forward(theta: Any, X: Any) -> Any:
        return forward_many(theta[None], X)[0]

    def flatten(params: Any) -> Any:
        found = params.state_dict() if isinstance(params, torch.nn.Module) else params
        for p in parts:
            if p.name not in found or tuple(found[p.name].shape) != p.shape:
                raise ValueError(f"Network.flatten: params must hold {p.name} of shape {p.shape}; got {', '.join(found)}.")
        flat = torch.cat([found[p.name].detach().reshape(-1).to(_widest(torch)) for p in parts])
        return jnp.asarray(flat.cpu().numpy())

    def unflatten(theta: Any) -> Any:
        weights = cut(np.asarray(theta))
        state = module.state_dict()
        tied = {id(leaf): name for name, leaf in named}
        owners = dict(module.named_parameters(remove_duplicate=False))
        return {name: weights[tied[id(owners[name])]] if name in owners else state[name].clone() for name in state}

    theta = flatten(module)
    try:
        tried = host(np.asarray(theta)[None], few)
        k = tried.shape[2] if tried.ndim == 3 else 0
    except RuntimeError as error:
        raise adapt.unshaped("from_torch", error) from None
    init = adapt.around(parts, named)
    adapted = Adapted("torch", module, forward, forward_many, init, flatten, unflatten, differentiable=False)
    starts = {p.name: (p.start, p.shape) for p in parts}
    return adapt.network("from_torch", adapted, parts, theta, few, follow(torch, module, starts))


def _traced(host: Any, shape: tuple[int, ...], thetas: Any, X: Any) -> Any:
    @jax.custom_jvp
    def run(thetas: Any, X: Any) -> Any:
        return callback.call(host, shape, thetas.dtype, thetas, X)

    @run.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise TypeError("A network made by from_torch has no gradient: use a gradient-free move, or from_flax.")

    return run(thetas, X)


def _widest(torch: Any) -> Any:
    return torch.float64 if adapt.x64() else torch.float32


def _refuse_training(torch: Any, module: Any) -> None:
    batch = torch.nn.modules.batchnorm._NormBase
    for name, part in module.named_modules():
        if part.training and isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0:
            raise adapt.changing("from_torch", f"dropout in training mode: {name or 'module'}")
        if isinstance(part, batch) and (part.training or not part.track_running_stats):
            raise adapt.changing("from_torch", f"batch statistics in training mode: {name or 'module'}")


def _example(torch: Any, module: Any) -> Any:
    own = (part for part in module.modules() if next(part.parameters(recurse=False), None) is not None)
    first = next(own, None)
    if not isinstance(first, torch.nn.Linear):
        raise ValueError("from_torch.example must be given, unless the module's first layer is dense; got None.")
    return np.zeros((1, first.in_features))
