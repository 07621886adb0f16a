"""Files that are whole or absent: written aside, flushed, renamed. And the lock that keeps two processes from one run.

Every call of the system that a save makes goes through this module, so that tests can let any one of them fail.
Links are never followed: a run folder from a stranger must not lead a write out of itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

ASIDE = ".aside"
"""What the name of a file that is not yet whole ends in."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Puts `content` at `path`, or leaves what was there. `durable` waits until the disk has it, and its name."""
    aside = path.with_name(path.name + ASIDE)
    with _about(path):
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o644)
            try:
                _write(descriptor, content)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(aside, path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
    if durable:
        flush_folder(path.parent)


def append(path: Path, content: bytes, at: int) -> None:
    """Puts `content` at byte `at` of a file, whatever an interrupted append left there, and waits for the disk."""
    with _about(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | NO_LINK, 0o644)
        try:
            os.ftruncate(descriptor, at)
            os.lseek(descriptor, 0, os.SEEK_END)
            _write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def add_line(path: Path, line: str) -> None:
    """A line at the end of a log; a line that an interrupted process left unfinished is ended first."""
    with _about(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            _write(descriptor, ("\n" * broken + line + "\n").encode())
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Removes a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, where they are not there."""
    if not path.is_dir():
        make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        flush_folder(path.parent)


def read(path: Path, most: int, *, beginning: bool = False) -> bytes:
    """A file of at most `most` bytes, or `beginning` as many of it; no link, no pipe, no device.

    The size is asked for before anything is read: a file that claims to be of terabytes costs nothing.
    """
    descriptor = os.open(path, os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} must be a plain file.")
        if found.st_size > most and not beginning:
            raise ValueError(f"{path} must be of at most {most} bytes; got {found.st_size}.")
        return stream.read(min(most, found.st_size))


def flush_folder(folder: Path) -> None:
    """Waits until the disk has the names in a folder, where the system can do that."""
    if os.name != "posix":
        return
    with _about(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock at `path`, or says who does. The system frees it when a process ends, however that ends."""
    with _about(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
    try:
        try:
            _lock(descriptor, ATTEMPTS)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise ValueError(
                f"{path.parent} is being written by {who}; watch it: tiltwalk info {path.parent} --watch"
            ) from None
        with _about(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock now."""
    try:
        descriptor = os.open(path, (os.O_RDONLY if os.name == "posix" else os.O_RDWR) | NO_LINK)
    except OSError:
        return False
    try:
        _lock(descriptor)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


ATTEMPTS = 10
"""To take a lock: `is_locked` holds it for an instant, which must not stop a run from going on."""


def _lock(descriptor: int, attempts: int = 1) -> None:
    for attempt in range(attempts):
        try:
            _lock_once(descriptor)
            return
        except OSError:
            if attempt == attempts - 1:
                raise
            time.sleep(0.03)


def _lock_once(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:  # pragma: no cover
        import msvcrt

        os.lseek(descriptor, 1024, os.SEEK_SET)  # beyond the number that others may read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    """Lets an error of the system name the file that it is about: calls on descriptors do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
