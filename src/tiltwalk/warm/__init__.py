"""Warm starts: a path to start from, sooner than the sampler would find one. Nothing is kept, so nothing is in equilibrium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.sampling import sample
from tiltwalk.warm import adaptive, gradients, metropolis
from tiltwalk.warm.metropolis import ACCEPTANCE
from tiltwalk.warm.paths import grow

__all__ = ["ACCEPTANCE", "grow", "warm_start"]

METHODS = ("amc", "gradient", "metropolis")
MODELS = ("all", "first")


def warm_start(
    measure: PathMeasure,
    *,
    steps: int,
    s: float | None = None,
    method: str | None = None,
    optimizer: Any = None,
    batch: int | None = None,
    models: str = "first",
    first_s: float | None = None,
    chains: int = 1,
    init: Any = None,
    key: Any = 0,
    progress: bool = True,
    sampler: Callable[..., Run] = sample,
) -> Run:
    """Chains to start from: pass the result as `init` to `sample`, or to any other sampler of this measure.

    `method` is by default "gradient" where an `optimizer` is given, else "metropolis":

    - "metropolis", gradient-free: a single model under the measure's start and loss, at a tilt that rises from `first_s`
      (default `s / 100`) to `s`; the step size is tuned to an acceptance of 0.25 all along. Needs `s`.
    - "amc", gradient-free: a single model by adaptive Monte Carlo (`tiltwalk.warm.adaptive`), whose proposals follow the
      moves that were accepted. Not reversible, which is why draws are never kept from it. Without `s` it only goes downhill.
    - "gradient": `steps` steps of `optimizer`, an Optax transformation (default `optax.adam(1e-3)`), on the mean loss, or on
      `batch` samples of it drawn anew each step. With `s` the walk is taken in: the goal is then the most likely path.
      `models="first"` trains a single model, `"all"` every model of the path, from a path of the walk.

    A single model becomes a path of `measure.length` equal models, which the walk lets apart. `init` is a path to begin at,
    whose last model counts where a single one is trained; by default the network's initialisation, or a draw of the start.

    >>> import tiltwalk as tw
    >>> measure = tw.PathMeasure(tw.RandomWalk(0.1, start=tw.Normal(2.0)), tw.losses.double_well(), length=8)
    >>> start = tw.warm_start(measure, s=20.0, steps=500, chains=4, progress=False)
    >>> tw.sample(measure, 20.0, steps=10, chains=4, init=start, progress=False).losses.shape
    (4, 10, 8)
    """
    if not isinstance(measure, PathMeasure):
        raise TypeError(f"warm_start.measure must be a PathMeasure; got {check.shown(measure)}.")
    check.whole("warm_start.steps", steps, low=1)
    check.whole("warm_start.chains", chains, low=1)
    check.one_of("warm_start.models", models, MODELS)
    if s is not None:
        check.number("warm_start.s", s, low=0, low_open=True)
    if first_s is not None:
        check.number("warm_start.first_s", first_s, low=0, low_open=True)
    if method is None:
        method = "metropolis" if optimizer is None else "gradient"
    check.one_of("warm_start.method", method, METHODS)
    if method == "gradient":
        return gradients.train(measure, steps, s, optimizer, batch, models == "all", chains, init, key, progress)
    for name, value, default in (("optimizer", optimizer, None), ("batch", batch, None), ("models", models, "first")):
        if value != default:
            raise ValueError(
                f'warm_start.{name} must be {default!r} unless method is "gradient"; '
                f"got {check.shown(value)} with method={method!r}."
            )
    if method == "amc":
        return adaptive.train(measure, steps, s, chains, init, key, progress)
    if s is None:
        raise ValueError('warm_start.s must be given for method "metropolis": the tilt to rise to; got None.')
    return metropolis.train(measure, steps, s, first_s, chains, init, key, progress, sampler)
