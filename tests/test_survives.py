"""What a run outlives, as a user meets it on the command line: signals, disks that are full or read-only, damage, moves."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.run_cases import KillAfter, Killed, clusters, copied, made, same, small
from tests.run_damage import newest, resealed
from tiltwalk import cli, runs
from tiltwalk.cli import live
from tiltwalk.runs import checkpoint, config, files, layout, session

resource = pytest.importorskip("resource")  # not on Windows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    return made(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in the midst of sampling."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.raises(Killed):
        session.begin(small(folder), folder / "run", KillAfter(11))
    return folder / "run"


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tiltwalk(capsys: pytest.CaptureFixture[str]) -> Command:
    """A command in this process: status, stdout, stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        status = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return command


def settings(folder: Path, *changes: str) -> Path:
    """The settings of a small run, in a file."""
    (folder / "run.toml").write_text(config.toml(small(folder, *changes)), encoding="utf-8")
    return folder / "run.toml"


# ---- signals ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    number: signal.Signals, whole: Path, tmp_path: Path, tiltwalk: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0

    def piece(self: Any, told: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == 9:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(live.Quiet, "piece", piece)
    path = tmp_path / "run"
    status, out, err = tiltwalk("train", "--config", settings(tmp_path), "--out", path, "--quiet")
    assert (status, out) == (128 + number, "")
    assert err == f"tiltwalk: stopped; all is saved. To go on: tiltwalk resume {path}\n"
    folder = runs.open(path)
    assert (folder.status, folder.manifest["steps"]) == ("stopped", 36)  # to the very piece
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert tiltwalk("resume", path, "--quiet")[0] == 0
    same(path, whole)


# ---- disks ----


def test_a_full_disk_is_said_and_nothing_that_was_saved_is_lost(
    half: Path, whole: Path, tmp_path: Path, tiltwalk: Command
) -> None:
    path = copied(half, tmp_path / "run")
    before = runs.open(path).manifest["steps"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # no file may be longer: the kernel's own refusal
    try:
        status, _, err = tiltwalk("resume", path, "--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2
    assert "could not be saved (File too large)" in err
    assert f"it stands as saved at step {before}" in err
    assert f"tiltwalk resume {path}" in err
    assert err.count("\n") == 1
    assert runs.open(path).manifest["steps"] == before
    assert not list(path.rglob(f"*{files.ASIDE}"))
    assert tiltwalk("resume", path, "--quiet")[0] == 0
    same(path, whole)


class ReadOnly:
    """The module `os` for `files`, on a file system that takes nothing: tests may be root, whom modes do not stop."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)

        def refused(path: Any, *given: Any, **more: Any) -> Any:
            if name != "open" or given[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return real(path, *given, **more)

        return refused if name in ("open", "replace", "unlink", "mkdir") else real


def test_a_read_only_run_can_be_looked_at_and_predicts_and_is_not_gone_on_with(
    half: Path, tiltwalk: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tiltwalk("predict", half, half.parent / "clusters.csv")[1]
    monkeypatch.setattr(files, "os", ReadOnly())
    assert tiltwalk("info", half)[0] == 0
    assert tiltwalk("predict", half, half.parent / "clusters.csv") == (0, expected, "")
    status, _, err = tiltwalk("resume", half)
    assert (status, err.count("\n")) == (2, 1)
    assert "Read-only file system" in err
    status, _, err = tiltwalk("train", "--config", settings(half.parent), "--out", half.parent / "new")
    assert (status, err.count("\n")) == (2, 1)
    assert "Read-only file system" in err


# ---- damage ----


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [cut, flip])
@pytest.mark.parametrize("part", [0, 1], ids=["state", "manifest"])
@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",)], ids=["", "quiet", "json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    harm: Callable[[Path], None], part: int, how: tuple[str, ...], half: Path, whole: Path, tmp_path: Path, tiltwalk: Command
) -> None:
    path = copied(half, tmp_path / "run")
    newest_, before = checkpoint.numbers(path)
    steps = runs.open(path).manifest["steps"]
    harm(checkpoint.paths(path, newest_)[part])
    status, out, _ = tiltwalk("info", path)
    assert status == 0
    assert f"checkpoint {newest_} cannot be used" in out
    assert f"falling back to checkpoint {before}, step {steps - 8}" in out
    status, out, err = tiltwalk("resume", path, *how)
    assert status == 0
    assert f"falling back to checkpoint {before}" in (out if how == ("--json",) else err)
    assert [event["event"] for event in runs.open(path).events].count("fell back") == 2
    same(path, whole)


def test_a_newer_format_is_named_and_left_alone(half: Path, tmp_path: Path, tiltwalk: Command) -> None:
    path = copied(half, tmp_path / "run")
    resealed(newest(path), lambda content: content.update(version=checkpoint.VERSION + 1))
    content = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for words in (("info", path), ("resume", path), ("predict", path, half.parent / "clusters.csv")):
        status, _, err = tiltwalk(*words)
        assert (status, err.count("\n")) == (2, 1)
        assert f"was written by a newer Tiltwalk: format {checkpoint.VERSION + 1}; this one reads {checkpoint.VERSION}" in err
    assert {file: file.read_bytes() for file in content} | {path / layout.LOCK: b""} == content | {path / layout.LOCK: b""}


def test_a_run_without_a_whole_checkpoint_says_how_to_begin_again(half: Path, tmp_path: Path, tiltwalk: Command) -> None:
    path = copied(half, tmp_path / "run")
    for number in checkpoint.numbers(path):
        cut(checkpoint.paths(path, number)[0])
    status, _, err = tiltwalk("resume", path)
    assert (status, err.count("\n")) == (2, 1)
    assert "holds no checkpoint that is whole" in err
    assert f"To begin again: tiltwalk train --config {path / 'config.toml'}" in err


# ---- moves, and two at once ----


def test_a_run_that_was_moved_with_its_data_goes_on(half: Path, whole: Path, tmp_path: Path, tiltwalk: Command) -> None:
    source = tmp_path / "before"
    source.mkdir()
    with pytest.raises(Killed):
        session.begin(small(source), source / "run", KillAfter(11))
    there = tmp_path / "after" / "deeper"
    shutil.copytree(source / "run", there / "elsewhere")
    shutil.rmtree(source)
    status, _, err = tiltwalk("resume", there / "elsewhere")
    assert (status, err.count("\n")) == (2, 1)
    assert "clusters.csv must be there to go on with the run" in err
    assert tiltwalk("predict", there / "elsewhere", half.parent / "clusters.csv")[0] == 0
    clusters(there / "clusters.csv", 59)
    status, _, err = tiltwalk("resume", there / "elsewhere")
    assert (status, err.count("\n")) == (2, 1)
    assert "must hold the data that the run began with; they were changed since" in err
    clusters(there / "clusters.csv")
    assert tiltwalk("resume", there / "elsewhere", "--quiet")[0] == 0
    same(there / "elsewhere", whole)


def test_two_processes_never_write_one_run(half: Path, tmp_path: Path, tiltwalk: Command) -> None:
    path = copied(half, tmp_path / "run")
    before = newest(path).read_bytes()
    with files.locked(path / layout.LOCK):
        status, _, err = tiltwalk("resume", path)
        assert (status, err.count("\n")) == (2, 1)
        assert f"{path} is being written by process {os.getpid()}; watch it: tiltwalk info {path} --watch" in err
        assert json.loads(tiltwalk("info", path, "--json")[1])["being_written"]
    assert newest(path).read_bytes() == before
    assert not json.loads(tiltwalk("info", path, "--json")[1])["being_written"]


# ---- losses that are not a number ----

OVERFLOWS = ("network.kind=mlp", "network.hidden=[8]", "loss.kind=cross_entropy", "walk.sigma=1.0", "moves.0.step=1.0")
"""With weights of 1e19, products of two overflow float32, and the difference of two infinities is not a number."""


def test_a_loss_that_is_not_a_number_at_the_start_stops_with_the_reason(tmp_path: Path, tiltwalk: Command) -> None:
    file = settings(tmp_path, *OVERFLOWS, "start.scale=1e25")
    status, _, err = tiltwalk("train", "--config", file, "--out", tmp_path / "run")
    assert (status, err.count("\n")) == (2, 1)
    assert "The loss is not a number on the first path of 2 of 2 chains" in err
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_a_number_later_rejects_and_is_counted(tmp_path: Path, tiltwalk: Command) -> None:
    file = settings(tmp_path, *OVERFLOWS, "start.scale=8e18", "seeds.run=1", "walk.length=1")
    status, out, err = tiltwalk("train", "--config", file, "--out", tmp_path / "run")
    assert (status, err) == (0, "")
    assert "not a number" in out
    folder = runs.open(tmp_path / "run")
    assert folder.run.failed > 0
    assert np.isfinite(folder.paths).all()
    assert not np.isnan(folder.run.losses).any()
    assert (
        f"rejected   {folder.run.failed} proposals because their loss was not a number" in tiltwalk("info", tmp_path / "run")[1]
    )
