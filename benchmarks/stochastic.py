"""The bias of stochastic gradients on the linear perceptron, against the closed form, by step size and batch.

`python benchmarks/stochastic.py`, some two minutes, prints the table of docs/stochastic.md and writes stochastic.json here.
100 samples of a noisy line, `tau` = 8, `sigma` = 0.1, `s` = 100 (Bayes' tilt of one model), 256 chains from exact draws.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import tiltwalk as tw

S, SIGMA, LENGTH, CHAINS, DRAWS = 100.0, 0.1, 8, 256, 200
STEPS = (0.1, 0.2, 0.4, 0.8)
BATCHES = (5, 20, None)


def data(samples: int = 100, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(samples, 1))
    return X, 2 * X - 1 + 0.3 * rng.normal(size=X.shape)


def bias(kind: Any, step: float, batch: int | None, anchored: bool, **more: Any) -> tuple[float, float]:
    """Relative error of the expected loss above its minimum, and the standard error of that."""
    X, Y = data()
    oracle = tw.exact.LinearPerceptron(X, Y)
    loss = tw.losses.Supervised(tw.networks.linear(1, 1), X.astype(np.float32), Y.astype(np.float32), kind="mse")
    measure = tw.PathMeasure(tw.RandomWalk(SIGMA), loss, LENGTH)
    best = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), Y, rcond=None)[0].ravel()
    least = float(np.mean((X[:, 0] * best[0] + best[1] - Y[:, 0]) ** 2) / 2)
    init = oracle.draw(0, CHAINS, S, SIGMA, LENGTH)
    run = kind(
        measure, S, step=step, batch=batch, anchor=best if anchored else None, steps=10 * DRAWS, burn_in=200, thin=10,
        chains=CHAINS, init=init, key=3, progress=False, **more,
    )  # fmt: skip
    above = run.losses.astype(np.float64).mean((1, 2)) - least
    exact = float(oracle.expected_loss(S, SIGMA, LENGTH)) - least
    return float(above.mean() / exact - 1), float(above.std() / np.sqrt(CHAINS) / exact)


def main() -> None:
    rows = []
    kinds: list[tuple[str, Any, dict[str, Any]]] = [("sgld", tw.sgld, {}), ("sghmc", tw.sghmc, {"memory": 0.8})]
    print("| sampler | batch | anchor |" + "".join(f" step {step} |" for step in STEPS))
    print("|---|---|---|" + "---|" * len(STEPS))
    for name, kind, more in kinds:
        for batch in BATCHES:
            for anchored in (False, True) if batch else (False,):
                found = [bias(kind, step, batch, anchored, **more) for step in STEPS]
                rows.append({"sampler": name, "batch": batch, "anchor": anchored, "steps": STEPS, "bias_and_error": found})
                cells = "".join(f" {100 * b:+.1f} ± {100 * e:.1f} % |" for b, e in found)
                print(f"| {name} | {batch or 'all'} | {'yes' if anchored else 'no'} |{cells}", flush=True)
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
