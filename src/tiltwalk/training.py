"""`train`: from data to an ensemble without a gradient, in a given time.

1. Warm-up: single models (`length = 1`, the neuroevolution limit), one a chain, on a growing part of the data, with a
   rising tilt and a step size that is tuned all along. A small part of the data is cheap to evaluate and brings a model most
   of the way; the whole then takes over. Nothing is kept, so nothing here needs to be in equilibrium.
2. Growth: each model becomes a path of `length` equal models, which the walk lets apart: `sigma` is by default what the
   warm-up found a model can be moved by, and the tilt is `s / length`, so that a stiff path feels the same data as one model.
3. Sampling: sweeps over the path at that tilt; paths are kept at intervals, and all their models are the members.

Parameters are measured in their own initialisation scales throughout: the start is Normal(scale), and the walk's sigma is one
number times that scale.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tiltwalk import check
from tiltwalk.ensemble import Ensemble
from tiltwalk.losses import Supervised
from tiltwalk.measure import PathMeasure
from tiltwalk.networks import Network
from tiltwalk.run import Run
from tiltwalk.sampling import sample
from tiltwalk.starts import Normal
from tiltwalk.walks import RandomWalk
from tiltwalk.warm import ACCEPTANCE, grow, warm_start

PHASES = ((1 / 8, 0.05), (1 / 4, 0.08), (1 / 2, 0.17), (1.0, 0.55))
"""Warm-up: the part of the data, and its share of the budget; what is left of the budget goes to the path."""

PATHS_SHARE = 1 - sum(share for _, share in PHASES)

SMALLEST_PART = 128


@dataclasses.dataclass(frozen=True)
class Trained:
    """What training made: the ensemble, the run that drew its paths, the network's settings, and how the warm-up went."""

    ensemble: Ensemble
    run: Run
    measure: PathMeasure
    s: float
    sigma: float
    warm_up: tuple[dict[str, float], ...]
    seconds: float


def train(
    network: Network,
    X: Any,
    y: Any,
    *,
    kind: Any = "cross_entropy",
    seconds: float | None = None,
    evaluations: int | None = None,
    s: float | None = None,
    length: int = 4,
    sigma: float | None = None,
    chains: int = 2,
    draws: int = 8,
    key: int = 0,
    progress: bool = True,
    report: Callable[[str], None] | None = None,
) -> Trained:
    """Trains an ensemble of `chains * draws * length` members without gradients.

    The budget is either `seconds`, which are turned into steps by a short measurement and so depend on the machine, or
    `evaluations` of one model on all data, which do not. `s` is the tilt of a single model, by default 10 times the number of
    samples: a cold posterior, where Bayes' would be `s = N`. `sigma` is in units of each parameter's initialisation scale.
    """
    began = time.perf_counter()
    loss = Supervised(network, X, y, kind=kind)
    check.whole("train.length", length, low=1)
    check.whole("train.draws", draws, low=1)
    check.whole("train.chains", chains, low=1)
    if (seconds is None) == (evaluations is None):
        raise ValueError(f"train needs either seconds or evaluations, not both; got {seconds} and {evaluations}.")
    if seconds is not None:
        check.number("train.seconds", seconds, low=1)
    if evaluations is not None:
        check.whole("train.evaluations", evaluations, low=100)
    s = 10.0 * loss.n if s is None else s
    check.number("train.s", s, low=0, low_open=True)
    say = report or (lambda text: None)
    start = Normal(np.append(np.asarray(network.scale()), 1.0) if loss.dim > network.dim else network.scale())
    parts = _parts(loss)
    clock = _Clock(began, seconds, evaluations, chains, 1.0 if seconds is None else _seconds_a_step(loss, start, chains))
    run: Run | None = None
    history = []
    tilts = np.geomspace(s / 200, s, 2 * len(parts) + 1)[::2]
    for i, (part, share) in enumerate(parts):
        ahead = PATHS_SHARE + sum(later for _, later in parts[i:])
        steps = clock.steps(share / ahead, part.n / loss.n)
        single = PathMeasure(RandomWalk(start.scale, start), part, 1)
        tilt = {"first_s": float(tilts[i]), "s": float(tilts[i + 1])}
        run = warm_start(single, **tilt, steps=steps, chains=chains, init=run, key=key, progress=progress)
        value = float(np.mean(np.asarray(run.state.losses)))
        history.append({"samples": part.n, "steps": steps, "s": float(tilts[i + 1]), "loss": value, "step": _step(run)})
        say(f"warm-up on {part.n} of {loss.n} samples: {steps} steps, s up to {tilts[i + 1]:.0f}, loss {value:.3f}")
    assert run is not None
    sigma = 2 * _step(run) if sigma is None else sigma
    check.number("train.sigma", sigma, low=0, low_open=True)
    measure = PathMeasure(RandomWalk(sigma * np.asarray(start.scale), start), loss, length)
    sweeps = max(2 * draws, clock.steps(1.0, length))
    burn_in, thin = sweeps // 3, max(1, (sweeps - sweeps // 3) // draws)
    path_run = sample(
        measure, s / length, steps=thin * draws, thin=thin, burn_in=burn_in, chains=chains, key=key + 1, init=grow(run, length),
        keep="paths", target_acceptance=ACCEPTANCE, progress=progress,
    )  # fmt: skip
    say(f"paths of {length} models: {burn_in + thin * draws} sweeps, {path_run!r}")
    assert path_run.paths is not None
    members = path_run.paths[..., : network.dim]
    return Trained(
        Ensemble(network, members), path_run, measure, s / length, sigma, tuple(history), time.perf_counter() - began
    )


def _step(run: Run) -> float:
    return float(np.mean(next(iter(run.steps.values()))))


def _parts(loss: Supervised) -> list[tuple[Supervised, float]]:
    """The loss on growing parts of the data, with shares of the budget; parts too small to learn from are left out."""
    order = np.random.default_rng(0).permutation(loss.n)
    parts: list[tuple[Supervised, float]] = []
    carried = 0.0
    for fraction, share in PHASES:
        count = int(fraction * loss.n)
        if fraction < 1 and count < SMALLEST_PART:
            carried += share
            continue
        parts.append((loss if fraction == 1 else loss.on(jnp.asarray(np.sort(order[:count]))), share + carried))
        carried = 0.0
    return parts


@dataclasses.dataclass
class _Clock:
    """Turns what is left of a budget into steps; `cost` is that of a step of all chains on all data, in the budget's unit."""

    began: float
    seconds: float | None
    evaluations: int | None
    chains: int
    cost: float
    spent: float = 0.0

    def steps(self, share: float, size: float) -> int:
        """Steps for `share` of what is left, each `size` times as dear as one on all data with one model."""
        if self.seconds is not None:
            left = self.seconds - (time.perf_counter() - self.began)
        else:
            left = (self.evaluations or 0) / self.chains - self.spent
        steps = max(1, int(share * left / (self.cost * size)))
        self.spent += steps * size
        return steps


def _seconds_a_step(loss: Supervised, start: Normal, chains: int) -> float:
    """Seconds that a step of all chains takes on all data, from a short warm-up, which compiles it too."""
    single = PathMeasure(RandomWalk(start.scale, start), loss, 1)
    steps, taken = 4, 0.0
    while taken < 0.15 and steps < 10_000:
        steps *= 8
        warm_start(single, s=1.0, steps=steps, chains=chains, progress=False)
        began = time.perf_counter()
        warm_start(single, s=1.0, steps=steps, chains=chains, progress=False)
        taken = time.perf_counter() - began
    return taken / steps
