"""Data sets: what ships is what the script makes; files of users are read exactly or refused in one sentence."""

import gzip
import importlib.util
import io
import lzma
import os
import struct
import time
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from tiltwalk import data
from tiltwalk.data import find, idx, npz

ROOT = Path(__file__).resolve().parents[1]
SHARED = [folder / "shared" / "data" / "mnist.npz" for folder in (ROOT, *ROOT.parents[:2])]
WHOLE = next((path for path in SHARED if path.is_file()), None)
needs_mnist = pytest.mark.skipif(WHOLE is None, reason="needs the whole MNIST, shared/data/mnist.npz, beside the project")


@pytest.fixture(scope="module")
def small():
    return data.mnist2048()


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty folder, deep enough that nothing is found above it, as the current one."""
    here = tmp_path / "a" / "b" / "c"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv("TILTWALK_DATA", raising=False)
    return here


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 4, 5), dtype=np.uint8)
    return images, np.arange(30, dtype=np.uint8) % 10


def write_idx_files(folder, images, labels, ending=""):
    packers = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for what, array in (("images", images), ("labels", labels)):
            (folder / (find.stem(part, what) + ending)).write_bytes(packers[ending](idx.write(array)))


def test_mnist2048_has_even_classes_and_all_test_images(small):
    assert small.X_train.shape == (2048, 28, 28, 1) and small.X_test.shape == (10_000, 28, 28, 1)
    assert np.bincount(small.y_train).tolist() == [205] * 8 + [204] * 2
    assert np.bincount(small.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mnist2048_is_float32_in_the_unit_interval_with_int32_labels(small):
    assert small.X_train.dtype == small.X_test.dtype == np.float32
    assert small.y_train.dtype == small.y_test.dtype == np.int32
    assert small.X_train.min() == 0.0 and small.X_train.max() == 1.0
    assert 0.12 < small.X_train.mean() < 0.14  # MNIST: 0.1307
    assert small.classes == tuple("0123456789") and "CC BY-SA 3.0" in small.licence
    assert repr(small) == "Dataset('mnist2048', 2048 + 10000 images of 28x28x1, 10 classes)"


def test_mnist2048_is_shuffled_so_that_any_front_part_has_all_classes(small):
    assert len(set(small.y_train[:64].tolist())) == 10


def test_mnist2048_is_under_three_megabytes_with_its_licence_beside_it_and_loads_at_once():
    folder = Path(data.__file__).parent / "mnist2048"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000
    licence = (folder / "LICENCE.md").read_text()
    assert all(word in licence for word in ("Attribution-Share Alike 3.0", "LeCun", "Cortes", "Burges"))
    start = time.process_time()  # not the clock's: the machine may have other things to do
    data.mnist2048()
    assert time.process_time() - start < 3.0  # 0.12 s


@needs_mnist
def test_the_script_makes_what_ships(tmp_path):
    place = importlib.util.spec_from_file_location("make", ROOT / "scripts" / "make_mnist2048.py")
    make = importlib.util.module_from_spec(place)
    place.loader.exec_module(make)
    made = make.contents(WHOLE)
    shipped = {path.name: lzma.decompress(path.read_bytes()) for path in make.FOLDER.glob("*.xz")}
    assert made == shipped
    whole = npz.read(WHOLE, "x_train")
    assert np.array_equal(
        idx.read(make.FOLDER / (find.stem("train", "images") + ".xz")), whole[make.chosen(npz.read(WHOLE, "y_train"))]
    )


@needs_mnist
def test_mnist_and_fashion_mnist_are_found_beside_the_project(monkeypatch, small):
    monkeypatch.delenv("TILTWALK_DATA", raising=False)
    monkeypatch.chdir(ROOT)
    whole = data.mnist()
    assert whole.X_train.shape == (60_000, 28, 28, 1)
    assert np.array_equal(whole.X_test, small.X_test)
    if (WHOLE.parent / "fashion_mnist.npz").is_file():
        assert data.fashion_mnist().classes[9] == "Ankle boot"


def test_digits_has_a_fixed_split_with_every_class_in_both_parts():
    pytest.importorskip("sklearn")
    first, second = data.digits(), data.digits()
    assert first.X_train.shape == (1442, 8, 8, 1) and first.X_test.shape == (355, 8, 8, 1)
    assert np.bincount(first.y_test).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert first.X_train.max() == 1.0 and np.array_equal(first.X_test, second.X_test)


def test_load_knows_its_names():
    assert data.load("mnist2048").name == "mnist2048"
    with pytest.raises(ValueError, match=r"load.name must be one of mnist2048, mnist, fashion_mnist, digits; got 'cifar'"):
        data.load("cifar")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_idx_files_of_a_folder_are_read_compressed_or_not(tmp_path, toy, ending):
    write_idx_files(tmp_path, *toy, ending)
    found = data.mnist(tmp_path)
    assert np.array_equal(found.X_train[..., 0], toy[0].astype(np.float32) / np.float32(255))
    assert np.array_equal(found.y_test, toy[1])


def test_an_npz_of_a_folder_is_read(tmp_path, toy):
    np.savez(tmp_path / "fashion_mnist.npz", x_train=toy[0], y_train=toy[1], x_test=toy[0], y_test=toy[1])
    assert np.array_equal(data.fashion_mnist(tmp_path).y_train, toy[1])


def test_the_environment_variable_comes_first_and_folders_tell_data_sets_apart(alone, tmp_path, toy, monkeypatch):
    images, labels = toy
    write_idx_files(alone / "data" / "mnist", images, labels)
    write_idx_files(alone / "data" / "FashionMNIST" / "raw", 255 - images, labels)
    assert np.allclose(data.mnist().X_train + data.fashion_mnist().X_train, 1.0)
    write_idx_files(tmp_path / "other" / "mnist", images[:10], labels[:10])
    monkeypatch.setenv("TILTWALK_DATA", str(tmp_path / "other"))
    assert len(data.mnist().X_train) == 10
    monkeypatch.setenv("TILTWALK_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"TILTWALK_DATA must name a folder; .*nowhere is not there"):
        data.mnist()


def test_without_files_and_network_the_error_says_what_to_do(alone, monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")

    def unreachable(*args, **kwargs):
        raise URLError("no route")

    monkeypatch.setattr(datasets, "fetch_openml", unreachable)
    with pytest.raises(
        ConnectionError, match=r"mnist: no mnist.npz nor IDX files in .*OpenML could not be reached .*Put mnist.npz"
    ):
        data.mnist()


def test_openml_gives_both_parts(alone, monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.utils import Bunch

    labels = np.arange(60_010) % 10
    bunch = Bunch(data=np.zeros((60_010, 784)), target=labels.astype(str))
    monkeypatch.setattr(datasets, "fetch_openml", lambda *args, **kwargs: bunch)
    found = data.mnist()
    assert len(found.X_train) == 60_000 and np.array_equal(found.y_test, np.arange(10))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (lambda x, y: (x, y + 1), None, "train.labels must be whole numbers from 0 to 9"),
        (lambda x, y: (x, y[:-1]), None, "train.labels must be one for each of 30 images"),
        (lambda x, y: (x.reshape(30, -1), y), None, r"train.images must be of shape \(images, height, width\)"),
        (lambda x, y: (x / 255.0, y), None, "train.images must be whole numbers from 0 to 255"),
        (lambda x, y: (x[:0], y[:0]), None, r"train.images must be of shape .*got an array of shape \(0, 4, 5\)"),
    ],
)
def test_image_files_with_faults_are_refused(tmp_path, toy, images, labels, message):
    x, y = images(*toy)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=toy[0], y_test=toy[1])
    with pytest.raises(ValueError, match=message):
        data.mnist(tmp_path)


def test_a_folder_without_the_data_is_refused(tmp_path, toy):
    with pytest.raises(FileNotFoundError, match=r"mnist.folder must hold mnist.npz or the four IDX files"):
        data.mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"mnist.folder must be a folder"):
        data.mnist(tmp_path / "nowhere")
    write_idx_files(tmp_path, *toy)
    (tmp_path / find.stem("t10k", "labels")).unlink()
    with pytest.raises(FileNotFoundError, match="must hold all four IDX files; t10k-labels-idx1-ubyte is missing"):
        data.mnist(tmp_path)


# Files of users.


def csv(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_a_csv_with_text_labels_is_read_with_its_classes(tmp_path):
    X, y, info = data.read(csv(tmp_path, "a,kind,b\n1,cat,2.5\n3,dog,-4e1\n5,cat,6\n"), "kind")
    assert X.tolist() == [[1, 2.5], [3, -40], [5, 6]] and X.dtype == np.float32
    assert y.tolist() == [0, 1, 0] and y.dtype == np.int32
    assert info.classes == ("cat", "dog") and info.features == ("a", "b") and info.task == "classification"


def test_whole_numbers_are_classes_while_they_repeat_and_values_when_they_do_not(tmp_path):
    classes = data.read(csv(tmp_path, "a,y\n" + "".join(f"{i},{3 + i % 2}\n" for i in range(6))), "y")
    values = data.read(csv(tmp_path, "a,y\n" + "".join(f"{i},{3 + i}\n" for i in range(6))), "y")
    assert classes[1].tolist() == [0, 1, 0, 1, 0, 1] and classes[2].classes == (3, 4)
    assert values[1].tolist() == [3, 4, 5, 6, 7, 8] and values[1].dtype == np.float32
    assert data.read(csv(tmp_path, "a,y\n1,3\n2,3\n3,4\n4,4\n"), "y", task="regression")[1].tolist() == [3, 3, 4, 4]


@pytest.mark.parametrize(("name", "sep"), [("t.csv", ";"), ("t.tsv", "\t"), ("t.csv", "\t")])
def test_separators_and_a_byte_order_mark_are_understood(tmp_path, name, sep):
    text = f"a{sep}b{sep}y\n1{sep}2{sep}0.5\n\n3{sep}4{sep}1.5\n"
    X, y, info = data.read(csv(tmp_path, text, name, "utf-8-sig"), "y")
    assert X.tolist() == [[1, 2], [3, 4]] and y.tolist() == [0.5, 1.5] and info.features == ("a", "b")


def test_a_csv_without_a_header_has_numbered_columns_and_may_have_no_target(tmp_path):
    path = csv(tmp_path, "1,2,7.5\n3,4,8.5\n")
    X, y, _ = data.read(path, "2")
    assert X.tolist() == [[1, 2], [3, 4]] and y.tolist() == [7.5, 8.5]
    X, y, info = data.read(path)
    assert X.shape == (2, 3) and y is None and info.task is None


def test_a_long_csv_is_read_in_pieces_without_a_seam(tmp_path):
    table = np.random.default_rng(1).normal(size=(9001, 3)).astype(np.float32)
    path = tmp_path / "t.csv"
    np.savetxt(path, table, delimiter=",", header="a,b,y", comments="", fmt="%.9g")
    X, y, _ = data.read(path, "y")
    assert np.array_equal(X, table[:, :2]) and np.array_equal(y, table[:, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv must hold a table; its first line is empty"),
        ("a,y\n", "t.csv must hold at least one row; it holds a header alone"),
        ("a,b\n1,2\n", "t.csv: target must be one of its columns, a, b; got 'y'"),
        ("a,b,y\n1,red,0\n2,blue,1\n", r"features must be numbers; got text in 'b' \(such as 'red'\)"),
        ("a,b,c,y\n1,red,x,0\n2,blue,z,1\n", r"text in 'b' \(such as 'red'\), 'c' \(such as 'x'\)\. Encode or drop"),
        ("a,b,y\n1,2,0\n1,,1\n", "column 'b' must have no missing values; got '' in row 2"),
        ("a,b,y\nNA,2,0\n", "column 'a' must have no missing values; got 'NA' in row 1"),
        ("a,b,y\n1,2,0\n1,nan,1\n", "features must be finite in float32; got nan in column 'b', row 2"),
        ("a,b,y\n1,2,0\n1,1e39,1\n", "features must be finite in float32; got inf in column 'b', row 2"),
        ("a,y\n1,0\n2,\n", "target 'y' must have no missing values; got '' in row 2"),
        ("a,y\n1,0.5\n2,inf\n", "target 'y' must be finite; got inf in row 2"),
        ("a,y\n1,2\n3\n", "every row must have 2 columns, as the first; got 1 in row 2"),
        ("a,a,y\n1,2,3\n", "columns must have different names; got 'a' twice or more"),
        ("y\n1\n", "must hold a column besides the target 'y'"),
        ("a,y\n1,up\n2,up\n", "target 'y' must have two classes or more; got 'up' alone"),
    ],
)
def test_tables_with_faults_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        data.read(csv(tmp_path, text), "y")


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"read.path must be a file"):
        data.read(tmp_path / "none.csv", "y")
    with pytest.raises(ValueError, match=r"read.path must end in .csv, .tsv, .parquet, .npz or be an IDX file; got 't.pkl'"):
        data.read(csv(tmp_path, "x", "t.pkl"), "y")
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        data.read(csv(tmp_path, "ä,y\n1,2\n", encoding="latin-1"), "y")
    with pytest.raises(ValueError, match=r"read.task must be 'classification' or 'regression'; got 'ranking'"):
        data.read(csv(tmp_path, "a,y\n1,2\n"), "y", task="ranking")
    with pytest.raises(ValueError, match="target 'y' must be numbers for regression; got text, such as 'cat'"):
        data.read(csv(tmp_path, "a,y\n1,cat\n"), "y", task="regression")


def test_an_npz_is_read_by_the_names_of_its_arrays(tmp_path, toy):
    images, labels = toy
    np.savez_compressed(tmp_path / "t.npz", x_train=images, y_train=labels, x_test=images[:3], y_test=labels[:3])
    X, y, info = data.read(tmp_path / "t.npz", "y_train", scale=255)
    assert X.shape == (30, 4, 5) and X.max() <= 1.0 and y.tolist() == labels.tolist() and info.classes == tuple(range(10))
    np.savez(tmp_path / "u.npz", X=images.reshape(30, -1) / 255.0, y=np.linspace(0, 1, 60).reshape(30, 2))
    X, y, info = data.read(tmp_path / "u.npz", "y")
    assert X.shape == (30, 20) and y.shape == (30, 2) and info.task == "regression"
    np.savez(tmp_path / "v.npz", anything=np.ones((2, 3)))
    assert data.read(tmp_path / "v.npz")[0].shape == (2, 3)
    np.savez(tmp_path / "w.npz", X=np.ones((4, 1)), y=np.array(["b", "a", "b", "a"]))
    assert data.read(tmp_path / "w.npz", "y")[2].classes == ("a", "b")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"X": np.array([[1, "a"]], object), "y": np.ones(1)},
            r"t.npz\['X'\] must hold numbers or strings; got Python objects",
        ),
        ({"X": np.ones((3, 2)), "y": np.array([1, None, 2], object)}, r"t.npz\['y'\] .*only pickle"),
        ({"X": np.ones((3, 2))}, "target must be one of its arrays, X; got 'y'"),
        ({"Z": np.ones((3, 2)), "y": np.ones(3)}, "must hold an array of features named X or x; got Z, y"),
        ({"X": np.ones((3, 2)), "y": np.ones(2)}, "target 'y' must have 3 rows, one for each of X; got 2"),
        ({"X": np.ones(3), "y": np.ones(3)}, "features must be at least one row of at least one column"),
        ({"X": np.ones((0, 3)), "y": np.ones(0)}, r"at least one row .*got an array of shape \(0, 3\)"),
        ({"X": np.array([["1", "2"]]), "y": np.ones(1)}, "features must be numbers"),
        ({"X": np.ones((2, 2)) * 1j, "y": np.ones(2)}, "features must be numbers; got an array .*complex128"),
        ({"X": np.full((2, 2, 2), 200, np.uint8), "y": np.ones(2)}, "images must be scaled; got whole numbers from 200 to 200"),
        ({"X": np.array([[1.0, np.nan]]), "y": np.ones(1)}, "features must be finite in float32; got nan in column 1, row 1"),
        ({"X": np.ones((2, 2)), "y": np.ones(2) * 1j}, "target 'y' must be numbers, truth values or text"),
    ],
)
def test_archives_with_faults_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        data.read(tmp_path / "t.npz", "y")


def archive_with(tmp_path, member, *, compression=zipfile.ZIP_STORED):
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", compression) as stored:
        stored.writestr("X.npy", member)
    return path


def npy(shape, body=b"", dtype="<f8"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue() + body


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (npy((10**12,), b"\0" * 16), r"must hold 8000000000000 bytes for the shape \(1000000000000,\) of its header; got 16"),
        (npy((10**9,), dtype="<U0"), "values of no bytes"),
        (b"\x93NUMPY\x09\x00", "its header cannot be read"),
        (b"", "its header cannot be read"),
        (npy((2,), b"\0" * 16)[:40], "its header cannot be read"),
    ],
)
def test_an_array_that_lies_about_its_size_is_refused_before_anything_is_allocated(tmp_path, member, message):
    with pytest.raises(ValueError, match=message):
        data.read(archive_with(tmp_path, member))


def test_damaged_archives_are_refused(tmp_path):
    whole = archive_with(tmp_path, npy((200,), bytes(range(200)) * 8), compression=zipfile.ZIP_DEFLATED)
    content = whole.read_bytes()
    for name, bad, message in [
        ("cut.npz", content[: len(content) // 2], "must be an NPZ file; it is damaged or of another format"),
        ("empty.npz", b"", "empty.npz must be an NPZ file; it is empty"),
        ("flip.npz", content[:120] + bytes([content[120] ^ 0xFF]) + content[121:], "must be a whole array; it is damaged"),
    ]:
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(ValueError, match=message):
            data.read(tmp_path / name)


def test_an_archive_that_lies_about_its_size_is_refused_before_anything_is_allocated(tmp_path):
    # Both sizes in the central directory and the array's header agree on 8 TB; the file has some 300 bytes.
    whole = archive_with(tmp_path, npy((10**12,), b"\0" * 16)).read_bytes()
    entry = whole.rindex(b"PK\x01\x02")
    begins = len(npy((10**12,)))
    sizes = struct.pack("<HHQQ", 1, 16, 8 * 10**12 + begins, 8 * 10**12 + begins)
    central = bytearray(whole[entry:].split(b"PK\x05\x06")[0])
    central[20:28] = b"\xff" * 8  # both sizes are in the extra field then
    central[30:32] = struct.pack("<H", len(sizes))
    central = bytes(central) + sizes
    end = bytearray(b"PK\x05\x06" + whole.split(b"PK\x05\x06")[1])
    end[12:16] = struct.pack("<I", len(central))
    (tmp_path / "lie.npz").write_bytes(whole[:entry] + central + bytes(end))
    with pytest.raises(ValueError, match="it declares 8000000000128 bytes, more than the file can hold"):
        data.read(tmp_path / "lie.npz")


def test_any_changed_byte_of_an_archive_gives_arrays_or_a_value_error(tmp_path):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, X=np.arange(6.0).reshape(2, 3), y=np.array(["a", "b"]))
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        for value in (0, 255, content[place] ^ 1):
            path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
            try:
                data.read(path, "y")
            except ValueError:
                refused += 1
    assert refused > len(content)


def test_idx_files_are_read_with_their_labels_and_bytes_become_unit_values(tmp_path, toy):
    (tmp_path / "x-idx3-ubyte.gz").write_bytes(gzip.compress(idx.write(toy[0])))
    (tmp_path / "y-idx1-ubyte").write_bytes(idx.write(toy[1]))
    X, y, info = data.read(tmp_path / "x-idx3-ubyte.gz", "y-idx1-ubyte")
    assert np.array_equal(X, toy[0].astype(np.float32) / np.float32(255)) and y.tolist() == toy[1].tolist()
    assert info.task == "classification"
    with pytest.raises(FileNotFoundError, match="target must be the IDX file of labels"):
        data.read(tmp_path / "x-idx3-ubyte.gz", "z-idx1-ubyte")


def test_idx_numbers_are_big_endian(tmp_path):
    path = tmp_path / "v.idx"
    path.write_bytes(b"\0\0\x0d\x02" + struct.pack(">II", 2, 3) + struct.pack(">6f", *range(6)))
    assert idx.read(path).tolist() == [[0, 1, 2], [3, 4, 5]] and idx.read(path).dtype == np.float32


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 and so on", "does not begin like one"),
        (b"\0\0\x08", "does not begin like one"),
        (b"\0\0\x08\x03\0\0", "its header is cut short"),
        (b"\0\0\x08\x01\0\0\0\x05abc", r"must hold 5 bytes for the shape \(5,\) of its header; got 3"),
        (b"\0\0\x08\x01\0\0\0\x02abc", r"must hold 2 bytes for the shape \(2,\) of its header; got "),
        (b"\0\0\x0e\x03" + b"\xff" * 12 + b"abc", "must hold 633825299659213889955102228480 bytes|of its header; got 3"),
    ],
)
def test_idx_files_with_faults_are_refused(tmp_path, content, message, pack):
    ending = {bytes: "", gzip.compress: ".gz", lzma.compress: ".xz"}[pack]
    path = tmp_path / f"x-idx3-ubyte{ending}"
    path.write_bytes(pack(content))
    with pytest.raises(ValueError, match=message):
        data.read(path)


@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_damaged_compressed_files_are_refused(tmp_path, toy, pack, ending):
    path = tmp_path / f"x-idx3-ubyte{ending}"
    content = pack(idx.write(toy[0]))
    middle = len(content) // 2
    for bad in (content[:middle], content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :], b"junk"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="must be a whole compressed IDX file; it is damaged or cut short"):
            idx.read(path)


def test_a_compressed_file_that_unpacks_to_more_than_it_declares_is_stopped_early(tmp_path):
    path = tmp_path / "bomb-idx1-ubyte.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b"\0\0\x08\x01\0\0\0\x05")
        for _ in range(64):
            stream.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"must hold 5 bytes .* got more"):
        idx.read(path)


def test_parquet_is_read_as_csv_is(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    table = arrow.table({"a": [1.0, 2.0, 3.0], "kind": ["x", "y", "x"], "b": [True, False, True], "n": [1, 2, 3]})
    parquet.write_table(table, path)
    X, y, info = data.read(path, "kind")
    assert X.tolist() == [[1, 1, 1], [2, 0, 2], [3, 1, 3]] and y.tolist() == [0, 1, 0]
    assert info.features == ("a", "b", "n") and info.classes == ("x", "y")
    assert data.read(path.rename(tmp_path / "u.pq"), "kind")[1].tolist() == [0, 1, 0]
    coded = arrow.table({"a": [1.0, 2.0], "kind": arrow.array(["x", "y"]).dictionary_encode()})
    parquet.write_table(coded, path)
    assert data.read(path, "kind")[2].classes == ("x", "y")


def test_parquet_with_faults_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    for columns, message in [
        ({"a": [1.0], "b": ["x"], "y": [1]}, r"features must be numbers; got text in 'b' \(such as 'x'\)"),
        ({"a": [1.0, None], "y": [1, 2]}, "column 'a' must have no missing values; got 1"),
        ({"a": [1.0]}, "target must be one of its columns, a; got 'y'"),
        ({"a": [1.0], "y": [[1, 2]]}, "target 'y' must be numbers, truth values or text; got list"),
        ({"a": arrow.array([], "float64"), "y": arrow.array([], "int64")}, "must hold at least one row"),
        ({"a": [1.0, float("nan")], "y": [1.5, 2.5]}, "features must be finite in float32; got nan in column 'a', row 2"),
    ]:
        parquet.write_table(arrow.table(columns), path)
        with pytest.raises(ValueError, match=message):
            data.read(path, "y")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="must be a whole Parquet file"):
        data.read(path, "y")


def test_a_missing_extra_names_itself(tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] in ("sklearn", "pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "tiltwalk\[sklearn\]"'):
        data.digits()
    with pytest.raises(ImportError, match=r'pip install "tiltwalk\[tables\]"'):
        data.read(csv(tmp_path, "", "t.parquet"), "y")
    monkeypatch.chdir(os.sep)
    monkeypatch.delenv("TILTWALK_DATA", raising=False)
    with pytest.raises(ImportError, match=r'OpenML needs scikit-learn: pip install "tiltwalk\[sklearn\]"'):
        data.mnist()
