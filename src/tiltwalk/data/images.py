"""MNIST, its small form that ships with the package, Fashion-MNIST, and scikit-learn's digits: images in [0, 1].

Origins:

    LeCun, Cortes, Burges, "The MNIST database of handwritten digits" (1998)
    Xiao, Rasul, Vollgraf, "Fashion-MNIST" (2017), arXiv:1708.07747
    Alpaydin, Kaynak, "Optical recognition of handwritten digits" (1998), UCI repository
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tiltwalk.data import find
from tiltwalk.data.dataset import Dataset, Part, from_parts

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
MNIST_LICENCE = "CC BY-SA 3.0; Yann LeCun, Corinna Cortes, Christopher J. C. Burges"
FASHION_LICENCE = "MIT; Zalando SE"
UCI_LICENCE = "CC BY 4.0; Ethem Alpaydin, Cenk Kaynak (UCI Machine Learning Repository)"
WHITE = 255


def mnist2048() -> Dataset:
    """2,048 training images of MNIST, its classes as even as can be, and the 10,000 test images. Needs no download."""
    train, test = find.idx_files(Path(__file__).parent / "mnist2048")
    return from_parts(train, test, name="mnist2048", classes=DIGITS, licence=MNIST_LICENCE, white=WHITE)


def mnist(folder: str | Path | None = None) -> Dataset:
    """MNIST, 60,000 + 10,000 images of 28×28.

    Looked for in `folder` if that is given; else in the folder that the environment variable `TILTWALK_DATA` names, in
    `data`, and in `shared/data` here or up to two folders above; else it is fetched from OpenML by scikit-learn. A
    folder may hold `mnist.npz` (arrays `x_train`, `y_train`, `x_test`, `y_test`) or the four IDX files, compressed or
    not; among the usual folders the IDX files must lie in a subfolder of the data set's name.
    """
    train, test = find.parts("mnist", folder, also="MNIST/raw", openml="mnist_784")
    return from_parts(train, test, name="mnist", classes=DIGITS, licence=MNIST_LICENCE, white=WHITE)


def fashion_mnist(folder: str | Path | None = None) -> Dataset:
    """Fashion-MNIST, 60,000 + 10,000 images of 28×28; looked for as `mnist` is, under `fashion_mnist`."""
    train, test = find.parts("fashion_mnist", folder, also="FashionMNIST/raw", openml="Fashion-MNIST")
    return from_parts(train, test, name="fashion_mnist", classes=CLOTHES, licence=FASHION_LICENCE, white=WHITE)


def digits() -> Dataset:
    """scikit-learn's 1,797 images of 8×8; every fifth image of a class is for testing. Needs `tiltwalk[sklearn]`."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError('digits needs scikit-learn: pip install "tiltwalk[sklearn]".') from None
    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target
    test = np.zeros(len(labels), bool)
    for c in range(10):
        test[np.flatnonzero(labels == c)[4::5]] = True
    parts: tuple[Part, Part] = (images[~test], labels[~test]), (images[test], labels[test])
    return from_parts(*parts, name="digits", classes=DIGITS, licence=UCI_LICENCE, white=16)


NAMED: dict[str, Callable[[], Dataset]] = {
    "mnist2048": mnist2048,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "digits": digits,
}


def load(name: str) -> Dataset:
    """The data set of that name: `mnist2048`, `mnist`, `fashion_mnist` or `digits`."""
    if name not in NAMED:
        raise ValueError(f"load.name must be one of {', '.join(NAMED)}; got {name!r}.")
    return NAMED[name]()
