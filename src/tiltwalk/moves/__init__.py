"""Moves: ways to change a path. Every one is reversible with respect to the walk, so the walk never enters the acceptance.

A move says what noise it needs and turns it into a `Proposal`; whether that is taken is a rule's business. A mixture is a list
of `(move, weight)`. A new move is one new file here: a frozen pytree with `step`, `name`, `check`, `parts`, and for each part
`noise_shape` and `propose`.
"""

from tiltwalk import check
from tiltwalk.moves.bridge import Bridge
from tiltwalk.moves.curvature import estimate_curvature
from tiltwalk.moves.hamiltonian import Hamiltonian
from tiltwalk.moves.langevin import LangevinSweep
from tiltwalk.moves.shoot import Shoot
from tiltwalk.moves.single_site import SingleSite
from tiltwalk.moves.sweep import Sweep
from tiltwalk.types import Move

__all__ = ["Bridge", "Hamiltonian", "LangevinSweep", "Shoot", "SingleSite", "Sweep", "estimate_curvature", "paper"]


def paper(length: int, step: float = 1.0) -> list[tuple[Move, float]]:
    """The paper's mixture for paths of `length` models.

    Up to 4 models: always shoot. Longer: with probability `2/length` shoot, the last model forwards or the first backwards,
    else a bridge of one model. Each model is then changed equally often.
    """
    check.whole("paper.length", length, low=1)
    if length <= 4:
        return [(Shoot(step=step), 1.0)]
    return [(Shoot(step=step, reach=1), 2 / length), (Bridge(1, step=step), 1 - 2 / length)]
