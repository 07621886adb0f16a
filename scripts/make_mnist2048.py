"""Makes the small MNIST that ships with the package, from the whole one.

    python scripts/make_mnist2048.py path/to/mnist.npz [folder]

Training part: the images are put in a random order (fixed seed), and of each class the first 205 are taken, of the two
last classes the first 204: 2,048 in all, in that order. Test part: all 10,000, in their own order. Both are written as
the four IDX files of MNIST, compressed with xz, which is smaller than a compressed NPZ by a sixth. The same images give
the same contents; the compressed bytes are the same for one version of liblzma.
"""

import argparse
import lzma
from pathlib import Path

import numpy as np

from tiltwalk.data import find, idx, npz

FOLDER = Path(__file__).resolve().parents[1] / "src" / "tiltwalk" / "data" / "mnist2048"
SEED = 2048
TAKEN = [205] * 8 + [204] * 2
# Images are bytes in rows of 28, without a period of two or four for the coder to know of; a little more context pays.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def chosen(labels: np.ndarray) -> np.ndarray:
    """The indices of the training images to take."""
    # RandomState, because NumPy promises that its stream never changes, which it does not for Generator.
    order = np.random.RandomState(SEED).permutation(len(labels))
    place = np.empty(len(labels), int)  # of an image among those of its class
    for c in range(len(TAKEN)):
        of_class = labels[order] == c
        place[of_class] = np.arange(of_class.sum())
    return order[place < np.asarray(TAKEN)[labels[order]]]


def contents(path: Path) -> dict[str, bytes]:
    """File name -> uncompressed contents."""
    x_train, y_train, x_test, y_test = (npz.read(path, key) for key in ("x_train", "y_train", "x_test", "y_test"))
    rows = chosen(y_train)
    arrays = {
        ("train", "images"): x_train[rows],
        ("train", "labels"): y_train[rows],
        ("t10k", "images"): x_test,
        ("t10k", "labels"): y_test,
    }
    return {find.stem(*which) + ".xz": idx.write(array) for which, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mnist", type=Path, help="mnist.npz, with x_train, y_train, x_test, y_test")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="where to write (default: the package)")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, raw in contents(args.mnist).items():
        packed = lzma.compress(raw, check=lzma.CHECK_SHA256, filters=FILTERS)
        (args.folder / name).write_bytes(packed)
        print(f"{args.folder / name}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()
