"""Where the files of an image data set are: a folder, the usual places, or OpenML."""

import os
from pathlib import Path

import numpy as np

from tiltwalk.data import idx, npz
from tiltwalk.data.dataset import Part

TRAIN = 60_000
ENDINGS = ("", ".gz", ".xz")


def parts(name: str, folder: str | Path | None, *, also: str, openml: str) -> tuple[Part, Part]:
    """Training and test part, from the first place that has them. `also` is another tool's folder of IDX files."""
    if folder is not None:
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{name}.folder must be a folder; {folder} is not there or is a file.")
        found = in_folder(folder, name, (".", name, also))
        if found is None:
            raise FileNotFoundError(
                f"{name}.folder must hold {name}.npz or the four IDX files ({stem('train', 'images')}, …); "
                f"{folder} has neither."
            )
        return found
    searched = places()
    for place in searched:
        found = in_folder(place, name, (name, also))
        if found is not None:
            return found
    return from_openml(name, openml, searched)


def places() -> list[Path]:
    """Where data are looked for when no folder is given."""
    here, listed = Path.cwd(), []
    if named := os.environ.get("TILTWALK_DATA"):
        listed.append(Path(named))
        if not listed[0].is_dir():
            raise FileNotFoundError(f"TILTWALK_DATA must name a folder; {named} is not there or is a file.")
    listed.append(here / "data")
    listed += [above / "shared" / "data" for above in (here, *here.parents[:2])]
    return [place for place in listed if place.is_dir()]


def in_folder(folder: Path, name: str, subfolders: tuple[str, ...]) -> tuple[Part, Part] | None:
    """`name.npz`, or four IDX files in one of the subfolders; None where there is nothing of the kind.

    The IDX files of different data sets have the same names, so that only the folder tells them apart.
    """
    packed = folder / f"{name}.npz"
    if packed.is_file():
        x_train, y_train, x_test, y_test = (npz.read(packed, key) for key in ("x_train", "y_train", "x_test", "y_test"))
        return (x_train, y_train), (x_test, y_test)
    for sub in subfolders:
        if any(idx_path(folder / sub, part, what) for part in ("train", "t10k") for what in ("images", "labels")):
            return idx_files(folder / sub)
    return None


def idx_files(folder: Path) -> tuple[Part, Part]:
    """The four IDX files of a folder."""

    def one(part: str, what: str) -> np.ndarray:
        path = idx_path(folder, part, what)
        if path is None:
            raise FileNotFoundError(f"{folder} must hold all four IDX files; {stem(part, what)} is missing.")
        return idx.read(path)

    train = one("train", "images"), one("train", "labels")
    return train, (one("t10k", "images"), one("t10k", "labels"))


def stem(part: str, what: str, joint: str = "-") -> str:
    return f"{part}-{what}{joint}idx{3 if what == 'images' else 1}-ubyte"


def idx_path(folder: Path, part: str, what: str) -> Path | None:
    """The file of that name, spelled with a dash or a dot, compressed or not; None where there is none."""
    for joint in "-.":
        for ending in ENDINGS:
            path = folder / (stem(part, what, joint) + ending)
            if path.is_file():
                return path
    return None


def from_openml(name: str, openml: str, searched: list[Path]) -> tuple[Part, Part]:
    """Both parts from OpenML, whose first 60,000 rows are the training part."""
    looked = f"no {name}.npz nor IDX files in {', '.join(str(p) for p in searched) or 'any of the usual folders'}"
    remedy = f"Put {name}.npz or the four IDX files into a folder and pass it: {name}(folder)."
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise ImportError(
            f'{name}: {looked}, and fetching it from OpenML needs scikit-learn: pip install "tiltwalk[sklearn]". {remedy}'
        ) from None
    try:
        bunch = fetch_openml(openml, version=1, as_frame=False, parser="liac-arff")
    except (OSError, TimeoutError) as error:
        raise ConnectionError(f"{name}: {looked}, and OpenML could not be reached ({error}). {remedy}") from None
    images = np.asarray(bunch.data).reshape(-1, 28, 28).astype(np.uint8)
    labels = np.asarray(bunch.target).astype(np.uint8)
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
