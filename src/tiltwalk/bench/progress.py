"""What the progress line costs: the same run on a terminal with the line and without, in turn.

The terminal is a pseudo-terminal of 160 columns that somebody reads. Processor time tells what the line costs where the machine
does other things as well; the time on the clock tells what a user waits. Both are the least of several runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import tiltwalk as tw

ALLOWED = 0.02
LENGTH = 32


def subjects(quick: bool) -> dict[str, tuple[tw.PathMeasure, float, int, int, Any]]:
    """By name: measure, tilt, chains, steps, moves. Small models show the line's cost most, since a step costs least there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 1))
    line = tw.PathMeasure(tw.RandomWalk(0.1), tw.losses.least_squares(X, 2 * X[:, 0]), LENGTH)
    network, data = tw.networks.lenet(), tw.data.mnist2048()
    loss = tw.losses.Supervised(network, data.X_train, data.y_train)
    walk = tw.RandomWalk(0.05 * np.asarray(network.scale()), start=tw.Normal(network.scale()))
    part = 8 if quick else 1
    return {
        "linear perceptron, 8 chains": (line, 10.0, 8, 200_000 // part, tw.moves.Sweep()),
        "linear perceptron, 1,024 chains": (line, 10.0, 1024, 4_000 // part, tw.moves.Sweep()),
        "LeNet on 2,048 images, 1 chain": (tw.PathMeasure(walk, loss, 8), 10.0, 1, 200 // part, tw.moves.Sweep(step=0.1)),
    }


def main(out: pathlib.Path | None = None, quick: bool = False, repeats: int = 5) -> list[dict[str, Any]]:
    """Prints the table, and writes it as JSON where `out` is given."""
    if os.name != "posix":
        raise OSError("bench progress needs a pseudo-terminal, which this system does not have.")
    print(f"{'':32s}{'without':>10s}{'with':>10s}{'cost':>8s}{'processor':>12s}   at most {ALLOWED:.0%} is allowed")
    rows = []
    for name, (measure, s, chains, steps, moves) in subjects(quick).items():
        given = {"steps": steps, "chains": chains, "moves": moves, "keep": lambda state: state.losses[0]}
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        with terminal():
            tw.sample(measure, s, **given, progress=False)  # compiles
            for _ in range(2 if quick else repeats):
                for shown, times in found.items():
                    began, busy = time.perf_counter(), time.process_time()
                    tw.sample(measure, s, **given, progress=shown)
                    times.append((time.perf_counter() - began, time.process_time() - busy))
        (clock, busy), (clock_shown, busy_shown) = (np.min(found[shown], 0).tolist() for shown in (False, True))
        row = {
            "name": name,
            "seconds": clock,
            "seconds_shown": clock_shown,
            "cpu_seconds": busy,
            "cpu_seconds_shown": busy_shown,
        }
        row |= {"cost": clock_shown / clock - 1, "cpu_cost": busy_shown / busy - 1}
        rows.append(row)
        print(f"{name:32s}{clock:8.2f} s{clock_shown:8.2f} s{row['cost']:8.1%}{row['cpu_cost']:12.1%}", flush=True)
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"wrote {out}")
    return rows


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """A pseudo-terminal in the place of stderr, read as it is written to."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while os.read(ours, 65536):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    before = sys.stderr
    with os.fdopen(theirs, "w") as sys.stderr:
        try:
            yield
        finally:
            sys.stderr = before
    reader.join(10)
    os.close(ours)
