"""Run folders: what is in them, that they go on as if never stopped, and what they make of damage."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tiltwalk as tw
from tests.run_cases import KillAfter, Killed, copied, made, same, small
from tiltwalk import runs
from tiltwalk.runs import session


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests copy it before they change it."""
    return made(tmp_path_factory.mktemp("runs"))


# ---- what is in a folder ----


def test_a_run_has_the_draws_that_sampling_in_one_go_has(whole: Path) -> None:
    folder = runs.open(whole)
    measure = folder.measure
    moves = [(tw.moves.Sweep(step=0.1), 1.0)]
    run = tw.sample(
        measure, folder.run.s[0], steps=48, burn_in=16, thin=2, moves=moves, chains=2, key=1, keep="paths",
        target_acceptance=0.25, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(folder.run.losses, run.losses)
    np.testing.assert_array_equal(folder.paths, run.paths[:, 3::4])
    np.testing.assert_array_equal(folder.run.state.path, run.state.path)
    np.testing.assert_allclose(folder.run.steps["sweep"], run.steps["sweep"])
    np.testing.assert_allclose(folder.run.acceptance["sweep"], run.acceptance["sweep"], rtol=1e-5)


def test_a_folder_opens_in_xarray_and_arviz_without_our_package(whole: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    folder = runs.open(whole)
    tree = xarray.open_datatree(whole / "draws.zarr", engine="zarr", consolidated=False)
    for group in ("sample_stats", "posterior", "progress"):
        for name, values in folder.arrays(group).items():
            np.testing.assert_array_equal(tree[group][name].values, values)
    assert tree["sample_stats"]["loss"].dims == ("chain", "draw", "time")
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "time", "parameter")
    arviz = pytest.importorskip("arviz_base")
    flat = arviz.extract(arviz.convert_to_datatree(tree), group="sample_stats", var_names="loss", keep_dataset=False)
    np.testing.assert_array_equal(flat.transpose("sample", "time").values, folder.run.losses.reshape(-1, 3))


def test_a_flipped_bit_in_a_chunk_is_noticed_by_zarr_too(whole: Path, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = copied(whole, tmp_path / "run")
    chunk = path / "draws.zarr/sample_stats/loss/c/0/0/0"
    content = bytearray(chunk.read_bytes())
    content[17] ^= 4
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open(path / "draws.zarr", mode="r")["sample_stats/loss"][:]


def test_nothing_in_a_folder_is_code(whole: Path) -> None:
    kinds = {path.suffix for path in whole.rglob("*") if path.is_file() and path.suffix}
    assert kinds <= {".toml", ".json", ".jsonl", ".safetensors", ".sha256"}
    assert all(not path.stat().st_mode & 0o111 for path in whole.rglob("*") if path.is_file())


def test_the_digests_of_finished_chunks_are_in_the_form_of_sha256sum(tmp_path: Path) -> None:
    # models of 1,500 parameters: several chunks of paths
    path = tmp_path / "run"
    session.begin(small(tmp_path, "network.kind=mlp", "network.hidden=[3000]", "output.path_every=2"), path)
    lines = (path / "draws.sha256").read_text().splitlines()
    assert len(lines) >= 3
    done = subprocess.run(["sha256sum", "--check", "--quiet", "draws.sha256"], cwd=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert runs.open(path).paths.shape == (2, 24, 3, 3 * 3000 + 3 * 3001)


# ---- going on ----


@pytest.mark.parametrize("pieces", [1, 3, 4, 7, 12])
def test_a_killed_run_goes_on_as_if_never_stopped(pieces: int, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(Killed):
        session.begin(small(tmp_path), path, KillAfter(pieces))
    for again in (2, 5):  # and is killed twice more
        try:
            session.resume(path, watcher=KillAfter(again))
        except Killed:
            continue
    if runs.open(path).status != "finished":
        session.resume(path)
    same(path, whole)


def test_steps_are_steps_in_all_and_more_steps_come_on_top(whole: Path, tmp_path: Path) -> None:
    path, other, short = (copied(whole, tmp_path / name) for name in ("run", "other", "short"))
    session.resume(path, steps=80)
    session.resume(other, more=32)
    same(path, other)
    assert runs.open(path).run.losses.shape == (2, 40, 3)
    session.begin(small(tmp_path, "budget.steps=80"), tmp_path / "long")
    same(path, tmp_path / "long")
    with pytest.raises(ValueError, match="--steps must be at least 48"):
        session.resume(short, steps=40)
    with pytest.raises(ValueError, match=r"must be a multiple of output\.thin = 2"):
        session.resume(short, more=5)


def test_a_finished_run_that_is_gone_on_with_stays_as_it_is(whole: Path, tmp_path: Path) -> None:
    path = copied(whole, tmp_path / "run")
    result = session.resume(path)
    assert result["test"]["accuracy"] == json.loads((whole / "result.json").read_text())["test"]["accuracy"]
    same(path, whole)
