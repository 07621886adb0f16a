"""Brownian bridges: fix two times of the path, redraw what is between them (the paper's algorithm 2)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from tiltwalk import check
from tiltwalk.measure import PathMeasure
from tiltwalk.moves._common import check_settings, pick, windowed
from tiltwalk.pytree import pytree, static
from tiltwalk.types import ChainState, Noise, Proposal


@pytree
class Bridge:
    """Redraws `width` consecutive models between two that stay, at a place chosen at random.

    `width=None` chooses both ends uniformly among the pairs with something between them, so that the width varies. A bridge
    never touches the ends of a path: mix it with `Shoot`, or use `SingleSite` or `Sweep`, which reach everywhere.
    """

    width: int | None = static(default=1)
    step: Any = 1.0
    fraction: float = static(default=1.0)

    trailing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings("Bridge", self.step, self.fraction)
        if self.width is not None:
            check.whole("Bridge.width", self.width, low=1)

    @property
    def name(self) -> str:
        return "bridge" if self.width is None else f"bridge_{self.width}"

    def check(self, measure: PathMeasure) -> None:
        room = measure.length - 2
        if room < 1:
            raise ValueError(f"Bridge needs a path of at least 3 models; got length {measure.length}.")
        if self.width is not None and self.width > room:
            raise ValueError(f"Bridge.width must be between 1 and length - 2 = {room}; got {self.width}.")

    def parts(self, length: int) -> tuple[Bridge, ...]:
        return (self,)

    def noise_shape(self, length: int) -> tuple[int, int]:
        return 1, (length - 2 if self.width is None else self.width)

    def propose(self, noise: Noise, state: ChainState, measure: PathMeasure, s: Any) -> Proposal:
        room = measure.length - 2
        if self.width is not None:
            first = 1 + pick(noise.choice[0], room - self.width + 1)
            return windowed(noise, state.path, measure, first, None, self.step, self.fraction)
        # a bridge of w models fits in room - w + 1 places: choose the width by these weights, then the place
        widths = jnp.arange(1, room + 1)
        places = jnp.cumsum(room - widths + 1)
        count = 1 + jnp.searchsorted(places, noise.choice[0] * places[-1], side="right").astype(jnp.int32)
        count = jnp.minimum(count, room)
        first = 1 + pick(noise.choice[1], room - count + 1)
        return windowed(noise, state.path, measure, first, count, self.step, self.fraction)
