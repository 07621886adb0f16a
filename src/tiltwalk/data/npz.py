"""NPZ: NumPy's archive of arrays, read without ever unpickling, and never on a header's word.

`numpy.load` allocates what an array's header declares before it reads. Here the declared size is held against the size
of the archive's member, and that against the most that deflate can expand (1,032 times), before anything is
allocated.
"""

import errno
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

EXPANSION = 1032
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def names(path: str | Path) -> tuple[str, ...]:
    """The names of the arrays in an archive."""
    with archive(Path(path)) as stored:
        return tuple(name.removesuffix(".npy") for name in stored.namelist() if name.endswith(".npy"))


def read(path: str | Path, name: str) -> np.ndarray[Any, Any]:
    """One array of an archive: of numbers, truth values or strings."""
    path = Path(path)
    with archive(path) as stored:
        try:
            info = stored.getinfo(f"{name}.npy")
        except KeyError:
            there = ", ".join(names(path)) or "none"
            raise ValueError(f"{path.name} must hold an array {name!r}; got {there}.") from None
        with damage_named(f"{path.name}[{name!r}] must be a whole array"):
            measured(path, name, stored, info)
            with stored.open(info) as stream:
                return cast("np.ndarray[Any, Any]", np.lib.format.read_array(stream, allow_pickle=False))


def archive(path: Path) -> zipfile.ZipFile:
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} must be an NPZ file; it is empty.")
    with damage_named(f"{path.name} must be an NPZ file"):
        return zipfile.ZipFile(path)


@contextmanager
def damage_named(wanted: str) -> Iterator[None]:
    """Every way in which the standard library says that an archive is damaged, as a ValueError.

    Offsets that lead out of the file are EINVAL; other errors of the system, such as a refused permission, pass.
    """
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{wanted}; it is damaged or of another format ({error}).") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{wanted}; it is damaged.") from None


def measured(path: Path, name: str, stored: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Raises unless the array is free of Python objects, and as large as its header says."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{path.name}[{name!r}] must be stored or deflated, as NumPy does; got another compression.")
    if info.file_size > EXPANSION * min(info.compress_size, path.stat().st_size) + 1024:
        raise ValueError(
            f"{path.name}[{name!r}] must be a whole array; it declares {info.file_size} bytes, more than the file can hold."
        )
    with stored.open(info) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            shape, _, dtype = HEADERS[version](stream)
        except (ValueError, KeyError):
            raise ValueError(f"{path.name}[{name!r}] must be a NumPy array; its header cannot be read.") from None
        begins = stream.tell()
    if dtype.hasobject:
        raise ValueError(
            f"{path.name}[{name!r}] must hold numbers or strings; got Python objects (type object), which only pickle "
            "could read. Save it again with a plain type, such as float32 or str."
        )
    if dtype.itemsize == 0:
        raise ValueError(f"{path.name}[{name!r}] must hold numbers or strings; got values of no bytes (type {dtype}).")
    size = math.prod(shape) * dtype.itemsize
    if begins + size != info.file_size:
        raise ValueError(
            f"{path.name}[{name!r}] must hold {size} bytes for the shape {shape} of its header; got {info.file_size - begins}."
        )
