"""`AnnealRun`: what annealing returns, a run whose tilt climbs from stage to stage."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from tiltwalk import diagnostics
from tiltwalk.run import Run
from tiltwalk.schedules import Schedule

APART = 1.1
"""R-hat of a last stage, which is short, above which its chains are taken to be in different places."""


@dataclasses.dataclass(frozen=True)
class LossCurve:
    """The mean loss per model at each stage, in the order in which they were made.

    `error` is the standard error of `loss`, NaN where nothing moved; `settled` whether it had settled when the stage ended,
    and `why` says what was missing. `sigma` is the factor on the walk's first sigma, 1 throughout unless sigma was annealed.
    `accuracy` and `accuracy_error` are NaN where they were not asked for.
    """

    s: Float[np.ndarray, " stages"]
    loss: Float[np.ndarray, " stages"]
    error: Float[np.ndarray, " stages"]
    settled: Bool[np.ndarray, " stages"]
    why: tuple[str, ...]
    sigma: Float[np.ndarray, " stages"]
    accuracy: Float[np.ndarray, " stages"]
    accuracy_error: Float[np.ndarray, " stages"]


@dataclasses.dataclass(frozen=True)
class Found:
    """The smallest `s` that meets a target, with its standard error; `value` is the loss or accuracy at the last stage.

    Where the target was not met, `met` is False and `s` the largest tilt that was tried.
    """

    quantity: str
    target: float
    s: float
    error: float
    value: float
    value_error: float
    met: bool
    words: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnnealRun(Run):
    """The draws of all stages, one after another, with the tilt `s` of each draw; and each stage as a run of its own.

    - `curve`: at each stage `s`, the mean `loss` per model, its `error`, whether it had `settled` and if not `why`; and
      `sigma`, `accuracy`, `accuracy_error` where they were asked for. `plots.curve(run)` draws it.
    - `stages`: a run at one tilt each, with the draws that `curve` rests on; `thermo.log_partition(run)` takes them together.
    - `schedule` and `schedule_steps`: the tilt at every step that was made, burn-in included, as `sample(measure, run.schedule,
      steps=run.schedule_steps)` takes it.
    - `found`: what a target came to, where one was given: the smallest tilt `s` that meets it and its `error`, the `value`
      there and its `value_error`, and whether it was `met`.
    - `stopped`: why it ended before its end, if it did.

    Acceptance, step sizes and `state` are those of the last stage: pass the run as `init` to `sample` to go on there.
    """

    curve: LossCurve
    stages: tuple[Run, ...]
    schedule: Schedule
    schedule_steps: int
    found: Found | None = None
    stopped: str = ""

    @cached_property
    def _verdict(self) -> diagnostics.Verdict:
        settled, s = self.curve.settled, self.curve.s
        if settled.all():
            words = f"Settled at each of {len(s)} stages, from s = {s[0]:.4g} to {s[-1]:.4g}."
        else:
            which = np.flatnonzero(~settled)
            named = ", ".join(f"s = {s[i]:.4g} ({self.curve.why[i]})" for i in which[:3])
            more = f" and {len(which) - 3} more" if len(which) > 3 else ""
            words = f"Not settled at {len(which)} of {len(s)} stages when their steps were spent: {named}{more}."
        advice = [] if settled.all() else ["Give stages more steps: most_steps=..., or more chains."]
        converged = bool(settled.all()) and not self.stopped
        if self.stopped:
            words = f"{words} {self.stopped}"
        if self.found is not None:
            words, converged = f"{words} {self.found.words}", converged and self.found.met
        last = self.stages[-1].verdict()
        worst = max((m.rhat for m in last.summary.measures.values()), default=1.0) if last.summary is not None else 1.0
        if worst > APART:
            words, converged = f"{words} But chains disagree at the last: R-hat is {worst:.2f}.", False
            advice.append("Chains may have gone to different valleys, where one tilt keeps them: see exchange and smc.")
        else:
            advice.append(f"For draws to keep, go on: sample(measure, {s[-1]:.4g}, init=run, ...).")
        return diagnostics.Verdict(converged, words, tuple(advice), last.summary)

    def __repr__(self) -> str:
        c = self.curve
        return (
            f"AnnealRun({self.chains} chains, {len(c.s)} stages from s = {c.s[0]:.4g} to {c.s[-1]:.4g}, mean loss "
            f"{c.loss[0]:.6g} to {c.loss[-1]:.6g} per model, {self.evaluations} evaluations in {self.seconds:.1f} s)"
        )
