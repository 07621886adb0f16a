"""Finds the compiled library, loads it once, and tells JAX of it. Everything that can go wrong becomes a reason.

`TILTWALK_NATIVE` asks for one target (avx512, avx2, neon, plain) or for none (off). `TILTWALK_NATIVE_LIBRARY` names the file.
"""

import ctypes
import functools
import os
import pathlib
from dataclasses import dataclass

NAMES = ("libtiltwalk_kernel.so", "libtiltwalk_kernel.dylib", "tiltwalk_kernel.dll")
TARGETS = ("avx512", "avx2", "neon", "plain")
CALLS = ("tiltwalk_evaluate", "tiltwalk_differentiate")


@dataclass(frozen=True)
class Library:
    """What came of loading: the library and the target that runs, or the reason why not."""

    handle: ctypes.CDLL | None
    target: str
    reason: str


def _missing(reason: str) -> Library:
    return Library(None, "none", reason)


def _beside(*names: str) -> pathlib.Path | None:
    """The first file of these names beside the package: an editable install has two places."""
    from tiltwalk import native

    places = [pathlib.Path(place) / name for place in native.__path__ for name in names]
    return next((place for place in places if place.is_file()), None)


def _not_built() -> str:
    note = _beside("not_built.txt")
    why = note.read_text().strip() if note else "tiltwalk runs from its sources, without having been installed"
    return f"the kernel was not built: {why}"


@functools.cache
def load() -> Library:
    """The library, loaded at the first call and kept."""
    wanted = os.environ.get("TILTWALK_NATIVE", "").strip().lower()
    if wanted == "off":
        return _missing("TILTWALK_NATIVE is off")
    if wanted and wanted not in TARGETS:
        return _missing(f"TILTWALK_NATIVE must be one of {', '.join(TARGETS)}, off; got {wanted!r}")
    named = os.environ.get("TILTWALK_NATIVE_LIBRARY")
    path = pathlib.Path(named) if named else _beside(*NAMES)
    if path is None:
        return _missing(_not_built())
    import jax

    try:
        handle = ctypes.CDLL(str(path))
        handle.tiltwalk_target.restype = ctypes.c_char_p
        handle.tiltwalk_target.argtypes = [ctypes.c_char_p]
        handle.tiltwalk_check.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64]
        handle.tiltwalk_check.restype = None
        runs = handle.tiltwalk_target(wanted.encode())
        if runs is None:
            return _missing(f"this machine cannot run the target {wanted}, or it was not built")
        for call in CALLS:
            capsule = jax.ffi.pycapsule(getattr(handle, call))  # type: ignore[no-untyped-call]
            jax.ffi.register_ffi_target(call, capsule, platform="cpu")
    except (OSError, AttributeError, RuntimeError, ValueError) as error:  # the last two: another version of XLA's interface
        return _missing(f"the kernel at {path.name} could not be loaded: {error}")
    return Library(handle, runs.decode(), f"the {runs.decode()} kernel is in use")


def runs_target(name: str) -> bool:
    """Whether this machine can run a target, whatever is in use."""
    handle = load().handle
    return handle is not None and name in TARGETS and handle.tiltwalk_target(name.encode()) is not None


@functools.cache
def wrong_with(code: tuple[int, ...]) -> str:
    """What the kernel has against an encoded program, or nothing."""
    handle = load().handle
    if handle is None:
        return load().reason
    numbers = (ctypes.c_int32 * len(code))(*code)
    text = ctypes.create_string_buffer(256)
    handle.tiltwalk_check(numbers, len(code), text, len(text))
    return text.value.decode()
