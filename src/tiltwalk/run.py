"""`Run`: what sampling returns. Arrays are `(chains, draws, ...)`, on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from tiltwalk.types import ChainState


@dataclasses.dataclass(frozen=True)
class Run:
    """The draws of a run and what is needed to judge it and to go on.

    `losses (chains, draws, tau)`, `paths (chains, draws, tau, d)` and `kept` (what a callable `keep` returned, with chains and
    draws in front) are None where they were not asked for. `s` is the tilt at each draw. `acceptance` is the share of proposals
    accepted, by move, after burn-in; `steps` the step size of each move, by chain, as tuned or given. `evaluations` counts
    losses of single models, burn-in included, and `gradients` those that came with a gradient. `state` is where the chains
    are: pass the run as `init` to go on.
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

    def to_arviz(self) -> Any:
        """The draws as ArviZ's container: an `xarray.DataTree` with groups `posterior` and `sample_stats`.

        `posterior` holds `theta (chain, draw, time, parameter)` where paths were kept; `sample_stats` the losses
        `loss (chain, draw, time)`, their sum `total_loss`, and the tilt `s (draw)`.
        """
        try:
            import arviz_base
        except ImportError as error:
            raise ImportError('Run.to_arviz needs ArviZ: pip install "tiltwalk[arviz]"') from error
        groups: dict[str, dict[str, Any]] = {"sample_stats": {}}
        dims: dict[str, list[str]] = {}
        if self.paths is not None:
            groups["posterior"] = {"theta": np.ascontiguousarray(self.paths)}
            dims["theta"] = ["time", "parameter"]
        if self.losses is not None:
            groups["sample_stats"] |= {"loss": np.ascontiguousarray(self.losses), "total_loss": self.total_losses}
            dims["loss"] = ["time"]
        groups["sample_stats"]["s"] = np.broadcast_to(self.s, (self.chains, self.draws))
        return arviz_base.from_dict(groups, dims=dims)

    def __repr__(self) -> str:
        what = [name for name in ("losses", "paths", "kept") if getattr(self, name) is not None]
        accepted = ", ".join(f"{name} {rate:.0%}" for name, rate in self.acceptance.items())
        loss = (
            f", mean loss {self.losses.mean(dtype=np.float64):.6g} per model" if self.losses is not None and self.draws else ""
        )
        return (
            f"Run({self.chains} chains, {self.draws} draws of {' and '.join(what) or 'nothing'}{loss}, "
            f"accepted {accepted}, {self.evaluations} evaluations in {self.seconds:.1f} s)"
        )
