"""`smc`: sequential Monte Carlo, populations of paths that are taken from the walk to a large tilt.

From draws at `s`, the weights `w = exp(-ds Lsum)` make draws at `s + ds`. Three steps, again and again:

1. *weigh*: take the largest `ds` at which a share `overlap` of the particles counts, in effect; then, in each population,

       Z(s + ds) / Z(s) = mean of w,

   and the product of these means has the right mean, however few the particles (Del Moral, Doucet, Jasra 2006);
2. *resample*: particles are copied in proportion to their weights, systematically, so that the number of copies differs by less
   than 1 from what the weight says. All count the same again, so that the conditional share is the share of the new weights;
3. *move*: each by `steps` steps that leave the measure at `s + ds` unchanged, so that copies part.

Populations know nothing of each other but the common tilts: their differences are the error. These tilts, and the step sizes,
come from the particles themselves, which matters less than the error for many particles (Beskos, Jasra, Kantas, Thiery 2016);
with a given `ladder` and `target_acceptance=None` there is nothing of it, and Z has exactly the right mean.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from tiltwalk import chain, check, diagnostics, noise, sampling, schedules, spacing
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.rules import Metropolis
from tiltwalk.run import Run
from tiltwalk.smc_run import SMCRun
from tiltwalk.types import ChainState, Move, Rule

ACCEPTANCE = 0.3
"""What step sizes are tuned to where nothing is said."""

STRIDE = 2.0
"""How far a step size goes from one tilt to the next: the log of it changes by so much times what acceptance was off."""


def smc(
    measure: PathMeasure,
    s_max: float | None = None,
    *,
    ladder: Any = None,
    s_min: float | None = None,
    particles: int = 512,
    populations: int = 8,
    overlap: float = 0.5,
    steps: int = 8,
    moves: Move | Sequence[tuple[Move, float]] | None = None,
    rule: Rule | None = None,
    key: Any = 0,
    init: Any = None,
    keep: str | Callable[[ChainState], Any] = "losses",
    progress: bool = True,
    target_acceptance: float | None = ACCEPTANCE,
    workers: int | None = None,
) -> SMCRun:
    """Takes `populations` of `particles` paths each from the walk to the tilt `s_max`, with draws and log Z at every tilt.

    - `ladder`: the tilts, increasing, in place of `s_max`; by default each is chosen so that a share `overlap` of the particles
      counts at the next.
    - `init`, `s_min`: draws of the measure at `s_min` to begin with, a run of `sample` at that tilt with its paths, or an array
      `(populations * particles, tau, d)`. By default draws of the walk, at `s = 0`; a flat start has none and needs both.
    - `steps` are made at each tilt, with step sizes that follow the acceptance at the tilt before, to `target_acceptance`.
    - `keep`: what is kept of each particle at each tilt, as in `sample`.

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.OrnsteinUhlenbeck(0.8, pull=0.3), tw.losses.double_well(height=2.0), length=4)
    >>> run = tw.smc(measure, 3.0, particles=64, populations=4, progress=False)
    >>> run.losses.shape[1:], float(run.s[-1])
    ((4, 64, 4), 3.0)
    """
    began = time.perf_counter()
    mixture = sampling.mixture_of("smc", measure, moves)
    rule = Metropolis() if rule is None else rule
    _check(rule, particles, populations, overlap, steps, target_acceptance)
    keeper = sampling.keeper_of("smc", keep)
    tilts = _ladder(s_max, ladder)
    first, end = _ends(measure, tilts, s_max, s_min, init)
    words = noise.seed(key)
    chains = populations * particles
    with surfaced():
        start = None if init is None else _given(measure, init, first, populations, particles)
        carry, _ = sampling._begin(measure, mixture, words, chains, start)
    # whole populations to each thread
    groups_of = sampling.workers_for(workers, populations, measure)
    last = sampling.chains_last(measure, rule, mixture)
    runner = sampling.Runner(measure, mixture, rule, words, schedules.constant(first), chains, last, groups_of)
    runner.evaluations += chains * measure.length
    groups = runner.split(carry)
    sizes = np.asarray([float(move.step) for move, _ in mixture])
    names = runner.names()
    uniform = np.random.default_rng(np.asarray(words, np.uint32).tolist())

    s = [first]
    totals = [_totals(runner, groups)]
    kept = [_kept(keeper, runner, groups, populations)]
    log_z = [np.zeros(populations)]
    family = np.tile(np.arange(particles), (populations, 1))
    families = [np.full(populations, particles)]
    shares: list[float] = []
    accepted: list[np.ndarray] = []
    taken: list[np.ndarray] = []
    number = 0
    with surfaced(), Progress(None, progress) as bar:
        runner.bar = bar
        while s[-1] < end:
            total = totals[-1].reshape(populations, particles)
            s.append(spacing.farthest(total.ravel(), s[-1], end, overlap) if tilts is None else float(tilts[len(s)]))
            exponents = weigh(total, s[-1] - s[-2])
            log_z.append(log_z[-1] + log_mean(exponents))
            shares.append(spacing.share(total.ravel(), s[-1] - s[-2]))
            ancestors = resample(exponents, uniform.uniform(size=populations))
            family = np.take_along_axis(family, ancestors, 1)
            families.append(np.asarray([len(np.unique(row)) for row in family]))
            groups = _taken(runner, groups, ancestors, sizes)
            runner.schedule = schedules.constant(s[-1])
            runner.forget_acceptance()
            groups, _ = runner.advance(groups, number, steps, 1, None, None, "")
            number += steps
            rates = runner.acceptance().mean(1)
            accepted.append(rates)
            taken.append(sizes.copy())
            if target_acceptance is not None:
                change = np.where(np.isnan(rates), 0.0, STRIDE * (rates - target_acceptance))
                sizes = np.clip(sizes * np.exp(change), chain.SMALLEST_STEP, 1.0)
            totals.append(_totals(runner, groups))
            kept.append(_kept(keeper, runner, groups, populations))
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *kept)
    return SMCRun(
        s=np.asarray(s),
        losses=stacked["losses"] if isinstance(keep, str) else None,
        paths=stacked["path"] if keep == "paths" else None,
        kept=None if isinstance(keep, str) else stacked["kept"],
        log_partitions=np.stack(log_z),
        totals=np.stack(totals).reshape(len(s), populations, particles),
        share=np.asarray(shares),
        families=np.stack(families),
        acceptance={name: np.asarray([rates[i] for rates in accepted]) for i, name in enumerate(names)},
        steps={name: np.asarray([sizes[i] for sizes in taken]) for i, name in enumerate(names)},
        state=runner.join(groups).state,
        length=measure.length,
        evaluations=round(runner.evaluations),
        gradients=round(runner.gradients),
        seconds=time.perf_counter() - began,
        cautions=diagnostics.cautions(measure),
    )


# ---- weighing and resampling ----


def weigh(totals: Float[np.ndarray, "populations n"], ds: float) -> Float[np.ndarray, "populations n"]:
    """The log weights of particles whose tilt is raised by `ds`."""
    return np.asarray(-ds * totals)


def log_mean(exponents: Float[np.ndarray, "populations n"]) -> Float[np.ndarray, " populations"]:
    """The log of the mean of the weights."""
    top = exponents.max(1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).mean(1)))


def resample(
    exponents: Float[np.ndarray, "populations n"], uniform: Float[np.ndarray, " populations"]
) -> Int[np.ndarray, "populations n"]:
    """Which particles the new ones are copies of: systematic resampling, by one uniform number a population."""
    count = exponents.shape[1]
    weights = np.exp(exponents - exponents.max(1, keepdims=True))
    bounds = np.cumsum(weights, 1)
    bounds /= bounds[:, -1:]
    bounds[:, -1] = 1.0
    marks = (np.arange(count) + uniform[:, None]) / count
    found = [np.searchsorted(row, at, side="right") for row, at in zip(bounds, marks, strict=True)]
    return np.asarray(np.minimum(np.stack(found), count - 1))


def _taken(
    runner: sampling.Runner, groups: list[chain.Carry], ancestors: Int[np.ndarray, "populations n"], sizes: np.ndarray
) -> list[chain.Carry]:
    """The groups with the particles that were resampled, and the step sizes of the next moves."""
    each, count = len(ancestors) // len(groups), ancestors.shape[1]
    new = []
    for i, group in enumerate(groups):
        own = ancestors[i * each : (i + 1) * each] + count * np.arange(each)[:, None]
        state = _copies(group.state, jnp.asarray(own.ravel(), jnp.int32), -1 if runner.last else 0)
        steps = jnp.broadcast_to(jnp.asarray(sizes, group.steps.dtype)[:, None], group.steps.shape)
        new.append(chain.Carry(state, steps))
    return new


@functools.partial(jax.jit, static_argnames=("axis",))
def _copies(state: ChainState, chosen: Int[Array, " c"], axis: int) -> Any:
    return jax.tree.map(lambda x: jnp.take(x, chosen, axis), state)


# ---- what is kept ----


def _totals(runner: sampling.Runner, groups: list[chain.Carry]) -> Float[np.ndarray, " chains"]:
    """The total loss of each particle."""
    losses = [np.asarray(group.state.losses, np.float64).sum(0 if runner.last else -1) for group in groups]
    return np.concatenate(losses)


def _kept(keeper: Callable[[ChainState], Any], runner: sampling.Runner, groups: list[chain.Carry], populations: int) -> Any:
    """What is kept of all particles, populations in front."""
    axis = -1 if runner.last else 0
    found = [_of_all(keeper, group.state, axis) for group in groups]
    return jax.tree.map(
        lambda *xs: np.concatenate([np.asarray(x) for x in xs]).reshape(populations, -1, *xs[0].shape[1:]), *found
    )


@functools.partial(jax.jit, static_argnames=("keeper", "axis"))
def _of_all(keeper: Callable[[ChainState], Any], state: ChainState, axis: int) -> Any:
    return jax.vmap(keeper, in_axes=axis)(state)


# ---- input ----


def _check(rule: Any, particles: Any, populations: Any, overlap: Any, steps: Any, target: Any) -> None:
    check.whole("smc.particles", particles, low=2)
    check.whole("smc.populations", populations, low=1)
    check.number("smc.overlap", overlap, low=0, high=0.99, low_open=True)
    check.whole("smc.steps", steps, low=1)
    if target is not None:
        check.number("smc.target_acceptance", target, low=0, high=1, low_open=True)
    if isinstance(rule, type) or not hasattr(rule, "decide"):
        raise TypeError(f"smc.rule must be a rule such as rules.Metropolis(); got {check.shown(rule)}.")


def _ladder(s_max: Any, ladder: Any) -> Float[np.ndarray, " rungs"] | None:
    if (s_max is None) == (ladder is None):
        raise ValueError(f"smc needs either s_max or a ladder; got {'neither' if ladder is None else 'both'}.")
    if ladder is None:
        check.number("smc.s_max", s_max, low=0, low_open=True)
        return None
    s = check.finite_array("smc.ladder", ladder, (1,), "(rungs,)")
    if s.size < 2 or np.any(np.diff(s) <= 0) or s[0] < 0:
        raise ValueError(
            f"smc.ladder must be two or more increasing tilts of at least 0; got {check.shown(np.asarray(ladder).tolist())}."
        )
    return s


def _ends(
    measure: PathMeasure, tilts: Float[np.ndarray, " rungs"] | None, s_max: Any, s_min: Any, init: Any
) -> tuple[float, float]:
    """The first tilt and the last."""
    if s_min is not None:
        check.number("smc.s_min", s_min, low=0)
    if tilts is not None and s_min is not None and s_min != tilts[0]:
        raise ValueError(f"smc.s_min must be the lowest rung of the ladder, {tilts[0]:g}; got {s_min:g}.")
    end = float(s_max) if tilts is None else float(tilts[-1])
    first = float(tilts[0]) if tilts is not None else float(s_min or 0.0)
    if first == 0 and not measure.walk.proper:
        raise ValueError(
            "smc.s_min must be above 0 for a flat start, whose walk has no draws, with draws of the measure at s_min as init: "
            'init=sample(measure, s_min, ..., keep="paths"); got s = 0.'
        )
    if first > 0 and init is None:
        raise ValueError(
            f"smc.init must hold draws of the measure at the first tilt, s = {first:g}: "
            'sample(measure, s_min, ..., keep="paths"); got None.'
        )
    if first == 0 and init is not None:
        raise ValueError("smc.init must be None where the first tilt is 0: the walk is drawn from.")
    if first >= end:
        raise ValueError(f"smc.s_min must be below s_max = {end:g}; got {first:g}.")
    return first, end


def _given(measure: PathMeasure, init: Any, first: float, populations: int, particles: int) -> Any:
    """Paths to begin with, from the draws of a run or an array of them; each population from chains of its own, if it can."""
    count, shape = populations * particles, (measure.length, measure.dim)
    if isinstance(init, Run):
        if init.paths is None or not init.draws or np.any(init.s != first):
            raise ValueError(f'smc.init must be a run at s = {first:g} alone, with its paths: sample(..., keep="paths").')
        drawn = init.paths.reshape(-1, *init.paths.shape[2:])
        if len(drawn) < count:
            raise ValueError(f"smc.init must hold a draw for each of {count} particles; got {len(drawn)}.")
        init = drawn[np.linspace(0, len(drawn) - 1, count).round().astype(int)]
    given = init.path if isinstance(init, ChainState) else init
    paths = check.numeric("smc.init", given, f"draws of shape {(count, *shape)}, a ChainState or a Run")
    if paths.shape not in ((count, *shape), (populations, particles, *shape)):
        raise ValueError(f"smc.init must have shape {(count, *shape)}, one path a particle; got {paths.shape}.")
    return paths.reshape(count, *shape)
