"""`sample`: many chains of a path measure, from a few lines.

The loop over steps is compiled (`chain.advance`); Python sees a run a fraction of a second at a time, to report and to store.
Chains of small models are split into as many groups as there are cores, each with its own thread: the compiled program holds
no lock, and two programs side by side waste less than one program that forks and joins in every operation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import chain, check, diagnostics, noise, schedules
from tiltwalk.measure import PathMeasure
from tiltwalk.moves import Sweep
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.rules import Metropolis
from tiltwalk.run import Run
from tiltwalk.types import ChainState, Move, Rule

SMALL_MODEL = 128
"""Models of fewer parameters have chains as the last axis, and their chains are split between threads."""

SECONDS_A_CALL = 0.25
"""How long the compiled loop should run before Python looks in."""


def sample(
    measure: PathMeasure,
    s: Any,
    *,
    steps: int,
    moves: Move | Sequence[tuple[Move, float]] | None = None,
    rule: Rule | None = None,
    chains: int = 1,
    burn_in: int = 0,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str | Callable[[ChainState], Any] = "losses",
    progress: bool = True,
    target_acceptance: float | None = None,
    workers: int | None = None,
) -> Run:
    """Samples paths from `measure` tilted by `s`.

    - `s`: a number, an array with one value for each of `burn_in + steps` steps, or a schedule.
    - `steps` after `burn_in` are made, and every `thin`-th is kept: `steps // thin` draws a chain.
    - `moves`: a move, or a list of `(move, weight)`; by default `Sweep()`, which updates every model once a step.
    - `rule`: how proposals are decided, by default `Metropolis()`.
    - `key`: an int or a JAX key. The same key gives the same run.
    - `init`: a path `(tau, d)` for all chains or one each, a `ChainState`, or a `Run` to go on from (its step number and
      step sizes included). By default a path of the walk each, from zero where the start is flat.
    - `keep`: `"losses"`, `"paths"` (with losses), or a function of a `ChainState` of one chain.
    - `target_acceptance`: tunes the step size of each move in each chain to this acceptance during burn-in, then freezes it.
    - `workers`: threads to split the chains between; by default one a core for small models.

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(2.0)), tw.losses.double_well(), length=8)
    >>> run = tw.sample(measure, s=2.0, steps=100, chains=4, progress=False)
    >>> run.losses.shape
    (4, 100, 8)
    """
    mixture = mixture_of("sample", measure, moves)
    rule = Metropolis() if rule is None else rule
    _check(measure, rule, steps, chains, burn_in, thin, target_acceptance, workers)
    keeper = keeper_of("sample", keep)
    words = noise.seed(key)
    schedule = schedules.as_schedule(s, burn_in + steps)
    began = time.perf_counter()
    with surfaced():
        carry, step_number = _begin(measure, mixture, words, chains, init)

    last = chains_last(measure, rule, mixture)
    runner = Runner(measure, mixture, rule, words, schedule, chains, last, workers_for(workers, chains, measure))
    groups = runner.split(carry)
    draws = steps // thin
    with surfaced(), Progress(burn_in + steps, progress) as bar:  # what a black box raises leaves as itself
        runner.bar = bar
        groups, _ = runner.advance(groups, step_number, burn_in, 1, None, target_acceptance, "burn-in")
        runner.forget_acceptance()
        first = step_number + burn_in
        groups, kept = runner.advance(groups, first, draws, thin, keeper, None, "")
        # steps after the last draw are made too, so that a run of n steps is n steps on
        groups, _ = runner.advance(groups, first + draws * thin, steps - draws * thin, 1, None, None, "")
    carry = runner.join(groups)
    kept = kept if draws else nothing_kept(keeper, carry, chains)
    after = np.arange(draws) * thin + thin - 1 + burn_in
    names = runner.names()
    return Run(
        losses=kept["losses"] if isinstance(keep, str) else None,
        paths=kept["path"] if keep == "paths" else None,
        kept=None if isinstance(keep, str) else kept["kept"],
        s=schedule(after),
        acceptance={n: float(a.mean()) for n, a in zip(names, runner.acceptance(), strict=True)},
        acceptance_by_chain=dict(zip(names, runner.acceptance(), strict=True)),
        steps=dict(zip(names, np.asarray(carry.steps), strict=True)),
        state=carry.state,
        step_number=step_number + burn_in + steps,
        evaluations=round(runner.evaluations),
        gradients=round(runner.gradients),
        failed=round(runner.failed),
        seconds=time.perf_counter() - began,
        first_draw_seconds=(runner.first_draw or time.perf_counter()) - began,
        cautions=diagnostics.cautions(measure),
    )


def _check(measure: Any, rule: Any, steps: Any, chains: Any, burn_in: Any, thin: Any, target: Any, workers: Any) -> None:
    check.whole("sample.steps", steps, low=0)
    check.whole("sample.chains", chains, low=1)
    check.whole("sample.burn_in", burn_in, low=0)
    check.whole("sample.thin", thin, low=1)
    if workers is not None:
        check.whole("sample.workers", workers, low=1)
    if isinstance(rule, type) or not hasattr(rule, "decide"):
        raise TypeError(f"sample.rule must be a rule such as rules.Metropolis(); got {check.shown(rule)}.")
    if target is not None:
        check.number("sample.target_acceptance", target, low=0, high=1, low_open=True)
        if burn_in == 0:
            raise ValueError(
                "sample.target_acceptance needs burn_in above 0: steps are tuned there and then frozen; got burn_in = 0."
            )


# ---- what other samplers share; `name` is whose parameters an error is about ----


def chains_last(measure: PathMeasure, rule: Rule, mixture: list[tuple[Move, float]]) -> bool:
    """Whether chains are the last axis: models are small, and everything that touches them can."""
    parts = (measure.walk, rule, *(move for move, _ in mixture))
    return measure.dim < SMALL_MODEL and all(getattr(x, "trailing", False) for x in parts)


def mixture_of(name: str, measure: Any, moves: Any) -> list[tuple[Move, float]]:
    """The moves with their weights, checked against the measure; a sweep where there are none."""
    if not isinstance(measure, PathMeasure):
        raise TypeError(f"{name}.measure must be a PathMeasure; got {check.shown(measure)}.")
    if moves is None:
        moves = Sweep()
    if not isinstance(moves, list | tuple):
        moves = [(moves, 1.0)]
    if not moves:
        raise ValueError(f"{name}.moves must be a move or a list of (move, weight); got an empty list.")
    mixture = []
    for entry in moves:
        if not (isinstance(entry, list | tuple) and len(entry) == 2):
            raise TypeError(f"{name}.moves must be a move or a list of (move, weight); got the entry {check.shown(entry)}.")
        move, weight = entry
        if isinstance(move, type) or not all(hasattr(move, x) for x in ("parts", "name", "check", "step")):
            raise TypeError(f"{name}.moves must be moves of tiltwalk.moves, or like them; got {check.shown(move)}.")
        check.number(f"{name}.moves' weight", weight, low=0, low_open=True)
        move.check(measure)
        mixture.append((move, float(weight)))
    return mixture


def keeper_of(name: str, keep: Any) -> Callable[[ChainState], Any]:
    """What is kept of the state of one chain, as a dictionary of arrays."""
    if callable(keep):
        return _Kept(keep, name)
    if not isinstance(keep, str) or keep not in _KEEPERS:
        raise ValueError(f'{name}.keep must be "losses", "paths" or a function of a ChainState; got {check.shown(keep)}.')
    return _KEEPERS[keep]


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A user's `keep`; equal where the function is the same, so that a second run does not compile again."""

    function: Callable[[ChainState], Any]
    name: str = "sample"

    def __call__(self, state: ChainState) -> Any:
        kept = self.function(state)
        for leaf in jax.tree.leaves(kept):
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
                raise TypeError(
                    f"{self.name}.keep must return an array of the state, or a tree of arrays; got {check.shown(leaf)}."
                )
        return {"kept": kept}


_KEEPERS: dict[str, Callable[[ChainState], Any]] = {
    "losses": lambda state: {"losses": state.losses},
    "paths": lambda state: {"losses": state.losses, "path": state.path},
}


def nothing_kept(keeper: Callable[[ChainState], Any], carry: chain.Carry, chains: int) -> Any:
    """What is kept of a run without draws."""
    shapes = jax.eval_shape(jax.vmap(keeper), carry.state)
    return jax.tree.map(lambda x: np.zeros((chains, 0, *x.shape[1:]), x.dtype), shapes)


def _begin(
    measure: PathMeasure, mixture: list[tuple[Move, float]], words: Any, chains: int, init: Any
) -> tuple[chain.Carry, int]:
    """The chains at the start, chains first: paths, losses, step sizes; and the number of the first step."""
    dtype = jnp.zeros(0).dtype
    given = [jnp.broadcast_to(jnp.asarray(move.step, dtype), (chains,)) for move, _ in mixture]
    number = 0
    if isinstance(init, Run):
        number = init.step_number
        given = [jnp.asarray(init.steps.get(n, g), dtype) for n, g in zip(names_of(mixture), given, strict=True)]
        init = init.state
    if isinstance(init, ChainState):
        init = init.path
    shape = (measure.length, measure.dim)
    if init is None:
        path = walk_paths(measure, words, chains)
    else:
        path = jnp.asarray(check.numeric("sample.init", init, f"a path of shape {shape} or one a chain, a ChainState or a Run"))
        if path.shape not in (shape, (chains, *shape)):
            raise ValueError(
                f"sample.init must have shape {shape}, or {(chains, *shape)} with one path a chain; got {path.shape}."
            )
        if not np.all(np.isfinite(path)):
            raise ValueError("sample.init must be finite; got a path with NaN or infinite entries.")
        path = jnp.broadcast_to(path, (chains, *shape))
    state = first_state(measure, path.astype(dtype), chain.informed(move for move, _ in mixture))
    return chain.Carry(state, jnp.stack(given)), number


def walk_paths(measure: PathMeasure, words: Any, chains: int) -> Float[Array, "chains tau d"]:
    """A path of the walk for each chain, from zero where the start is flat."""
    first = None if measure.walk.proper else jnp.zeros(measure.dim)
    keys = jax.random.split(jax.random.wrap_key_data(words ^ jnp.uint32(0x5EED), impl="threefry2x32"), chains)
    return jax.vmap(lambda key: measure.draw(key, first))(keys)


def first_state(measure: PathMeasure, paths: Float[Array, "chains tau d"], gradients: bool) -> ChainState:
    """Chains at `paths`; raises where a chain could not go on from there."""
    state: ChainState = _initial(measure, paths, gradients)
    chains, losses = paths.shape[0], state.losses
    bad = int(np.sum(np.any(np.isnan(np.asarray(losses)), -1)))
    if bad:
        raise ValueError(
            f"The loss is not a number on the first path of {bad} of {chains} chains: give a better init, or mend the loss."
        )
    if state.grads is not None:
        bad = int(np.sum(~np.all(np.isfinite(np.asarray(state.grads)), (-1, -2))))
        if bad:
            raise ValueError(
                f"The gradient of the loss is not finite on the first path of {bad} of {chains} chains: give a better init, "
                "or use moves that need no gradient."
            )
    return state


@functools.partial(jax.jit, static_argnames=("gradients",))
def _initial(measure: PathMeasure, paths: Any, gradients: bool) -> Any:
    return jax.vmap(lambda path: chain.init(measure, path, gradients))(paths)


def workers_for(workers: int | None, chains: int, measure: PathMeasure) -> int:
    """Threads to split chains between, in groups of one size."""
    if workers is None:
        small = measure.dim < SMALL_MODEL and jax.default_backend() == "cpu"
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
        workers = workers if small and not getattr(measure.loss, "on_host", False) else 1
    # groups of one size are one program
    return max(w for w in range(1, min(workers, chains) + 1) if chains % w == 0)


def _x64() -> bool:
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def _with_x64(value: bool) -> Any:
    """The x64 setting of one thread in another: `with jax.enable_x64(True)` holds in its own thread alone."""
    if _x64() == value:
        return contextlib.nullcontext()
    home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return home.enable_x64(value)


def names_of(mixture: list[tuple[Move, float]]) -> list[str]:
    """A name a move; a second one of the same name is numbered."""
    names: list[str] = []
    for move, _ in mixture:
        same = sum(n == move.name or n.startswith(f"{move.name} #") for n in names)
        names.append(move.name if not same else f"{move.name} #{same + 1}")
    return names


class Runner:
    """Drives `chain.advance` over groups of chains: how much a call, what to report, what to count."""

    def __init__(
        self, measure: PathMeasure, mixture: list[tuple[Move, float]], rule: Rule, words: Any, schedule: schedules.Schedule,
        chains: int, last: bool, workers: int,
    ) -> None:  # fmt: skip
        self.measure, self.rule, self.words, self.schedule, self.last = measure, rule, words, schedule, last
        self.mixture = mixture
        self.moves = tuple(move for move, _ in mixture)
        self.weights = jnp.asarray([weight for _, weight in mixture], jnp.float32)
        self.chains, self.workers = chains, workers
        self.bar: Progress | None = None
        self.evaluations = self.gradients = self.failed = 0.0
        self.first_draw: float | None = None
        self.unhurried = False  # calls as long as there is room for, whatever they take: the same ones in every run
        self._done = 0
        self._rate: dict[Any, float] = {}
        self.forget_acceptance()

    def names(self) -> list[str]:
        return names_of(self.mixture)

    def forget_acceptance(self) -> None:
        self._accepted = np.zeros((len(self.moves), self.chains))
        self._made = np.zeros(len(self.moves))

    def acceptance(self) -> np.ndarray:
        """By move and chain; NaN for a move that was never made."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._accepted / self._made[:, None])

    def split(self, carry: chain.Carry) -> list[chain.Carry]:
        def part(i: int) -> chain.Carry:
            size = self.chains // self.workers
            chosen = slice(i * size, (i + 1) * size)
            state = jax.tree.map(lambda x: x[chosen], carry.state)
            if self.last:
                state = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state)
            return chain.Carry(state, carry.steps[:, chosen])

        return [part(i) for i in range(self.workers)]

    def join(self, groups: list[chain.Carry]) -> chain.Carry:
        axis = -1 if self.last else 0
        state = jax.tree.map(lambda *xs: jnp.moveaxis(jnp.concatenate(xs, axis), axis, 0), *(g.state for g in groups))
        return chain.Carry(state, jnp.concatenate([g.steps for g in groups], -1))

    def advance(
        self, groups: list[chain.Carry], first: int, draws: int, thin: int,
        keep: Callable[[ChainState], Any] | None, target: float | None, phase: str,
    ) -> tuple[list[chain.Carry], Any]:  # fmt: skip
        """`draws` draws of `thin` steps from step number `first`; kept draws come back chains first."""
        store: Any = None
        done = 0
        while done < draws:
            plan = self.plan(draws - done, thin, keep, target)
            units = (draws - done) // plan.draws
            most = max(1, plan.room // plan.draws)
            while units:
                now = min(units, most)
                if not self.unhurried:
                    now = max(1, min(now, int(self._rate.get(plan, 0.0) * SECONDS_A_CALL)))
                groups, found = self._call(plan, groups, first + done * thin, now, most, phase)
                if keep is not None:
                    store = self._store(store, found, done, draws, now * plan.draws)
                done += now * plan.draws
                units -= now
        if keep is None or store is None:
            return groups, None
        return groups, jax.tree.map(lambda x: np.moveaxis(x, -1 if self.last else 1, 0), store)

    def plan(self, draws: int, thin: int, keep: Callable[[ChainState], Any] | None, target: float | None) -> chain.Plan:
        """What is compiled for `draws` draws."""
        return chain.plan_for(
            self.measure, self.moves, draws=draws, thin=thin, chains=self.chains // self.workers, last=self.last, keep=keep,
            target=target,
        )  # fmt: skip

    def _call(
        self, plan: chain.Plan, groups: list[chain.Carry], first: int, units: int, most: int, phase: str
    ) -> tuple[list[chain.Carry], list[Any]]:
        steps = units * plan.unit
        tilts = np.zeros(most * plan.unit)
        tilts[:steps] = self.schedule(np.arange(self._done, self._done + steps))
        x64 = _x64()

        def group(i: int, units: int) -> Any:
            with _with_x64(x64):
                found = self._launch(plan, i, jnp.uint32(first % 2**32), jnp.int32(units), tilts, groups[i])
                return jax.block_until_ready(found)  # type: ignore[no-untyped-call]

        fresh = plan not in self._rate
        if fresh and self.workers > 1:
            group(0, 0)  # compiles once, before several threads ask for it at once
        began = time.perf_counter()
        if self.workers == 1:
            results = [group(0, units)]
        else:
            with ThreadPoolExecutor(self.workers) as pool:
                results = list(pool.map(group, range(self.workers), [units] * self.workers))
        taken = time.perf_counter() - began
        # the first call may have compiled: it says nothing of the rate, but a few units more are safe to try
        self._rate[plan] = (2 * units / SECONDS_A_CALL) if fresh else units / max(taken, 1e-6)
        self._count(
            [tally for _, tally, _ in results],
            [carry for carry, _, _ in results],
            steps,
            float(tilts[steps - 1]),
            phase,
        )
        if plan.keep is not None and self.first_draw is None:
            self.first_draw = time.perf_counter()
        return [carry for carry, _, _ in results], [kept for _, _, kept in results]

    def _launch(self, plan: chain.Plan, i: int, first: Any, units: Any, tilts: np.ndarray, group: Any) -> Any:
        """The compiled loop over group number `i`."""
        size = self.chains // self.workers
        ids = jnp.arange(i * size, (i + 1) * size, dtype=jnp.uint32)
        return chain.advance(
            plan, self.words, ids, first, units, jnp.asarray(tilts, group.steps.dtype), group,
            self.measure, self.moves, self.weights, self.rule,
        )  # fmt: skip

    def _count(self, tallies: list[chain.Tally], groups: list[chain.Carry], steps: int, s: float, phase: str) -> None:
        self._accepted += np.concatenate([np.asarray(t.accepted, np.float64) for t in tallies], -1)
        self._made += np.asarray(tallies[0].made, np.float64)
        self.evaluations += float(tallies[0].evaluations) * self.chains
        self.gradients += float(tallies[0].gradients) * self.chains
        self.failed += float(sum(np.sum(np.asarray(t.failed, np.float64)) for t in tallies))
        self._done += steps
        if self.bar is not None and not self.bar.silent:
            loss = float(np.mean([self._mean_loss(group) for group in groups]))
            rate = float(np.sum(self._accepted) / max(1.0, np.sum(self._made) * self.chains))
            self.bar.advance(steps, s=s, loss=loss, acceptance=rate, phase=phase)

    def _mean_loss(self, group: Any) -> float:
        """What a progress line shows."""
        return float(np.mean(np.asarray(group.state.losses)))

    def _store(self, store: Any, found: list[Any], done: int, draws: int, new: int) -> Any:
        """Copies the new draws of all groups to their place: `(draws, ..., chains)` or `(draws, chains, ...)`."""
        axis = -1 if self.last else 1
        size = self.chains // self.workers
        if store is None:

            def room(x: Any) -> np.ndarray:
                shape = list(x.shape)
                shape[0], shape[axis] = draws, self.chains
                return np.empty(shape, x.dtype)

            store = jax.tree.map(room, found[0])
        for i, kept in enumerate(found):

            def copy(into: np.ndarray, x: Any, i: int = i) -> None:
                place = [slice(None)] * into.ndim
                place[0], place[axis] = slice(done, done + new), slice(i * size, (i + 1) * size)
                into[tuple(place)] = np.asarray(x)[:new]

            jax.tree.map(copy, store, kept)
        return store
