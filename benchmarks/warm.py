"""Warm-up of single models without gradients, plain and adaptive, at equal numbers of losses evaluated.

`python benchmarks/warm.py`: ten minutes or so. Mean training loss over two chains on the 2,048 images of `mnist2048`, by the
Metropolis warm-up at a rising tilt and by adaptive Monte Carlo, after the same numbers of evaluations of all images, beside
Adam for scale. Prints the table of README.md and writes warm.json here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import tiltwalk as tw

CHAINS = 2
BUDGETS = (1_000, 3_000, 10_000)
NETWORKS = {"MLP 784-32-10": tw.networks.mlp([784, 32, 10]), "LeNet": tw.networks.lenet()}
IMAGES = tw.data.load("mnist2048")
N = len(IMAGES.X_train)
METHODS: dict[str, dict[str, Any]] = {
    "Metropolis, tilt rising to 10 N": {"s": 10.0 * N},
    "aMC, downhill alone": {"method": "amc"},
    "aMC, tilt 10 N": {"method": "amc", "s": 10.0 * N},
    "Adam, rate 1e-3, all images": {"optimizer": optax.adam(1e-3)},
}


def main() -> None:
    rows = []
    print("| network | method |" + "".join(f" {budget:,} |" for budget in BUDGETS))
    print("|---|---|" + "---|" * len(BUDGETS))
    for name, network in NETWORKS.items():
        X = IMAGES.X_train.reshape(N, -1) if len(network.input_shape) == 1 else IMAGES.X_train
        loss = tw.losses.Supervised(network, X, IMAGES.y_train)
        measure = tw.PathMeasure(tw.RandomWalk(network.scale(), start=tw.Normal(network.scale())), loss, 1)
        for method, given in METHODS.items():
            budgets = [b for b in BUDGETS if "Adam" not in method or b < BUDGETS[-1]]
            runs = [tw.warm_start(measure, steps=b, chains=CHAINS, key=1, progress=False, **given) for b in budgets]
            found = [np.asarray(jnp.asarray(run.state.losses)).mean(-1).tolist() for run in runs]
            rows.append({"network": name, "method": method, "evaluations": budgets, "losses": found})
            rows[-1]["seconds"] = [round(run.seconds, 2) for run in runs]
            cells = "".join(f" {np.mean(x):.3f} |" for x in found) + " |" * (len(BUDGETS) - len(budgets))
            print(f"| {name} | {method} |{cells}", flush=True)
            Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
