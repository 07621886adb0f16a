"""From settings to what is sampled: data, network, loss, walk, moves. All of it can be made again from the settings alone."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiltwalk import data, losses, moves, networks, rules, schedules, starts, walks
from tiltwalk.training import initial_scale

if TYPE_CHECKING:
    from tiltwalk.runs.config import Config

SETTINGS_OF_A_MOVE = ("step", "fraction", "width", "reach")
MOVES = {"sweep": moves.Sweep, "single_site": moves.SingleSite, "bridge": moves.Bridge, "shoot": moves.Shoot}
RULES = {"metropolis": rules.Metropolis}


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """What is learnt from and tested on. `centre` and `spread` are what columns of a table were scaled by, else None."""

    X: Any
    y: Any
    test_X: Any
    test_y: Any
    task: str
    classes: tuple[Any, ...] | None
    features: tuple[str, ...]
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None

    def digest(self) -> str:
        """Of all numbers, in their order."""
        found = hashlib.sha256()
        for array in (self.X, self.y, self.test_X, self.test_y):
            array = np.ascontiguousarray(array)
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(array.data)
        return found.hexdigest()


def load(source: str, target: str | None, task: Any, scale: float | None, test: float, seed: int) -> Data:
    """A data set by its name, or a user's file, a part of which is kept for the test."""
    if source in data.NAMED:
        named = data.load(source)
        return Data(named.X_train, named.y_train, named.X_test, named.y_test, "classification", named.classes, ())
    if not Path(source).is_file():
        raise ValueError(f"DATA must be one of {', '.join(data.NAMED)}, or a file; got {source!r}.")
    X, y, info = data.read(source, target, task=task, scale=scale)
    if y is None:
        there = f" {Path(source).name} has {', '.join(info.features)}." if info.features else ""
        raise ValueError(f"train: --target must name what to predict.{there}")
    order = np.random.default_rng(seed).permutation(len(X))
    held, rest = np.split(order, [max(1, int(test * len(X)))])
    if len(rest) < 2:
        raise ValueError(f"train: {Path(source).name} must hold at least 3 samples; got {len(X)}.")
    centre = spread = None
    if X.ndim == 2:  # columns in units of their own spread: networks are made for values of order one
        centre, spread = X[rest].mean(0), X[rest].std(0)
        spread = np.where(spread > 0, spread, 1).astype(np.float32)
        X = (X - centre) / spread
    classes = info.classes or None
    return Data(X[rest], y[rest], X[held], y[held], str(info.task), classes, info.features, centre, spread)


def load_for(config: Config) -> Data:
    """The data that the settings name."""
    given = config.data
    return load(given.source, given.target, given.task, given.scale, given.test, config.seeds.split)


def resolved(config: Config, found: Data) -> Config:
    """The settings with what depends on the data alone filled in, so that they say what is run."""
    source = config.data.source
    if source not in data.NAMED:
        source = str(Path(source).resolve())
    square = found.X.ndim == 4 and found.X.shape[1] == found.X.shape[2]
    kind = config.network.kind
    if kind == "auto":
        kind = "lenet" if square and found.X.shape[1] >= 16 else "mlp"
    of = config.loss.kind
    if of == "auto":
        of = "cross_entropy" if found.task == "classification" else "gaussian"
    s = 10.0 * len(found.X) if config.schedule.s == "auto" else config.schedule.s
    changes: dict[str, dict[str, Any]] = {
        "data": {"source": source, "task": found.task},
        "network": {"kind": kind},
        "loss": {"kind": of},
        "schedule": {"s": s},
    }
    return config.model_copy(update={name: getattr(config, name).model_copy(update=change) for name, change in changes.items()})


def network(config: Config, found: Data) -> networks.Network:
    """The network for the data."""
    X, y = found.X, found.y
    outputs = int(np.max(y)) + 1 if found.task == "classification" else (1 if np.ndim(y) == 1 else np.shape(y)[1])
    if found.task == "classification" and found.classes is not None:
        outputs = len(found.classes)
    kind = config.network.kind
    if kind == "lenet":
        if X.ndim != 4 or X.shape[1] != X.shape[2]:
            raise ValueError(
                f"--network lenet needs square images (n, side, side, channels); got samples of shape {X.shape[1:]}."
            )
        return networks.lenet(outputs, X.shape[3], X.shape[1])
    inputs = int(np.prod(X.shape[1:]))
    if kind == "linear":
        made = networks.linear(inputs, outputs)
    else:
        made = networks.mlp([inputs, *config.network.hidden, outputs], config.network.activation)
    if X.ndim == 2:
        return made
    assert made.program is not None
    return networks.sequential(X.shape[1:], (networks.Flatten(), *made.program), initialiser=made.initialiser)


def loss(config: Config, network: networks.Network, found: Data) -> losses.Supervised:
    """The loss of a model on the training data."""
    given = config.loss
    return losses.Supervised(network, found.X, found.y, given.kind, class_weight=given.class_weight, noise=given.noise)


def start(config: Config, loss: losses.Supervised) -> starts.Normal:
    """The start that warm-up has, and a path of a random walk unless that is flat."""
    return starts.Normal(config.start.scale * initial_scale(loss))


def walk(config: Config, loss: losses.Supervised, sigma: float) -> walks.Walk:
    """The walk with the step `sigma`, in initialisation scales."""
    scale = initial_scale(loss)
    if config.walk.kind == "ornstein_uhlenbeck":
        return walks.OrnsteinUhlenbeck(sigma * scale, config.walk.pull)
    return walks.RandomWalk(sigma * scale, starts.Flat() if config.start.kind == "flat" else start(config, loss))


def mixture(config: Config) -> list[tuple[Any, float]]:
    """The moves and their weights."""
    made = []
    for given in config.moves:
        settings = {name: getattr(given, name) for name in SETTINGS_OF_A_MOVE if hasattr(given, name)}
        settings = {name: None if value == "any" else value for name, value in settings.items()}
        made.append((MOVES[given.kind](**settings), given.weight))
    return made


def rule(config: Config) -> Any:
    return RULES[config.rule.kind]()


def tilt(config: Config, steps: int) -> schedules.Schedule:
    """The tilt of a path over `steps` steps of burn-in, and what it stays at."""
    assert config.schedule.s != "auto"
    s = config.schedule.s / config.walk.length
    if config.schedule.kind == "constant" or steps == 0:
        return schedules.constant(s)
    make = schedules.linear if config.schedule.kind == "linear" else schedules.geometric
    return make(s * config.schedule.first, s, steps)
