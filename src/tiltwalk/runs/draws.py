"""Arrays that grow: Zarr v3 on disk, appended to in whole chunks, each with its digest in a list beside them.

A chunk that is full is written once, after its digest was put into the list; it is never written again. What does not
fill a chunk yet, the tail, is kept by the checkpoint; on disk lies a copy of it for readers. So a save costs what is new and
no more, an interrupted save harms nothing, and a run that goes on from an older checkpoint writes the same chunks again.

Zarr v3: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tiltwalk.runs import files

CHUNK_BYTES = 2**20
MOST_ROWS = 4096
MOST_CHUNKS = 2**24
MOST_LINE = 256
TYPES = ("float32", "float64", "int32", "int64")


@dataclasses.dataclass(frozen=True)
class Array:
    """A growing array: its dimensions, of which `grows` is the one that it grows along, and its sizes there: None."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int | None, ...]
    dtype: str

    @property
    def group(self) -> str:
        return self.name.split("/")[0]

    @property
    def axis(self) -> int:
        """The dimension that it grows along."""
        return self.shape.index(None)

    @property
    def row_bytes(self) -> int:
        return math.prod(n for n in self.shape if n is not None) * np.dtype(self.dtype).itemsize

    @property
    def rows(self) -> int:
        """Entries along the growing dimension in a chunk."""
        return max(1, min(MOST_ROWS, CHUNK_BYTES // max(1, self.row_bytes)))

    def sized(self, n: int) -> tuple[int, ...]:
        """The shape with `n` entries along the growing dimension."""
        return tuple(n if size is None else size for size in self.shape)

    def place(self, chunk: int) -> str:
        """Where a chunk lies, as a path from the run folder."""
        keys = ["0"] * len(self.shape)
        keys[self.axis] = str(chunk)
        return f"{STORE}/{self.name}/c/{'/'.join(keys)}"

    def encoded(self, rows: np.ndarray) -> bytes:
        """A chunk with `rows`, the growing dimension first, and what is missing to fill it."""
        full = np.full((self.rows, *rows.shape[1:]), self.fill, self.dtype)
        full[: len(rows)] = rows
        content = np.ascontiguousarray(np.moveaxis(full, 0, self.axis)).astype(np.dtype(self.dtype).newbyteorder("<")).tobytes()
        return content + crc32c(content).to_bytes(4, "little")

    def decoded(self, content: bytes) -> np.ndarray:
        """The rows of a chunk, the growing dimension first."""
        shape = self.sized(self.rows)
        flat = np.frombuffer(content[:-4], np.dtype(self.dtype).newbyteorder("<")).astype(self.dtype)
        return np.moveaxis(flat.reshape(shape), self.axis, 0)

    @property
    def chunk_bytes(self) -> int:
        return self.rows * self.row_bytes + 4

    @property
    def fill(self) -> float:
        return -1 if self.dtype.startswith("int") else math.nan

    def metadata(self, n: int) -> dict[str, Any]:
        """Its zarr.json, with `n` entries."""
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.sized(n)),
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.sized(self.rows))}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": -1 if self.dtype.startswith("int") else "NaN",
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "dimension_names": list(self.dims),
            "attributes": {},
        }


STORE = "draws.zarr"
DIGESTS = "draws.sha256"
LINE = 64 + 2  # a digest and two spaces; a path and a line's end follow


@dataclasses.dataclass
class Digests:
    """How much of the list of digests holds: bytes, lines, and the digest of these bytes."""

    size: int = 0
    lines: int = 0
    state: Any = dataclasses.field(default_factory=hashlib.sha256)

    @property
    def hexdigest(self) -> str:
        return str(self.state.copy().hexdigest())

    def add(self, content: bytes) -> None:
        self.state.update(content)
        self.size += len(content)
        self.lines += content.count(b"\n")


class Draws:
    """The arrays of a run, as its writer holds them: the number of entries of each, and the tails."""

    def __init__(self, folder: Path, arrays: tuple[Array, ...], attributes: dict[str, dict[str, Any]]) -> None:
        self.folder, self.attributes = folder, attributes
        self.arrays = {array.name: array for array in arrays}
        self.counts = dict.fromkeys(self.arrays, 0)
        self.tails: dict[str, list[np.ndarray]] = {name: [] for name in self.arrays}
        self.digests = Digests()
        self._listed: dict[str, str] = {}

    def extend(self, name: str, rows: np.ndarray) -> None:
        """Adds entries, the growing dimension first; they reach the disk with the next `flush`."""
        if len(rows):
            self.tails[name].append(np.asarray(rows, self.arrays[name].dtype))
            self.counts[name] += len(rows)

    def waiting(self) -> int:
        """Bytes that are in memory and in no finished chunk."""
        return sum(rows.nbytes for tail in self.tails.values() for rows in tail)

    def flush(self) -> None:
        """Writes what fills chunks, then copies of the tails for readers."""
        full: list[tuple[str, bytes]] = []
        for name, array in self.arrays.items():
            tail = self.tail(name)
            done = (self.counts[name] - len(tail)) // array.rows
            while len(tail) >= array.rows:
                full.append((array.place(done), array.encoded(tail[: array.rows])))
                tail, done = tail[array.rows :], done + 1
            self.tails[name] = [tail.copy()] if len(tail) else []
        if full:
            lines = "".join(f"{files.sha256(content)}  {place}\n" for place, content in full).encode()
            files.append(self.folder / DIGESTS, lines, self.digests.size)
            self.digests.add(lines)
            self._listed |= parsed(lines)
        for place, content in full:
            path = self.folder / place
            files.make_folder(path.parent)
            files.write_whole(path, content)
        self.show()

    def show(self) -> None:
        """Copies of the tails, and the sizes, for those who read along."""
        for name, array in self.arrays.items():
            tail = self.tail(name)
            if len(tail):
                path = self.folder / array.place(self.counts[name] // array.rows)
                files.make_folder(path.parent)
                files.write_whole(path, array.encoded(tail), durable=False)
        for place, content in self.metadata().items():
            path = self.folder / place
            if not _holds(path, content):
                files.make_folder(path.parent)
                files.write_whole(path, content, durable=False)

    def metadata(self) -> dict[str, bytes]:
        """Every zarr.json, by its path."""
        groups: dict[str, dict[str, Any]] = {"": {}} | {
            array.group: self.attributes.get(array.group, {}) for array in self.arrays.values()
        }
        found = {
            f"{STORE}/{group}/zarr.json".replace("//", "/"): {
                "zarr_format": 3,
                "node_type": "group",
                "attributes": attributes,
            }
            for group, attributes in groups.items()
        }
        found |= {f"{STORE}/{name}/zarr.json": array.metadata(self.counts[name]) for name, array in self.arrays.items()}
        return {place: json.dumps(content, indent=1).encode() for place, content in found.items()}

    def tail(self, name: str) -> np.ndarray:
        """The entries that no finished chunk holds, the growing dimension first."""
        array, parts = self.arrays[name], self.tails[name]
        if len(parts) > 1:
            self.tails[name] = parts = [np.concatenate(parts)]
        if parts:
            return parts[0]
        return np.zeros((0, *(n for n in array.shape if n is not None)), array.dtype)

    # ---- from disk ----

    def restore(self, counts: dict[str, int], tails: dict[str, np.ndarray], size: int, digest: str) -> None:
        """Takes up what a checkpoint says; raises ValueError where the disk does not hold it."""
        wanted = 0
        for group in {array.group for array in self.arrays.values()}:
            sizes = {counts[name] for name, array in self.arrays.items() if array.group == group}
            if len(sizes) > 1:
                raise ValueError(f"the checkpoint must count as many entries of each array of {group}; it does not.")
        for name, array in self.arrays.items():
            n, tail = counts[name], tails[name]
            rest = tuple(k for k in array.shape if k is not None)
            if n < 0 or len(tail) != n % array.rows or tail.shape[1:] != rest or str(tail.dtype) != array.dtype:
                raise ValueError(f"the checkpoint must hold the last entries of {name}; it does not.")
            wanted += n // array.rows
        listed = self._read_digests(size, digest, wanted)
        self.counts = dict(counts)
        self.tails = {name: [tail] if len(tail) else [] for name, tail in tails.items()}
        for name, array in self.arrays.items():
            for i in range(counts[name] // array.rows):
                place = array.place(i)
                if place not in listed:
                    raise ValueError(f"{DIGESTS} must list {place}; it does not.")
                self._chunk(array, place, listed[place])
        self._listed = listed

    def read(self, name: str, first: int = 0, last: int | None = None) -> np.ndarray:
        """Entries `first` to `last` of an array in its own order of dimensions, each finished chunk held against its digest."""
        array = self.arrays[name]
        last = self.counts[name] if last is None else min(last, self.counts[name])
        tail = self.tail(name)
        done = self.counts[name] - len(tail)
        parts = []
        for i in range(first // array.rows, math.ceil(min(last, done) / array.rows)):
            place = array.place(i)
            rows = array.decoded(self._chunk(array, place, self._listed[place]))
            parts.append(rows[max(0, first - i * array.rows) : last - i * array.rows])
        parts.append(tail[max(0, first - done) : max(0, last - done)])
        return np.moveaxis(np.concatenate(parts), 0, array.axis)

    def _read_digests(self, size: int, digest: str, lines: int) -> dict[str, str]:
        path = self.folder / DIGESTS
        self.digests = Digests()
        if not size and not lines:
            return {}
        if lines > MOST_CHUNKS or not LINE * lines < size <= MOST_LINE * lines:
            raise ValueError(f"{DIGESTS} must be of a size that fits its {lines} lines; the checkpoint says {size}.")
        try:
            content = files.read(path, size, beginning=True)
        except FileNotFoundError:
            raise ValueError(f"{DIGESTS} is missing.") from None
        self.digests.add(content)
        if len(content) != size or self.digests.hexdigest != digest:
            raise ValueError(f"{DIGESTS} must be as the checkpoint says; it was changed or cut short.")
        if self.digests.lines != lines:
            raise ValueError(f"{DIGESTS} must hold a line for each of {lines} chunks; got {self.digests.lines}.")
        return parsed(content)

    def _chunk(self, array: Array, place: str, digest: str) -> bytes:
        try:
            content = files.read(self.folder / place, array.chunk_bytes)
        except FileNotFoundError:
            raise ValueError(f"{place} is missing.") from None
        except OSError as error:
            raise ValueError(f"{self.folder / place} cannot be read ({error.strerror}).") from None
        if len(content) != array.chunk_bytes or files.sha256(content) != digest:
            raise ValueError(f"{place} is damaged: it does not have the digest that it was written with.")
        return content


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file is this, whatever else it is."""
    try:
        return files.read(path, len(content)) == content
    except (OSError, ValueError):
        return False


def parsed(lines: bytes) -> dict[str, str]:
    """Digests by path."""
    return {line[LINE:]: line[:64] for line in lines.decode("ascii", "replace").splitlines()}


def crc32c(content: bytes) -> int:
    """The checksum that Zarr's codec of that name puts behind a chunk."""
    import google_crc32c

    return int(google_crc32c.value(content))
