"""`Run`: what sampling returns. Arrays are `(chains, draws, ...)`, on the host."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from tiltwalk import diagnostics
from tiltwalk._version import __version__
from tiltwalk.types import ChainState

QUICK = 2**20
"""Up to this many losses, printing a run brings its verdict."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The draws of a run and what is needed to judge it and to go on.

    `losses (chains, draws, tau)`, `paths (chains, draws, tau, d)` and `kept` (what a callable `keep` returned, with chains and
    draws in front) are None where they were not asked for. `s` is the tilt at each draw. `acceptance` is the share of proposals
    accepted, by move, after burn-in; `steps` the step size of each move, by chain, as tuned or given. `evaluations` counts
    losses of single models, burn-in included, and `gradients` those that came with a gradient. `state` is where the chains
    are: pass the run as `init` to go on. `failed` counts the proposals, burn-in included, that were rejected because their loss
    was not a number. `cautions` is what may go wrong with the measure, whatever the sampler.
    """

    losses: Float[np.ndarray, "chains draws tau"] | None
    paths: Float[np.ndarray, "chains draws tau d"] | None
    kept: Any
    s: Float[np.ndarray, " draws"]
    acceptance: dict[str, float]
    acceptance_by_chain: dict[str, Float[np.ndarray, " chains"]]
    steps: dict[str, Float[np.ndarray, " chains"]]
    state: ChainState
    step_number: int
    evaluations: int
    seconds: float
    first_draw_seconds: float
    gradients: int = 0
    failed: int = 0
    cautions: tuple[str, ...] = ()

    @property
    def chains(self) -> int:
        """The number of chains."""
        return int(self.state.path.shape[0])

    @property
    def draws(self) -> int:
        """The number of draws of each chain."""
        return int(self.s.shape[0])

    @property
    def total_losses(self) -> Float[np.ndarray, "chains draws"]:
        """`Lsum`, the time-integrated loss of each draw."""
        if self.losses is None:
            raise ValueError('Run.total_losses needs the losses: sample with keep="losses" or keep="paths".')
        return np.asarray(self.losses.sum(-1, dtype=np.float64))

    def verdict(self) -> diagnostics.Verdict:
        """Whether the draws can be trusted, in words, and what to do where they cannot; found once, and then kept."""
        return self._verdict

    @cached_property
    def _verdict(self) -> diagnostics.Verdict:
        return diagnostics.verdict(self)

    def summary(self) -> diagnostics.Summary:
        """R-hat, effective sample sizes, autocorrelation time and trend of the total loss, of the loss of each model, and of
        what was kept; print it for a table."""
        return diagnostics.summary(self)

    def to_arviz(self) -> Any:
        """The draws as ArviZ's container: an `xarray.DataTree` with groups `posterior` and `sample_stats`.

        `posterior` holds `theta (chain, draw, model, parameter)` where paths were kept, and what a callable `keep` returned,
        by name; `sample_stats` the losses `loss (chain, draw, model)`, their sum `total_loss`, and the tilt `s`.
        """
        try:
            import arviz_base
        except ImportError as error:
            raise ImportError('Run.to_arviz needs ArviZ: pip install "tiltwalk[arviz]"') from error
        posterior: dict[str, Any] = {}
        stats: dict[str, Any] = {"s": np.broadcast_to(self.s, (self.chains, self.draws))}
        dims = {"theta": ["model", "parameter"], "loss": ["model"]}
        if self.paths is not None:
            posterior["theta"] = np.ascontiguousarray(self.paths)
        if self.kept is not None:
            for path, leaf in jax.tree_util.tree_flatten_with_path(self.kept)[0]:
                posterior["_".join(map(_word, path)) or "kept"] = np.asarray(leaf)
        if self.losses is not None:
            stats |= {"loss": np.ascontiguousarray(self.losses), "total_loss": self.total_losses}
        attributes = {
            "inference_library": "tiltwalk",
            "inference_library_version": __version__,
            "sampling_time": self.seconds,
            **{f"acceptance of {name}": rate for name, rate in self.acceptance.items()},
        }
        groups = {"posterior": posterior, "sample_stats": stats} if posterior else {"sample_stats": stats}
        return arviz_base.from_dict(
            groups,
            dims={name: axes for name, axes in dims.items() if name in posterior or name in stats},
            attrs=dict.fromkeys(groups, attributes),
        )

    def __str__(self) -> str:
        many = self.losses is not None and self.losses.size > QUICK
        return f"{self!r}\n{'Its verdict: run.verdict()' if many else self.verdict()}"

    def __repr__(self) -> str:
        what = [name for name in ("losses", "paths", "kept") if getattr(self, name) is not None]
        accepted = ", ".join(f"{name} {rate:.0%}" for name, rate in self.acceptance.items() if rate == rate)
        loss = (
            f", mean loss {self.losses.mean(dtype=np.float64):.6g} per model" if self.losses is not None and self.draws else ""
        )
        accepted = f", accepted {accepted}" if accepted else ""
        accepted += f", {self.failed} proposals with a loss that is not a number" if self.failed else ""
        return (
            f"Run({self.chains} chains, {self.draws} draws of {' and '.join(what) or 'nothing'}{loss}"
            f"{accepted}, {self.evaluations} evaluations in {self.seconds:.1f} s)"
        )


def _word(key: Any) -> str:
    """A step of a path into a tree as a name: of a dict, a field or a place in a list."""
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
