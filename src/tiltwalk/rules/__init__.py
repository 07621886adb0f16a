"""Rules: how a proposal is decided. A rule evaluates as much of the loss as it needs, and never proposes."""

from tiltwalk.rules.metropolis import Metropolis

__all__ = ["Metropolis"]
