"""Damages run folders in every way that we could think of, and holds what the command line makes of each against the truth.

    python scripts/corrupt_runs.py                          108 folders: six of each kind of damage
    python scripts/corrupt_runs.py --each 20 --seed 1       more, others
    python scripts/corrupt_runs.py --only lying,flipped     some kinds

A folder is a copy of a run, finished or stopped, that is damaged once: cut, flipped, missing, swapped, of another run, behind
links, of absurd size, under names that climb out, or with a false statement under a seal that holds. Then `tiltwalk info`,
`predict`, `report` and `resume` are asked about it. What must come of it is in tests/run_damage.py. Exits 1 where one fails,
after all were tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import run_damage  # noqa: E402

from tiltwalk.cli import COMMANDS  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--each", type=int, default=6, help="folders of each kind of damage")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them")
    parser.add_argument("--only", default=",".join(run_damage.KINDS), help="kinds, between commas")
    given = parser.parse_args(argv)
    commands = tuple(name for name in ("info", "predict", "report", "resume") if name in COMMANDS)
    began = time.perf_counter()
    faults: list[str] = []
    came: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        cases = run_damage.Cases(Path(name) / "runs")
        made = 0
        for kind in given.only.split(","):
            for seed in range(given.seed, given.seed + given.each):
                made += 1
                try:
                    said = run_damage.trial(cases, ("finished", "stopped")[seed % 2], kind, seed, commands)
                    came.update(word for word in ("refuses", "falls back", "right", "takes it") if word in said)
                    print(f"{kind} {seed}: {said}", flush=True)
                except AssertionError as error:
                    faults.append(str(error))
                    print(f"WRONG: {error}", flush=True)
    counts = ", ".join(f"{count} {word}" for word, count in came.most_common())
    print(
        f"{made} damaged folders, seeds {given.seed} to {given.seed + given.each - 1}: {len(faults)} wrong. "
        f"Of the others (a folder may be in several): {counts}; {time.perf_counter() - began:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
