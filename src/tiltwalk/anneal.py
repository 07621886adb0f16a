"""`anneal`: chains whose tilt climbs in stages, each chosen from the draws of the one before and made until its loss settles.

Draws at `s` say what a tilt `s + ds` would give by the weights `w = exp(-ds Lsum)`, and how well: as `share` of them would,

    share(ds) = (sum w)^2 / (n sum w^2)         (Kish's effective sample size, over n).

The next stage is the farthest tilt that keeps a share of at least `overlap`, so that neighbouring stages know of each other,
whatever the loss (the same choice as that of adaptive sequential Monte Carlo: Jasra, Stephens, Doucet, Tsagaris 2011).

Sigma anneals by the same rule. The density of a walk with sigma `r` times as large is that of a path with `Q = sum |step|^2 /
sigma^2` weighted by `exp(-Q / (2 r^2))`: so `1 / (2 r^2)` is a tilt, and `Q` its loss.

A stage at `s = 0` is drawn from the walk itself. Any other is `burn_in` steps, in which step sizes are tuned and after which
they are frozen, and then draws, judged by `settling.judge` after every `steps`: too few independent draws, and it goes on; a
drift, and the first half of its draws is forgotten; settled, and the next stage begins. One that has made `most_steps` ends
unsettled, which its curve and verdict say.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import chain, check, diagnostics, noise, sampling, schedules, settling
from tiltwalk.anneal_run import AnnealRun, Found, LossCurve
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.rules import Metropolis
from tiltwalk.run import Run
from tiltwalk.spacing import farthest
from tiltwalk.types import ChainState, Move, Rule

ACCEPTANCE = 0.3
"""What step sizes are tuned to where nothing is said."""

LOWEST = 1e-3
"""Where a flat start begins, in units of `s_max`: it has no law at `s = 0`."""

LOOKS = 16
"""How often accuracy is looked at in the draws between two judgements."""

EAGER = 16
"""The step number with which each stage begins: tuning starts with long strides again, as after so many steps of a run."""

PROBES = 12
"""Stages at most to close in on a target, once it lies between two."""


def anneal(
    measure: PathMeasure,
    s_max: float | None = None,
    *,
    s_min: float | None = None,
    sigma: tuple[Any, Any] | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    tolerance: float = 0.02,
    overlap: float = 0.5,
    steps: int = 256,
    most_steps: int | None = None,
    burn_in: int = 128,
    stages: int = 200,
    evaluations: int | None = None,
    moves: Move | Sequence[tuple[Move, float]] | None = None,
    rule: Rule | None = None,
    chains: int = 4,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str = "losses",
    progress: bool = True,
    target_acceptance: float | None = ACCEPTANCE,
    workers: int | None = None,
) -> AnnealRun:
    """Anneals paths of `measure` from a low tilt to `s_max`, or to the smallest tilt that meets a target.

    - `s_min`: where to begin, by default 0, or `s_max / 1000` for a flat start, which has no law at 0.
    - `target_loss`, `target_accuracy`: mean loss per model, or mean accuracy on the data per model (of `losses.Supervised` with
      classes). The tilt climbs until it is met, or to `s_max` if that is given; then stages between the last two tilts
      close in on where it begins to be met, until `s` is known to a share `tolerance` of itself. The run ends there:
      `run.found`.
    - `sigma`: a start and an end, numbers or one number per parameter, in a common proportion. They take the place of the
      walk's sigma, and the tilt is `s_max` all along.
    - `overlap`: the share of a stage's draws that count, in effect, at the next.
    - `steps`: draws of a stage are judged after every so many steps; `most_steps`, by default 32 times that, are its budget.
      `burn_in` steps go before.
    - `stages`, `evaluations`: budgets of the whole; where one is spent the run ends early, and its verdict says so.
    - `target_acceptance`: step sizes are tuned to it in the burn-in of each stage; None: they stay.

    All else is as in `sample`; `keep` is "losses" or "paths".

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(2.0)), tw.losses.double_well(), length=4)
    >>> run = tw.anneal(measure, 4.0, chains=8, progress=False)
    >>> [float(s) for s in run.curve.s[[0, -1]]]
    [0.0, 4.0]
    """
    began = time.perf_counter()
    mixture = sampling.mixture_of("anneal", measure, moves)
    rule = Metropolis() if rule is None else rule
    _check(rule, steps, most_steps, burn_in, stages, evaluations, chains, thin, keep, tolerance, overlap, target_acceptance)
    low, high = _ends(measure, s_max, s_min, sigma, target_loss, target_accuracy)
    score = _score(measure, target_loss, target_accuracy)
    factor, measure = _sigmas(measure, sigma)
    words = noise.seed(key)
    with surfaced():
        carry, number = sampling._begin(measure, mixture, words, chains, init)
    last = sampling.chains_last(measure, rule, mixture)
    runner = sampling.Runner(
        measure, mixture, rule, words, schedules.constant(low), chains, last, sampling.workers_for(workers, chains, measure)
    )
    climb = _Climb(
        runner=runner,
        groups=runner.split(carry),
        words=words,
        number=number,
        keeper=_Keeper(sampling.keeper_of("anneal", keep), None if sigma is None else measure.walk),
        settings=_Settings(
            overlap, steps, 32 * steps if most_steps is None else most_steps, burn_in, thin, stages,
            np.inf if evaluations is None else evaluations, target_acceptance if burn_in else None,
        ),
        score=score,
        started=time.perf_counter(),
    )  # fmt: skip
    found = None
    with surfaced(), Progress(None, progress) as bar:
        runner.bar = bar
        if sigma is not None:
            climb.widen(high, factor)
        elif score is None:
            climb.rise(low, high)
        else:
            found = climb.close_in(low, high, tolerance)
    return _as_run(climb, found, began)


# ---- stages ----


@dataclasses.dataclass(frozen=True)
class _Settings:
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
class _Score:
    """What a target is about: its name, the target, and the losses whose mean it is, None for the measure's own."""

    quantity: str
    target: float
    loss: Any

    def met(self, value: float) -> bool:
        return value >= self.target if self.quantity == "accuracy" else value <= self.target


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage as it ended: its draws as a run, how its loss was judged, and the accuracy where it was asked for."""

    run: Run
    factor: float
    judged: settling.Settling
    accuracy: tuple[float, float]
    spread: Float[np.ndarray, "chains draws"] | None
    steps: int


@dataclasses.dataclass(frozen=True)
class _Keeper:
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
class _Climb:
    """The chains on their way: where they are, and the stages behind them."""

    runner: sampling.Runner
    groups: list[Any]
    words: Any
    number: int
    keeper: _Keeper
    settings: _Settings
    score: _Score | None
    started: float
    stages: list[_Stage] = dataclasses.field(default_factory=list)
    made: int = 0
    stopped: str = ""

    def rise(self, low: float, high: float, until: Callable[[_Stage], bool] = lambda stage: False) -> None:
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
            what = f"No tilt up to s = {_tilt(above):.4g} met {goal}: it came to {value:.4g} ± {error:.2g}."
            return Found(score.quantity, score.target, _tilt(above), np.inf, value, error, False, what)
        if len(self.stages) == 1:
            what = f"The first tilt, s = {low:.4g}, met {goal} already."
            return Found(score.quantity, score.target, low, 0.0 if low == 0 else np.inf, value, error, True, what)
        below, slope = self.stages[-2], 0.0
        tried = [below, above]
        for _ in range(PROBES):
            # through the two stages nearest to the target, and never so near an end of the gap that a wrong slope would stall
            one, other = sorted(tried, key=lambda stage: abs(self.value(stage)[0] - score.target))[:2]
            slope = (self.value(one)[0] - self.value(other)[0]) / (_tilt(one) - _tilt(other))
            gap = _tilt(above) - _tilt(below)
            aim = _tilt(one) + (score.target - self.value(one)[0]) / slope if slope else _tilt(below) + gap / 2
            s = float(np.clip(aim, _tilt(below) + 0.05 * gap, _tilt(above) - 0.05 * gap))
            stage = self.stage(s, finest=tolerance * s * abs(slope))
            tried.append(stage)
            value, error = self.value(stage)
            if abs(value - score.target) <= tolerance * s * abs(slope) or self.spent():
                break
            below, above = (below, stage) if score.met(value) else (stage, above)
        s = _tilt(self.stages[-1])
        known = error / abs(slope) if slope else np.inf
        # closed in, unless stages or evaluations ran out
        near = abs(value - score.target) <= tolerance * s * abs(slope) + 2 * error
        what = f"The smallest tilt with {goal} is s = {s:.4g} ± {known:.2g}, where it is {value:.4g} ± {error:.2g}."
        if not near:
            what = f"The smallest tilt with {goal} is below s = {_tilt(above):.4g}; it was not closed in on."
            s, known = _tilt(above), gap
        return Found(score.quantity, score.target, s, known, value, error, True, what)

    def spent(self) -> bool:
        """Whether a budget of the whole is used up, which is noted."""
        if len(self.stages) >= self.settings.stages:
            self.stopped = f"It ended after {self.settings.stages} stages, its budget."
        elif self.runner.evaluations >= self.settings.evaluations:
            self.stopped = f"It ended after {round(self.runner.evaluations)} evaluations, its budget."
        return bool(self.stopped)

    def value(self, stage: _Stage) -> tuple[float, float]:
        """What the target is about, and its error."""
        if self.score is not None and self.score.quantity == "accuracy":
            return stage.accuracy
        return stage.judged.mean, stage.judged.standard_error

    def stage(self, s: float, factor: float = 1.0, finest: float = np.inf) -> _Stage:
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
        stage = _Stage(run, factor, judged, found, draws[0].get("spread"), self.made)
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
def _of_walk(measure: PathMeasure, words: Any, numbers: Any, chains: int, keeper: _Keeper, informed: bool) -> Any:
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


def _tilt(stage: _Stage) -> float:
    return float(stage.run.s[0])


def _as_run(climb: _Climb, found: Found | None, began: float) -> AnnealRun:
    stages, runner = climb.stages, climb.runner
    last = stages[-1].run
    s = np.asarray([_tilt(stage) for stage in stages])
    each = [stage.steps for stage in stages]
    paths = [stage.run.paths for stage in stages if stage.run.paths is not None]
    curve = LossCurve(
        s=s,
        loss=np.asarray([stage.judged.mean for stage in stages]),
        error=np.asarray([stage.judged.standard_error for stage in stages]),
        settled=np.asarray([stage.judged.settled for stage in stages]),
        why=tuple(stage.judged.why for stage in stages),
        sigma=np.asarray([stage.factor for stage in stages]),
        accuracy=np.asarray([stage.accuracy[0] for stage in stages]),
        accuracy_error=np.asarray([stage.accuracy[1] for stage in stages]),
    )
    whole = {field.name: getattr(last, field.name) for field in dataclasses.fields(Run)}
    whole |= {
        "losses": np.concatenate([stage.run.losses for stage in stages if stage.run.losses is not None], 1),
        "paths": np.concatenate(paths, 1) if paths else None,
        "s": np.concatenate([stage.run.s for stage in stages]),
        "evaluations": round(runner.evaluations),
        "gradients": round(runner.gradients),
        "seconds": time.perf_counter() - began,
        "first_draw_seconds": (runner.first_draw or time.perf_counter()) - began,
    }
    return AnnealRun(
        **whole,
        curve=curve,
        stages=tuple(stage.run for stage in stages),
        schedule=schedules.staircase(s.tolist(), each),
        schedule_steps=sum(each),
        found=found,
        stopped=climb.stopped,
    )


# ---- input ----


def _check(
    rule: Any, steps: Any, most_steps: Any, burn_in: Any, stages: Any, evaluations: Any, chains: Any, thin: Any, keep: Any,
    tolerance: Any, overlap: Any, target: Any,
) -> None:  # fmt: skip
    check.whole("anneal.thin", thin, low=1)
    check.whole("anneal.steps", steps, low=settling.FEWEST * thin)
    if most_steps is not None:
        check.whole("anneal.most_steps", most_steps, low=steps)
    check.whole("anneal.burn_in", burn_in, low=0)
    check.whole("anneal.stages", stages, low=1)
    if evaluations is not None:
        check.whole("anneal.evaluations", evaluations, low=1)
    check.whole("anneal.chains", chains, low=1)
    if keep not in ("losses", "paths"):
        raise ValueError(f'anneal.keep must be "losses" or "paths"; got {check.shown(keep)}.')
    check.number("anneal.tolerance", tolerance, low=0, high=1, low_open=True)
    check.number("anneal.overlap", overlap, low=0, high=0.99, low_open=True)
    if target is not None:
        check.number("anneal.target_acceptance", target, low=0, high=1, low_open=True)
    if isinstance(rule, type) or not hasattr(rule, "decide"):
        raise TypeError(f"anneal.rule must be a rule such as rules.Metropolis(); got {check.shown(rule)}.")


def _ends(
    measure: PathMeasure, s_max: Any, s_min: Any, sigma: Any, target_loss: Any, target_accuracy: Any
) -> tuple[float, float]:
    """The tilts to begin and to end with."""
    targets = [x for x in (target_loss, target_accuracy) if x is not None]
    if len(targets) > 1:
        raise ValueError("anneal.target_loss and anneal.target_accuracy must not both be given.")
    if s_max is not None:
        check.number("anneal.s_max", s_max, low=0, low_open=True)
    elif not targets:
        raise ValueError("anneal.s_max must be given, or a target_loss or target_accuracy in its place; got neither.")
    if sigma is not None:
        if targets or s_max is None or s_min is not None:
            raise ValueError(
                "anneal.sigma must stand beside s_max alone, at which sigma is annealed; got a target or an s_min."
            )
        return float(s_max), float(s_max)
    if s_min is None:
        if measure.walk.proper:
            s_min = 0.0
        elif s_max is None:
            raise ValueError("anneal.s_min must be given for a flat start where a target takes the place of s_max; got None.")
        else:
            s_min = LOWEST * s_max
    high = np.inf if s_max is None else float(s_max)
    check.number("anneal.s_min", s_min, low=0)
    if s_min == 0 and not measure.walk.proper:
        raise ValueError("anneal.s_min must be above 0 for a flat start, whose law cannot be normalised at s = 0; got 0.")
    if s_min > high:
        raise ValueError(f"anneal.s_min must be at most s_max = {high:g}; got {s_min:g}.")
    return float(s_min), high


def _score(measure: PathMeasure, target_loss: Any, target_accuracy: Any) -> _Score | None:
    if target_loss is not None:
        check.number("anneal.target_loss", target_loss)
        return _Score("loss", float(target_loss), None)
    if target_accuracy is None:
        return None
    check.number("anneal.target_accuracy", target_accuracy, low=0, high=1)
    loss: Any = measure.loss
    if not hasattr(loss, "zero_one") or not getattr(loss, "needs_start", False):
        raise TypeError(
            "anneal.target_accuracy needs losses.Supervised with classes, such as kind='cross_entropy'; "
            f"got {check.shown(measure.loss)}."
        )
    return _Score("accuracy", float(target_accuracy), loss.zero_one())


def _sigmas(measure: PathMeasure, sigma: Any) -> tuple[float, PathMeasure]:
    """By what factor sigma changes in all, and the measure with the first one."""
    if sigma is None:
        return 1.0, measure
    if not isinstance(sigma, list | tuple) or len(sigma) != 2:
        raise TypeError(f"anneal.sigma must be a start and an end, (from, to); got {check.shown(sigma)}.")
    if not hasattr(measure.walk, "sigma"):
        raise TypeError(f"anneal.sigma must be None for a walk without sigma; got {check.shown(measure.walk)}.")
    for value in sigma:
        check.positive("anneal.sigma", value)
    start, end = (np.asarray(value, float) for value in sigma)
    ratio = end / start
    if not np.allclose(ratio, ratio.flat[0], rtol=1e-6):
        raise ValueError(
            f"anneal.sigma must change by one factor for all parameters; got factors from {ratio.min():g} to {ratio.max():g}."
        )
    walk: Any = measure.walk
    return float(ratio.flat[0]), dataclasses.replace(measure, walk=dataclasses.replace(walk, sigma=jnp.asarray(start, float)))
