"""The linear perceptron: effective samples of `Lsum` and of the norm of `theta_1`, a second and a loss evaluation.

Every sampler starts from exact draws and is tuned before the clock, so that what is measured is how fast it forgets. The mean
loss of each is printed beside the closed form: one that samples something else is marked.
"""

from __future__ import annotations

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import tiltwalk as tw
from tiltwalk.bench import samplers_peers as peers
from tiltwalk.bench.samplers_clock import Go, Piece, clocked, seen

S, SIGMA = 10.0, 0.1
WIDTHS, LENGTHS = (2, 11, 101), (8, 32)
QUICK = [(11, 32)]
FREE, INFORMED = "gradient-free", "gradient"
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One perceptron and one length; `seconds` are those of a row, `short` makes less of everything."""

    width: int
    length: int
    oracle: tw.exact.LinearPerceptron
    measure: tw.PathMeasure
    seconds: float
    short: bool

    @property
    def numbers(self) -> int:
        return self.width * self.length

    def starts(self, chains: int, seed: int = 0) -> Any:
        return self.oracle.draw(seed, chains, S, SIGMA, self.length)

    def steps(self, a_second: float) -> int:
        """Steps in a piece, for a sampler that makes about this many of a path of 64 numbers in a second."""
        return max(8, int(a_second * 64 / self.numbers * self.seconds / 3))


def data(width: int, shared: pathlib.Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The data of the perceptron with `width` parameters: a file where there is one, else made in the same fashion.

    Standard normal inputs and weights and a little noise. More samples than parameters, so that a flat start has a law.
    """
    path = None if shared is None else shared / f"data/perceptron_{width}.json"
    if path is not None and path.exists():
        found = json.loads(path.read_text())
        return np.asarray(found["X"]), np.asarray(found["y"]).ravel()
    rng = np.random.default_rng(width)
    X = rng.standard_normal((100 if width < 50 else 10 * (width - 1), width - 1))
    return X, X @ rng.standard_normal(width - 1) + rng.standard_normal() + 0.1 * rng.standard_normal(len(X))


def case(width: int, length: int, shared: pathlib.Path | None, seconds: float, short: bool) -> Case:
    """The perceptron of one row of the table."""
    X, y = data(width, shared)
    measure = tw.PathMeasure(tw.RandomWalk(SIGMA), tw.losses.least_squares(X, y), length)
    return Case(width, length, tw.exact.LinearPerceptron(X, y), measure, seconds, short)


# ---- ours ----


def kept(state: tw.ChainState) -> Any:
    """What is kept of a state."""
    return seen(jnp.sum(state.losses, 0), state.path[0])


def ours(case: Case, moves: Any, chains: int, steps: int, thin: int = 1, target: float | None = None) -> Go:
    """A chain of ours that is called in pieces of `steps` steps; steps are tuned to `target` first."""
    run: Any = case.starts(chains)
    if target is not None:
        run = tw.sample(
            case.measure, S, steps=0, burn_in=60 if case.short else 200, chains=chains, moves=moves, init=run, key=1,
            target_acceptance=target, progress=False,
        )  # fmt: skip
    now = [run]

    def go() -> Piece:
        run = now[0] = tw.sample(
            case.measure, S, steps=steps, thin=thin, chains=chains, moves=moves, init=now[0], key=2, keep=kept, progress=False
        )
        rates = [rate for rate in run.acceptance.values() if np.isfinite(rate)]
        return Piece(run.kept, run.evaluations, run.gradients, float(np.mean(rates)))

    return go


def our_rows(case: Case) -> Iterator[tuple[str, str, Callable[[], Go]]]:
    """Kind, name and sampler of ours, made when it is its turn."""
    moves, length = tw.moves, case.length
    many = 1024 if case.width < 100 else 256
    values, basis = np.linalg.eigh(case.oracle.A)
    diagonal = np.diag(case.oracle.A)
    # a quarter turn together: a step tuned to the acceptance turns further, and Lsum comes back to where it was
    bends, leaps = (3, 2) if case.width < 100 else (6, 4)
    bent = moves.Hamiltonian(leaps=bends, step=1 / bends, curvature=diagonal)
    known = moves.Hamiltonian(leaps=leaps, step=1 / leaps, spread=0.0, curvature=diagonal, centre=case.oracle.best)
    turned = moves.Hamiltonian(leaps=1, step=1.0, spread=0.0, curvature=values, basis=basis, centre=case.oracle.best)

    def steps(a_second: float, chains: int) -> int:
        return case.steps(a_second / chains)

    yield FREE, "sweeps", lambda: ours(case, moves.Sweep(), many, max(100, steps(1.4e6, many)), target=0.4)
    yield FREE, "sweeps", lambda: ours(case, moves.Sweep(), 1, max(2000, steps(3e4, 1)), target=0.4)
    # a step of the paper's mixture changes about one model, so a sweep's worth of them is kept once
    each = {"thin": length}
    yield (
        FREE,
        "the paper's mixture",
        lambda: ours(case, moves.paper(length), many, length * max(100, steps(3e5, many)), **each),
    )
    yield FREE, "the paper's mixture", lambda: ours(case, moves.paper(length), 1, length * max(1000, steps(1e4, 1)), **each)
    langevin = moves.LangevinSweep(step=0.9, curvature=diagonal)
    yield INFORMED, "Langevin sweeps", lambda: ours(case, langevin, many, max(60, steps(7e5, many)), target=0.57)
    yield INFORMED, "Hamiltonian", lambda: ours(case, bent, 128, max(60, steps(3e5, 128)))
    yield INFORMED, "Hamiltonian, centre", lambda: ours(case, known, 128, max(60, steps(3e5, 128)))
    yield INFORMED, "Hamiltonian, centre, basis", lambda: ours(case, turned, 128, max(60, steps(6e5, 128)))
    yield INFORMED, "Hamiltonian, centre, basis", lambda: ours(case, turned, 1, max(1000, steps(5e4, 1)))


# ---- peers ----


def peer_rows(case: Case) -> Iterator[tuple[str, str, Callable[[], Go]]]:
    """The same of BlackJAX."""
    starts = case.starts(peers.CHAINS)
    adaptation = 200 if case.short else 400

    def steps(a_second: float) -> int:
        return case.steps(a_second / peers.CHAINS)

    def walk(covariance: bool) -> Go:
        draws = max(200, steps(2e6) // 32)
        found = np.linalg.inv(case.oracle.precision(S, SIGMA, case.length)) if covariance else None
        return peers.random_walk(case.measure, S, starts, draws, 32, found)

    yield FREE, "BlackJAX RMH", lambda: walk(False)
    if case.numbers < 500:
        yield FREE, "BlackJAX RMH, covariance", lambda: walk(True)
    for name, a_second in (("hmc", 6e4), ("nuts", 6e3)):
        draws = max(100, steps(a_second))
        make = functools.partial(peers.gradient_peer, name, case.measure, S, starts, draws, adaptation)
        yield INFORMED, f"BlackJAX {name.upper()}", make


def prototype(case: Case, shared: pathlib.Path, chains: int, sweeps: int) -> Row:
    """The prototype's own figures, on the data of the case."""
    script = shared / "prototypes/perceptron_sweeps.py"
    if not script.exists():
        raise RuntimeError("the prototype is not at hand")
    X, y = data(case.width, shared)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("prototypes", "data"):
            (pathlib.Path(folder) / name).mkdir()
        copy = shutil.copy(script, pathlib.Path(folder) / "prototypes")
        written = pathlib.Path(folder) / f"data/perceptron_{case.width}.json"
        written.write_text(json.dumps({"X": X.tolist(), "y": y.tolist()}))
        call = [sys.executable, "-c", _PROTOTYPE, str(copy), *map(str, (case.width, case.length, chains, sweeps))]
        found = json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    rate, mean, exact = sweeps * chains * case.length / found["seconds"], found["mean"], found["exact"]
    size = found["size"] / found["seconds"]
    return {
        "chains": chains, "draws": sweeps, "evaluations_per_second": rate, "with_gradient": False,
        "ess_per_second_Lsum": size, "ess_per_evaluation_Lsum": size / rate,
        "mean_loss": mean, "exact": exact, "agrees": bool(abs(mean / exact - 1) < 0.02),
    }  # fmt: skip


_PROTOTYPE = """
import json, runpy, sys
import numpy as np
from tiltwalk.bench.perceptron import effective
sys.argv = sys.argv[1:]
made = runpy.run_path(sys.argv[0])
totals = np.asarray(made["totals"], np.float64).T
mean = float(totals.mean()) / made["tau"]
print(json.dumps({"seconds": made["t"], "size": effective(totals), "mean": mean, "exact": float(made["exact"])}))
"""
"""Runs the script as it is, and reads its draws."""


# ---- the table ----


def measure(
    shared: pathlib.Path | None, quick: bool, note: Callable[[Row], None], skip: Callable[[str, str], None]
) -> list[Row]:
    """All rows; each goes to `note` as it is found, and what cannot be measured goes to `skip` with the reason."""
    settings = [(w, n) for w in WIDTHS for n in LENGTHS]
    if quick:
        settings = QUICK
    absent = peers.missing()
    if absent:
        skip("BlackJAX", absent)
    rows: list[Row] = []
    for width, length in settings:
        this = case(width, length, shared, 0.3 if quick else 1.5, quick)
        exact = float(this.oracle.expected_loss(S, SIGMA, length))
        about = {"width": width, "length": length}

        def add(row: Row) -> None:
            rows.append(row)
            note(row)

        for kind, name, make in (*our_rows(this), *(() if absent else peer_rows(this))):
            add({**about, "kind": kind, "name": name, **clocked(make(), this.seconds, length, exact)})
        sweeps = max(100, this.steps(1.4e6 / 1024))
        try:
            if shared is None:
                raise RuntimeError("the prototype needs --shared, the folder with prototypes/")
            add({**about, "kind": FREE, "name": "prototype", **prototype(this, shared, 1024 if width < 100 else 256, sweeps)})
        except RuntimeError as error:
            skip("prototype", str(error))
    return rows


def targets(rows: list[Row]) -> list[Row]:
    """How much faster ours are than the best of others, by case: of moves without a gradient, and of those with one."""
    found = []
    for width, length in dict.fromkeys((row["width"], row["length"]) for row in rows):
        for kind in (FREE, INFORMED):
            those = [row for row in rows if (row["width"], row["length"], row["kind"]) == (width, length, kind)]
            best = {
                who: max((row["ess_per_second_Lsum"] for row in those if _who(row) == who), default=None)
                for who in ("ours", "peers", "prototype")
            }
            record: Row = {"width": width, "length": length, "kind": kind}
            for who in ("peers", "prototype"):
                if best["ours"] and best[who]:
                    record[f"times_{who}"] = best["ours"] / best[who]
            found.append(record)
    return found


def _who(row: Row) -> str:
    name: str = row["name"]
    return "peers" if name.startswith("BlackJAX") else "prototype" if name == "prototype" else "ours"


HEAD = (
    f"{'':30s}{'chains':>7s}{'ESS/s Lsum':>12s}{'norm':>9s}{'a 1000 losses':>15s}{'norm':>8s}"
    f"{'losses/s':>11s}{'accepted':>10s}{'mean loss':>11s}{'exact':>10s}"
)


def line(row: Row) -> str:
    """A row of the table."""

    def number(name: str, scale: float, form: str, width: int) -> str:
        return f"{format(row[name] * scale, form) if name in row else '':>{width}s}"

    text = f"{row['name']:30s}{row['chains']:7d}"
    text += number("ess_per_second_Lsum", 1, ".3g", 12) if row["ess_per_second_Lsum"] < 1e3 else _thousand(row, "Lsum", 12)
    text += _thousand(row, "norm", 9)
    text += number("ess_per_evaluation_Lsum", 1e3, ".3f", 15) + number("ess_per_evaluation_norm", 1e3, ".3f", 8)
    text += number("evaluations_per_second", 1e-6, ".2f", 9) + " M" + number("acceptance", 1, ".2f", 10)
    text += f"{row['mean_loss']:11.5f}{row['exact']:10.5f}"
    return text + ("" if row["agrees"] else "  NOT THE SAME LAW")


def _thousand(row: Row, name: str, width: int) -> str:
    value = row.get(f"ess_per_second_{name}")
    return " " * width if value is None else f"{value / 1e3:{width - 2}.2f} k"
