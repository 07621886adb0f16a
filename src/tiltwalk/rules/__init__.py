"""Rules: how a proposal is decided. A rule evaluates as much of the loss as it needs, and never proposes."""

from tiltwalk.rules.early_reject import EarlyReject
from tiltwalk.rules.metropolis import Metropolis

__all__ = ["EarlyReject", "Metropolis"]
