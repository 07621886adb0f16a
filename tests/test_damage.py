"""Damaged run folders: the command line says what is true, or refuses in one sentence. The damage is in tests/run_damage.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests import run_damage
from tiltwalk.runs import checkpoint, draws, files

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> run_damage.Cases:
    return run_damage.Cases(tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("kind", run_damage.KINDS)
def test_damage_is_never_taken_for_the_truth(kind: str, cases: run_damage.Cases) -> None:
    for seed, name in enumerate(cases.truths):
        print(run_damage.trial(cases, name, kind, seed))


@pytest.mark.slow
def test_108_damaged_folders_are_never_taken_for_the_truth() -> None:
    spec = importlib.util.spec_from_file_location("corrupt_runs", ROOT / "scripts" / "corrupt_runs.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.main(["--seed", "50"]) == 0


# ---- the trials can fail ----


def test_chunks_that_nobody_holds_against_their_digests_are_caught(
    cases: run_damage.Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(self: draws.Draws, array: draws.Array, place: str, digest: str) -> bytes:
        return files.read(self.folder / place, array.chunk_bytes)

    monkeypatch.setattr(draws.Draws, "_chunk", trusting)
    with pytest.raises(AssertionError, match="took for right what is not"):
        many(cases, "of_another_run", 40, "predict")


def test_a_traceback_and_a_fault_of_ours_are_caught(cases: run_damage.Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "unpack", lambda name, content: {}["absent"])
    with pytest.raises(AssertionError, match="status 1: tiltwalk: this is a fault of tiltwalk"):
        run_damage.trial(cases, "finished", "huge_shape", 1)


def test_reading_all_that_a_file_claims_to_be_is_caught(cases: run_damage.Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(path: Path, most: int, *, beginning: bool = False) -> bytes:
        return path.read_bytes()

    monkeypatch.setattr(files, "read", trusting)
    with pytest.raises(AssertionError, match="asked for more memory than there is"):
        many(cases, "huge_file", 20, "resume")


def many(cases: run_damage.Cases, kind: str, count: int, command: str) -> None:
    for seed in range(count):
        run_damage.trial(cases, "finished", kind, seed, commands=(command,))
