"""Frozen dataclasses that JAX can look into: array fields are leaves, fields marked `static()` are structure.

`jax.tree_util.register_dataclass` runs the constructor each time a tree is rebuilt, with tracers and placeholders in place
of numbers. Here the constructor runs once, when a person calls it, so that `__post_init__` may check what it was given.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field that is part of the structure: hashable, compared by value, and a reason to compile again when it changes."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and registers it with JAX."""
    made = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    if made.__repr__ is object.__repr__:
        made.__repr__ = _repr  # type: ignore[method-assign]
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten_with_keys(obj: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        children = tuple((jax.tree_util.GetAttrKey(name), getattr(obj, name)) for name in leaves)
        return children, tuple(getattr(obj, name) for name in structure)

    def flatten(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(obj, name) for name in leaves), tuple(getattr(obj, name) for name in structure)

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        obj = object.__new__(made)
        for name, value in zip(leaves, children, strict=True):
            object.__setattr__(obj, name, value)
        for name, value in zip(structure, aux, strict=True):
            object.__setattr__(obj, name, value)
        return obj

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


FEW = 8
"""Numbers up to which an array is shown as it is."""


def _repr(self: Any) -> str:
    """As a dataclass says it, but large arrays by type and shape: `RandomWalk(sigma=float32[44426], start=Flat())`."""
    shown = (f"{field.name}={_short(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _short(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and math.prod(shape) > FEW:
        return f"{dtype}[{','.join(map(str, shape))}]"
    return repr(value)
