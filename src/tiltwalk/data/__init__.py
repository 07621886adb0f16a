"""Data sets by name, and a reader of a user's own files.

Use:

    data.mnist2048(), data.digits(), data.mnist(folder), data.fashion_mnist(folder)     -> Dataset
    data.read("wine.csv", target="quality")                                            -> X, y, info
"""

from tiltwalk.data.dataset import Dataset
from tiltwalk.data.files import Info, read
from tiltwalk.data.images import NAMED, digits, fashion_mnist, load, mnist, mnist2048

__all__ = ["NAMED", "Dataset", "Info", "digits", "fashion_mnist", "load", "mnist", "mnist2048", "read"]
