"""Equinox modules as networks on flat vectors: compiled and differentiable."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tiltwalk import check
from tiltwalk.networks import adapt
from tiltwalk.networks.network import Adapted, Network
from tiltwalk.networks.recognise_jaxpr import follow


def from_equinox(module: Any, example: Any = None) -> Network:
    """An Equinox module of one sample, `module(x)`, with its weights. `example`, samples first, gives the shape of a sample;
    it may be left out where the module's first layer is dense. `network.flatten` takes a module, `network.unflatten` gives one.
    """
    eqx = adapt.library("equinox")
    if not isinstance(module, eqx.Module) or not callable(module):
        raise TypeError(f"from_equinox.module must be an equinox module that can be called; got {check.shown(module)}.")
    few = adapt.samples("from_equinox", _example(eqx, module) if example is None else example)
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    named = [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(weights)]
    parts = adapt.parameters("from_equinox", named)
    theta, unravel = ravel_pytree(weights)

    def unflatten(theta: Any) -> Any:
        return eqx.combine(unravel(jnp.asarray(theta)), rest)

    def forward(theta: Any, X: Any) -> Any:
        return adapt.columns(jax.vmap(unflatten(theta))(jnp.asarray(X)))

    def flatten(params: Any) -> Any:
        found = eqx.filter(params, eqx.is_inexact_array)
        structures: list[Any] = [jax.tree.structure(found), jax.tree.structure(weights)]
        if structures[0] != structures[1]:
            raise ValueError("Network.flatten: params must be a module of the same structure; got another.")
        return ravel_pytree(found)[0]

    try:
        made = jax.eval_shape(forward, theta, few)
    except (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError) as error:
        raise adapt.unshaped("from_equinox", error) from None
    except RuntimeError as error:
        if "key" not in str(error):
            raise
        raise adapt.changing("from_equinox", str(error).splitlines()[0]) from None
    except TypeError as error:
        if "state" not in str(error):
            raise
        raise adapt.changing("from_equinox", f"a module that needs a state: {error}") from None
    if not hasattr(made, "shape"):
        raise ValueError(f"from_equinox.module must give one array of outputs; got {check.shown(made)}.")
    many = jax.vmap(forward, (0, None))
    init = adapt.around(parts, named)
    adapted = Adapted("equinox", module, forward, many, init, flatten, unflatten, differentiable=True)
    return adapt.network("from_equinox", adapted, parts, theta, few, follow(forward, theta.size, few.shape[1:], theta.dtype))


def _example(eqx: Any, module: Any) -> Any:
    layers = (eqx.nn.Linear, eqx.nn.Conv)
    found = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, layers))
    first = next((layer for layer in found if isinstance(layer, layers)), None)
    if not isinstance(first, eqx.nn.Linear) or not isinstance(first.in_features, int):
        raise ValueError("from_equinox.example must be given, unless the module's first layer is dense; got None.")
    return np.zeros((1, first.in_features))
