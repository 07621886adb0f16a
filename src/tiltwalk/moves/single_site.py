"""One model at a time: a bridge inside the path, a shot at its ends."""

from __future__ import annotations

from typing import Any, ClassVar

from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_settings, pick, windowed
from tiltwalk.pytree import pytree, static
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class SingleSite:
    """Redraws one model, chosen uniformly, given its neighbours."""

    step: Any = 1.0
    fraction: float = static(default=1.0)

    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("SingleSite", self.step, self.fraction)

    @property
    def name(self) -> str:
        return "single_site"

    def check(self, measure: PathMeasure) -> None:
        pass

    def parts(self, length: int) -> tuple[SingleSite, ...]:
        return (self,)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return 1, 1

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        site = pick(noise.choice[0], measure.length)
        return windowed(noise, state.path, measure, site, None, self.step, self.fraction)
