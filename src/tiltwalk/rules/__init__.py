"""Rules: how a proposal is decided. A rule evaluates as much of the loss as it needs, and never proposes."""

from tiltwalk.rules.delayed import Delayed
from tiltwalk.rules.early_reject import EarlyReject
from tiltwalk.rules.metropolis import Metropolis
from tiltwalk.rules.minibatch import Minibatch

__all__ = ["Delayed", "EarlyReject", "Metropolis", "Minibatch"]
