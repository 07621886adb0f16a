"""Thermodynamics of paths: the log partition sum, mean loss, susceptibility and rate function from draws at several tilts.

    Z(s) = ∫ walk(path) exp(-s Lsum),    d log Z/ds = -E[Lsum],    d²log Z/ds² = Var[Lsum].

`log_partition` reweights all draws to all tilts at once (Shirts, Chodera 2008, the multistate Bennett acceptance ratio): with
`N_k` draws at tilt `s_k`, the values `z_k = log Z(s_k)` solve

    sum over all draws of exp(-s_k L) / sum_j N_j exp(-s_j L - z_j) = exp(z_k).

It is relative to the lowest tilt; where that is `s = 0` and the walk can be normalised, `Z(0) = 1`, so that it is absolute.

Errors are honest about autocorrelation: each estimate is linear in what single draws contribute, to first order; these
contributions are summed over the rungs of a ladder, which are not independent, and the variance of their mean over time and
chains is that of a series with the autocorrelation time that it has, about the mean of all chains (Geyer's sum over lags).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from tiltwalk import check, settling
from tiltwalk.exchange_run import ExchangeRun
from tiltwalk.run import Run
from tiltwalk.smc_run import SMCRun

_TOGETHER = 2**22
"""Entries of a working array of draws by tilts."""

FEWEST_SHARED = 1.0
"""Draws that the tilts up to one and those above it must share, in effect."""

_MOST_ITERATIONS = 100
_TOLERANCE = 1e-10


@dataclasses.dataclass(frozen=True)
class Curve:
    """A quantity at each tilt, with its standard error."""

    s: Float[np.ndarray, " rungs"]
    value: Float[np.ndarray, " rungs"]
    error: Float[np.ndarray, " rungs"]


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate function at the mean losses per model that the tilts reach, with standard errors of both."""

    s: Float[np.ndarray, " rungs"]
    loss: Float[np.ndarray, " rungs"]
    loss_error: Float[np.ndarray, " rungs"]
    value: Float[np.ndarray, " rungs"]
    error: Float[np.ndarray, " rungs"]


def log_partition(runs: Any, *, method: str = "reweighting") -> Curve:
    """`log Z(s)` relative to the lowest tilt, from a run with several rungs or a list of runs at several tilts.

    Where the draws at some tilts say nothing about those at others, errors are infinite, and a warning says between which.
    A run of `smc` has its own estimate, from the weights of its particles, which is given as it is.

    `method="integration"` integrates the mean loss over `s` instead, by cubic pieces whose slopes are the variances: it needs
    no overlap between neighbouring tilts, but tilts so close that these pieces are good; its error does not say whether they
    are. Where rungs differ in sigma, the draws must hold the paths, and the order is that of the rungs.
    """
    check.one_of("log_partition.method", method, ("reweighting", "integration"))
    if isinstance(runs, SMCRun):
        return Curve(runs.s, runs.log_partition, runs.error)
    draws = _Draws(runs)
    if method == "integration":
        if any(group.walks is not None for group in draws.groups):
            raise ValueError("log_partition.method must be reweighting where rungs differ in sigma; got integration.")
        value, pieces = _integrated(draws)
        return Curve(draws.s, value, _errors(pieces))
    value, pieces, known = _reweighted(draws)
    return Curve(draws.s, value, np.where(known, _errors(pieces), np.inf))


def mean_loss(runs: Any) -> Curve:
    """The mean loss per model at each tilt."""
    if isinstance(runs, SMCRun):
        return Curve(runs.curve.s, runs.curve.loss, runs.curve.error)
    draws = _Draws(runs)
    mean, _ = draws.moments()
    return Curve(draws.s, mean / draws.length, _errors(_of_means(draws)) / draws.length)


def susceptibility(runs: Any) -> Curve:
    """`d/ds` of the mean loss per model: `-tau` times the variance of the loss per model of a path, `-Var[Lsum] / tau`."""
    draws = _Draws(runs)
    _, variance = draws.moments()
    return Curve(draws.s, -variance / draws.length, _errors(_of_variances(draws)) / draws.length)


def rate_function(runs: Any) -> Rate:
    """How improbable a loss per model is without the tilt: `P(Lsum / tau = l) ~ exp(-tau * rate(l))` for long paths.

    The Legendre transform of the scaled cumulant generating function `psi(s) = log Z(s) / tau`, which is
    `rate(l) = max_s [-s l - psi(s)]`, at the losses `l = -psi'(s)` of the given tilts. Where the lowest tilt is not 0, it is
    relative to that one.
    """
    draws = _Draws(runs)
    tau, away = draws.length, draws.s - draws.s[0]
    mean, _ = draws.moments()
    log_z, of_log_z, known = _reweighted(draws)
    of_mean = _of_means(draws)
    of_rate = [-(away * m + z) for m, z in zip(of_mean, of_log_z, strict=True)]
    return Rate(
        draws.s,
        mean / tau,
        _errors(of_mean) / tau,
        -(away * mean + log_z) / tau,
        np.where(known, _errors(of_rate) / tau, np.inf),
    )


# ---- draws ----


@dataclasses.dataclass(frozen=True)
class _Group:
    """Ladders that ran together: total losses `(r, c, n)` at `r` of the tilts, and which these are."""

    which: Int[np.ndarray, " r"]
    totals: Float[np.ndarray, "r c n"]
    walks: Float[np.ndarray, "k r c n"] | None = None


class _Draws:
    """The total losses of all runs, sorted by tilt."""

    s: Float[np.ndarray, " k"]
    length: int
    groups: list[_Group]

    def __init__(self, runs: Any) -> None:
        given = list(runs) if isinstance(runs, Sequence) else [runs]
        parts = [part for run in given for part in _parts(run)]
        if not parts:
            raise ValueError("thermo.runs must be a run or a list of runs; got an empty list.")
        lengths = {length for _, _, length in parts}
        if len(lengths) > 1:
            raise ValueError(f"thermo.runs must be of paths of one length; got lengths {sorted(lengths)}.")
        self.length = lengths.pop()
        ladder = given[0] if len(given) == 1 and isinstance(given[0], ExchangeRun) else None
        several = [run for run in given if isinstance(run, ExchangeRun) and not _one_measure(run)]
        if several and ladder is None:
            raise ValueError("thermo.runs must be a single run where rungs differ in sigma; got a list.")
        if several and ladder is not None:
            self.s = ladder.s
            self.groups = [_Group(np.arange(ladder.rungs), parts[0][1], _log_walks(ladder))]
            return
        self.s = np.unique(np.concatenate([s for s, _, _ in parts]))
        self.groups = [_Group(np.searchsorted(self.s, s), totals) for s, totals, _ in parts]

    @property
    def counts(self) -> Float[np.ndarray, " k"]:
        """Draws at each tilt."""
        counts = np.zeros(len(self.s))
        for group in self.groups:
            counts[group.which] += group.totals[0].size
        return counts

    def moments(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Mean and variance of the total loss at each tilt."""
        mean, square = np.zeros(len(self.s)), np.zeros(len(self.s))
        for group in self.groups:
            mean[group.which] += group.totals.sum((1, 2))
        mean /= self.counts
        for group in self.groups:
            square[group.which] += ((group.totals - mean[group.which, None, None]) ** 2).sum((1, 2))
        return mean, square / np.maximum(1, self.counts - 1)

    def log_weights(self, group: _Group) -> Float[np.ndarray, "k r c n"]:
        """The log density of each draw at each tilt, but for what all tilts share."""
        of_tilt: np.ndarray = -self.s[:, None, None, None] * group.totals
        return of_tilt if group.walks is None else of_tilt + group.walks


def _parts(run: Any) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Tilts `(r,)`, total losses `(r, c, n)` and the length of paths, of all that ran together."""
    if isinstance(run, ExchangeRun):
        totals, s = run.total_losses, run.s
    elif hasattr(run, "stages"):
        return [part for stage in run.stages for part in _parts(stage)]
    elif isinstance(run, Run):
        if run.draws and np.ptp(run.s) > 0:
            raise ValueError(f"thermo.runs must each be at one tilt; got a run from s = {run.s.min():g} to {run.s.max():g}.")
        totals, s = run.total_losses[None], run.s[:1]
    else:
        raise TypeError(f"thermo.runs must be a run or a list of runs; got {check.shown(run)}.")
    if totals.shape[2] < 2:
        raise ValueError(f"thermo.runs must hold at least 2 draws a chain; got {totals.shape[2]}.")
    if not np.all(np.isfinite(totals)):
        raise ValueError("thermo.runs must hold finite losses; got a draw whose total loss is not.")
    assert run.losses is not None
    return [(np.asarray(s, float), totals, int(run.losses.shape[-1]))]


def _one_measure(run: ExchangeRun) -> bool:
    return all(measure is run.measures[0] for measure in run.measures)


def _log_walks(run: ExchangeRun) -> Float[np.ndarray, "k r c n"]:
    """The log density of every kept path under the walk of every rung."""
    if run.paths is None:
        raise ValueError('thermo.runs must hold the paths where rungs differ in sigma: exchange with keep="paths".')
    flat = run.paths.reshape(-1, *run.paths.shape[3:])

    def of(measure: Any) -> np.ndarray:
        every = jax.jit(jax.vmap(measure.log_walk))
        found = [np.asarray(every(jnp.asarray(flat[i : i + 2**14])), np.float64) for i in range(0, len(flat), 2**14)]
        stacked: np.ndarray = np.concatenate(found).reshape(run.walkers.shape)
        return stacked

    return np.stack([of(measure) for measure in run.measures])


# ---- estimates, and what single draws contribute to them: `(c, n, k)` for each group ----

Pieces = list[Float[np.ndarray, "c n k"]]


def _of_means(draws: _Draws) -> Pieces:
    mean, _ = draws.moments()
    return [_placed(draws, group, group.totals - mean[group.which, None, None]) for group in draws.groups]


def _of_variances(draws: _Draws) -> Pieces:
    """Of minus the variance."""
    mean, variance = draws.moments()
    return [
        _placed(draws, g, variance[g.which, None, None] - (g.totals - mean[g.which, None, None]) ** 2) for g in draws.groups
    ]


def _placed(draws: _Draws, group: _Group, x: Float[np.ndarray, "r c n"]) -> Float[np.ndarray, "c n k"]:
    """Contributions to averages at each tilt."""
    pieces = np.zeros((*x.shape[1:], len(draws.s)))
    pieces[..., group.which] = np.moveaxis(x, 0, -1) / draws.counts[group.which]
    return pieces


def _integrated(draws: _Draws) -> tuple[Float[np.ndarray, " k"], Pieces]:
    """`-∫ E[Lsum] ds` by cubic Hermite pieces: linear in the means and the variances."""
    k, gaps = len(draws.s), np.diff(draws.s)
    of_mean, of_variance = np.zeros((k, k)), np.zeros((k, k))
    for i, gap in enumerate(gaps):
        of_mean[i + 1 :, [i, i + 1]] -= gap / 2
        of_variance[i + 1 :, i] += gap**2 / 12
        of_variance[i + 1 :, i + 1] -= gap**2 / 12
    mean, variance = draws.moments()
    pieces = [
        m @ of_mean.T - v @ of_variance.T for m, v in zip(_of_means(draws), _of_variances(draws), strict=True)
    ]  # the contributions to variances have their sign turned
    return of_mean @ mean + of_variance @ variance, pieces


def _reweighted(draws: _Draws) -> tuple[Float[np.ndarray, " k"], Pieces, Bool[np.ndarray, " k"]]:
    """Values, contributions, and whether the draws connect a tilt with the lowest one.

    Newton's method: the multistate equations are the gradient of a convex function, with `q_j` the log density at tilt `j`,

        sum over draws of log sum_j N_j exp(q_j - z_j) + sum_j N_j z_j.
    """
    counts = draws.counts
    z = _integrated(draws)[0] if all(g.walks is None for g in draws.groups) else np.zeros(len(draws.s))
    value, gradient, hessian = _objective(draws, counts, z)
    for _ in range(_MOST_ITERATIONS):
        step = np.concatenate([[0.0], np.linalg.lstsq(hessian[1:, 1:], -gradient[1:], rcond=None)[0]])
        size = 1.0
        while size > 1e-6:
            tried = _objective(draws, counts, z + size * step)
            if tried[0] <= value + 1e-12 * abs(value):
                break
            size /= 2
        z, (value, gradient, hessian) = z + size * step, tried
        if np.max(np.abs(size * step)) < _TOLERANCE * max(1.0, float(np.max(np.abs(z)))):
            break
    inverse = np.zeros_like(hessian)
    inverse[1:, 1:] = np.linalg.pinv(hessian[1:, 1:])
    pieces = []
    for group in draws.groups:
        share = np.moveaxis(_shares(draws.log_weights(group), counts, z)[0], 0, -1)
        # rungs have a fixed number of draws: what varies is the distance from each rung's own mean
        away = (share - share.mean((1, 2), keepdims=True)).sum(0)
        pieces.append(away @ inverse)
    return z, pieces, _connected(draws.s, hessian)


def _connected(s: Float[np.ndarray, " k"], hessian: Float[np.ndarray, "k k"]) -> Bool[np.ndarray, " k"]:
    """Which tilts share draws with those below: beside the diagonal the Hessian is minus the number of draws that two share."""
    shared = np.array([-hessian[: i + 1, i + 1 :].sum() for i in range(len(s) - 1)])
    for i in np.flatnonzero(shared < FEWEST_SHARED):
        warnings.warn(
            f"The draws at s = {s[i]:.4g} and below share nothing with those at s = {s[i + 1]:.4g} and above, so that log Z "
            "cannot be known there: put tilts between.",
            stacklevel=4,
        )
    return np.concatenate([[True], np.cumsum(shared < FEWEST_SHARED) == 0])


def _objective(draws: _Draws, counts: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    value, gradient = float(counts @ z), counts.copy()
    hessian = np.zeros((len(z), len(z)))
    for group in draws.groups:
        flat = draws.log_weights(group).reshape(len(z), -1)
        size = max(1, _TOGETHER // len(z))
        for i in range(0, flat.shape[1], size):
            share, log_sum = _shares(flat[:, i : i + size], counts, z)
            value += float(log_sum.sum())
            gradient -= share.sum(1)
            hessian += np.diag(share.sum(1)) - share @ share.T
    return value, gradient, hessian


def _shares(
    log_weights: Float[np.ndarray, "k *n"], counts: Float[np.ndarray, " k"], z: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, "k *n"], Float[np.ndarray, "*n"]]:
    """To what share each draw belongs to each tilt, and the log of the sum."""
    terms = log_weights + (np.log(counts) - z).reshape(-1, *[1] * (log_weights.ndim - 1))
    top = terms.max(0)
    weights = np.exp(terms - top)
    total = weights.sum(0)
    return weights / total, top + np.log(total)


def _errors(pieces: Pieces) -> Float[np.ndarray, " k"]:
    """The standard error of a sum of contributions, from their autocovariance about the mean of all chains."""
    variance = np.zeros(pieces[0].shape[-1])
    for piece in pieces:
        chains, draws, tilts = piece.shape
        for k in range(tilts):
            x = piece[..., k] - piece[..., k].mean()
            covariance = settling.autocovariance(x).mean(0)
            if covariance[0] > 0:
                # the mean that was taken out was found from the same draws
                variance[k] += chains * draws * covariance[0] * settling.autocorrelation_time(covariance)
    return np.sqrt(variance)
