"""Networks as functions of one flat parameter vector: ours, described by layers, and those of other libraries."""

from tiltwalk.networks.adapt_equinox import from_equinox
from tiltwalk.networks.adapt_flax import from_flax
from tiltwalk.networks.adapt_torch import from_torch
from tiltwalk.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, MaxPool
from tiltwalk.networks.models import lenet, linear, mlp
from tiltwalk.networks.network import Network, Parameter, sequential

__all__ = [
    "Activation",
    "AvgPool",
    "Conv",
    "Dense",
    "Flatten",
    "MaxPool",
    "Network",
    "Parameter",
    "from_equinox",
    "from_flax",
    "from_torch",
    "lenet",
    "linear",
    "mlp",
    "sequential",
]
