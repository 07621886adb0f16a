"""Hamiltonian moves: the whole path at once, along its gradient, with the walk integrated exactly.

Cosine modes (DCT-II) in time make a free-ended walk diagonal. For a Gaussian chain with persistence `a` the precision of mode
`k` is `P_k = ((1 - a)^2 + a lambda_k)/sigma^2`, `lambda_k = 2 (1 - cos(pi k/tau))`; what a start and an end add to the first
and the last model beyond that (for the random walk, the start's own precision) is left to the potential. With mass
`M_k = P_k + s h`, `h` the curvature of the loss, every mode turns at about the same rate, and a quarter of a turn gives a
nearly independent path. One leap of angle `eps` is

    kick by eps/2 of the force, rotation of modes under P (or P + s h) by eps, kick by eps/2,

the splitting of Beskos, Pinski, Sanz-Serna and Stuart (2011). The rotation keeps its own energy exactly, so the error of
the energy comes from the kicks alone: it is summed from their work and never from the difference of two large energies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_curvature
from tiltwalk.pytree import pytree, static
from tiltwalk.shapes import Scale, like_models
from tiltwalk.types import ChainState, Noise, Proposal
from tiltwalk.walks import GaussianChain

_LOOSE = 1e-3
"""Share of the stiffness of the slowest mode that the mass has at least, where neither tilt nor start holds the path."""


@pytree
class Hamiltonian:
    """Moves the whole path by `leaps` leaps, each of `step` quarter turns, with fresh momenta.

    - `leaps * step = 1` is the quarter turn after which a path that follows the mass is independent of where it began.
    - `spread` in [0, 1]: each trajectory is shortened by a random share of up to this much (the same in all chains), so that no
      mode returns to its place time after time; 0 is a fixed length.
    - `curvature`: the second derivative of the loss in each parameter, one number or one each; with `s` it makes the mass.
    - `centre`: where the loss is least, one number or one per parameter. Given, the curvature is rotated exactly with the walk,
      which for a nearly quadratic loss allows leaps of a quarter turn. None kicks by the whole gradient: for losses that are
      no bowl, and while the path is still on its way down.
    - `basis` `(d, d)`, orthonormal: its columns are the directions whose second derivatives `curvature` holds, where inputs are
      correlated: `curvature, basis = np.linalg.eigh(A)`. It needs a walk that is alike in all parameters. A quadratic loss with
      its own curvature, basis and centre gives an independent path in one leap.

    None of them has to be right for the move to be exact. Tune `step` to an acceptance of 0.8.
    """

    leaps: int = static(default=5)
    step: Any = 0.2
    spread: Any = 0.2
    curvature: Scale = 1.0
    centre: Scale | None = None
    basis: Float[Array, "d d"] | np.ndarray | None = None

    trailing: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check.whole("Hamiltonian.leaps", self.leaps, low=1)
        check.number("Hamiltonian.step", self.step, low=0, high=1, low_open=True)
        check.number("Hamiltonian.spread", self.spread, low=0, high=1)
        check_curvature("Hamiltonian", self.curvature)
        if self.centre is not None and check.concrete(self.centre):
            check.finite_array("Hamiltonian.centre", self.centre, (0, 1), "() or (d,)")
        if self.basis is not None and check.concrete(self.basis):
            _check_basis(self.basis)

    @property
    def name(self) -> str:
        return "hamiltonian"

    def check(self, measure: PathMeasure) -> None:
        measure.check_gradient("Hamiltonian")
        if not isinstance(measure.walk, GaussianChain):
            raise TypeError(f"Hamiltonian needs a walk that is a Gaussian chain; got {check.shown(measure.walk)}.")
        check.entries("Hamiltonian.curvature", self.curvature, measure.dim)
        check.entries("Hamiltonian.centre", 0.0 if self.centre is None else self.centre, measure.dim)
        if self.basis is None:
            return
        if np.shape(self.basis) != (measure.dim, measure.dim):
            raise ValueError(f"Hamiltonian.basis must have shape {(measure.dim, measure.dim)}; got {np.shape(self.basis)}.")
        walk: Any = measure.walk
        if any(np.ptp(np.asarray(x)) > 0 for x in (walk.persistence(), walk.start_precision(), walk.sigma)):
            raise ValueError(
                "Hamiltonian.basis needs a walk whose sigma, start and pull are one number for all parameters; got one each."
            )

    def parts(self, length: int) -> tuple[Hamiltonian, ...]:
        return (self,)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return 1, length

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        assert state.grads is not None
        old, dtype = state.path, state.path.dtype
        split = _Split.of(self, measure, old, s)
        angle = jnp.asarray(self.step, dtype) * (math.pi / 2) * (1 - jnp.asarray(self.spread, dtype) * noise.choice[0])
        turn = split.rotation(angle)
        away = start = split.modes(old - split.centre)
        speed = noise.normal[0] * jax.lax.rsqrt(split.mass)
        speed, work = split.kick(speed, split.force(old, away, state.grads), angle / 2)

        def leap(away: Array, speed: Array) -> tuple[Array, Array, Array]:
            away, speed = turn(away, speed)
            return split.path(away) + split.centre, away, speed

        def between(_: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            away, speed, work = carry
            path, away, speed = leap(away, speed)
            _, grads = measure.value_and_grad(path)
            speed, more = split.kick(speed, split.force(path, away, grads.astype(dtype)), angle)
            return away, speed, work + more

        away, speed, work = jax.lax.fori_loop(0, self.leaps - 1, between, (away, speed, work))
        new, away, speed = leap(away, speed)
        losses, grads = (x.astype(dtype) for x in measure.value_and_grad(new))
        _, more = split.kick(speed, split.force(new, away, grads), angle / 2)
        correction = split.gained(old, new, start, away) - work - more
        sites = jnp.arange(measure.length, dtype=jnp.int32)
        return Proposal(
            sites[None], new[None], correction[None].astype(dtype), first=0, stride=1,
            losses=losses[None], grads=grads[None], evaluations=jnp.asarray(self.leaps * measure.length, dtype),
        )  # fmt: skip


@pytree
class _Split:
    """The energy of a path in two: a Gaussian that is diagonal in modes, which rotations keep, and the rest, which kicks."""

    walk: Any
    s: Any
    centre: Array
    mass: Array
    turned: Array | None
    held: Array | None
    pulled: Array
    first: Array
    last: Array
    mean: Array
    basis: Array | None

    @staticmethod
    def of(move: Hamiltonian, measure: PathMeasure, path: Float[Array, "tau d"], s: Any) -> _Split:
        walk, length, dtype = measure.walk, len(path), path.dtype
        a, q, mean, sigma, bend = (
            like_models(jnp.asarray(x, dtype), path)
            for x in (walk.persistence(), walk.start_precision(), walk.centre_of(), walk.sigma, move.curvature)  # type: ignore[attr-defined]
        )
        rate = stiffness(length).astype(dtype).reshape(length, *[1] * (path.ndim - 1))
        pull = (1 - a) ** 2
        modes = (pull + a * rate) / sigma**2
        # what the diagonal of the chain's precision has at its ends beyond a (free walk) + (1 - a)^2
        first = (q - 1 + a if length > 1 else q - pull) / sigma**2
        last = a * (1 - a) / sigma**2 if length > 1 else jnp.zeros_like(first)
        held = s * bend + (jnp.maximum(first, 0) + jnp.maximum(last, 0)) / length + _LOOSE / (sigma * length) ** 2
        mass = modes + held
        basis = None if move.basis is None else jnp.asarray(move.basis, dtype)
        if move.centre is None:
            return _Split(walk, s, mean, mass, modes, None, jnp.zeros((), dtype), first, last, mean, basis)
        centre = like_models(jnp.asarray(move.centre, dtype), path)
        return _Split(walk, s, centre, mass, None, held, pull / sigma**2 * (mean - centre), first, last, mean, basis)

    def rotation(self, angle: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Modes and their speeds, turned by `angle`: under the walk alone, or under all of the mass, when all turn alike."""
        rate = jnp.ones((), self.mass.dtype) if self.turned is None else jnp.sqrt(self.turned / self.mass)
        cosine, sine = jnp.cos(rate * angle), jnp.sin(rate * angle)
        over = angle * jnp.sinc(rate * angle / math.pi)

        def turn(away: Array, speed: Array) -> tuple[Array, Array]:
            return cosine * away + over * speed, cosine * speed - rate * sine * away

        return turn

    def modes(self, path: Float[Array, "tau d"]) -> Float[Array, "k d"]:
        """A path in cosine modes, and in the directions of the basis where there is one."""
        return to_modes(path) if self.basis is None else to_modes(_turned(self.basis.T, path))

    def path(self, modes: Float[Array, "k d"]) -> Float[Array, "tau d"]:
        """The path that has these modes."""
        return from_modes(modes) if self.basis is None else _turned(self.basis, from_modes(modes))

    def force(self, path: Array, away: Array, grads: Array) -> Float[Array, "k d"]:
        """Minus the gradient, in modes, of what kicks; `away` are the modes of `path` from the centre."""
        pushed: Array = self.modes(self.pulled - self.s * grads + self._at_ends(path))
        return pushed if self.held is None else pushed + self.held * away

    def _at_ends(self, path: Array) -> Array:
        first = -self.first * (path[0] - self.mean)
        last = -self.last * (path[-1] - self.mean)
        rest = getattr(getattr(self.walk, "start", None), "rest", None)
        if rest is not None and self.walk.start.has_rest:
            value, pull = jax.vjp(rest, path[0])
            first = first + pull(jnp.ones_like(value))[0]
        if len(path) == 1:
            return (first + last)[None]
        return jnp.concatenate([first[None], jnp.zeros_like(path[1:-1]), last[None]])

    def kick(self, speed: Array, force: Array, time: Array) -> tuple[Array, Array]:
        """The speeds after `time` under `force`, and the kinetic energy that they gained."""
        push = force * time
        kicked = speed + push / self.mass
        return kicked, jnp.sum(push * (speed + kicked), (0, 1)) / 2

    def gained(self, old: Array, new: Array, away_old: Array, away_new: Array) -> Array:
        """What the part of the energy that kicks, without the loss, is lower by at `new`; the last two are their modes."""
        moved, middle = new - old, (new + old) / 2
        total: Array = jnp.sum(self.pulled * moved, (0, 1))
        if self.held is not None:
            total = total + jnp.sum(self.held * (away_new - away_old) * (away_new + away_old), (0, 1)) / 2
        for end, weight in ((0, self.first), (-1, self.last)):
            total = total - jnp.sum(weight * moved[end] * (middle[end] - self.mean), 0)
        of_start: Array | None = self.walk.log_correction(old[0], new[0])
        return total if of_start is None else total + of_start


def stiffness(length: int) -> Float[Array, " tau"]:
    """The precision of each cosine mode of a free-ended random walk, in units of `1/sigma^2`."""
    return jnp.asarray(2 * (1 - np.cos(np.pi * np.arange(length) / length)))


@functools.cache
def _cosines(length: int) -> np.ndarray:
    """The orthonormal DCT-II, `(mode, time)`."""
    k, t = np.arange(length)[:, None], np.arange(length)[None]
    waves = np.sqrt(2 / length) * np.cos(np.pi * k * (t + 0.5) / length)
    waves[0] = np.sqrt(1 / length)
    return np.asarray(waves)


def to_modes(path: Float[Array, "tau d"]) -> Float[Array, "k d"]:
    """Cosine modes in time; a matrix product, since paths are many and not long."""
    return _product(_cosines(len(path)), path)


def from_modes(modes: Float[Array, "k d"]) -> Float[Array, "tau d"]:
    """The path that has these modes."""
    return _product(_cosines(len(modes)).T, modes)


def _turned(matrix: Float[Array, "d d"], path: Float[Array, "n d ..."]) -> Float[Array, "n d ..."]:
    """`matrix` times each model."""
    if path.ndim == 2:
        return jnp.matmul(path, matrix.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.einsum("ij,njc->nic", matrix, path, precision=jax.lax.Precision.HIGHEST)


def _check_basis(basis: Any) -> None:
    found = check.finite_array("Hamiltonian.basis", basis, (2,), "(d, d)")
    square = found.shape[0] == found.shape[1]
    if not square or np.max(np.abs(found.T @ found - np.eye(len(found)))) > 1e-3:
        raise ValueError("Hamiltonian.basis must be a square orthonormal matrix, such as eigh gives; got one that is not.")


def _product(matrix: np.ndarray, x: Array) -> Array:
    flat = jnp.matmul(jnp.asarray(matrix, x.dtype), x.reshape(len(x), -1), precision=jax.lax.Precision.HIGHEST)
    return flat.reshape(x.shape)
