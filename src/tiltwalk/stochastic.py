"""Stochastic gradients on the path measure: `sgld` and `sghmc`, all models of all paths in one pass over a minibatch.

Approximate, and named so: no step is ever rejected. What is approximate is the tilt alone. The walk, whose coupling of
neighbours is stiff, is integrated exactly: in units of `sigma` a path `y` has the walk's energy `y' T y / 2`, with `T` the
tridiagonal precision of the walk, and in the eigenvectors of `T` (for a flat start the cosine modes, with eigenvalues
`2 (1 - cos(pi k / tau))`) every mode is an oscillator of its own. The mass of mode `k` is

    m = lambda_k + kappa,    kappa = s * sigma^2 * curvature,    frequency omega = sqrt(lambda_k / m) < 1,

so that with `curvature` near that of the loss all modes have about the same period, and one `step` serves them all. A step is

    kick, rotate by omega * step / 2, refresh the momenta, rotate again, kick with the gradient at the new place

(BAOAB: Leimkuhler and Matthews 2013; with all momenta refreshed it is overdamped Langevin dynamics with their noise of two
steps). Kicks are `tan(x) / x` times as long as the half step, `x = omega * step / 2`, which makes up for the rotation beside
them: with all data and a quadratic loss **every step size gives the exact law**, up to the largest that is stable, 2 over the
root of the loss's largest curvature in units of `curvature`. What is left of the bias comes from minibatches and from curvature
that is not constant: docs/stochastic.md measures it.

References: Welling and Teh (2011); Chen, Fox and Guestrin (2014), arXiv:1402.4102.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from tiltwalk import batches, check, diagnostics, noise
from tiltwalk.measure import PathMeasure
from tiltwalk.networks.callback import surfaced
from tiltwalk.progress import Progress
from tiltwalk.pytree import pytree
from tiltwalk.run import Run
from tiltwalk.sampling import first_state, keeper_of, walk_paths
from tiltwalk.types import ChainState
from tiltwalk.walks import GaussianChain

ROOM_BYTES = 2**25
STEPS_A_CALL = 512
_STEP, _BEGIN = 0, 1
APPROXIMATE = "{name} is approximate, as it never rejects: halve the step, double the batch, and see whether the losses move."


def sgld(
    measure: PathMeasure,
    s: float,
    *,
    steps: int,
    step: float = 0.3,
    curvature: Any = 1.0,
    batch: int | None = None,
    anchor: Any = None,
    chains: int = 1,
    burn_in: int = 0,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str | Callable[[ChainState], Any] = "losses",
    progress: bool = True,
) -> Run:
    """Stochastic-gradient Langevin dynamics of paths at tilt `s`: approximate, for warm-up and for cheap ensembles.

    - `step`: in units in which 1 is a fair part of a period of every mode; smaller has less bias and moves less.
    - `curvature`: what second derivatives of the loss are, about: one number, or one per parameter.
    - `batch`: samples a gradient is taken from, drawn anew each step; None takes all. Needs a loss on samples.
    - `anchor`: a model `(d,)` for a control variate, such as one from `warm_start`; makes gradients near it less noisy.
    - the rest as for `sample`. Losses of kept draws are those on all data.

    The result is a `Run` whose `acceptance` is empty; `evaluations` and `gradients` count passes over the whole data.
    """
    settings = _Settings("sgld", step, 0.0, batch, anchor, curvature)
    return _sample(measure, s, settings, steps, chains, burn_in, thin, key, init, keep, progress)


def sghmc(
    measure: PathMeasure,
    s: float,
    *,
    steps: int,
    step: float = 0.3,
    memory: float = 0.8,
    curvature: Any = 1.0,
    batch: int | None = None,
    anchor: Any = None,
    chains: int = 1,
    burn_in: int = 0,
    thin: int = 1,
    key: Any = 0,
    init: Any = None,
    keep: str | Callable[[ChainState], Any] = "losses",
    progress: bool = True,
) -> Run:
    """Stochastic-gradient Hamiltonian dynamics of paths at tilt `s`: as `sgld`, but momenta keep the part `memory` a step.

    Paths then go on in one direction for about `1 / (1 - memory)` steps, and spread further at the same step size; the noise of
    minibatches adds up over as many steps, and so does its bias.
    """
    settings = _Settings("sghmc", step, memory, batch, anchor, curvature)
    return _sample(measure, s, settings, steps, chains, burn_in, thin, key, init, keep, progress)


@dataclasses.dataclass(frozen=True)
class _Settings:
    name: str
    step: Any
    memory: Any
    batch: Any
    anchor: Any
    curvature: Any


@pytree
class Modes:
    """A Gaussian walk in units of `sigma`, in the eigenvectors of its precision; `excess` is what parameters have more of
    the start's precision than the one that has least, and enters with the gradient."""

    vectors: Float[Array, "tau k"]
    values: Float[Array, " k"]
    sigma: Any
    centre: Any
    excess: Any

    def path(self, modes: Float[Array, "c k d"]) -> Float[Array, "c tau d"]:
        path: Array = self.centre + self.sigma * jnp.einsum("tk,ckd->ctd", self.vectors, modes)
        return path

    def of(self, path: Float[Array, "c tau d"]) -> Float[Array, "c k d"]:
        return self.onto((path - self.centre) / self.sigma)

    def onto(self, scaled: Float[Array, "c tau d"]) -> Float[Array, "c k d"]:
        return jnp.einsum("tk,ctd->ckd", self.vectors, scaled)


@pytree
class Dynamics:
    """The numbers of a step, by mode and, where they differ, by parameter."""

    cosine: Array
    forward: Array  # what a momentum of 1 adds to the place in half a step
    back: Array  # what a place of 1 takes from the momentum
    kick: Array
    memory: Array


@pytree
class _Carry:
    place: Float[Array, "c k d"]
    momentum: Float[Array, "c k d"]
    force: Float[Array, "c k d"]


def modes_of(name: str, measure: PathMeasure) -> Modes:
    """The modes of the measure's walk, which must be Gaussian and pull all parameters back alike."""
    walk: Any = measure.walk
    start = getattr(walk, "start", None)
    if not isinstance(walk, GaussianChain) or (start is not None and start.has_rest):
        raise TypeError(
            f"{name}.measure must have a Gaussian walk, RandomWalk from Flat() or Normal(scale) or OrnsteinUhlenbeck; "
            f"got {check.shown(walk)}."
        )
    keep, start_precision, sigma, centre = (
        np.asarray(x, np.float64) for x in (walk.persistence(), walk.start_precision(), walk.sigma, walk.centre_of())
    )
    if np.ptp(keep):
        raise ValueError(f"{name}.measure must have a walk with one pull for all parameters; got {check.shown(1 - keep)}.")
    a, least, length = float(keep.flat[0]), float(start_precision.min()), measure.length
    diagonal = np.where(np.arange(length) > 0, 1.0, least) + np.where(np.arange(length) < length - 1, a * a, 0.0)
    beside = np.full(length - 1, -a)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    values = np.where(values < 1e-9, 0.0, values)
    return Modes(*(jnp.asarray(x, float) for x in (vectors, values, sigma, centre, start_precision - least)))


def dynamics_of(modes: Modes, s: float, step: float, memory: float, curvature: Any) -> Dynamics:
    """The numbers of a step of size `step`."""
    stiffness = np.asarray(s * np.asarray(modes.sigma, np.float64) ** 2 * curvature)
    values = np.asarray(modes.values, np.float64)[:, None]
    mass = values + stiffness
    frequency = np.sqrt(values / mass)
    half = frequency * step / 2
    # sin(x) / omega and tan(x) / omega, which are step / 2 for a mode that is free
    free = half == 0
    safe = np.where(free, 1.0, frequency)
    forward = np.where(free, step / 2, np.sin(half) / safe) / np.sqrt(mass)
    kick = np.where(free, step / 2, np.tan(half) / safe) / np.sqrt(mass)
    back = np.sqrt(values) * np.sin(half)
    return Dynamics(*(jnp.asarray(x, float) for x in (np.cos(half), forward, back, kick, memory)))


def _sample(
    measure: PathMeasure, s: Any, settings: _Settings, steps: Any, chains: Any, burn_in: Any, thin: Any, key: Any, init: Any,
    keep: Any, progress: bool,
) -> Run:  # fmt: skip
    name = settings.name
    batch = batches.checked(name, measure, settings.batch)
    check.whole(f"{name}.steps", steps, low=0)
    check.whole(f"{name}.chains", chains, low=1)
    check.whole(f"{name}.burn_in", burn_in, low=0)
    check.whole(f"{name}.thin", thin, low=1)
    check.number(f"{name}.s", s, low=0)
    check.number(f"{name}.step", settings.step, low=0, high=2, low_open=True)
    check.number(f"{name}.memory", settings.memory, low=0, high=1)
    if settings.memory == 1:
        raise ValueError(f"{name}.memory must be below 1: momenta that are never refreshed heat up; got 1.")
    check.positive(f"{name}.curvature", settings.curvature)
    if np.ndim(settings.curvature) and np.shape(settings.curvature) != (measure.dim,):
        raise ValueError(
            f"{name}.curvature must be one number or {measure.dim}, one per parameter; got {np.shape(settings.curvature)[0]}."
        )
    if settings.anchor is not None and batch is None:
        raise ValueError(f"{name}.anchor needs a batch: gradients on all data have no noise to take out; got batch=None.")
    if s == 0 and not measure.walk.proper:
        raise ValueError(f"{name}.s must be above 0 where the start is flat: nothing else holds the paths; got 0.")
    keeper = keeper_of(name, keep)
    words = noise.seed(key)
    began = time.perf_counter()
    with surfaced():
        state, number = _begin(name, measure, words, chains, init)
        anchor = None if settings.anchor is None else batches.anchored(measure, _anchor(name, settings.anchor, measure.dim))
        modes = modes_of(name, measure)
        runner = _Runner(measure, float(s), settings, batch, anchor, modes, words, chains, keeper)
        carry = runner.begin(state, number)
        with Progress(burn_in + steps, progress) as bar:
            runner.bar = bar
            carry = runner.advance(carry, number, burn_in)
            draws = steps // thin
            carry, kept = runner.draw(carry, number + burn_in, draws, thin)
            carry = runner.advance(carry, number + burn_in + draws * thin, steps - draws * thin)
        path = modes.path(carry.place)
        losses = _losses(measure, path)
        runner.check_finite(losses, number + burn_in + steps)
    share = batches.share(measure, batch)
    gradients = chains * measure.length * (burn_in + steps + 1) * share
    return Run(
        losses=kept["losses"] if isinstance(keep, str) else None,
        paths=kept["path"] if keep == "paths" else None,
        kept=None if isinstance(keep, str) else kept["kept"],
        s=np.full(draws, float(s)),
        acceptance={},
        acceptance_by_chain={},
        steps={name: np.full(chains, float(settings.step))},
        state=ChainState(path, losses),
        step_number=number + burn_in + steps,
        evaluations=round(gradients + chains * measure.length * (draws + 1)),
        gradients=round(gradients),
        seconds=time.perf_counter() - began,
        first_draw_seconds=(runner.first_draw or time.perf_counter()) - began,
        cautions=(APPROXIMATE.format(name=name), *diagnostics.cautions(measure)),
    )


def _begin(name: str, measure: PathMeasure, words: Any, chains: int, init: Any) -> tuple[ChainState, int]:
    number = init.step_number if isinstance(init, Run) else 0
    given = init.state if isinstance(init, Run) else init
    given = given.path if isinstance(given, ChainState) else given
    shape = (measure.length, measure.dim)
    if given is None:
        return first_state(measure, walk_paths(measure, words, chains), False), number
    path = jnp.asarray(check.numeric(f"{name}.init", given, f"a path of shape {shape} or one a chain, a ChainState or a Run"))
    if path.shape not in (shape, (chains, *shape)):
        raise ValueError(f"{name}.init must have shape {shape}, or {(chains, *shape)} with one path a chain; got {path.shape}.")
    if not np.all(np.isfinite(path)):
        raise ValueError(f"{name}.init must be finite; got a path with NaN or infinite entries.")
    path = jnp.broadcast_to(path, (chains, *shape)).astype(jnp.zeros(0).dtype)
    return first_state(measure, path, False), number


def _anchor(name: str, given: Any, dim: int) -> Array:
    theta = check.finite_array(f"{name}.anchor", given, (1,), f"({dim},)")
    if theta.shape != (dim,):
        raise ValueError(f"{name}.anchor must have shape ({dim},); got {theta.shape}.")
    return jnp.asarray(theta, float)


@jax.jit
def _losses(measure: PathMeasure, paths: Float[Array, "c tau d"]) -> Float[Array, "c tau"]:
    return jax.vmap(measure.losses)(paths).astype(paths.dtype)


class _Runner:
    """Drives the compiled loop: some draws a call, to report and to store."""

    def __init__(
        self, measure: PathMeasure, s: float, settings: _Settings, batch: int | None, anchor: batches.Anchor | None,
        modes: Modes, words: Any, chains: int, keeper: Callable[[ChainState], Any],
    ) -> None:  # fmt: skip
        self.s, self.settings, self.words, self.chains, self.keeper = s, settings, words, chains, keeper
        dynamics = dynamics_of(modes, s, float(settings.step), float(settings.memory), settings.curvature)
        self.fixed = (measure, jnp.asarray(s, modes.values.dtype), anchor, modes, dynamics)
        self.static = {"batch": batch, "keep": keeper}
        state = jax.eval_shape(lambda: ChainState(jnp.zeros((measure.length, measure.dim)), jnp.zeros(measure.length)))
        self.shapes = jax.eval_shape(keeper, state)
        size = chains * sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(self.shapes))
        self.room = int(max(1, min(256, ROOM_BYTES // max(1, size))))
        self.bar: Progress | None = None
        self.first_draw: float | None = None

    def begin(self, state: ChainState, number: int) -> _Carry:
        return _start(self.fixed, self.words, jnp.uint32(number % 2**32), state.path, self.static["batch"])  # type: ignore[no-any-return]

    def advance(self, carry: _Carry, first: int, steps: int) -> _Carry:
        """Steps without draws."""
        done = 0
        while done < steps:
            now = min(STEPS_A_CALL, steps - done)
            carry, _, losses = self._call(carry, first + done, 1, now)
            done += now
            self._report(now, losses, first + done)
        return carry

    def draw(self, carry: _Carry, first: int, draws: int, thin: int) -> tuple[_Carry, Any]:
        """`draws` draws, one each `thin` steps, chains first."""
        kept = jax.tree.map(lambda x: np.empty((self.chains, draws, *x.shape), x.dtype), self.shapes)
        done = 0
        while done < draws:
            now = min(self.room, draws - done, max(1, STEPS_A_CALL // thin))
            carry, found, losses = self._call(carry, first + done * thin, now, thin)
            if self.first_draw is None:
                self.first_draw = time.perf_counter()
            for into, new in zip(jax.tree.leaves(kept), jax.tree.leaves(found), strict=True):
                into[:, done : done + now] = np.moveaxis(np.asarray(new)[:now], 0, 1)
            done += now
            self._report(now * thin, losses, first + done * thin)
        return carry, kept

    def _call(self, carry: _Carry, first: int, draws: int, thin: int) -> tuple[_Carry, Any, Any]:
        counts = (jnp.uint32(first % 2**32), jnp.int32(draws), jnp.int32(thin))
        found: tuple[_Carry, Any, Any] = _advance(self.fixed, self.words, *counts, carry, room=self.room, **self.static)
        return found

    def _report(self, steps: int, losses: Any, number: int) -> None:
        self.check_finite(losses, number)
        if self.bar is not None:
            self.bar.advance(steps, s=self.s, loss=float(np.mean(losses)), acceptance=1.0)

    def check_finite(self, losses: Any, number: int) -> None:
        if not np.all(np.isfinite(np.asarray(losses))):
            name, step = self.settings.name, self.settings.step
            raise ValueError(
                f"{name}.step must be small enough for the curvature of the loss; with {step:g} the losses were not finite any "
                f"more by step {number}. Take a smaller step, a larger curvature, or begin at a better init."
            )


Fixed = tuple[PathMeasure, Array, batches.Anchor | None, Modes, Dynamics]


def _force(fixed: Fixed, place: Float[Array, "c k d"], key: Any, batch: int | None) -> Float[Array, "c k d"]:
    """The gradient of `s * Lsum` by the modes, and of what the start has beyond the walk of all parameters."""
    measure, s, anchor, modes, _ = fixed
    path = modes.path(place)
    c, length, dim = path.shape
    _, grads = batches.value_and_grad(measure, path.reshape(c * length, dim), key, batch, anchor)
    scaled = s * modes.sigma * grads.reshape(path.shape).astype(path.dtype)
    scaled = scaled.at[:, 0].add(modes.excess * (path[:, 0] - modes.centre) / modes.sigma)
    return modes.onto(scaled)


@functools.partial(jax.jit, static_argnames=("batch",))
def _start(
    fixed: Fixed, words: UInt32[Array, " 2"], number: UInt32[Array, ""], path: Float[Array, "c tau d"], batch: int | None
) -> _Carry:
    place = fixed[3].of(path)
    momentum, key = _drawn(words, number, _BEGIN, place)
    return _Carry(place, momentum, _force(fixed, place, key, batch))


def _drawn(words: UInt32[Array, " 2"], number: UInt32[Array, ""], part: int, place: Array) -> tuple[Array, Any]:
    """Standard normal numbers for all modes, each chain its own, and a key that all chains share."""
    c, k, d = place.shape
    chains = jnp.arange(c, dtype=jnp.uint32)
    drawn = noise.steps_noise(words, number[None], part, (1, k, d), chains, last=False, dtype=place.dtype)
    return drawn.normal[0, :, 0], jax.random.wrap_key_data(drawn.key[0], impl="threefry2x32")


@functools.partial(jax.jit, static_argnames=("room", "batch", "keep"))
def _advance(
    fixed: Fixed, words: UInt32[Array, " 2"], first: UInt32[Array, ""], draws: Int[Array, ""], thin: Int[Array, ""],
    carry: _Carry, *, room: int, batch: int | None, keep: Callable[[ChainState], Any],
) -> tuple[_Carry, Any, Float[Array, "c tau"]]:  # fmt: skip
    """`draws` draws of `thin` steps each, at most `room`; what was kept, and the losses of the last draw."""
    measure, _, _, modes, dynamics = fixed
    fresh_part = jnp.sqrt(1 - dynamics.memory**2)

    def rotate(place: Array, momentum: Array) -> tuple[Array, Array]:
        return (
            dynamics.cosine * place + dynamics.forward * momentum,
            dynamics.cosine * momentum - dynamics.back * place,
        )

    def one(i: Array, carry: _Carry) -> _Carry:
        fresh, key = _drawn(words, i, _STEP, carry.place)
        momentum = carry.momentum - dynamics.kick * carry.force
        place, momentum = rotate(carry.place, momentum)
        momentum = dynamics.memory * momentum + fresh_part * fresh
        place, momentum = rotate(place, momentum)
        force = _force(fixed, place, key, batch)
        return _Carry(place, momentum - dynamics.kick * force, force)

    def state(carry: _Carry) -> ChainState:
        path = modes.path(carry.place)
        return ChainState(path, _losses(measure, path))

    def draw(j: Array, carried: tuple[_Carry, Any, Array]) -> tuple[_Carry, Any, Array]:
        carry, buffer, _ = carried
        begin = first + j.astype(jnp.uint32) * thin.astype(jnp.uint32)
        carry = jax.lax.fori_loop(begin, begin + thin.astype(jnp.uint32), one, carry)
        now = state(carry)
        found = jax.vmap(keep)(now)
        return carry, jax.tree.map(lambda b, x: b.at[j].set(x), buffer, found), now.losses

    shapes = jax.eval_shape(lambda: jax.vmap(keep)(state(carry)))
    buffer = jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), shapes)
    done: tuple[_Carry, Any, Array] = jax.lax.fori_loop(0, draws, draw, (carry, buffer, jnp.zeros_like(carry.place[..., 0])))
    return done
