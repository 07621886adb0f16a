"""What lies where in a run folder: docs/run-folder.md in code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiltwalk.runs import checkpoint, files, forms
from tiltwalk.runs.draws import Array, Draws

if TYPE_CHECKING:
    from tiltwalk.runs.driver import Driver, Piece

CONFIG, RECORD, LOG, LOCK = "config.toml", "run.json", "log.jsonl", "lock"
RESULT, ENSEMBLE = "result.json", "ensemble.safetensors"
FORMAT = "tiltwalk run"
MOST = 2**26
WARM_UP = "warm-up"


def arrays(record: dict[str, Any]) -> tuple[Array, ...]:
    """The growing arrays of a run."""
    c, tau, d, real = record["chains"], record["length"], record["dim"], record["dtype"]
    moves = len(record["moves"])
    return (
        Array("sample_stats/loss", ("chain", "draw", "time"), (c, None, tau), real),
        Array("sample_stats/s", ("draw",), (None,), "float64"),
        Array("sample_stats/step", ("draw",), (None,), "int64"),
        Array("posterior/theta", ("chain", "draw", "time", "parameter"), (c, None, tau, d), real),
        Array("posterior/step", ("draw",), (None,), "int64"),
        Array("progress/phase", ("piece",), (None,), "int32"),
        Array("progress/step", ("piece",), (None,), "int64"),
        Array("progress/s", ("piece",), (None,), "float64"),
        Array("progress/loss", ("chain", "piece"), (c, None), "float64"),
        Array("progress/made", ("move", "piece"), (moves, None), "float64"),
        Array("progress/acceptance", ("chain", "move", "piece"), (c, moves, None), "float64"),
        Array("progress/step_size", ("chain", "move", "piece"), (c, moves, None), "float64"),
        Array("progress/evaluations", ("piece",), (None,), "float64"),
        Array("progress/seconds", ("piece",), (None,), "float64"),
    )


def draws(path: Path, record: dict[str, Any]) -> Draws:
    """The arrays of a run, empty."""
    return Draws(path, arrays(record), {"progress": {"moves": record["moves"]}})


def progress_rows(record: dict[str, Any], phase: int, path: bool, piece: Piece, driver: Driver) -> dict[str, np.ndarray]:
    """One entry of each array of `progress` but for those that the writer knows."""
    count = len(record["moves"])
    made = np.zeros(count)
    acceptance = np.full((driver.chains, count), np.nan)
    sizes = np.full((driver.chains, count), np.nan)
    tuned = np.concatenate([np.asarray(group.steps) for group in driver.groups], -1)
    if path:
        made[:-1], acceptance[:, :-1], sizes[:, :-1] = piece.made, piece.acceptance.T, tuned.T
    else:
        made[-1] = piece.made.sum()
        acceptance[:, -1] = np.nansum(piece.acceptance * piece.made[:, None], 0) / made[-1]
        sizes[:, -1] = tuned.mean(0)
    return {
        "phase": np.array([phase]),
        "s": np.array([piece.s]),
        "made": made[None],
        "acceptance": acceptance[None],
        "step_size": sizes[None],
        "evaluations": np.array([piece.evaluations]),
    }


def sealed_record(record: dict[str, Any]) -> bytes:
    """What run.json is to hold."""
    return checkpoint.sealed({"format": FORMAT, "version": checkpoint.VERSION, "made": now()} | record)


def read_record(path: Path) -> dict[str, Any]:
    """run.json, if it is as it was written."""
    found = checkpoint.opened(path / RECORD)
    if found.get("format") != FORMAT:
        raise checkpoint.Damaged(f"{RECORD} must be the record of a run; it is of something else.")
    wrong = forms.fault(forms.Record, found)
    if wrong is not None:
        raise checkpoint.Damaged(f"{RECORD} must hold what a run's record holds; {wrong}.")
    return found


def digests(path: Path) -> dict[str, str]:
    """Of the files that are written once, as they are now."""
    return {name: files.sha256(files.read(path / name, MOST)) for name in (CONFIG, RECORD)}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
