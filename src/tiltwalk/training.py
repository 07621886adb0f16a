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
import functools
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

BLOCK = 32


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
    sample_weight: Any = None,
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
    samples: a cold posterior, where Bayes' would be `s = N`. `sigma` is in units of each parameter's initialisation scale;
    `sample_weight` counts relative to its mean.
    """
    conductor = Conductor()
    loss = Supervised(network, X, y, kind=kind, sample_weight=sample_weight)
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
    start = Normal(initial_scale(loss))
    budget = Budget(seconds, evaluations, chains)
    run, history = warm_up(loss, start, budget, conductor, s=s, chains=chains, key=key, progress=progress, report=say)
    sigma = 2 * step_size(run) if sigma is None else sigma
    check.number("train.sigma", sigma, low=0, low_open=True)
    measure = PathMeasure(RandomWalk(sigma * np.asarray(start.scale), start), loss, length)
    sweeps = max(2 * draws, budget.steps(conductor, "paths", 1.0, length))
    burn_in, thin = sweeps // 3, max(1, (sweeps - sweeps // 3) // draws)
    path_run = sample(
        measure, s / length, steps=thin * draws, thin=thin, burn_in=burn_in, chains=chains, key=key + 1, init=grow(run, length),
        keep="paths", target_acceptance=ACCEPTANCE, progress=progress,
    )  # fmt: skip
    say(f"paths of {length} models: {burn_in + thin * draws} sweeps, {path_run!r}")
    assert path_run.paths is not None
    members = path_run.paths[..., : network.dim]
    return Trained(Ensemble(network, members), path_run, measure, s / length, sigma, tuple(history), conductor.seconds())


class Conductor:
    """Carries a training out, in one go. A run folder has its own, which can be stopped and gone on with."""

    def decide(self, name: str, choose: Callable[[], float]) -> float:
        """A number that depends on more than the settings and the key, such as on how fast the machine is."""
        return choose()

    def sample(self, name: str, measure: PathMeasure, s: Any, **settings: Any) -> Run:
        """A phase of the training: `tiltwalk.sample`."""
        return sample(measure, s, **settings)

    def seconds(self) -> float:
        """Seconds at work."""
        return time.perf_counter() - self._began

    def __init__(self) -> None:
        self._began = time.perf_counter()


def warm_up(
    loss: Supervised,
    start: Normal,
    budget: Budget,
    conductor: Conductor,
    *,
    s: float,
    chains: int,
    key: int,
    progress: bool,
    report: Callable[[str], None],
) -> tuple[Run, list[dict[str, float]]]:
    """Single models on growing parts of the data: the run that ends on the whole, and how it went."""
    if budget.seconds is not None:
        budget.cost = conductor.decide("seconds a step", lambda: _seconds_a_step(loss, start, chains))
    parts = _parts(loss)
    run: Run | None = None
    history = []
    tilts = np.geomspace(s / 200, s, 2 * len(parts) + 1)[::2]
    for i, (part, share) in enumerate(parts):
        ahead = PATHS_SHARE + sum(later for _, later in parts[i:])
        name = f"warm-up on {part.n} of {loss.n} samples"
        steps = budget.steps(conductor, name, share / ahead, part.n / loss.n)
        single = PathMeasure(RandomWalk(start.scale, start), part, 1)
        tilt = {"first_s": float(tilts[i]), "s": float(tilts[i + 1])}
        run = warm_start(
            single, **tilt, steps=steps, chains=chains, init=run, key=key, progress=progress,
            sampler=functools.partial(conductor.sample, name),
        )  # fmt: skip
        value = float(np.mean(np.asarray(run.state.losses)))
        history.append({"samples": part.n, "steps": steps, "s": float(tilts[i + 1]), "loss": value, "step": step_size(run)})
        report(f"{name}: {steps} steps, s up to {tilts[i + 1]:.0f}, loss {value:.3f}")
    assert run is not None
    return run, history


def even(steps: int) -> int:
    """Many steps as a multiple of `BLOCK`, so that programs that make a block of steps at a time serve them all."""
    return steps - steps % BLOCK if steps >= 10 * BLOCK else steps


def initial_scale(loss: Supervised) -> np.ndarray:
    """The scale of each parameter at initialisation, and 1 for the log noise where that is learnt."""
    scale = np.asarray(loss.network.scale())
    return np.append(scale, 1.0) if loss.dim > loss.network.dim else scale


def step_size(run: Run) -> float:
    """The step size that a run with one move came to, mean over the chains."""
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
class Budget:
    """Turns what is left of a budget into steps; `cost` is that of a step of all chains on all data, in the budget's unit."""

    seconds: float | None
    evaluations: int | None
    chains: int
    cost: float = 1.0
    spent: float = 0.0

    def steps(self, conductor: Conductor, name: str, share: float, size: float) -> int:
        """Steps for `share` of what is left, each `size` times as dear as one on all data with one model."""

        def choose() -> int:
            if self.seconds is not None:
                left = self.seconds - conductor.seconds()
            else:
                left = (self.evaluations or 0) / self.chains - self.spent
            return even(max(1, int(share * left / (self.cost * size))))

        steps = int(conductor.decide(f"steps: {name}", choose))
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
