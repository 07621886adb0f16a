"""`train`: from data to an ensemble without a gradient, in a given time.

1. Evolution: single models, one a chain, by an evolution strategy (`evolve`) on a random part of the data a step, with a step
   size that falls to zero. Nothing is kept, so nothing here needs to be in equilibrium.
2. Settling: the same models by Metropolis moves on all data at the tilt `s`, while their step size is tuned (`warm_start`).
3. Growth: each model becomes a path of `length` equal models, which the walk lets apart: `sigma` is by default twice what
   a model was found to be moved by, and the tilt is `s / length`, so that a stiff path feels the same data as one model.
4. Sampling: sweeps over the path at that tilt; paths are kept at intervals, and all their models are the members.

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
from tiltwalk.evolution import Evolution, evolve
from tiltwalk.losses import Supervised
from tiltwalk.measure import PathMeasure
from tiltwalk.networks import Network
from tiltwalk.run import Run
from tiltwalk.sampling import sample
from tiltwalk.starts import Normal
from tiltwalk.walks import RandomWalk
from tiltwalk.warm import ACCEPTANCE, grow, warm_start

EVOLUTION, SETTLING = 0.8, 0.05
"""Shares of the budget; what is left of it goes to the path."""

PARTS = 6
"""Parts of the evolution, each with a smaller step."""

LARGEST_STEP = 0.03
"""The step of the evolution falls linearly from this to zero."""

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
    chains: int = 4,
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
    """Single models by evolution and settling: the run that ends with a step size that was tuned, and how it went."""
    single = PathMeasure(RandomWalk(start.scale, start), loss, 1)
    size = Evolution().cost(single)
    if budget.seconds is not None:
        budget.cost = conductor.decide("seconds a step", lambda: _seconds_a_step(_settled(single, s), chains))
        size = conductor.decide("seconds a step of evolution", lambda: _seconds_a_step(_evolved(single), chains)) / budget.cost
    run: Run | None = None
    history = []

    def note(name: str, run: Run, steps: int, step: float) -> None:
        value = float(np.mean(np.asarray(loss(jnp.asarray(run.state.path[:, 0])))))
        history.append({"samples": loss.n, "steps": steps, "loss": value, "step": step})
        report(f"{name}: {steps} steps of size {step:.4f}, loss {value:.3f}")

    share, ahead = EVOLUTION / PARTS, 1.0
    for i in range(PARTS):
        name = f"evolution {i + 1} of {PARTS}"
        steps, step = budget.steps(conductor, name, share / ahead, size), LARGEST_STEP * (1 - (i + 0.5) / PARTS)
        run = evolve(
            single, steps=steps, step=step, chains=chains, init=run, key=key, progress=progress,
            sampler=functools.partial(conductor.sample, name),
        )  # fmt: skip
        ahead -= share
        note(name, run, steps, step)
    assert run is not None
    steps = budget.steps(conductor, "settling", SETTLING / ahead, 1.0)
    run = warm_start(
        single, first_s=s, s=s, steps=steps, chains=chains, init=grow(run, 1), key=key + 2, progress=progress,
        sampler=functools.partial(conductor.sample, "settling"),
    )  # fmt: skip
    note("settling", run, steps, step_size(run))
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


def _evolved(single: PathMeasure) -> Callable[[int, int], Run]:
    return lambda steps, chains: evolve(single, steps=steps, chains=chains, progress=False)


def _settled(single: PathMeasure, s: float) -> Callable[[int, int], Run]:
    return lambda steps, chains: warm_start(single, s=s, steps=steps, chains=chains, progress=False)


def _seconds_a_step(phase: Callable[[int, int], Run], chains: int) -> float:
    """Seconds that a step of all chains takes, from a short phase, which compiles it too."""
    steps, taken = 2, 0.0
    while taken < 0.3 and steps < 10_000:
        steps *= 8
        phase(steps, chains)
        began = time.perf_counter()
        phase(steps, chains)
        taken = time.perf_counter() - began
    return taken / steps
