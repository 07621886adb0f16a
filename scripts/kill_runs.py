"""Kills training processes at random moments, goes on with them, and compares what they draw with a run that nobody killed.

    python scripts/kill_runs.py                        200 kills, some twenty minutes on two cores
    python scripts/kill_runs.py --kills 20 --seed 1    fewer, at other moments

A run is begun by `tiltwalk train` and gone on with by `tiltwalk resume`, each in a process of its own, which is sent SIGKILL at
a moment drawn evenly over its life: start-up, compilation, sampling, saves and the end. A run that was finished is followed by
the next, until there were as many kills as asked for. After every kill

- the folder must open, without falling back to an older checkpoint, or never have become a run;
- nothing may be lost beyond the last save that the log tells of;
- all that it has drawn must be, bit for bit, the beginning of what the run that nobody killed has drawn;

and at its end each run must be that run in every number but the time that it took. Exits 1 where one of them fails.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.run_cases import beginning, clusters, same  # noqa: E402

from tiltwalk import runs  # noqa: E402
from tiltwalk.runs import config  # noqa: E402

SETTINGS = [
    "data.target=y", "network.hidden=[8]", "walk.length=3", "chains.count=2", "budget.evaluations=3000",
    "budget.burn_in=32", "budget.steps=240", "output.path_every=8", "output.thin=2", "output.piece=8", "output.save_steps=8",
]  # fmt: skip
"""A run of nine phases, warm-up and all, that saves after every piece, so that saves are a large part of it."""

COMMAND = "import sys; from tiltwalk.cli import main; sys.exit(main())"


class Harness:
    """Runs in `folder`, killed at moments that `seed` draws."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.moments = folder, random.Random(seed)
        self.settings = folder / "run.toml"
        chosen = config.load(None, [f"data.source={clusters(folder / 'clusters.csv')}", *SETTINGS])
        self.settings.write_text(config.toml(chosen), encoding="utf-8")
        self.environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        self.seen: Counter[str] = Counter()
        self.life = 0.0

    def whole(self, path: Path) -> Path:
        """A run that nobody kills, which also compiles its programs and tells how long a process lives."""
        self.session(path, last=True)
        return path

    def process(self, path: Path) -> subprocess.Popen[bytes]:
        begun = (path / "run.json").exists()
        words = ["resume", str(path)] if begun else ["train", "--config", str(self.settings), "--out", str(path)]
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words, "--quiet"], env=self.environment, stdout=subprocess.DEVNULL
        )

    def session(self, path: Path, last: bool) -> bool:
        """A process until it is killed, or ends; whether it ended. `last` lets it."""
        began, process = time.perf_counter(), self.process(path)
        try:
            status = process.wait(None if last else self.moments.uniform(0, self.life))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            status = process.wait()
        if status not in (0, -signal.SIGKILL):
            raise AssertionError(f"{path}: the process ended with status {status}")
        if status == 0:
            self.life = time.perf_counter() - began
        return status == 0


def opened(path: Path, whole: Path) -> tuple[str, int]:
    """Holds what a kill left against the claims; says what it hit, and the step that is kept."""
    if not (path / "run.json").exists():
        return "before there was a run", 0
    folder = runs.open(path)
    if folder.notes:
        raise AssertionError(f"{path}: {'; '.join(folder.notes)}")
    events = folder.events
    saved = max((event["number"] for event in events if event["event"] == "saved"), default=0)
    if folder.manifest["number"] < saved:
        raise AssertionError(f"{path}: save {saved} is lost; the folder opens at {folder.manifest['number']}")
    beginning(path, whole)
    aside = any(path.rglob("*.aside"))
    what = "during a save" if aside or folder.manifest["number"] > saved else "between saves"
    return "after the end" if folder.status == "finished" else what, int(folder.manifest["steps"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given: Any = parser.parse_args(argv)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        harness = Harness(Path(name), given.seed)
        whole = harness.whole(Path(name) / "whole")
        steps, saves = (runs.open(whole).manifest[of] for of in ("steps", "number"))
        print(f"a run of {steps} steps in {saves} saves; a process lives {harness.life:.1f} s", flush=True)
        kills = made = 0
        while kills < given.kills:
            path = Path(name) / f"run-{made}"
            of_run = kept = 0
            while not harness.session(path, last=kills == given.kills):
                kills, of_run = kills + 1, of_run + 1
                hit, step = opened(path, whole)
                if step < kept:
                    raise AssertionError(f"{path}: step {kept} was kept, and now it is {step}")
                kept = step
                harness.seen[hit] += 1
                print(f"kill {kills}: run {made}, {hit}, step {step} of {steps} is kept", flush=True)
            same(path, whole)
            made += 1
            print(f"run {made} was killed {of_run} times and is the run that nobody killed, bit for bit", flush=True)
    hits = ", ".join(f"{count} {hit}" for hit, count in harness.seen.most_common())
    print(f"{kills} kills ({hits}), {made} runs, all identical, none unopenable; {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
