"""Functions of NumPy arrays called from compiled programs; an exception inside reaches the caller as itself.

A compiled program can only say that a callback failed: JAX wraps whatever was raised in an error of its own, with the text of
a traceback. The exception itself is therefore put aside, and `surfaced()` raises it in place of JAX's:

    with surfaced():
        jax.block_until_ready(compiled(thetas))   # raises the ValueError that the user's function raised

Programs run asynchronously, so the results must be waited for inside the `with`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

_lock = threading.Lock()
_pending: list[BaseException] = []


def call(function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, *args: Any) -> Any:
    """`function(*args)` with NumPy arrays, from inside a compiled program. Under `vmap`, one call with leading axes."""

    def host(*values: Any) -> Any:
        try:
            return function(*(np.asarray(v) for v in values))
        except BaseException as error:
            with _lock:
                _pending.append(error)
            raise

    out = jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
    return jax.pure_callback(host, out, *args, vmap_method="expand_dims")


def raise_pending() -> None:
    """Raises the first exception that was put aside since the last call, if there is one."""
    with _lock:
        first = _pending[0] if _pending else None
        _pending.clear()
    if first is not None:
        raise first


@contextmanager
def surfaced() -> Iterator[None]:
    """Inside, an exception in a callback leaves as itself, type and message, and not as JAX's."""
    with _lock:
        _pending.clear()
    try:
        yield
    except Exception as error:
        try:
            raise_pending()
        except BaseException as original:
            raise original from None
        raise error
    raise_pending()
