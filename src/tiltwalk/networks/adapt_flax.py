"""Flax modules, linen and NNX, as networks on flat vectors: compiled and differentiable."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from tiltwalk import check
from tiltwalk.networks import adapt
from tiltwalk.networks.network import Adapted, Network
from tiltwalk.networks.recognise_jaxpr import follow

_TRACING = (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError)


def from_flax(module: Any, example: Any, *, key: Any = 0, **call: Any) -> Network:
    """A linen module, or an NNX module with its weights, on samples like those of `example`, samples first.

    `call` holds further arguments of the module's call, such as `train=False`. `network.flatten` takes the linen variables
    (or their "params"), or the NNX module, and `network.unflatten` gives them back. Collections that are not weights, such
    as batch statistics, keep the values that they have.
    """
    linen, nnx = adapt.library("flax.linen"), adapt.library("flax.nnx")
    few = adapt.samples("from_flax", example)
    key = jax.random.key(key) if isinstance(key, int) else key
    if isinstance(module, linen.Module):
        return _linen(module, few, key, call)
    if isinstance(module, nnx.Module):
        return _nnx(nnx, module, few, call)
    raise TypeError(f"from_flax.module must be a flax linen or NNX module; got {check.shown(module)}.")


def _linen(module: Any, few: Any, key: Any, call: dict[str, Any]) -> Network:
    errors = adapt.library("flax.errors")
    try:
        variables = module.init(key, few, **call)
        jax.eval_shape(lambda v, x: module.apply(v, x, **call), variables, few)
    except (errors.InvalidRngError, errors.ModifyScopeVariableError) as error:
        raise adapt.changing("from_flax", str(error).splitlines()[0]) from None
    except _TRACING as error:
        raise adapt.unshaped("from_flax", error) from None
    weights = variables.get("params", {})
    others = {name: value for name, value in variables.items() if name != "params"}
    parts = adapt.parameters("from_flax", _named(weights))
    theta, unravel = ravel_pytree(weights)

    def forward(theta: Any, X: Any) -> Any:
        return adapt.columns(module.apply({"params": unravel(theta), **others}, jnp.asarray(X), **call))

    def flatten(params: Any) -> Any:
        return _flat("the module's variables", params.get("params", params), weights)

    def unflatten(theta: Any) -> Any:
        return {"params": unravel(jnp.asarray(theta)), **others}

    def init(key: Any) -> Any:
        return ravel_pytree(module.init(key, few, **call)["params"])[0]

    return _network(module, forward, init, flatten, unflatten, parts, theta, few)


def _nnx(nnx: Any, module: Any, few: Any, call: dict[str, Any]) -> Network:
    structure, weights, others = nnx.split(module, nnx.Param, ...)
    weights, others = nnx.to_pure_dict(weights), nnx.to_pure_dict(others)
    named = _named(weights)
    parts = adapt.parameters("from_flax", named)
    theta, unravel = ravel_pytree(weights)

    def merged(theta: Any) -> Any:
        return nnx.merge(structure, unravel(jnp.asarray(theta)), others)

    def forward(theta: Any, X: Any) -> Any:
        return adapt.columns(merged(theta)(jnp.asarray(X), **call))

    try:
        tried = merged(theta)
        tried(jnp.asarray(few), **call)
        after = nnx.to_pure_dict(nnx.split(tried, nnx.Param, ...)[2])
        jax.eval_shape(forward, theta, few)
    except _TRACING as error:
        raise adapt.unshaped("from_flax", error) from None
    if not _same(others, after):
        raise adapt.changing("from_flax", "a module that changes its own state when it is called")

    def flatten(params: Any) -> Any:
        if not isinstance(params, nnx.Module):
            raise TypeError(f"Network.flatten: params must be an NNX module; got {check.shown(params)}.")
        return _flat("an NNX module of the same structure", nnx.to_pure_dict(nnx.split(params, nnx.Param, ...)[1]), weights)

    return _network(module, forward, adapt.around(parts, named), flatten, merged, parts, theta, few)


def _network(module: Any, forward: Any, init: Any, flatten: Any, unflatten: Any, parts: Any, theta: Any, few: Any) -> Network:
    many = jax.vmap(forward, (0, None))
    adapted = Adapted("flax", module, forward, many, init, flatten, unflatten, differentiable=True)
    return adapt.network("from_flax", adapted, parts, theta, few, follow(forward, theta.size, few.shape[1:], theta.dtype))


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [("/".join(str(getattr(k, "key", getattr(k, "name", k))) for k in path), leaf) for path, leaf in leaves]


def _flat(what: str, params: Any, like: Any) -> Any:
    structures: list[Any] = [jax.tree.structure(params), jax.tree.structure(like)]
    same = structures[0] == structures[1]
    if not same or any(jnp.shape(a) != b.shape for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(like), strict=True)):
        raise ValueError(f"Network.flatten: params must be {what}, with the same names and shapes; got others.")
    return ravel_pytree(params)[0]


def _same(before: Any, after: Any) -> bool:
    def plain(leaf: Any) -> Any:
        return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return all(bool(jnp.array_equal(plain(a), plain(b))) for a, b in pairs)
