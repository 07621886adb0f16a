"""`exchange`: replica exchange, many ladders of chains at several tilts that swap paths with their neighbours.

A chain at a large tilt stays in the valley where it began; at a small one it crosses from valley to valley. On a ladder of
tilts each path travels between the two, and every rung samples its own measure exactly. `ladder.advance` is the compiled loop.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tiltwalk import chain, check, diagnostics, noise, sampling, spacing
from tiltwalk import ladder as loop
from tiltwalk.exchange_run import ExchangeRun
from tiltwalk.ladder_runner import LadderRunner
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.rules import Metropolis
from tiltwalk.types import ChainState, Move, Rule

ACCEPTANCE = 0.3
"""What step sizes are tuned to where nothing is said."""

FEWEST_TRIES = 40
"""Tries to swap that must stand behind a warning."""

PILOTS, PILOT_STEPS, PILOT_CHAINS = 4, 384, 16
"""Runs that place the rungs, their steps, and the ladders of small models in them."""

PILOT_RUNGS = 8
"""Rungs of these runs where their number is to be found."""

Moves = Move | Sequence[tuple[Move, float]] | None


def exchange(
    measure: PathMeasure,
    ladder: Any,
    *,
    steps: int,
    rungs: int | None = None,
    sigmas: Any = None,
    moves: Moves = None,
    rule: Rule | None = None,
    chains: int = 1,
    burn_in: int = 0,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str | Callable[[ChainState], Any] = "losses",
    progress: bool = True,
    target_acceptance: float | None = ACCEPTANCE,
    swap_every: int = 1,
    workers: int | None = None,
) -> ExchangeRun:
    """Samples `measure` at all tilts of a ladder at once, with swaps of paths between neighbouring rungs.

    - `ladder`: the tilts, increasing; or the lowest and the highest, with `rungs`, how many there shall be: they are then
      placed by `spaced_ladder`, which takes short runs, and the run goes on from where those ended.
    - `sigmas`: a sigma for each rung, `(rungs,)` or `(rungs, d)`, in place of the walk's. `ladder` may then be one number.
    - `chains`: ladders, independent of each other.
    - `swap_every`: steps between one try to swap and the next.
    - `init`: a path `(tau, d)` for all, `(chains, tau, d)` or `(rungs, chains, tau, d)`, a `ChainState` of such, or an
      `ExchangeRun` to go on from.
    - `target_acceptance`: step sizes of each rung and chain are tuned to it in `burn_in`, then frozen; None: they stay.

    All else is as in `sample`. A warning tells where a ladder has a gap that paths hardly cross.

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.OrnsteinUhlenbeck(0.8, pull=0.3), tw.losses.double_well(height=2.0), length=4)
    >>> run = tw.exchange(measure, [0.0, 0.3, 1.0, 3.0], steps=200, burn_in=100, chains=4, progress=False)
    >>> run.losses.shape, run.swap_rates.shape
    ((4, 4, 200, 4), (3,))
    """
    mixture = sampling.mixture_of("exchange", measure, moves)
    rule = Metropolis() if rule is None else rule
    _check(rule, steps, chains, burn_in, thin, target_acceptance, swap_every, workers)
    keeper = sampling.keeper_of("exchange", keep)
    began = time.perf_counter()
    spent = (0, 0)
    if rungs is not None:
        if sigmas is not None:
            raise ValueError(
                "exchange.sigmas must be None where rungs are to be placed; got sigmas: give the whole ladder too."
            )
        low, high = _ends(ladder)
        pilots = {"moves": moves, "rule": rule, "init": init, "key": key, "progress": progress, "workers": workers}
        ladder, init, spent = _placed("exchange", measure, low, high, rungs, PILOT_STEPS, chains, **pilots)
    s, measures = _rungs(measure, ladder, sigmas)
    words = noise.seed(key)
    with surfaced():
        carry, step_number = _begin(measures, mixture, words, chains, init)
    last = sigmas is None and sampling.chains_last(measure, rule, mixture)
    runner = LadderRunner(measures, s, sigmas is not None, mixture, rule, words, chains, last, workers, swap_every)
    groups = runner.split(carry)
    draws = steps // thin
    target = target_acceptance if burn_in else None
    with surfaced(), Progress(burn_in + steps, progress) as bar:
        runner.bar = bar
        groups, _ = runner.advance(groups, step_number, burn_in, 1, None, target, "burn-in")
        runner.forget_acceptance()
        first = step_number + burn_in
        groups, kept = runner.advance(groups, first, draws, thin, keeper, None, "")
        groups, _ = runner.advance(groups, first + draws * thin, steps - draws * thin, 1, None, None, "")
    carry = runner.join(groups)
    if draws:
        found, walkers = (jax.tree.map(runner.by_rung, kept[name]) for name in ("of_state", "walker"))
    else:
        nothing = sampling.nothing_kept(keeper, chain.Carry(carry.state, carry.steps), len(s) * chains)
        found, walkers = jax.tree.map(runner.by_rung, nothing), np.zeros((len(s), chains, 0), np.int32)
    accepted = {n: runner.by_rung(a) for n, a in zip(runner.names(), runner.acceptance(), strict=True)}
    run = ExchangeRun(
        s=s,
        measures=measures,
        losses=found["losses"] if isinstance(keep, str) else None,
        paths=found["path"] if keep == "paths" else None,
        kept=None if isinstance(keep, str) else found["kept"],
        walkers=walkers,
        swap_rates=runner.swap_rates(),
        round_trips=runner.trips.astype(int),
        acceptance={n: a.mean(1) for n, a in accepted.items()},
        acceptance_by_chain=accepted,
        steps=dict(zip(runner.names(), np.asarray(carry.steps).reshape(-1, len(s), chains), strict=True)),
        state=jax.tree.map(lambda x: x.reshape(len(s), chains, *x.shape[1:]), carry.state),
        walker=np.asarray(carry.walker),
        heading=np.asarray(carry.heading),
        made=steps,
        step_number=step_number + burn_in + steps,
        evaluations=round(runner.evaluations) + spent[0],
        gradients=round(runner.gradients) + spent[1],
        seconds=time.perf_counter() - began,
    )
    _warn_of_gaps(run, swap_every)
    return run


def spaced_ladder(
    measure: PathMeasure,
    s_low: float,
    s_high: float,
    *,
    rungs: int | None = None,
    steps: int = PILOT_STEPS,
    moves: Moves = None,
    rule: Rule | None = None,
    chains: int = 1,
    init: Any = None,
    key: Any = 0,
    progress: bool = True,
    workers: int | None = None,
) -> Float[np.ndarray, " rungs"]:
    """Tilts from `s_low` to `s_high` between which swaps are made equally often.

    They are measured in 4 runs of `steps` steps, each on the ladder that the one before suggests. Without `rungs` their number
    is that for which a round trip takes the fewest steps, which has neighbours swap about every other time.
    """
    check.whole("spaced_ladder.steps", steps, low=20)
    low, high = _ends((s_low, s_high))
    pilots = {"moves": moves, "rule": rule, "init": init, "key": key, "progress": progress, "workers": workers}
    return _placed("spaced_ladder", measure, low, high, rungs, steps, chains, **pilots)[0]


def _placed(
    name: str, measure: PathMeasure, low: float, high: float, rungs: int | None, steps: int, chains: int, *,
    key: Any, init: Any, **given: Any,
) -> tuple[Float[np.ndarray, " rungs"], ExchangeRun, tuple[int, int]]:  # fmt: skip
    """The tilts, the last of the runs that placed them, on the new rungs, and what these runs cost."""
    count = PILOT_RUNGS if rungs is None else check.whole(f"{name}.rungs", rungs, low=2)
    words = noise.seed(key)
    small = measure.dim < sampling.SMALL_MODEL
    # rungs are placed by few numbers that many draws stand behind: where they cost little, more ladders than asked for
    ladders = max(chains, PILOT_CHAINS) if small and (init is None or np.ndim(getattr(init, "path", init)) == 2) else chains
    offset = 0.0
    if low == 0:
        if not measure.walk.proper:
            raise ValueError(_NO_WALK.format(name=name))
        paths = sampling.walk_paths(measure, words ^ jnp.uint32(1), 64)
        totals = np.asarray(jax.jit(jax.vmap(measure.losses))(paths), np.float64).sum(-1)
        offset = 1 / max(float(np.std(totals)), 1e-12 * float(np.abs(totals).max()), 1e-30)
    s = np.exp(np.linspace(np.log(low + offset), np.log(high + offset), count)) - offset
    s[0], s[-1] = low, high
    spent = np.zeros(2, int)
    for i in range(PILOTS):
        tuning = steps // 3
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gap is what these runs are there to find
            run = exchange(
                measure,
                s,
                steps=steps - tuning,
                burn_in=tuning,
                chains=ladders,
                key=words ^ jnp.uint32(2 + i),
                init=init,
                **given,
            )
        spent += (run.evaluations, run.gradients)
        new = spacing.respaced(
            s, spacing.barrier(run.total_losses.reshape(len(s), -1)), rungs if i == PILOTS - 1 else count, offset
        )
        init, s = _on_new_rungs(run, new, offset), new
    return s, _first_ladders(init, chains), (int(spent[0]), int(spent[1]))


def _on_new_rungs(run: ExchangeRun, s: Float[np.ndarray, " k"], offset: float) -> ExchangeRun:
    """The run's last paths and step sizes on other rungs, each from the nearest old one; nothing else of it."""
    away = np.abs(np.log(s + offset)[:, None] - np.log(run.s + offset)[None])
    nearest = np.argmin(np.where(np.isfinite(away), away, np.inf), 1)
    walker, heading = loop.begin(len(s), run.chains)
    return dataclasses.replace(
        run,
        s=s,
        state=jax.tree.map(lambda x: x[nearest], run.state),
        steps={name: x[nearest] for name, x in run.steps.items()},
        walker=np.asarray(walker),
        heading=np.asarray(heading),
        step_number=0,
    )


def _first_ladders(run: ExchangeRun, chains: int) -> ExchangeRun:
    return dataclasses.replace(
        run,
        state=jax.tree.map(lambda x: x[:, :chains], run.state),
        steps={name: x[:, :chains] for name, x in run.steps.items()},
        walker=run.walker[:, :chains],
        heading=run.heading[:, :chains],
    )


# ---- input ----

_NO_WALK = "{name}.ladder must be above 0 for a flat start, whose law cannot be normalised at s = 0; got a lowest rung of 0."


def _ends(ladder: Any) -> tuple[float, float]:
    ends = check.finite_array("exchange.ladder", ladder, (1,), "(2,), the lowest and the highest tilt, where rungs are placed")
    if ends.shape != (2,):
        raise ValueError(
            f"exchange.ladder must be the lowest and the highest tilt where rungs are placed; got {ends.size} tilts."
        )
    if not 0 <= ends[0] < ends[1]:
        raise ValueError(f"exchange.ladder must go from a tilt of at least 0 to a larger one; got {ends[0]:g} and {ends[1]:g}.")
    return float(ends[0]), float(ends[1])


def _rungs(measure: PathMeasure, ladder: Any, sigmas: Any) -> tuple[Float[np.ndarray, " rungs"], tuple[PathMeasure, ...]]:
    """The tilts of the rungs and their measures."""
    s = check.finite_array("exchange.ladder", ladder, (0, 1), "(rungs,)")
    if sigmas is None:
        if s.ndim != 1 or s.size < 2 or np.any(np.diff(s) <= 0):
            raise ValueError(
                f"exchange.ladder must be two or more increasing tilts; got {check.shown(np.asarray(ladder).tolist())}."
            )
        measures = (measure,) * len(s)
    else:
        each = check.finite_array("exchange.sigmas", sigmas, (1, 2), "(rungs,) or (rungs, d)")
        if len(each) < 2 or s.shape not in ((), (len(each),)):
            raise ValueError(
                "exchange.sigmas must have one entry for each tilt of the ladder, two or more; "
                f"got {len(each)} sigmas and {'one tilt' if s.ndim == 0 else f'{s.size} tilts'}."
            )
        s = np.broadcast_to(s, (len(each),)).astype(float)
        if np.any(np.diff(s) < 0):
            raise ValueError(f"exchange.ladder must not decrease; got {check.shown(s.tolist())}.")
        if not hasattr(measure.walk, "sigma"):
            raise TypeError(f"exchange.sigmas must be None for a walk without sigma; got {check.shown(measure.walk)}.")
        walk: Any = measure.walk
        measures = tuple(dataclasses.replace(measure, walk=dataclasses.replace(walk, sigma=jnp.asarray(x))) for x in each)
    if s[0] < 0:
        raise ValueError(f"exchange.ladder must be at least 0; got {s[0]:g}.")
    if s[0] == 0 and not measure.walk.proper:
        raise ValueError(_NO_WALK.format(name="exchange"))
    return s, measures


def _check(rule: Any, steps: Any, chains: Any, burn_in: Any, thin: Any, target: Any, swap_every: Any, workers: Any) -> None:
    for name, value, low in (("steps", steps, 0), ("chains", chains, 1), ("burn_in", burn_in, 0), ("thin", thin, 1)):
        check.whole(f"exchange.{name}", value, low=low)
    check.whole("exchange.swap_every", swap_every, low=1)
    if workers is not None:
        check.whole("exchange.workers", workers, low=1)
    if target is not None:
        check.number("exchange.target_acceptance", target, low=0, high=1, low_open=True)
    if isinstance(rule, type) or not hasattr(rule, "decide"):
        raise TypeError(f"exchange.rule must be a rule such as rules.Metropolis(); got {check.shown(rule)}.")


def _begin(
    measures: tuple[PathMeasure, ...], mixture: list[tuple[Move, float]], words: Any, chains: int, init: Any
) -> tuple[loop.Carry, int]:
    """The ladders at the start, states with all chains in front, the ladders of a rung side by side; and the first step."""
    measure, rungs = measures[0], len(measures)
    dtype = jnp.zeros(0).dtype
    whole, shape = (rungs, chains), (measure.length, measure.dim)
    informed = chain.informed(move for move, _ in mixture)
    steps = [jnp.broadcast_to(jnp.asarray(move.step, dtype), whole) for move, _ in mixture]
    walker, heading = loop.begin(rungs, chains)
    number = 0
    state: ChainState | None = None
    if isinstance(init, ExchangeRun):
        if init.walker.shape != whole:
            raise ValueError(
                f"exchange.init must have {rungs} rungs and {chains} chains; got a run of shape {init.walker.shape}."
            )
        number = init.step_number
        names = sampling.names_of(mixture)
        steps = [jnp.asarray(init.steps.get(name, step), dtype) for name, step in zip(names, steps, strict=True)]
        walker, heading = jnp.asarray(init.walker), jnp.asarray(init.heading)
        if (
            _same_loss(init.measures[0], measure)
            and init.state.path.dtype == dtype
            and (init.state.grads is not None or not informed)
        ):
            state = init.state if informed else dataclasses.replace(init.state, grads=None)
        init = init.state
    if isinstance(init, ChainState):
        init = init.path
    if init is None:
        # the paths of a ladder depend on neither the number of ladders nor its place among them
        paths = jnp.swapaxes(sampling.walk_paths(measure, words, rungs * chains).reshape(chains, rungs, *shape), 0, 1)
    else:
        paths = jnp.asarray(
            check.numeric("exchange.init", init, f"a path of shape {shape}, or one for each chain or rung and chain")
        )
        if paths.shape not in (shape, (chains, *shape), (*whole, *shape)):
            raise ValueError(
                f"exchange.init must have shape {shape}, {(chains, *shape)} with one path a chain, or {(*whole, *shape)} with "
                f"one at each rung; got {paths.shape}."
            )
        if not np.all(np.isfinite(paths)):
            raise ValueError("exchange.init must be finite; got a path with NaN or infinite entries.")
        paths = jnp.broadcast_to(paths, (*whole, *shape))
    if state is None:
        flat = sampling.first_state(measure, paths.reshape(-1, *shape).astype(dtype), informed)
    else:
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), state)
    return loop.Carry(flat, jnp.stack(steps).reshape(len(steps), -1), walker, heading), number


def _same_loss(one: PathMeasure, other: PathMeasure) -> bool:
    """Whether losses that were computed with one measure are those of the other."""
    if one.loss is other.loss:
        return True
    (leaves, structure), (others, other_structure) = (jax.tree.flatten(measure.loss) for measure in (one, other))
    alike: Any = (structure, other_structure)
    return alike[0] == alike[1] and all(x is y or np.array_equal(x, y) for x, y in zip(leaves, others, strict=True))


def _warn_of_gaps(run: ExchangeRun, swap_every: int) -> None:
    """Where swaps are so rare that the rungs above learn nothing from those below."""
    if run.made // (2 * swap_every) * run.chains >= FEWEST_TRIES and np.any(run.swap_rates < diagnostics.COLD_GAP):
        placed = f"Or let all be placed: exchange(measure, ({run.s[0]:.4g}, {run.s[-1]:.4g}), rungs={run.rungs})."
        warnings.warn(" ".join((*diagnostics.ladder_advice(run.swap_rates, run.s), placed)), stacklevel=3)
