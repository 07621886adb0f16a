"""python scripts/make_barker_table.py: writes src/tiltwalk/rules/barker.json, the corrections of `rules.Minibatch`.

A logistic number is nearly the sum of a normal one of deviation `sigma` and of another, the correction, whose law is found
here: probabilities `p_j` on a grid of atoms `x_j`, symmetric, that minimise the largest difference of distribution functions,

    max_z | sum_j p_j Phi((z - x_j) / sigma) - 1 / (1 + exp(-z)) |,

which is a linear programme. Seita, Pan, Chen and Canny (2017) solve for such a correction by regularised least squares. The
error that is written is measured on a grid of `z` that is finer than that of the programme, and wider.
"""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
from scipy import optimize, special, stats

DEVIATIONS = (0.8, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
REACH, STEP = 16.0, 0.1


def correction(sigma: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Atoms at 0 and above, the probability of each and its mirror image together, and the error."""
    atoms = np.arange(0, REACH + STEP / 2, STEP)
    z = np.arange(0, REACH + 4, STEP / 4)
    columns = (stats.norm.cdf((z[:, None] - atoms) / sigma) + stats.norm.cdf((z[:, None] + atoms) / sigma)) / 2
    target = special.expit(z)
    n = atoms.size
    # least t with |columns p - target| <= t, p >= 0, sum p = 1
    bounds = np.block([[columns, -np.ones((z.size, 1))], [-columns, -np.ones((z.size, 1))]])
    found = optimize.linprog(
        np.append(np.zeros(n), 1.0), A_ub=bounds, b_ub=np.concatenate([target, -target]),
        A_eq=np.append(np.ones(n), 0.0)[None], b_eq=[1.0], bounds=[(0, None)] * (n + 1), method="highs",
    )  # fmt: skip
    if found.status != 0:
        raise RuntimeError(f"no correction for sigma = {sigma}: {found.message}")
    p = np.where(found.x[:n] > 1e-12, found.x[:n], 0)
    p /= p.sum()
    return atoms[p > 0], p[p > 0], error(sigma, atoms, p)


def error(sigma: float, atoms: np.ndarray, p: np.ndarray) -> float:
    """The largest difference between the law of the sum and the logistic law."""
    z = np.arange(0, 40, 0.003)
    made = (stats.norm.cdf((z[:, None] - atoms) / sigma) + stats.norm.cdf((z[:, None] + atoms) / sigma)) @ p / 2
    return float(np.max(np.abs(made - special.expit(z))))


def main(path: pathlib.Path) -> None:
    """Writes the table and prints the errors."""
    rows = []
    for sigma in DEVIATIONS:
        atoms, p, worst = correction(sigma)
        places = [round(float(x), 6) for x in atoms]
        rows.append({"deviation": sigma, "error": worst, "atoms": places, "probabilities": p.tolist()})
        print(f"deviation {sigma}: {atoms.size} atoms, error {worst:.2e}")
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    home = pathlib.Path(__file__).resolve().parent.parent
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else home / "src/tiltwalk/rules/barker.json")
