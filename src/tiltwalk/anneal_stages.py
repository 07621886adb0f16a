"""The stages of annealing: chains on their way from tilt to tilt, how each stage is made and how it is judged."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import chain, diagnostics, noise, sampling, schedules, settling
from tiltwalk.anneal_run import Found
from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.spacing import farthest
from tiltwalk.types import ChainState

LOOKS = 16
"""How often accuracy is looked at in the draws between two judgements."""

EAGER = 16
"""The step number with which each stage begins: tuning starts with long strides again, as after so many steps of a run."""

PROBES = 12
"""Stages at most to close in on a target, once it lies between two."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What holds for every stage, and for all of them together."""

    overlap: float
    steps: int
    most_steps: int
    burn_in: int
    thin: int
    stages: int
    evaluations: float
    target: float | None


@dataclasses.dataclass(frozen=True)
class Score:
    """What a target is about: its name, the target, and the losses whose mean it is, None for the measure's own."""

    quantity: str
    target: float
    loss: Any

    def met(self, value: float) -> bool:
        return value >= self.target if self.quantity == "accuracy" else value <= self.target


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage as it ended: its draws as a run, how its loss was judged, and the accuracy where it was asked for."""

    run: Run
    factor: float
    judged: settling.Settling
    accuracy: tuple[float, float]
    spread: Float[np.ndarray, "chains draws"] | None
    steps: int


@dataclasses.dataclass(frozen=True)
class Keeper:
    """What is kept of a state in annealing: what was asked for, and `Q` of the path where sigma anneals."""

    asked: Callable[[ChainState], Any]
    walk: Any  # compared as the object that it is: another walk compiles again

    def __call__(self, state: ChainState) -> Any:
        kept = {"asked": self.asked(state)}
        if self.walk is None:
            return kept

        def log_density(log_factor: Any) -> Any:
            sigma = jnp.asarray(self.walk.sigma, state.path.dtype) * jnp.exp(log_factor)
            return dataclasses.replace(self.walk, sigma=sigma).log_density(state.path)

        # with r the factor on sigma, the log density is -Q / (2 r^2) - n log r: its slope in log r, at r = 1, is Q - n
        return kept | {"spread": jax.grad(log_density)(jnp.zeros((), state.path.dtype))}


@dataclasses.dataclass
class Climb:
    """The chains on their way: where they are, and the stages behind them."""

    runner: sampling.Runner
    groups: list[Any]
    words: Any
    number: int
    keeper: Keeper
    settings: Settings
    score: Score | None
    started: float
    stages: list[Stage] = dataclasses.field(default_factory=list)
    made: int = 0
    stopped: str = ""

    def rise(self, low: float, high: float, until: Callable[[Stage], bool] = lambda stage: False) -> None:
        """Stages from `low` to `high`, or to the first of which `until` is true."""
        s = low
        while True:
            stage = self.stage(s)
            if s >= high or until(stage) or self.spent():
                return
            s = farthest(stage.run.total_losses.ravel(), s, high, self.settings.overlap)

    def widen(self, s: float, factor: float) -> None:
        """Stages at `s`, from the walk's sigma to `factor` times that."""
        first, end, now = self.runner.measure, 0.5 / factor**2, 0.5
        while True:
            r = factor if now == end else float(np.sqrt(0.5 / now))
            walk: Any = first.walk
            self.runner.measure = dataclasses.replace(
                first, walk=dataclasses.replace(walk, sigma=jnp.asarray(walk.sigma, float) * r)
            )
            stage = self.stage(s, r)
            if now == end or self.spent():
                return
            assert stage.spread is not None
            now = farthest(stage.spread.ravel(), now, end, self.settings.overlap)

    def close_in(self, low: float, high: float, tolerance: float) -> Found:
        """Stages up to the first that meets the target, and then between the last two until `s` is known well enough."""
        score = self.score
        assert score is not None
        self.rise(low, high, lambda stage: score.met(self.value(stage)[0]))
        above = self.stages[-1]
        value, error = self.value(above)
        goal = f"a mean {score.quantity} of {score.target:g}"
        if not score.met(value):
            what = f"No tilt up to s = {tilt_of(above):.4g} met {goal}: it came to {value:.4g} ± {error:.2g}."
            return Found(score.quantity, score.target, tilt_of(above), np.inf, value, error, False, what)
        if len(self.stages) == 1:
            what = f"The first tilt, s = {low:.4g}, met {goal} already."
            return Found(score.quantity, score.target, low, 0.0 if low == 0 else np.inf, value, error, True, what)
        below, slope = self.stages[-2], 0.0
        tried = [below, above]
        for _ in range(PROBES):
            # through the two stages nearest to the target, and never so near an end of the gap that a wrong slope would stall
            one, other = sorted(tried, key=lambda stage: abs(self.value(stage)[0] - score.target))[:2]
            slope = (self.value(one)[0] - self.value(other)[0]) / (tilt_of(one) - tilt_of(other))
            gap = tilt_of(above) - tilt_of(below)
            aim = tilt_of(one) + (score.target - self.value(one)[0]) / slope if slope else tilt_of(below) + gap / 2
            s = float(np.clip(aim, tilt_of(below) + 0.05 * gap, tilt_of(above) - 0.05 * gap))
            stage = self.stage(s, finest=tolerance * s * abs(slope))
            tried.append(stage)
            value, error = self.value(stage)
            if abs(value - score.target) <= tolerance * s * abs(slope) or self.spent():
                break
            below, above = (below, stage) if score.met(value) else (stage, above)
        s = tilt_of(self.stages[-1])
        known = error / abs(slope) if slope else np.inf
        # closed in, unless stages or evaluations ran out
        near = abs(value - score.target) <= tolerance * s * abs(slope) + 2 * error
        what = f"The smallest tilt with {goal} is s = {s:.4g} ± {known:.2g}, where it is {value:.4g} ± {error:.2g}."
        if not near:
            what = f"The smallest tilt with {goal} is below s = {tilt_of(above):.4g}; it was not closed in on."
            s, known = tilt_of(above), gap
        return Found(score.quantity, score.target, s, known, value, error, True, what)

    def spent(self) -> bool:
        """Whether a budget of the whole is used up, which is noted."""
        if len(self.stages) >= self.settings.stages:
            self.stopped = f"It ended after {self.settings.stages} stages, its budget."
        elif self.runner.evaluations >= self.settings.evaluations:
            self.stopped = f"It ended after {round(self.runner.evaluations)} evaluations, its budget."
        return bool(self.stopped)

    def value(self, stage: Stage) -> tuple[float, float]:
        """What the target is about, and its error."""
        if self.score is not None and self.score.quantity == "accuracy":
            return stage.accuracy
        return stage.judged.mean, stage.judged.standard_error

    def stage(self, s: float, factor: float = 1.0, finest: float = np.inf) -> Stage:
        """One stage at `s`, until its loss has settled and the target's quantity is known to `finest`, or steps are spent."""
        runner, given = self.runner, self.settings
        began, before = time.perf_counter(), (runner.evaluations, runner.gradients)
        runner.schedule = schedules.constant(s)
        # each stage has its own random numbers, and counts its steps from the beginning
        tag = jnp.uint32(len(self.stages)), jnp.uint32(0xA11EA1)
        runner.words = jnp.stack(noise.threefry((self.words[0], self.words[1]), tag))
        self.made = 0
        if s > 0:
            self.advance(given.burn_in, 1, None, given.target, "burn-in")
        runner.forget_acceptance()
        draws: list[Any] = []
        seen: list[float] = []
        made = 0
        while True:
            draws += self.look(s, seen)
            made += given.steps
            if len(draws) > 1:
                draws = [jax.tree.map(lambda *x: np.concatenate(x, 1), *draws)]
            losses = draws[0]["asked"]["losses"]
            judged = settling.judge(losses.mean((0, 2), dtype=np.float64))
            accuracy = settling.judge(np.asarray(seen)) if seen else None
            known = judged if accuracy is None else accuracy
            if judged.settled and known.settled and known.standard_error <= finest:
                break
            if made + given.steps > given.most_steps:
                break
            if abs(judged.z) > settling.LARGEST_Z and judged.effective >= settling.ENOUGH:
                half = losses.shape[1] // 2  # it drifts: what it came from is forgotten
                draws = [jax.tree.map(lambda x: x[:, -half:], draws[0])]  # noqa: B023
                seen = seen[len(seen) // 2 :]
        if judged.standard_error == 0:
            judged = dataclasses.replace(judged, standard_error=np.nan)
        self.number += self.made
        run = self.as_run(s, draws[0]["asked"], began, before)
        found = (np.nan, np.nan) if accuracy is None else (accuracy.mean, accuracy.standard_error)
        stage = Stage(run, factor, judged, found, draws[0].get("spread"), self.made)
        self.stages.append(stage)
        return stage

    def look(self, s: float, seen: list[float]) -> list[Any]:
        """`steps` more steps; where accuracy is asked for, it is added to `seen` at `LOOKS` points on the way."""
        given = self.settings
        draws = given.steps // given.thin

        def some(size: int) -> Any:
            return self.advance(size, given.thin, self.keeper, None, "") if s > 0 else self.drawn(size)

        if self.score is None or self.score.quantity != "accuracy":
            return [some(draws)]
        found = []
        for size in [draws // LOOKS] * LOOKS if draws >= LOOKS else [1] * draws:
            found.append(some(size))
            path = self.runner.join(self.groups).state.path
            wrong = np.asarray(_losses(self.score.loss, path.reshape(-1, path.shape[-1])), np.float64)
            seen.append(1 - float(wrong.mean()))
        return found

    def advance(self, draws: int, thin: int, keep: Any, target: float | None, phase: str) -> Any:
        self.groups, kept = self.runner.advance(self.groups, EAGER + self.made, draws, thin, keep, target, phase)
        self.made += draws * thin
        return kept

    def drawn(self, draws: int) -> Any:
        """Draws of the walk itself, which are those of the measure at `s = 0`; the chains end at the last."""
        runner = self.runner
        informed = chain.informed(runner.moves)
        state, kept = _of_walk(
            runner.measure, runner.words, jnp.arange(draws) + self.made, runner.chains, self.keeper, informed
        )
        runner.evaluations += draws * runner.chains * runner.measure.length
        runner.gradients += draws * runner.chains * runner.measure.length * informed
        self.groups = runner.split(chain.Carry(state, runner.join(self.groups).steps))
        self.made += draws * self.settings.thin
        return jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 1, 0), kept)

    def as_run(self, s: float, kept: Any, began: float, before: tuple[float, float]) -> Run:
        """The draws of a stage as a run."""
        runner = self.runner
        carry = runner.join(self.groups)
        names, rates = runner.names(), runner.acceptance()
        seconds = time.perf_counter() - began
        return Run(
            losses=kept["losses"],
            paths=kept.get("path"),
            kept=None,
            s=np.full(kept["losses"].shape[1], s),
            acceptance={n: float(a.mean()) for n, a in zip(names, rates, strict=True)},
            acceptance_by_chain=dict(zip(names, rates, strict=True)),
            steps=dict(zip(names, np.asarray(carry.steps), strict=True)),
            state=carry.state,
            step_number=self.number,
            evaluations=round(runner.evaluations - before[0]),
            gradients=round(runner.gradients - before[1]),
            seconds=seconds,
            first_draw_seconds=seconds,
            cautions=diagnostics.cautions(runner.measure),
        )


@functools.partial(jax.jit, static_argnames=("chains", "keeper", "informed"))
def _of_walk(measure: PathMeasure, words: Any, numbers: Any, chains: int, keeper: Keeper, informed: bool) -> Any:
    """For each of `numbers` a path of the walk for each chain: the last states, and what is kept of all."""
    first = jax.random.wrap_key_data(words, impl="threefry2x32")

    def draw(last: Any, number: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(first, number), chains)
        state = jax.vmap(lambda key: chain.init(measure, measure.draw(key), informed))(keys)
        return state, jax.vmap(keeper)(state)

    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: draw(None, 0)[0]))
    return jax.lax.scan(draw, blank, numbers)


@jax.jit
def _losses(loss: Any, thetas: Any) -> Any:
    return loss(thetas)


def tilt_of(stage: Stage) -> float:
    return float(stage.run.s[0])
