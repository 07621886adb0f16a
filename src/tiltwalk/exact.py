"""The linear perceptron in closed form: an oracle for every sampler, in float64 NumPy, sharing no code with them.

Data are features `X` (N, d), to which a column of ones is appended, and targets `Y` (N, k). The loss of a model `W` is

    L(W) = 1/(2N) Σ_n |W x_n - y_n|² = ½ tr(W A W^T) - tr(W B) + ½ tr C,   A = X^T X/N,  B = X^T Y/N,  C = Y^T Y/N.

A model is the flat vector `theta = W^T.ravel()`: `theta.reshape(d + 1, k)` has the weights of feature `i` in row `i`,
and the bias in the last row. The law of a path is Gaussian,

    P(path) ∝ p(theta_1) · Π_t exp(-|theta_{t+1} - theta_t|² / (2 sigma²)) · exp(-s Σ_t L(theta_t)),

and its precision matrix has blocks `2/sigma² + sA` inside, `1/sigma² + sA` at both ends and `-1/sigma²` beside the
diagonal (for `length = 1`: `sA`). For a flat `p` it is diagonal in the eigenvectors of `A` times cosines in time: so

    E[Σ_t L(theta_t)]/tau = minimum + (k/2 tau) Σ_j Σ_a a/(lambda_j + s a),   lambda_j = 2(1 - cos(pi j/tau))/sigma²,

with `minimum = ½ tr C - ½ tr(B^T A^-1 B)`, `a` the eigenvalues of `A`, and `j = 0 .. tau-1`.

Other starts, a sigma for each parameter and the Ornstein-Uhlenbeck walk break the cosines but not this: the tilted walk
is again a Markov chain. Summing out the future of `theta_t` leaves `exp(-½ g_t x² + h_t x)`, where `x` is the distance
from the best model, in units of sigma, along an eigenvector of `Sigma A Sigma`. One scalar recursion per eigenvector
gives `g_t` and `h_t` backwards in time; means, variances, draws and the normalisation follow forwards. All is O(tau d),
beside one factorisation of the data.

What differs from section IV of Mair, Rose and Garrahan (2022): the blocks of the precision, the signs of the partition
sum and its power `k/2`, and the asymptotic loss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

# Entries of one working array; more values of s than fit are done in turns.
_WORKSPACE = 2**22


class Regimes(NamedTuple):
    """The leading terms of the expected loss, each good in its own regime (eigenvalues of A of order one)."""

    stiff: Any  # minimum + k (d+1) / (2 s tau)                   where s sigma² tau² << 1: the path is one model
    middle: Any  # minimum + k sigma Σ_a sqrt(a) / (4 sqrt(s))    where 1/tau² << s sigma² << 1
    loose: Any  # minimum + k (d+1) / (2 s)                       where s sigma² >> 1: independent models


@dataclass(frozen=True, eq=False)
class LinearPerceptron:
    """The exact law of paths of linear perceptrons with the loss `1/(2N) Σ |W x - y|²`; see the module for conventions.

    Everywhere: `s >= 0` is the tilt, `sigma` one number or one per parameter, `length` the number of models. The start
    is flat by default: then `s` must be positive and the features, with the column of ones, of full rank. `start_scale`
    (one number or one per parameter) makes it Normal(0, start_scale²). `pull`, a number in (0, 2), replaces the walk by
    `theta_{t+1} = centre + (1 - pull)(theta_t - centre) + sigma·noise`, started in its stationary law with variance
    `sigma²/(1 - (1 - pull)²)`; `centre` is one number or one per parameter.
    """

    X: Float[np.ndarray, "N d"]
    Y: Float[np.ndarray, "N k"]

    def __post_init__(self) -> None:
        X = _finite("X", self.X, "an array of numbers of shape (N, d)")
        Y = _finite("Y", self.Y, "an array of numbers of shape (N,) or (N, k)")
        if X.ndim != 2 or X.size == 0:
            raise ValueError(f"LinearPerceptron.X must have shape (N, d) with no empty axis; got {X.shape}.")
        if Y.ndim not in (1, 2) or Y.size == 0 or len(Y) != len(X):
            raise ValueError(f"LinearPerceptron.Y must have shape ({len(X)},) or ({len(X)}, k), as X; got {Y.shape}.")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "Y", Y.reshape(len(Y), -1))

    @property
    def dim(self) -> int:
        """Parameters of one model, `(d + 1) k`."""
        return int((self.X.shape[1] + 1) * self.Y.shape[1])

    @cached_property
    def _inputs(self) -> Float[np.ndarray, "N p"]:
        return np.column_stack([self.X, np.ones(len(self.X))])

    @cached_property
    def A(self) -> Float[np.ndarray, "p p"]:
        """Second moments of the features and the bias, `p = d + 1`."""
        return np.asarray(self._inputs.T @ self._inputs / len(self.X))

    @cached_property
    def B(self) -> Float[np.ndarray, "p k"]:
        """Moments of features with targets."""
        return np.asarray(self._inputs.T @ self.Y / len(self.X))

    @cached_property
    def C(self) -> Float[np.ndarray, "k k"]:
        """Second moments of the targets."""
        return np.asarray(self.Y.T @ self.Y / len(self.X))

    @cached_property
    def _least_squares(self) -> tuple[Float[np.ndarray, "p k"], int]:
        solution, _, rank, _ = np.linalg.lstsq(self._inputs, self.Y, rcond=None)
        return solution, int(rank)

    @property
    def best(self) -> Float[np.ndarray, " dim"]:
        """The model of least loss; the shortest one where several share it."""
        return self._least_squares[0].ravel()

    @cached_property
    def minimum(self) -> float:
        """The least loss, `½ tr C - ½ tr(B^T A^-1 B)`."""
        return float(np.sum((self._inputs @ self._least_squares[0] - self.Y) ** 2) / (2 * len(self.X)))

    def expected_loss(
        self, s: Any, sigma: Any, length: int, start_scale: Any = None, *, pull: Any = None, centre: Any = 0.0
    ) -> Any:
        """`E[Lsum]/tau`: a number, or an array of the shape of `s`."""
        losses = self.expected_loss_by_site(s, sigma, length, start_scale, pull=pull, centre=centre)
        return _like(np.asarray(s), losses.mean(axis=-1))

    def expected_loss_by_site(
        self, s: Any, sigma: Any, length: int, start_scale: Any = None, *, pull: Any = None, centre: Any = 0.0
    ) -> Float[np.ndarray, "*s tau"]:
        """`E[L(theta_t)]` at each time; the times are the last axis, after those of `s`."""
        tilts, law = self._law(s, sigma, length, start_scale, pull, centre)
        rows = [self.minimum + _expected_excess(law, part, length) for part in _parts(tilts, law, length)]
        return np.concatenate(rows).reshape(*tilts.shape, length)

    def log_partition(
        self, s: Any, sigma: Any, length: int, start_scale: Any = None, *, pull: Any = None, centre: Any = 0.0
    ) -> Any:
        """`log ∫ dTheta p(theta_1) exp(-S)`, of the shape of `s`, with `S = Σ_t |increment_t|²/(2 sigma²) + s Lsum`.

        As in the paper, the Gaussians of the walk have no prefactor: each of the `(length - 1) dim` increments brings
        `½ log(2 pi sigma²)` at `s = 0`. The start `p` is 1 where flat, else a normalised density. The increments are
        `theta_{t+1} - theta_t`, or with `pull`: `theta_{t+1} - centre - (1 - pull)(theta_t - centre)`. In every case
        `-d/ds` of this is `length · expected_loss`.
        """
        tilts, law = self._law(s, sigma, length, start_scale, pull, centre)
        flat = tilts.ravel()
        values = np.concatenate([_log_integral(law, part, length) for part in _parts(tilts, law, length)])
        return _like(tilts, values - flat * length * self.minimum)

    def mean(
        self, s: Any, sigma: Any, length: int, start_scale: Any = None, *, pull: Any = None, centre: Any = 0.0
    ) -> Float[np.ndarray, "tau dim"]:
        """The mean path. For a flat start that is the best model, at all times."""
        tilts, law = self._law(_one(s), sigma, length, start_scale, pull, centre)
        means, _ = _moments(law, tilts.reshape(1), length)
        return self._to_paths(law, np.broadcast_to(means[:, 0], (length, *law.start_mean.shape)))

    def precision(
        self, s: Any, sigma: Any, length: int, start_scale: Any = None, *, pull: Any = None, centre: Any = 0.0
    ) -> Float[np.ndarray, "tau_dim tau_dim"]:
        """The precision matrix of a path, dense: `(length·dim)²` numbers. Index `t·dim + i`: time, then `theta`."""
        tilts, law = self._law(_one(s), sigma, length, start_scale, pull, centre)
        walk = np.zeros((length, length))
        steps = np.arange(length - 1)
        walk[steps, steps] += law.keep**2
        walk[steps + 1, steps + 1] += 1.0
        walk[steps, steps + 1] = walk[steps + 1, steps] = -law.keep
        first = np.zeros((length, length))
        first[0, 0] = 1.0
        variance = law.sigma.ravel() ** 2
        one_model = float(tilts) * np.kron(self.A, np.eye(self.Y.shape[1]))
        precision = np.kron(walk, np.diag(1 / variance)) + np.kron(np.eye(length), one_model)
        return np.asarray(precision + np.kron(first, np.diag(law.start_ratio.ravel() / variance)))

    def draw(
        self,
        key: Any,
        n: int,
        s: Any,
        sigma: Any,
        length: int,
        start_scale: Any = None,
        *,
        pull: Any = None,
        centre: Any = 0.0,
    ) -> Float[np.ndarray, "n tau dim"]:
        """`n` independent paths. `key`: a whole number or a JAX key (same key, same paths), or a NumPy Generator."""
        tilts, law = self._law(_one(s), sigma, length, start_scale, pull, centre)
        n = _whole("n", n, 1)
        push, gain, deviation, factor, first = _transitions(law, tilts.reshape(1), length)
        x = _generator(key).standard_normal((length, n, *law.start_mean.shape))
        x[0] = first + _solve_each(np.swapaxes(factor, -1, -2), x[0])
        x[1:] *= deviation
        x[1:] += push
        for t in range(1, length):
            x[t] += gain[t - 1] * x[t - 1]
        return np.moveaxis(self._to_paths(law, x), 0, 1)

    def whiten(
        self,
        paths: Any,
        s: Any,
        sigma: Any,
        length: int,
        start_scale: Any = None,
        *,
        pull: Any = None,
        centre: Any = 0.0,
    ) -> Float[np.ndarray, "n tau dim"]:
        """What drove the paths: independent N(0, 1) numbers if, and only if, the paths are exact draws.

        Each model is compared with its exact conditional law given the model before it, along the eigenvectors.
        """
        tilts, law = self._law(_one(s), sigma, length, start_scale, pull, centre)
        array = _finite("paths", paths, f"an array of numbers of shape (n, {length}, {self.dim})")
        if array.ndim != 3 or array.shape[1:] != (length, self.dim):
            raise ValueError(f"LinearPerceptron.paths must have shape (n, {length}, {self.dim}); got {array.shape}.")
        push, gain, deviation, factor, first = _transitions(law, tilts.reshape(1), length)
        x = self._from_paths(law, np.moveaxis(array, 0, 1))
        white = np.empty_like(x)
        white[0] = _apply_each(np.swapaxes(factor, -1, -2), x[0] - first)
        white[1:] = (x[1:] - gain * x[:-1] - push) / deviation
        return np.moveaxis(np.swapaxes(white, -1, -2).reshape(length, len(array), self.dim), 0, 1)

    def asymptotic_loss(self, s: Any, sigma: float, length: int) -> Regimes:
        """The three regimes of `expected_loss` for a flat start and one `sigma`: what it tends to, where each holds."""
        tilts, law = self._law(s, sigma, length, None, None, 0.0)
        if np.ndim(sigma):
            raise ValueError(f"LinearPerceptron.sigma must be one number for asymptotic_loss; got {_shown(sigma)}.")
        k, width = law.start_mean.shape
        roots = np.sum(np.sqrt(law.curvature[0])) / np.sqrt(tilts)  # the curvature holds sigma² already
        stiff, middle, loose = k * width / (2 * tilts * length), k * roots / 4, k * width / (2 * tilts)
        return Regimes(*(_like(tilts, self.minimum + term) for term in (stiff, middle, loose)))

    def _law(
        self, s: Any, sigma: Any, length: int, start_scale: Any, pull: Any, centre: Any
    ) -> tuple[Float[np.ndarray, "*s"], "_Law"]:
        """Everything checked, and the walk in units of sigma and in the eigenbasis of the loss."""
        tilts = _finite("s", s, "a number or an array of numbers >= 0")
        if tilts.size == 0 or np.any(tilts < 0):
            raise ValueError(f"LinearPerceptron.s must be >= 0 and not empty; got {_shown(s)}.")
        _whole("length", length, 1)
        best, rank = self._least_squares
        width, k = best.shape
        scale = self._per_parameter("sigma", sigma, positive=True)
        middle = self._per_parameter("centre", centre, positive=False)
        if pull is None and np.any(middle != 0):
            raise ValueError(f"LinearPerceptron.centre must be 0 where no pull is given; got {_shown(centre)}.")
        if pull is not None and start_scale is not None:
            raise ValueError(
                "LinearPerceptron.start_scale must be None where pull is given: that walk is stationary; "
                f"got {_shown(start_scale)}."
            )
        keep, ratio = 1.0, np.zeros_like(scale)
        if pull is not None:
            rate = _finite("pull", pull, "a number in (0, 2)")
            if rate.ndim or not 0 < rate < 2:
                raise ValueError(f"LinearPerceptron.pull must be a number in (0, 2); got {_shown(pull)}.")
            keep, ratio = 1 - float(rate), np.full_like(scale, float(rate * (2 - rate)))
        elif start_scale is not None:
            ratio = (scale / self._per_parameter("start_scale", start_scale, positive=True)) ** 2
        else:
            if np.any(tilts == 0):
                raise ValueError(
                    "LinearPerceptron.s must be positive for a flat start, whose law cannot be normalised at s = 0; "
                    f"got {_shown(s)}. Give start_scale."
                )
            if rank < width:
                raise ValueError(
                    f"LinearPerceptron.X must have rank {width}, with the column of ones, for a flat start; got rank "
                    f"{rank} from {len(self.X)} samples. Some directions are free, so it has no normalisation: "
                    "give start_scale, or drop the columns that are copies or mixtures of others (or of the ones)."
                )
        alike = np.all(scale == scale[:, :1]) and np.all(ratio == ratio[:, :1])
        outputs = range(1 if alike else k)
        triangle = np.linalg.qr(self._inputs, mode="r") / np.sqrt(len(self.X))
        curvature, basis = np.zeros((len(outputs), width)), np.empty((len(outputs), width, width))
        for j in outputs:
            _, singular, rows = np.linalg.svd(triangle * scale[:, j], full_matrices=True)
            curvature[j, :rank] = singular[:rank] ** 2
            basis[j] = rows.T
        start = np.stack([(v.T * ratio[:, j]) @ v for j, v in enumerate(basis)])
        centred = _apply_each(np.swapaxes(basis, -1, -2), ((middle - best) / scale).T)
        return tilts, _Law(scale, basis, curvature, keep, (1 - keep) * centred, ratio, start, centred)

    def _per_parameter(self, name: str, value: Any, *, positive: bool) -> Float[np.ndarray, "p k"]:
        allowed = f"a {'positive ' if positive else ''}number or one per parameter, shape ({self.dim},)"
        array = _finite(name, value, allowed)
        if array.shape not in ((), (self.dim,)) or (positive and np.any(array <= 0)):
            raise ValueError(f"LinearPerceptron.{name} must be {allowed}; got {_shown(value)}.")
        return np.broadcast_to(array, (self.dim,)).reshape(-1, self.Y.shape[1])

    def _to_paths(self, law: "_Law", x: Float[np.ndarray, "*batch k p"]) -> Float[np.ndarray, "*batch dim"]:
        distance = np.swapaxes(_apply_each(law.basis, x), -1, -2) * law.sigma
        return np.asarray(distance + self._least_squares[0]).reshape(*x.shape[:-2], self.dim)

    def _from_paths(self, law: "_Law", paths: Float[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch k p"]:
        distance = (paths.reshape(*paths.shape[:-1], *law.sigma.shape) - self._least_squares[0]) / law.sigma
        return _apply_each(np.swapaxes(law.basis, -1, -2), np.swapaxes(distance, -1, -2))


class _Law(NamedTuple):
    """The walk `x' = keep·x + drift + N(0, 1)`, the loss `½ curvature x²`: one eigenbasis for all outputs or for each.

    `start` is the precision of the first model (zero where flat), `start_ratio` the same before the change of basis.
    """

    sigma: Float[np.ndarray, "p k"]
    basis: Float[np.ndarray, "g p p"]
    curvature: Float[np.ndarray, "g p"]
    keep: float
    drift: Float[np.ndarray, "k p"]
    start_ratio: Float[np.ndarray, "p k"]
    start: Float[np.ndarray, "g p p"]
    start_mean: Float[np.ndarray, "k p"]


def _futures(law: _Law, tilts: Float[np.ndarray, " s"], length: int) -> tuple[np.ndarray, np.ndarray]:
    """`g_t` (tau, s, g, p) and `h_t` (tau, s, k, p): tilt and future say `exp(-½ g x² + h x)` of the model at `t`.

    Written without differences of large numbers, so that it holds for any sigma: `1 + g` is the precision of a step.
    """
    alpha = tilts[:, None, None] * law.curvature
    g = np.empty((length, *alpha.shape))
    g[-1] = alpha
    for t in range(length - 2, -1, -1):
        g[t] = alpha + law.keep**2 * (g[t + 1] / (1 + g[t + 1]))
    if not np.any(law.drift):
        return g, np.zeros((length, 1, 1, 1))
    h = np.zeros((length, len(tilts), *law.drift.shape))
    for t in range(length - 2, -1, -1):
        h[t] = law.keep * (h[t + 1] - g[t + 1] * law.drift) / (1 + g[t + 1])
    return g, h


def _start_precision(law: _Law, g: np.ndarray) -> Float[np.ndarray, "s g p p"]:
    return law.start + g[..., None] * np.eye(g.shape[-1])


def _start_force(law: _Law, h: np.ndarray) -> Float[np.ndarray, "s k p"]:
    return np.asarray(h + _apply_each(law.start, law.start_mean))


def _moments(law: _Law, tilts: Float[np.ndarray, " s"], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Means (tau, s, k, p) and variances (tau, s, g, p) of the models, along the eigenvectors."""
    g, h = _futures(law, tilts, length)
    covariance = np.linalg.inv(_start_precision(law, g[0]))
    variances = np.empty_like(g)
    variances[0] = np.diagonal(covariance, axis1=-2, axis2=-1)
    gain = law.keep / (1 + g[1:])
    spread = 1 / (1 + g[1:])
    for t in range(1, length):
        variances[t] = spread[t - 1] + gain[t - 1] ** 2 * variances[t - 1]
    force = _start_force(law, h[0])
    if not np.any(force):
        return np.zeros((length, 1, 1, 1)), variances
    means = np.empty((length, len(tilts), *law.drift.shape))
    for i, one in enumerate(covariance):
        means[0, i] = _apply_each(one, force[min(i, len(force) - 1)])
    push = (law.drift + h[1:]) * spread
    for t in range(1, length):
        means[t] = gain[t - 1] * means[t - 1] + push[t - 1]
    return means, variances


def _expected_excess(law: _Law, tilts: Float[np.ndarray, " s"], length: int) -> Float[np.ndarray, "s tau"]:
    """Expected loss above the minimum."""
    means, variances = _moments(law, tilts, length)
    copies = len(law.start_mean) // len(law.curvature)
    spread = copies * np.einsum("tsgp,gp->st", variances, law.curvature)
    offset = np.sum(means**2 * law.curvature, axis=(-2, -1)).T
    return np.asarray(0.5 * (spread + offset))


def _log_integral(law: _Law, tilts: Float[np.ndarray, " s"], length: int) -> Float[np.ndarray, " s"]:
    """`log_partition` above the minimum of the loss."""
    g, h = _futures(law, tilts, length)
    k = len(law.start_mean)
    copies = k // len(law.curvature)
    unit = np.sum(np.log(law.sigma)) + 0.5 * law.sigma.size * np.log(2 * np.pi)
    steps = -0.5 * copies * np.sum(np.log1p(g[1:]), axis=(0, 2, 3))
    carried = (0.5 * h[1:] ** 2 + h[1:] * law.drift - 0.5 * g[1:] * law.drift**2) / (1 + g[1:])
    steps = steps + np.sum(np.broadcast_to(carried, (length - 1, len(tilts), *law.drift.shape)), axis=(0, 2, 3))
    total = (length - 1) * unit + steps
    precision = _start_precision(law, g[0])
    total -= 0.5 * copies * np.sum(np.linalg.slogdet(precision)[1], axis=-1)
    if not np.any(law.start):
        return np.asarray(total + unit)
    total += 0.5 * copies * np.sum(np.linalg.slogdet(law.start)[1])
    pushed = _apply_each(law.start, law.start_mean)
    for i, one in enumerate(np.linalg.inv(precision)):
        force = np.broadcast_to(h[0], (len(tilts), *law.drift.shape))[i]
        answer = _apply_each(one, pushed)
        # -½ m R P^-1 G m + h P^-1 R m + ½ h P^-1 h, with P = R + G: nothing large cancels
        total[i] += np.sum(answer * (force - 0.5 * g[0, i] * law.start_mean) + 0.5 * force * _apply_each(one, force))
    return np.asarray(total)


def _transitions(law: _Law, tilts: Float[np.ndarray, " 1"], length: int) -> tuple[np.ndarray, ...]:
    """The tilted walk as a chain, `x' = gain·x + push + deviation·noise`; first precision's factor; first mean."""
    g, h = (array[:, 0] for array in _futures(law, tilts, length))
    spread = 1 / (1 + g[1:, None])
    push = (law.drift + h[1:, None]) * spread
    precision = _start_precision(law, g[0])
    first = _solve_each(precision, _start_force(law, h[0]))
    return push, law.keep * spread, np.sqrt(spread), np.linalg.cholesky(precision), first


def _apply_each(matrices: Float[np.ndarray, "g p p"], x: Float[np.ndarray, "*batch k p"]) -> np.ndarray:
    """`M_j x_j` for each output `j`; one matrix serves all outputs where there is only one."""
    if len(matrices) == 1:
        return np.asarray(x @ matrices[0].T)
    return np.stack([x[..., j, :] @ m.T for j, m in enumerate(matrices)], axis=-2)


def _solve_each(matrices: Float[np.ndarray, "g p p"], x: Float[np.ndarray, "*batch k p"]) -> np.ndarray:
    """`M_j^-1 x_j` for each output `j`."""
    outputs = range(x.shape[-2])
    columns = [np.linalg.solve(matrices[j % len(matrices)], x[..., j, :].reshape(-1, x.shape[-1]).T) for j in outputs]
    return np.stack([c.T.reshape(*x.shape[:-2], x.shape[-1]) for c in columns], axis=-2)


def _parts(tilts: np.ndarray, law: _Law, length: int) -> Iterator[np.ndarray]:
    """The values of `s`, as many at a time as the workspace holds."""
    k, width = law.start_mean.shape
    size = max(1, _WORKSPACE // (k * width * (length + width)))
    flat = tilts.ravel()
    return (flat[i : i + size] for i in range(0, len(flat), size))


def _like(s: np.ndarray, values: np.ndarray) -> Any:
    return float(values.reshape(())) if s.ndim == 0 else values.reshape(s.shape)


def _shown(value: Any) -> str:
    shape = np.shape(value)
    if not shape:
        return repr(value)
    return f"an array of shape {shape}" + (f" from {np.min(value)} to {np.max(value)}" if np.size(value) else "")


def _finite(name: str, value: Any, allowed: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"LinearPerceptron.{name} must be {allowed}; got {value!r:.80}.")
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        bad = int(np.sum(~np.isfinite(array)))
        raise ValueError(f"LinearPerceptron.{name} must be {allowed}, finite; got {bad} that are NaN or infinite.")
    return array


def _one(s: Any) -> Any:
    if np.ndim(s):
        raise ValueError(f"LinearPerceptron.s must be one number here; got {_shown(s)}.")
    return s


def _whole(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"LinearPerceptron.{name} must be a whole number of at least {low}; got {value!r}.")
    if value < low:
        raise ValueError(f"LinearPerceptron.{name} must be a whole number of at least {low}; got {value}.")
    return int(value)


def _generator(key: Any) -> np.random.Generator:
    """Randomness from a whole number, a NumPy Generator or a JAX key, whose words become the seed."""
    if isinstance(key, np.random.Generator):
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return np.random.default_rng(_whole("key", key, 0))
    if hasattr(key, "dtype"):
        import jax

        words = jax.random.key_data(key) if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        if words.dtype == np.uint32 and words.ndim == 1:
            return np.random.default_rng([int(word) for word in np.asarray(words)])
    raise TypeError(f"LinearPerceptron.key must be a whole number, a NumPy Generator or a JAX key; got {key!r:.80}.")
