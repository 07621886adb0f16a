"""Barker's test on as many samples as a decision takes (Seita, Pan, Chen, Canny 2017): approximate, with a tolerance.

Barker's rule accepts with probability `1 / (1 + exp(-r))`, `r` the log ratio, which is to say where `r + V > 0` with `V`
logistic. The mean over a random subset gives `r` with an error that is nearly normal, of a variance `v` that the subset tells.
A logistic number is, within a small error, the sum of a normal one of variance `S^2` and of a correction `C`. So as soon as
`v <= S^2`, the subset's own noise serves as a part of `V`:

    accepted  <=>  estimate of r + N(0, S^2 - v) + C > 0,

and no more samples are needed. How it is done here:

- *Samples are drawn without replacement*: each block of models walks through a random permutation of its own, of units of
  `unit` samples that follow each other in the data, which is how memory wants to be read. The estimate is the mean over units,
  and its variance that of units drawn without replacement, `(1 - m/M) * var / m` after `m` of `M`: right in whatever order
  the data lie. Data sorted by class would cost more samples, so shuffle such data once: `loss.on(permutation)`.
- *It goes on*, `batch` samples at a time, until `v <= S^2` and the normal approximation is good enough: the third cumulant
  `k3` of the estimate changes the probability of acceptance by at most `|k3| / 24` (a sixth of it from the skewness of the
  error, less a half since its variance comes from the same samples, times 1/8, the most that the third derivative of the
  logistic function is). It is computed from standardised differences: nothing depends on the scale of the loss.
- *Clear cases end early*: where the estimate is so far out that more samples would hardly turn it.
- *The last resort is all data*, and then the test is Barker's, exactly.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tiltwalk import check
from tiltwalk import noise as noise_
from tiltwalk.losses import Supervised
from tiltwalk.measure import PathMeasure
from tiltwalk.pytree import pytree, static
from tiltwalk.rules import _barker, _shuffle
from tiltwalk.types import ChainState, Decision, Noise, Proposal

FEWEST = 8
"""Units in a batch: a variance from fewer means little."""


@pytree
class Minibatch:
    """Barker's rule on growing random subsets of the data of `losses.Supervised`.

    `tolerance`: what may be wrong with a probability of acceptance. A quarter of it goes to the correction, which decides how
    large the normal part may be, half to the normal approximation, and a quarter, at each look, to clear cases. `batch`:
    samples at a time. `unit`: samples that are drawn together; 16 are read without being copied, 1 is the fewest.

    Of a state it makes no use of `losses`, and what it leaves there are estimates: the mean loss of a model on the samples
    of the last decision about it, taken or not. `evaluations` counts the old models too, so that the share of the data that
    a decision about one model touched is half of its evaluations.
    """

    tolerance: float = static(default=0.01)
    batch: int = static(default=512)
    unit: int = static(default=16)

    def __post_init__(self) -> None:
        check.number("Minibatch.tolerance", self.tolerance, low=1e-6, high=0.5)
        check.whole("Minibatch.unit", self.unit, low=1)
        check.whole("Minibatch.batch", self.batch, low=FEWEST * self.unit)

    def decide(self, noise: Noise, measure: PathMeasure, state: ChainState, proposal: Proposal, s: Any) -> Decision:
        loss = _on_data(measure, proposal)
        b, w, d = proposal.rows.shape
        units = -(-loss.n // self.unit)
        at_once = min(self.batch // self.unit, units)
        wanted = jnp.ones((b, w), bool) if proposal.count is None else jnp.arange(w)[None] < proposal.count
        old = jnp.take(state.path, proposal.sites, axis=0, mode="clip")
        thetas = jnp.stack([proposal.rows, old]).reshape(2 * b * w, d)
        turns = _shuffle.rounds(units)
        first, second = noise_.own_words(noise, turns + 1)
        normal = noise_.normal((first[turns], second[turns])).astype(thetas.dtype)

        def look(carry: tuple[Int[Array, ""], Sums, Verdict]) -> tuple[Int[Array, ""], Sums, Verdict]:
            i, sums, verdict = carry
            turn = i * at_once + jnp.arange(at_once)
            there = turn < units
            chosen = _shuffle.places(jnp.where(there, turn, 0), units, (first[:turns], second[:turns]))
            samples = chosen[:, :, None] * self.unit + jnp.arange(self.unit)  # (b, at_once, unit)
            real = there[:, None] & (samples < loss.n)
            lists = jnp.broadcast_to(jnp.where(real, samples, 0).reshape(b, 1, -1), (2, b, w, at_once * self.unit))
            live = jnp.broadcast_to(verdict.open[:, None] & wanted, (2, b, w))
            each = loss.per_sample(thetas, lists.reshape(2 * b * w, -1), live.reshape(-1))
            each = each.reshape(2, b, w, at_once, self.unit)
            totals = jnp.sum(jnp.where(real[None, :, None], each, 0), -1)
            sums = sums.with_units(totals, there, verdict.open, i == 0)
            seen = jnp.minimum((i + 1) * at_once, units)
            return i + 1, sums, verdict.after(self._judge(sums, seen, units, loss.n, noise.uniform, normal, proposal, s), seen)

        empty = jnp.zeros(b, thetas.dtype)
        sums = Sums(empty, jnp.zeros((3, b), thetas.dtype), jnp.zeros((2, b, w), thetas.dtype))
        verdict = Verdict(jnp.ones(b, bool), jnp.zeros(b, bool), empty, jnp.zeros(b, jnp.int32))
        start = jnp.zeros((), jnp.int32), sums, verdict
        _, sums, verdict = jax.lax.while_loop(lambda c: jnp.any(c[2].open), look, start)
        means = sums.losses * (units / (loss.n * verdict.seen[:, None]))
        touched = jnp.sum(verdict.seen * jnp.sum(wanted, 1)) * (2 / units)
        return Decision(verdict.accepted, means[0], verdict.log_ratio, touched.astype(thetas.dtype), means[1])

    def _judge(
        self, sums: Sums, seen: Any, units: int, n: int, uniform: Any, normal: Any, proposal: Proposal, s: Any
    ) -> tuple[Any, Any, Any]:
        """What is to be said of each block after `seen` of `units`: whether it is decided, how, and its log ratio."""
        from scipy import special  # slow to import, and no other rule needs it

        correction = _barker.widest(self.tolerance / 4)
        share = seen / units
        mean, variance, skewness = sums.moments(seen)
        one = (s * units / n) ** 2 * variance / seen  # of the estimate, were all samples drawn with replacement
        noise = one * (1 - share)
        log_ratio = proposal.log_correction - s * (units / n) * mean
        # from a loss that is infinite to one that is not
        escapes = jnp.any(jnp.isposinf(sums.losses[1]), 1) & jnp.all(jnp.isfinite(sums.losses[0]), 1)
        log_ratio = jnp.where(escapes, jnp.inf, log_ratio)
        third = (jnp.abs(skewness) + jnp.sqrt(6 / seen)) * one**1.5 / jnp.sqrt(seen) * (1 - share) * jnp.abs(1 - 2 * share)
        enough = (noise <= correction.deviation**2) & (third / 24 <= self.tolerance / 2)
        drawn = correction.quantile(uniform)
        # the normal parts that are to come, of the samples and of the test, must not turn it
        least = min(self.batch // self.unit, units) - 1
        far = special.stdtrit(least, 1 - self.tolerance / 4) if least > 0 else np.inf
        clear = jnp.abs(log_ratio + drawn) > far * jnp.sqrt(noise + correction.deviation**2)
        of_all = log_ratio + jnp.log(uniform) - jnp.log1p(-uniform) > 0
        of_some = log_ratio + jnp.sqrt(jnp.maximum(correction.deviation**2 - noise, 0)) * normal + drawn > 0
        accepted = jnp.where(seen == units, of_all, jnp.where(enough, of_some, log_ratio + drawn > 0))
        # what is not a number compares false, and is decided: rejected
        return (seen == units) | enough | clear | ~jnp.isfinite(log_ratio), accepted, log_ratio


@pytree
class Sums:
    """What was seen of each block: powers of its units' differences from `centre`, and the losses of new and old models."""

    centre: Float[Array, " b"]
    powers: Float[Array, "3 b"]
    losses: Float[Array, "2 b w"]

    def with_units(
        self, totals: Float[Array, "2 b w u"], there: Bool[Array, " u"], live: Bool[Array, " b"], first: Any
    ) -> Sums:
        """With more units, those that are `there`, for blocks that are `live`."""
        differences = jnp.sum(totals[0] - totals[1], 1)
        centre = jnp.where(first, jnp.sum(jnp.where(there, differences, 0), 1) / jnp.sum(there), self.centre)
        away = jnp.where(there, differences - centre[:, None], 0)
        powers = jnp.stack([jnp.sum(away**k, 1) for k in (1, 2, 3)])
        return Sums(
            jnp.where(live, centre, self.centre),
            jnp.where(live, self.powers + powers, self.powers),
            jnp.where(live[:, None], self.losses + jnp.sum(totals, -1), self.losses),
        )

    def moments(self, count: Any) -> tuple[Any, Any, Any]:
        """Mean of the differences, variance, and skewness, 0 where they do not vary."""
        one, two, three = self.powers / count
        variance = jnp.maximum(two - one**2, 0) * (count / jnp.maximum(count - 1, 1))
        third = three - 3 * one * two + 2 * one**3
        return self.centre + one, variance, jnp.where(variance > 0, third / jnp.maximum(variance, 1e-30) ** 1.5, 0)


@pytree
class Verdict:
    """Which blocks are still open, what was decided of the others, on what log ratio, and after how many units."""

    open: Bool[Array, " b"]
    accepted: Bool[Array, " b"]
    log_ratio: Float[Array, " b"]
    seen: Int[Array, " b"]

    def after(self, said: tuple[Any, Any, Any], seen: Any) -> Verdict:
        """With what was said now of the blocks that were open."""
        decided, accepted, log_ratio = said
        return Verdict(
            self.open & ~decided,
            jnp.where(self.open, decided & accepted, self.accepted),
            jnp.where(self.open, log_ratio, self.log_ratio),
            jnp.where(self.open, seen, self.seen).astype(jnp.int32),
        )


def _on_data(measure: PathMeasure, proposal: Proposal) -> Supervised:
    if not isinstance(measure.loss, Supervised):
        raise TypeError(f"Minibatch needs a loss on data, losses.Supervised; got {check.shown(measure.loss)}.")
    if proposal.losses is not None:
        raise TypeError(
            "Minibatch cannot decide on moves that evaluate the loss themselves, on all data: use Metropolis for those."
        )
    return measure.loss
