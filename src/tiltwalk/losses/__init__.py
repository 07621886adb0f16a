"""Losses of models: `(m, d) -> (m,)`. Supervised ones of networks on data, black boxes, landscapes, least squares."""

from tiltwalk.losses.blackbox import BlackBox
from tiltwalk.losses.landscapes import Function, bowl, double_well, himmelblau
from tiltwalk.losses.least_squares import LeastSquares, least_squares
from tiltwalk.losses.supervised import Supervised

__all__ = ["BlackBox", "Function", "LeastSquares", "Supervised", "bowl", "double_well", "himmelblau", "least_squares"]
