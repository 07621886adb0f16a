"""Losses of models: `(m, d) -> (m,)`."""

from tiltwalk.losses.landscapes import Function, bowl, double_well, himmelblau
from tiltwalk.losses.least_squares import LeastSquares, least_squares

__all__ = ["Function", "LeastSquares", "bowl", "double_well", "himmelblau", "least_squares"]
