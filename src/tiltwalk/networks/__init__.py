"""Networks as functions of one flat parameter vector: ours, described by layers, and those of other libraries."""

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
    "lenet",
    "linear",
    "mlp",
    "sequential",
]
