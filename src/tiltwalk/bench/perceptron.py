"""Updates and effective samples a second on the linear perceptron, through the public `sample`, beside the prototype.

Every row is measured in this run, on this machine, on the same data: single-site updates a second, all chains together,
and effective samples of the time-integrated loss a second (bulk ESS by ArviZ, of up to 64 chains, scaled to all of them).
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

import tiltwalk as tw

S, SIGMA, LENGTH = 10.0, 0.1, 32
SETTINGS = ((2, 1024, 4000), (2, 8, 100_000), (11, 1024, 1500), (11, 8, 40_000))


def total(state: tw.ChainState) -> Any:
    """What the benchmark keeps of a state: the time-integrated loss."""
    return jnp.sum(state.losses, 0)


def effective(totals: np.ndarray) -> float:
    """Effective sample size of `(chains, draws)`, all chains together."""
    try:
        from arviz_stats.base import array_stats
    except ImportError as error:
        raise ImportError('The benchmark needs ArviZ for effective sample sizes: pip install "tiltwalk[arviz]"') from error
    some = totals[:64].astype(np.float64)
    return float(array_stats.ess(some, chain_axis=0, draw_axis=1)) * len(totals) / len(some)


def measured(
    loss: Any, oracle: tw.exact.LinearPerceptron, chains: int, steps: int, moves: Any, repeats: int = 3
) -> dict[str, Any]:
    """The best of a few runs from equilibrium, and the time from the call to the first draw in a fresh process's first run."""
    measure = tw.PathMeasure(tw.RandomWalk(SIGMA), loss, LENGTH)
    init = oracle.draw(0, chains, S, SIGMA, LENGTH)
    run = tw.sample(measure, S, steps=steps, chains=chains, moves=moves, init=init, keep=total, progress=False)
    first = run.first_draw_seconds
    best: dict[str, Any] = {}
    for i in range(repeats):
        began = time.perf_counter()
        run = tw.sample(measure, S, steps=steps, chains=chains, moves=moves, init=run, key=i, keep=total, progress=False)
        seconds = time.perf_counter() - began
        rate = run.evaluations / seconds
        if rate > best.get("updates_per_second", 0):
            best = {
                "updates_per_second": rate,
                "ess_per_second": effective(run.kept) / seconds,
                "mean_loss": float(run.kept.mean(dtype=np.float64)) / LENGTH,
            }
    return {**best, "first_draw_seconds": first, "exact": float(oracle.expected_loss(S, SIGMA, LENGTH))}


def prototype(script: pathlib.Path, width: int, chains: int, steps: int) -> dict[str, Any] | None:
    """The prototype's figures from its own script, where it is at hand."""
    if not script.exists():
        return None
    call = [sys.executable, str(script), str(width), str(LENGTH), str(chains), str(steps)]
    found = re.search(r"([\d.]+) M updates/s", subprocess.run(call, capture_output=True, text=True, check=True).stdout)
    return {"updates_per_second": float(found.group(1)) * 1e6} if found else None


def main(shared: pathlib.Path, out: pathlib.Path | None = None, quick: bool = False) -> list[dict[str, Any]]:
    """Prints the table, and writes it as JSON where `out` is given; `shared` holds `data/` and `prototypes/`."""
    rows = []
    print(f"linear perceptron, tau = {LENGTH}, s = {S:g}, sigma = {SIGMA:g}; all chains together")
    print(f"{'':34s}{'updates/s':>12s}{'ESS/s':>10s}{'mean loss':>12s}{'exact':>11s}{'first draw':>12s}")
    for width, chains, steps in SETTINGS:
        steps = steps // 10 if quick else steps
        data = json.loads((shared / f"data/perceptron_{width}.json").read_text())
        X, y = np.asarray(data["X"]), np.asarray(data["y"]).ravel()
        loss, oracle = tw.losses.least_squares(X, y), tw.exact.LinearPerceptron(X, y)
        for name, moves, factor in (("sweeps", tw.moves.Sweep(), 1), ("the paper's moves", tw.moves.paper(LENGTH), 8)):
            row = measured(loss, oracle, chains, steps * factor, moves)
            rows.append({"name": name, "inputs": width, "chains": chains, "steps": steps * factor, **row})
            print(
                f"d+1 = {width:2d}, {chains:4d} chains, {name:17s}"
                f"{row['updates_per_second'] / 1e6:10.1f} M{row['ess_per_second'] / 1e3:8.1f} k"
                f"{row['mean_loss']:12.6f}{row['exact']:11.6f}{row['first_draw_seconds']:10.2f} s",
                flush=True,
            )
        beside = [prototype(shared / "prototypes/perceptron_sweeps.py", width, chains, steps) for _ in range(3)]
        known = [b["updates_per_second"] for b in beside if b]
        if known:
            rows.append({"name": "prototype", "inputs": width, "chains": chains, "updates_per_second": max(known)})
            print(f"d+1 = {width:2d}, {chains:4d} chains, {'the prototype':17s}{max(known) / 1e6:10.1f} M", flush=True)
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"wrote {out}")
    return rows
