"""Tiltwalk: neural-network ensembles as trajectories of models, trained by sampling and without gradients.

Data flow one way, and the folders say so:

    networks -> losses -> measure -> moves -> rules -> chain -> sampling -> (anneal, exchange, smc) -> run -> ensemble -> cli

`PathMeasure(walk, loss, length)` is what is sampled; `sample(measure, s, ...)` samples it; `Ensemble(network, paths)`
predicts. `exact.LinearPerceptron` is the closed form that everything is held against.
"""

from typing import Any

from tiltwalk import (
    chain,
    data,
    diagnostics,
    exact,
    losses,
    metrics,
    moves,
    networks,
    noise,
    plots,
    report,
    rules,
    runs,
    schedules,
    thermo,
)
from tiltwalk._version import __version__
from tiltwalk.anneal import anneal
from tiltwalk.anneal_run import AnnealRun
from tiltwalk.ensemble import Ensemble
from tiltwalk.evolution import evolve
from tiltwalk.exchange import exchange, spaced_ladder
from tiltwalk.exchange_run import ExchangeRun
from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.sampling import sample
from tiltwalk.smc import smc
from tiltwalk.smc_run import SMCRun
from tiltwalk.starts import Flat, Normal, Uniform
from tiltwalk.stochastic import sghmc, sgld
from tiltwalk.training import Trained, train
from tiltwalk.tuning import TunedSweep, tuned_sweep
from tiltwalk.types import ChainState, Decision, Noise, Proposal, StepInfo
from tiltwalk.walks import OrnsteinUhlenbeck, RandomWalk
from tiltwalk.warm import grow, warm_start

__all__ = [
    "AnnealRun",
    "ChainState",
    "Decision",
    "Ensemble",
    "ExchangeRun",
    "Flat",
    "Noise",
    "Normal",
    "OrnsteinUhlenbeck",
    "PathMeasure",
    "Proposal",
    "RandomWalk",
    "Run",
    "SMCRun",
    "StepInfo",
    "Trained",
    "TrajectoryClassifier",
    "TrajectoryRegressor",
    "TunedSweep",
    "Uniform",
    "__version__",
    "anneal",
    "chain",
    "data",
    "diagnostics",
    "evolve",
    "exact",
    "exchange",
    "grow",
    "losses",
    "metrics",
    "moves",
    "networks",
    "noise",
    "plots",
    "report",
    "rules",
    "runs",
    "sample",
    "schedules",
    "sghmc",
    "sgld",
    "smc",
    "spaced_ladder",
    "thermo",
    "train",
    "tuned_sweep",
    "warm_start",
]


def __getattr__(name: str) -> Any:
    """The estimators, when they are asked for: they need scikit-learn, which nothing else here does."""
    if name in ("TrajectoryClassifier", "TrajectoryRegressor"):
        from tiltwalk import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'tiltwalk' has no attribute {name!r}")
