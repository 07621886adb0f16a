"""What a run folder costs: the time of saves, memory against the number of steps, and going on against not having stopped.

- saving: a run of LeNets on mnist2048 at default intervals; seconds spent in saves, which the writer counts, over all seconds.
- memory: the most memory of a process that trains, for a number of steps and for ten times as many.
- resumed: a run that is sent SIGTERM half way and gone on with in another process, beside the same run unstopped: seconds at
  work, steps a second in the second half, and how many programs the second process had to compile.

Every run is a process of its own, `tiltwalk train` as a user has it, with a folder of compiled programs that starts empty.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tiltwalk import runs

CHILD = (
    "import sys; from tiltwalk.cli import main; from tiltwalk.bench.timing import peak_memory\n"
    "status = main(); print('peak', peak_memory(), file=sys.stderr); sys.exit(status)"
)
SHORT = ["--target", "y", "--chains", "4", "--length", "8", "--sigma", "0.1", "--hidden", "32,32"]
FIXED = ["--set", "budget.warm_up=false", "--set", "budget.burn_in=0", "--set", "moves.0.step=0.05", "--set", "output.paths=8"]
OFTEN = ["--set", "output.save_seconds=1"]
MOST_SAVING = 0.03
MOST_GROWTH = 0.05


class Bench:
    """Processes in one folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 10))
        y = (X[:, 0] * X[:, 1] > 0).astype(int)
        names = [f"x{i}" for i in range(10)]
        np.savetxt(folder / "data.csv", np.c_[X, y], delimiter=",", header=",".join([*names, "y"]), comments="", fmt="%.6g")

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, *map(str, words), "--quiet"], env=self.environment, cwd=self.folder, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def ended(self, process: subprocess.Popen[str], status: int = 0) -> int:
        """Waits; the most memory that it held."""
        _, err = process.communicate()
        if process.returncode != status:
            raise RuntimeError(f"tiltwalk ended with status {process.returncode}: {err.strip()}")
        return int(err.split("peak ")[-1].split()[0])

    def train(self, name: str, steps: int, *more: str) -> int:
        return self.ended(self.start("train", "data.csv", *SHORT, *FIXED, *more, "--steps", steps, "--out", name))

    def programs(self) -> set[str]:
        """Compiled programs that are kept."""
        return {path.name for path in (self.folder / "cache").rglob("*-cache")}

    def opened(self, name: str) -> runs.RunFolder:
        return runs.open(self.folder / name)


def saving(bench: Bench, seconds: float) -> dict[str, Any]:
    """Default settings, for `seconds`."""
    bench.ended(bench.start("train", "mnist2048", "--seconds", seconds, "--out", "lenet"))
    folder = bench.opened("lenet")
    total, spent = folder.manifest["seconds"], folder.manifest["saving_seconds"]
    saves = [event["seconds"] for event in folder.events if event["event"] == "saved"]
    return {"seconds": total, "saving_seconds": spent, "share": spent / total, "saves": len(saves), "longest": max(saves)}


def rate_of(folder: runs.RunFolder, half: int) -> float:
    """Steps a second after step `half`, from the end of the first piece beyond it: that one may read programs and data."""
    progress = folder.arrays("progress")
    after = progress["step"] > half
    steps, seconds = progress["step"][after], progress["seconds"][after]
    return float((steps[-1] - steps[0]) / (seconds[-1] - seconds[0]))


def memory(bench: Bench, seconds: float) -> dict[str, Any]:
    """The same run for some steps, and for ten times as many."""
    bench.train("first", 600)  # compiles, and says how fast it is
    few = max(200, int(rate_of(bench.opened("first"), 0) * seconds / 10) // 8 * 8)
    peaks = [bench.train(name, steps) for name, steps in (("few", few), ("many", 10 * few))]
    return {
        "steps": few,
        "more_steps": 10 * few,
        "bytes": peaks[0],
        "bytes_of_more": peaks[1],
        "growth": peaks[1] / peaks[0] - 1,
    }


def resumed(bench: Bench, steps: int) -> dict[str, Any]:
    """Stopped half way and gone on with, beside unstopped; both save as often."""
    bench.train("whole", steps, *OFTEN)
    whole = bench.opened("whole")
    process = bench.start("train", "data.csv", *SHORT, *FIXED, *OFTEN, "--steps", steps, "--out", "run")
    while process.poll() is None:
        time.sleep(0.1)
        try:
            if bench.opened("run").manifest["steps"] >= steps // 2:
                process.send_signal(signal.SIGTERM)
                break
        except ValueError:
            continue  # it has not begun
    bench.ended(process, 128 + signal.SIGTERM)
    half = int(bench.opened("run").manifest["steps"])
    before = bench.programs()
    began = time.perf_counter()
    bench.ended(bench.start("resume", "run"))
    wall = time.perf_counter() - began
    folder = bench.opened("run")
    np.testing.assert_array_equal(folder.run.losses, whole.run.losses)  # or it would be another run
    rates = rate_of(folder, half), rate_of(whole, half)
    seconds = folder.arrays("progress")["seconds"][folder.arrays("progress")["step"] >= half][:2]
    return {
        "steps": steps, "stopped_at": half, "programs_compiled": len(bench.programs() - before), "process_seconds": wall,
        "first_piece_seconds": float(seconds[-1] - seconds[0]),
        "seconds": folder.manifest["seconds"], "seconds_unstopped": whole.manifest["seconds"],
        "steps_per_second": rates[0], "steps_per_second_unstopped": rates[1], "speed": rates[0] / rates[1],
    }  # fmt: skip


def main(out: pathlib.Path | None = None, quick: bool = False) -> dict[str, Any]:
    """Prints what was measured, and writes it as JSON where `out` is given."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(pathlib.Path(name))
        report: dict[str, Any] = {"quick": quick}
        measured: dict[str, Callable[[], dict[str, Any]]] = {
            "memory": lambda: memory(bench, 3 if quick else 20),
            "resumed": lambda: resumed(bench, (1 if quick else 5) * report["memory"]["more_steps"]),
            "saving": lambda: saving(bench, 12 if quick else 90),
        }
        for part, measure in measured.items():
            print(f"{part} ...", file=sys.stderr, flush=True)
            report[part] = measure()
            if out is not None:
                out.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(table(report)))
    if out is not None:
        print(f"wrote {out}")
    return report


def table(report: dict[str, Any]) -> list[str]:
    """The figures beside what is allowed."""
    save, held, on = report["saving"], report["memory"], report["resumed"]
    peaks = held["bytes"] / 1e6, held["bytes_of_more"] / 1e6
    rates = on["steps_per_second"], on["steps_per_second_unstopped"]
    rows = [
        ("saving, share of a run", f"{save['share']:.2%}", f"under {MOST_SAVING:.0%}",
         f"{save['saves']} saves in {save['seconds']:.0f} s, the longest {save['longest'] * 1e3:.0f} ms"),
        ("memory, growth over 10 times the steps", f"{held['growth']:+.1%}", f"under {MOST_GROWTH:.0%}",
         f"{peaks[0]:.0f} MB for {held['steps']} steps, {peaks[1]:.0f} MB for {held['more_steps']}"),
        ("resumed, speed beside unstopped", f"{on['speed']:.3f}", "1",
         f"{rates[0]:.0f} and {rates[1]:.0f} steps a second after step {on['stopped_at']}"),
        ("resumed, programs compiled", str(on["programs_compiled"]), "0",
         f"{on['seconds']:.1f} s at work in two processes, {on['seconds_unstopped']:.1f} s in one; the first piece after "
         f"took {on['first_piece_seconds']:.1f} s"),
    ]  # fmt: skip
    return [f"{what:42s}{found:>9s}  {allowed:12s}{more}" for what, found, allowed, more in rows]
