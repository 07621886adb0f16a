"""Diagnostics: has a run converged, how many independent draws is it worth, and what to do where the answer is no.

All statistics are ArviZ's, those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), arXiv:1903.08008: rank-normalised
split R-hat, bulk and tail effective sample size (ESS). The integrated autocorrelation time is draws / ESS of the mean, and a
trend is Geweke's: the last third of the draws against the first, in standard errors. ArviZ is the optional extra `arviz`;
without it a verdict says what acceptance alone can tell.

A quantity is an array `(chains, draws)`, or `(chains, draws, ...)` for many at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Float

from tiltwalk import check
from tiltwalk.measure import PathMeasure

RHAT = 1.01
"""Above this, chains do not agree."""

FEWEST = 400
"""Below this many effective draws in all, R-hat and ESS are themselves uncertain."""

TREND = 4.0
"""Standard errors between the first and the last third of the draws above which a quantity drifts."""

RARELY, NEARLY_ALWAYS = 0.05, 0.95
COLD_GAP = 0.1
"""Below this swap rate, two neighbouring rungs hardly exchange."""

FEWEST_DRAWS = 12
"""The least that is judged: a third of the draws must hold four."""


class Draws(Protocol):
    """What is judged: `Run` is one."""

    @property
    def losses(self) -> np.ndarray | None: ...
    @property
    def paths(self) -> np.ndarray | None: ...
    @property
    def kept(self) -> Any: ...
    @property
    def s(self) -> np.ndarray: ...
    @property
    def acceptance(self) -> Mapping[str, float]: ...
    @property
    def acceptance_by_chain(self) -> Mapping[str, np.ndarray]: ...
    @property
    def steps(self) -> Mapping[str, np.ndarray]: ...
    @property
    def cautions(self) -> tuple[str, ...]: ...


@dataclasses.dataclass(frozen=True)
class Measures:
    """What the draws of one quantity say. `trend` is in standard errors; times are in draws."""

    rhat: float
    ess_bulk: float
    ess_tail: float
    autocorrelation_time: float
    trend: float
    early: float
    late: float


@dataclasses.dataclass(frozen=True)
class Summary:
    """`Measures` by quantity; printed as a table."""

    measures: dict[str, Measures]

    def __getitem__(self, name: str) -> Measures:
        return self.measures[name]

    def __str__(self) -> str:
        width = max(len(name) for name in self.measures)
        head = f"{'quantity':<{width}}  {'R-hat':>7} {'bulk ESS':>9} {'tail ESS':>9} {'autocorrelation':>15} {'trend':>7}"
        rows = [
            f"{name:<{width}}  {m.rhat:7.4f} {m.ess_bulk:9.0f} {m.ess_tail:9.0f} {m.autocorrelation_time:15.1f} {m.trend:+7.1f}"
            for name, m in self.measures.items()
        ]
        return "\n".join([head, *rows])


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a run has converged (None: cannot be told), in words, and what to do about it."""

    converged: bool | None
    words: str
    advice: tuple[str, ...] = ()
    summary: Summary | None = None

    def __str__(self) -> str:
        return "\n".join([self.words, *(f"- {line}" for line in self.advice)])


# ---- statistics ----


def rhat(x: Any) -> Any:
    """Rank-normalised split R-hat, the larger of bulk and tail: `(chains, draws, ...) -> (...)`.

    A single chain is taken as two, its halves. NaN for what never changed.
    """
    x = _draws("rhat", x)
    if len(x) == 1:
        half = x.shape[1] // 2
        x = np.concatenate([x[:, :half], x[:, -half:]])
    with np.errstate(invalid="ignore", divide="ignore"):
        return _plain(_arviz("rhat").rhat(x, chain_axis=0, draw_axis=1))


def ess(x: Any, kind: str = "bulk") -> Any:
    """Effective sample size of all chains together: of the `"bulk"`, the `"tail"` (5 % and 95 %) or the `"mean"`."""
    check.one_of("ess.kind", kind, ("bulk", "tail", "mean"))
    x = _draws("ess", x)
    more = {"prob": 0.05} if kind == "tail" else {}
    with np.errstate(invalid="ignore", divide="ignore"):
        found = _arviz("ess").ess(x, chain_axis=0, draw_axis=1, method=kind, **more)
    # what never changed is not worth its number of draws
    return _plain(np.where(np.ptp(x, axis=(0, 1)) > 0, found, np.nan))


def autocorrelation_time(x: Any) -> Any:
    """Integrated autocorrelation time, in draws: how many of them are worth one independent draw of the mean."""
    x = _draws("autocorrelation_time", x)
    return _plain(x.shape[0] * x.shape[1] / np.asarray(ess(x, "mean")))


def trend(x: Any) -> Any:
    """How far the mean of the last third of the draws lies above that of the first third, in standard errors."""
    x = _draws("trend", x)
    early, late = _thirds(x)
    arviz = _arviz("trend")
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = [arviz.mcse(part, chain_axis=0, draw_axis=1, method="mean") for part in (early, late)]
        return _plain((late.mean((0, 1)) - early.mean((0, 1))) / np.sqrt(errors[0] ** 2 + errors[1] ** 2))


def measures(x: Any) -> Measures:
    """All of the above, of one quantity `(chains, draws)`."""
    x = _draws("measures", x)
    if x.ndim != 2:
        raise ValueError(f"diagnostics.measures.x must have shape (chains, draws); got {x.shape}.")
    early, late = _thirds(x)
    return Measures(rhat(x), ess(x), ess(x, "tail"), autocorrelation_time(x), trend(x), float(early.mean()), float(late.mean()))


def _thirds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    third = x.shape[1] // 3
    return x[:, :third], x[:, -third:]


def _draws(name: str, given: Any) -> np.ndarray:
    x = check.numeric(f"diagnostics.{name}.x", given, "an array (chains, draws, ...)")
    if x.ndim < 2 or x.shape[0] == 0:
        raise ValueError(f"diagnostics.{name}.x must have shape (chains, draws, ...); got {x.shape}.")
    if x.shape[1] < FEWEST_DRAWS:
        raise ValueError(f"diagnostics.{name}.x must hold at least {FEWEST_DRAWS} draws a chain; got {x.shape[1]}.")
    return x


def _arviz(name: str) -> Any:
    try:
        from arviz_stats.base import array_stats
    except ImportError as error:
        raise ImportError(f'diagnostics.{name} needs ArviZ\'s statistics: pip install "tiltwalk[arviz]"') from error
    return array_stats


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


# ---- runs ----


def quantities(run: Draws, every_model: bool = True) -> dict[str, Float[np.ndarray, "chains draws"]]:
    """What a run is judged by: the total loss, the loss of each model (or of the first and the last), the norm of the first
    model where paths were kept, and each entry of what a callable `keep` returned."""
    found: dict[str, np.ndarray] = {}
    if run.losses is not None:
        losses = np.asarray(run.losses, np.float64)
        length = losses.shape[-1]
        found["total loss"] = losses.sum(-1)
        if length > 1:
            chosen = range(length) if every_model else (0, length - 1)
            found |= {f"loss of model {t + 1}": losses[..., t] for t in chosen}
    if run.paths is not None:
        found["norm of model 1"] = np.linalg.norm(np.asarray(run.paths[:, :, 0], np.float64), axis=-1)
    if run.kept is not None:
        for path, leaf in jax.tree_util.tree_flatten_with_path(run.kept)[0]:
            values = np.asarray(leaf, np.float64)
            name = "kept" + jax.tree_util.keystr(path)
            if values.ndim == 2:
                found[name] = values
            else:
                columns = values.reshape(*values.shape[:2], -1)
                places = np.ndindex(values.shape[2:])
                found |= {f"{name}[{', '.join(map(str, at))}]": columns[..., i] for i, at in enumerate(places)}
    return found


def summary(run: Draws) -> Summary:
    """`Measures` of every quantity of a run."""
    of = quantities(run)
    if not of:
        raise ValueError("diagnostics.summary.run must hold draws of something; got a run that kept nothing.")
    return Summary({name: measures(x) for name, x in of.items()})


def verdict(run: Draws) -> Verdict:
    """Whether the draws of a run can be trusted, and what to do where they cannot.

    Judged by the total loss, the losses of the first and the last model, the norm of the first model where paths were kept,
    and what a callable `keep` returned: the worst of them decides.
    """
    advice = _on_acceptance(run)
    of = quantities(run, every_model=False)
    draws = len(run.s)
    if not of or draws < FEWEST_DRAWS:
        held = f"{draws} draws" if of else "draws of nothing"
        return Verdict(None, f"Not judged: the run holds {held}, and {FEWEST_DRAWS} are the least.", (*advice, *run.cautions))
    if np.ptp(run.s) > 0:
        words = f"Not judged: the tilt goes from {run.s[0]:g} to {run.s[-1]:g} over the draws. Sample at one s and judge that."
        return Verdict(None, words, (*advice, *run.cautions))
    try:
        found = Summary({name: measures(x) for name, x in of.items()})
    except ImportError:
        words = 'Not judged: R-hat and effective sample sizes need ArviZ\'s statistics: pip install "tiltwalk[arviz]".'
        return Verdict(None, words, (*advice, *run.cautions))
    chains = len(next(iter(of.values())))
    converged, words = _words(found)
    advice += _on_draws(found, converged, chains)
    return Verdict(converged, words, (*advice, *_on_cautions(run.cautions, found)), found)


def _words(found: Summary) -> tuple[bool, str]:
    still = [name for name, m in found.measures.items() if math.isnan(m.rhat)]
    if still:
        return False, f"Not converged: the {still[0]} never changed."
    worst, m = max(found.measures.items(), key=lambda item: item[1].rhat)
    fewest = min(found.measures.items(), key=lambda item: min(item[1].ess_bulk, item[1].ess_tail))
    count = min(fewest[1].ess_bulk, fewest[1].ess_tail)
    if m.rhat > RHAT:
        return False, f"Not converged: R-hat is {m.rhat:.3f} for the {worst}, and should be at most {RHAT}."
    if not count >= FEWEST:
        return False, f"Too short: the draws of the {fewest[0]} are worth {count:.0f} independent ones, of {FEWEST} needed."
    return True, f"Converged, as far as can be seen: R-hat is {m.rhat:.3f} at most, and {count:.0f} effective draws at least."


def _on_draws(found: Summary, converged: bool, chains: int) -> tuple[str, ...]:
    advice = []
    if chains == 1:
        advice.append("One chain cannot show that others would end elsewhere: run chains=4 or more.")
    if converged or any(math.isnan(m.rhat) for m in found.measures.values()):
        return tuple(advice)
    name, m = max(found.measures.items(), key=lambda item: abs(item[1].trend) if math.isfinite(item[1].trend) else 0)
    if abs(m.trend) > TREND:
        way = "falls" if m.trend < 0 else "rises"
        advice.append(
            f"The {name} still {way}, from {m.early:.4g} to {m.late:.4g}: give more burn_in, or begin at tw.warm_start(...)."
        )
    elif max(m.rhat for m in found.measures.values()) > RHAT:
        advice.append(
            "Chains stay where they are and disagree: run longer, tune the step in burn-in, or climb to s by a schedule."
        )
    else:
        fewest = min(min(m.ess_bulk, m.ess_tail) for m in found.measures.values())
        advice.append(f"Run about {math.ceil(FEWEST / max(fewest, 1))} times as long, or with more chains.")
    return tuple(advice)


def _on_acceptance(run: Draws) -> tuple[str, ...]:
    advice = []
    for name, rate in run.acceptance.items():
        steps = np.asarray(run.steps.get(name, np.ones(1)), float)
        stuck = int(np.sum(np.asarray(run.acceptance_by_chain.get(name, np.ones(0))) < RARELY / 5))
        if rate < RARELY:
            advice.append(
                f"{name} accepts {rate:.1%}: its proposals are too far away. Let burn-in tune them, target_acceptance=0.3."
            )
        elif stuck:
            advice.append(
                f"{name} is hardly ever accepted in {stuck} of the chains: look at their losses, or give more burn_in."
            )
        elif rate > NEARLY_ALWAYS and steps.mean() < 0.5:
            advice.append(
                f"{name} accepts {rate:.1%} at a step of {steps.mean():.2g}: it may step further, target_acceptance=0.3."
            )
    return tuple(advice)


# ---- what can be said beforehand ----


def cautions(measure: PathMeasure) -> tuple[str, ...]:
    """What may go wrong with a measure, whatever the sampler."""
    if measure.walk.proper or not getattr(measure.loss, "needs_start", False):
        return ()
    return (
        "A flat start with cross entropy cannot be normalised (growing all logits, or the weights of separable data, costs "
        "nothing), so that weights may drift for ever. Use RandomWalk(sigma, start=Normal(network.scale())).",
    )


def _on_cautions(given: tuple[str, ...], found: Summary) -> tuple[str, ...]:
    norm = found.measures.get("norm of model 1")
    if not given or norm is None or not abs(norm.trend) > TREND:
        return given
    return (f"The norm of model 1 drifts, from {norm.early:.4g} to {norm.late:.4g}. {given[0]}", *given[1:])


def ladder_advice(
    swap_rates: Sequence[float] | np.ndarray, ladder: Sequence[float] | np.ndarray | None = None
) -> tuple[str, ...]:
    """What the swap rates of neighbouring rungs (one fewer than rungs) say of a ladder; nothing where all is well.

    >>> ladder_advice([0.4, 0.02, 0.3], ladder=[1.0, 2.0, 8.0, 16.0])
    ('Rungs 2 and 3 (s = 2 and 8) swap 2.0% of the time, a cold gap: put a rung between them, near s = 4.',)
    """
    rates = check.finite_array("ladder_advice.swap_rates", swap_rates, (1,), "(rungs - 1,)")
    if np.any((rates < 0) | (rates > 1)):
        raise ValueError(f"ladder_advice.swap_rates must be between 0 and 1; got {rates.min():g} to {rates.max():g}.")
    rungs = None
    if ladder is not None:
        rungs = check.finite_array("ladder_advice.ladder", ladder, (1,), "(rungs,)")
        if len(rungs) != len(rates) + 1:
            raise ValueError(f"ladder_advice.ladder must have {len(rates) + 1} rungs, one more than rates; got {len(rungs)}.")
    advice = []
    for i in np.flatnonzero(rates < COLD_GAP):
        where = near = ""
        if rungs is not None:
            low, high = rungs[i], rungs[i + 1]
            middle = math.sqrt(low * high) if min(low, high) > 0 else (low + high) / 2
            where, near = f" (s = {low:g} and {high:g})", f", near s = {middle:.3g}"
        advice.append(
            f"Rungs {i + 1} and {i + 2}{where} swap {rates[i]:.1%} of the time, a cold gap: put a rung between them{near}."
        )
    if len(rates) > 1 and np.all(rates > 0.9):
        advice.append(f"All rungs swap at least {rates.min():.0%} of the time: fewer rungs would do.")
    return tuple(advice)
