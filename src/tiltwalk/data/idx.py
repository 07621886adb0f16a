"""IDX: the format of the MNIST files, plain or compressed.

Two zero bytes, one byte for the type, one for the number of dimensions `k`, then `k` big-endian 32-bit sizes, then the
values, big-endian, last axis fastest: http://yann.lecun.com/exdb/mnist. Four such files make an image data set. Names
may end in `.gz` or `.xz`. Nothing is allocated on a header's word: plain files are measured first, compressed ones are
read piece by piece and only as far as they really go.
"""

import gzip
import lzma
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
PIECE = 1 << 20


def opened(path: Path) -> IO[bytes]:
    """The file's contents, uncompressed as its name says."""
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return path.open("rb")


def read(path: str | Path) -> np.ndarray[Any, Any]:
    """The array in an IDX file, in this machine's byte order."""
    path = Path(path)
    try:
        with opened(path) as stream:
            dtype, shape = header(path, stream)
            size = math.prod(shape) * dtype.itemsize
            body = exactly(path, stream, size, shape)
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise ValueError(f"{path.name} must be a whole compressed IDX file; it is damaged or cut short ({error}).") from None
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def write(array: np.ndarray[Any, Any]) -> bytes:
    """`array` (unsigned bytes) as the contents of an IDX file."""
    if array.dtype != np.uint8:
        raise TypeError(f"idx.write.array must be of type uint8; got {array.dtype}.")
    return struct.pack(f">HBB{array.ndim}I", 0, 0x08, array.ndim, *array.shape) + array.tobytes()


def header(path: Path, stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    start = stream.read(4)
    if not start:
        raise ValueError(f"{path.name} must be an IDX file; it is empty.")
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= 8:
        raise ValueError(f"{path.name} must be an IDX file; it does not begin like one (got bytes {start.hex(' ')}).")
    sizes = stream.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise ValueError(f"{path.name} must be a whole IDX file; its header is cut short.")
    return np.dtype(TYPES[start[2]]), struct.unpack(f">{start[3]}I", sizes)


def exactly(path: Path, stream: IO[bytes], size: int, shape: tuple[int, ...]) -> bytearray:
    """`size` bytes to the end of the stream, or an error that says how many there are instead."""
    if path.suffix not in (".gz", ".xz"):
        there = path.stat().st_size - stream.tell()
        if there != size:
            raise ValueError(f"{path.name} must hold {size} bytes for the shape {shape} of its header; got {there}.")
    body = bytearray()
    for piece in pieces(stream):
        body += piece
        if len(body) > size:
            raise ValueError(f"{path.name} must hold {size} bytes for the shape {shape} of its header; got more.")
    if len(body) < size:
        raise ValueError(f"{path.name} must hold {size} bytes for the shape {shape} of its header; got {len(body)}.")
    return body


def pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(PIECE):
        yield piece
