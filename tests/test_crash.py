"""Saves that are cut short: at every call of the system that a save makes, an error of the disk, a kill, or half a write.

`files` makes all these calls. After each fault the folder opens, holds how the whole run begins, and goes on to the very
run that nothing happened to.
"""

from __future__ import annotations

import errno
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from tests.run_cases import Killed, beginning, same, small
from tiltwalk.cli.errors import of_system
from tiltwalk.runs import draws, files, layout, session

ROOT = Path(__file__).parent.parent
CALLS = ("open", "write", "fsync", "replace", "unlink", "ftruncate", "mkdir")
BY_PATH = ("open", "replace", "unlink", "mkdir")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
SIZE = ("budget.burn_in=16", "budget.steps=32", "output.piece=16", "output.save_steps=16")


class System:
    """The module `os` for `files`, of which call number `at` fails, in one of the ways of `FAULTS`."""

    def __init__(self, at: int = -1, fault: str = "") -> None:
        self.at, self.fault = at, fault
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *given, **more: self.call(name, real, *given, **more)) if name in CALLS else real

    def call(self, name: str, real: Any, *given: Any, **more: Any) -> Any:
        number = len(self.calls)
        self.calls.append(name)
        if number >= self.at >= 0 and self.fault == "error" and name == self.calls[self.at]:
            code = ERRORS[self.at % len(ERRORS)]  # and it stays: the disk does not mend itself
            raise OSError(code, os.strerror(code), *(given[:1] if name in BY_PATH else ()))
        if number == self.at and self.fault == "kill":
            raise Killed
        if number == self.at and self.fault == "torn":
            if name == "write":
                os.write(given[0], given[1][: len(given[1]) // 2])
            raise Killed
        return real(*given, **more)


FAULTS = ("error", "kill", "torn")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The run that nothing happens to, and the calls that it makes."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "MOST_ROWS", 4)
        system = System()
        patch.setattr(files, "os", system)
        session.begin(small(folder, *SIZE), folder / "run")
    return folder / "run", system.calls


def go(folder: Path) -> None:
    """What a user does: begin where there is no run, go on where there is one."""
    path = folder / "run"
    if (path / layout.RECORD).exists():
        session.resume(path)
    else:
        session.begin(small(folder, *SIZE), path)


def hit(whole: Path, folder: Path, at: int, fault: str, patch: pytest.MonkeyPatch) -> None:
    """One fault, all that is claimed of it, and what is said."""
    folder.mkdir()
    patch.setattr(files, "os", System(at, fault))
    said = ""
    try:
        go(folder)
    except Killed:
        pass
    except (OSError, ValueError) as error:
        said = of_system(error) if isinstance(error, OSError) else str(error)
    patch.setattr(files, "os", os)
    assert fault != "error" or (str(folder) in said and "\n" not in said), said
    if (folder / "run" / layout.RECORD).exists():
        beginning(folder / "run", whole)
    go(folder)
    same(folder / "run", whole)


def test_a_save_makes_every_kind_of_call(whole: tuple[Path, list[str]]) -> None:
    assert set(whole[1]) == set(CALLS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_some_calls_of_a_run_loses_nothing(
    fault: str, whole: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = whole
    monkeypatch.setattr(draws, "MOST_ROWS", 4)
    places = [at for at, name in enumerate(calls) if fault != "torn" or name == "write"]
    step = len(places) // 7
    for at in places[FAULTS.index(fault) * step // 3 :: step]:
        hit(path, tmp_path / f"{at}", at, fault, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_of_a_run_loses_nothing(
    fault: str, whole: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = whole
    monkeypatch.setattr(draws, "MOST_ROWS", 4)
    for at, name in enumerate(calls):
        if fault != "torn" or name == "write":
            hit(path, tmp_path / f"{at}", at, fault, monkeypatch)


def killed(*words: str) -> int:
    """The exit status of scripts/kill_runs.py."""
    spec = importlib.util.spec_from_file_location("kill_runs", ROOT / "scripts" / "kill_runs.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return int(script.main([*words]))


def test_processes_that_are_killed_draw_what_nobody_killed_draws() -> None:
    assert killed("--kills", "2", "--seed", "5") == 0


@pytest.mark.slow
def test_200_processes_that_are_killed_draw_what_nobody_killed_draws() -> None:
    assert killed("--kills", "200") == 0
