"""Parts of a long figure, each in a file of its own, so that the work can be stopped and taken up again.

A part is a record (what JSON can hold) with some arrays, kept under a name with the settings that it was made with. It is
written whole or not at all, and read back only where the settings are the same; other settings are an error and not a reason
to write over hours of work. Files are NumPy's `npz` with the record as text, and are never unpickled.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
Part = tuple[dict[str, Any], Arrays]


def read(folder: Path | None, name: str, settings: dict[str, Any]) -> Part | None:
    """The part of that name, or None where there is none; a ValueError where it is broken or was made otherwise."""
    if folder is None or not (folder / f"{name}.npz").is_file():
        return None
    file = folder / f"{name}.npz"
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        kept = json.loads(str(arrays.pop("json")))
        found, record = kept["settings"], kept["record"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} must be a part that was written whole; delete it to compute it again ({error}).") from None
    wanted = json.loads(json.dumps(settings))
    if found != wanted:
        other = next(key for key in (*wanted, *found) if found.get(key) != wanted.get(key))
        raise ValueError(
            f"{file} must have been made with the settings asked for; it has {other} = {found.get(other)} and not "
            f"{wanted.get(other)}. Give another folder, or begin anew with --fresh."
        )
    return record, arrays


def write(folder: Path | None, name: str, settings: dict[str, Any], part: Part) -> None:
    """Writes a part beside its place and moves it there, which either happens or does not."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    record, arrays = part
    text = json.dumps({"settings": settings, "record": record}, allow_nan=False)
    handle, beside = tempfile.mkstemp(dir=folder, suffix=".writing")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, json=np.array(text), **arrays)  # type: ignore[arg-type]
        os.replace(beside, folder / f"{name}.npz")
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def remove(folder: Path | None, name: str) -> None:
    """Deletes the part of that name, if it is there."""
    if folder is not None:
        (folder / f"{name}.npz").unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Deletes the parts in a folder, and what a write left that was cut off, and nothing else."""
    for ending in ("npz", "writing"):
        for file in folder.glob(f"*.{ending}"):
            file.unlink()
