"""The command line of runs: what it shows where, what it refuses, and that a run goes from `train` to `predict`."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.run_cases import clusters, copied, made, small
from tests.test_cli import refused, run
from tiltwalk import cli, runs
from tiltwalk.cli import info_run, live
from tiltwalk.runs import config, files, layout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and with good and bad files, as the working directory."""
    monkeypatch.chdir(tmp_path)
    copied(whole, tmp_path / "run")
    clusters(tmp_path / "clusters.csv")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.toml").write_text(config.toml(small(tmp_path)), encoding="utf-8")
    for name, text in {
        "empty.csv": "", "one.csv": "a,y\n1,0\n", "nan.csv": "a,y\n1,0\nnan,1\n2,1\n3,0\n",
        "same.csv": "a,y\n1,0\n2,0\n3,0\n4,0\n",
        "huge.toml": "[walk]\nsigma = 1e400\n", "twice.toml": "[walk]\nsigma = 1\n[walk]\nsigma = 2\n",
        "unknown.toml": "[walks]\nsigma = 1\n", "list.toml": "walk = [1, 2]\n", "date.toml": "[walk]\nsigma = 2020-01-01\n",
        "deep.toml": "x = " + "{a=" * 3000 + "1" + "}" * 3000,
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "noise.csv").write_bytes(bytes(range(128, 256)))
    return tmp_path


# ---- what is refused ----

DATA = ["train", "clusters.csv", "--target", "y"]
BAD = [
    (["train"], "Missing argument 'DATA', or --config FILE"),
    (["train", "absent.csv"], "DATA must be one of mnist2048, mnist"),
    (["train", "empty"], "DATA must be one of mnist2048, mnist"),
    (["train", "clusters.csv"], "--target must name what to predict. clusters.csv has a, b, y."),
    (["train", "clusters.csv", "--target", "z"], "target must be one of its columns, a, b, y; got 'z'"),
    (["train", "empty.csv", "--target", "y"], "empty.csv must hold a table"),
    (["train", "one.csv", "--target", "y"], "one.csv must hold at least 3 samples; got 1"),
    (["train", "nan.csv", "--target", "y"], "nan.csv: features must be finite"),
    (["train", "same.csv", "--target", "y"], "target 'y' must have two classes or more"),
    (["train", "noise.csv", "--target", "y"], "noise.csv must be text in UTF-8"),
    ([*DATA, "--network", "cnn"], "'cnn' is not one of 'lenet', 'mlp', 'linear'"),
    ([*DATA, "--network", "lenet"], "--network lenet needs square images"),
    ([*DATA, "--hidden", "a"], "'a' must be whole numbers between commas, such as 64,32"),
    ([*DATA, "--hidden", ""], "must be whole numbers between commas"),
    ([*DATA, "--hidden", "8,,8"], "must be whole numbers between commas"),
    ([*DATA, "--hidden", "8]\nwalk=[1"], "must be whole numbers between commas"),
    ([*DATA, "--hidden", "0"], "network.hidden.0 must be a whole number of at least 1 and at most 100000; got 0."),
    ([*DATA, "--seconds", "1"], "Invalid value for '--seconds': 1.0 is not in the range x>=5"),
    ([*DATA, "--seconds", "inf"], "budget.seconds must be a number of at least 1 and at most 1e+09; got inf."),
    ([*DATA, "--evaluations", "5"], "Invalid value for '--evaluations'"),
    ([*DATA, "--evaluations", "500", "--seconds", "9"], "budget.seconds must be left out where budget.evaluations is given"),
    ([*DATA, "--steps", "0"], "Invalid value for '--steps'"),
    ([*DATA, "--steps", "9" * 30], f"of at least 1 and at most {2**53}, or \"auto\"; got 999"),
    ([*DATA, "--chains", "0"], "Invalid value for '--chains'"),
    ([*DATA, "--chains", "2000000"], "chains.count must be a whole number of at least 1 and at most 1000000; got 2000000."),
    ([*DATA, "--length", "0"], "Invalid value for '--length'"),
    ([*DATA, "--draws", "0"], "Invalid value for '--draws'"),
    ([*DATA, "--s", "-1"], "schedule.s must be a number above 0"),
    ([*DATA, "--s", "nan"], "got nan"),
    ([*DATA, "--sigma", "inf"], 'walk.sigma must be a number above 0 and at most 1e+30, or "auto"; got inf.'),
    ([*DATA, "--seed", "-1"], "Invalid value for '--seed'"),
    ([*DATA, "--out", "clusters.csv"], "train.out must be a folder that can be written; got clusters.csv, but"),
    ([*DATA, "--out", "clusters.csv/x"], "but clusters.csv is a file"),
    ([*DATA, "--out", "run"], "run holds a run already: go on with it, tiltwalk resume run"),
    ([*DATA, "--set", "walk.sigma"], "--set must be KEY=VALUE"),
    ([*DATA, "--set", "walk.length=4\nsigma=3"], "walk.length must be a whole number"),
    ([*DATA, "--set", "moves=[{kind=\"bridge\",width=9}]"], "Bridge.width must be between 1 and length - 2 = 2; got 9."),
    ([*DATA, "--set", "loss.kind=mse"], "Supervised.y must be values"),
    ([*DATA, "--set", "data.test=1.5"], "data.test must be a number above 0 and below 1; got 1.5."),
    ([*DATA, "--wrong"], "No such option '--wrong'"),
    ([*DATA, "more"], "unexpected extra argument (more)"),
    (["train", "--config", "absent.toml"], "absent.toml: No such file"),
    (["train", "--config", "empty"], "File 'empty' is a directory"),
    (["train", "--config", "clusters.csv"], "clusters.csv must be TOML"),
    (["train", "--config", "huge.toml"], "walk.sigma must be a number above 0 and at most 1e+30"),
    (["train", "--config", "twice.toml"], "twice.toml must be TOML; Cannot declare"),
    (["train", "--config", "unknown.toml"], "walks is not a setting; a run has data, network, walk"),
    (["train", "--config", "list.toml"], "walk must be a table; got [1, 2]."),
    (["train", "--config", "date.toml"], "walk.sigma must be a number above 0, or \"auto\"; got '2020-01-01'"),
    (["train", "--config", "deep.toml"], "deep.toml must be TOML"),
    (["resume"], "Missing argument 'RUN'"),
    (["resume", "absent"], "absent must be a run folder; it is not there or is a file."),
    (["resume", "empty"], "empty must be a run folder; it holds no run.json"),
    (["resume", "run", "--steps", "6"], "--steps must be at least 48, the steps of sampling already made; got 6."),
    (["resume", "run", "--more", "0"], "Invalid value for '--more'"),
    (["resume", "run", "--more", "2", "--steps", "50"], "--steps and --more exclude each other: N in all, or N more."),
    (["predict", "run"], "Missing argument 'DATA'"),
    (["predict", "absent", "clusters.csv"], "absent is not there"),
    (["predict", "run", "absent.csv"], "absent.csv is not there or is a folder"),
    (["predict", "run", "one.csv"], "one.csv must have the columns a, b; b is missing."),
    (["predict", "run", "digits"], "samples must have shape (2,), as those of the run; got (8, 8, 1)."),
    (["predict", "run", "clusters.csv", "--target", "z"], "target must be one of its columns, a, b, y; got 'z'"),
    (["predict", "run", "clusters.csv", "--out", "x.txt"], "--out must end in .csv or .npz; got x.txt."),
    (["predict", "run", "clusters.csv", "--out", "absent/x.csv"], "absent/x.csv: No such file or directory."),
    (["predict", "run/run.json", "clusters.csv"], "run.json must be a whole safetensors file"),
    (["info", "absent"], "absent must be a run folder"),
    (["info", "empty"], "empty must be a run folder"),
    (["info", "--watch"], "--watch needs a RUN to watch."),
    (["sweep", "clusters.csv"], "Missing option '--grid'"),
    (["sweep", "clusters.csv", "--grid", "walk.sigma"], "--grid must be KEY=VALUE,VALUE"),
    (["sweep", "clusters.csv", "--grid", "walk.sigma=a"], "walk.sigma must be a number above 0, or \"auto\"; got 'a'."),
    (["sweep", "clusters.csv", "--grid", "walk.sigma=1,1"], "--grid must give different values; got some of them twice."),
    (["sweep", "clusters.csv", "--grid", "walk.sigma=1", "--out", "one.csv"], "--out must be a folder; one.csv is a file."),
    (["completion"], "Missing argument 'SHELL'"),
    (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(words)[:60] for words, _ in BAD])
@pytest.mark.usefixtures("folder")
def test_bad_input_is_one_sentence_and_exit_2(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in Path().rglob("*") if path.name != layout.LOCK)
    assert text in refused(*words, capsys=capsys)
    assert sorted(path for path in Path().rglob("*") if path.name != layout.LOCK) == before, "nothing was left behind"


# ---- from train to predict ----


@pytest.mark.usefixtures("folder")
def test_a_run_is_trained_gone_on_with_and_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("train", "--config", "run.toml", "--set", "budget.steps=32", "--out", "new", capsys=capsys)
    assert (status, err) == (0, "")
    assert "48 samples to train on, 12 to test; a model has 9 parameters" in out
    assert re.search(
        r"^  sampling 32/32 \| s [\d.]+ \| loss [\d.]+ \| accepted sweep \d+% \| [\d.e+]+ updates/s \| ESS \d+ \| 0 s left$",
        out, re.MULTILINE,
    )  # fmt: skip
    assert "\r" not in out and "\x1b" not in out
    assert "Wrote new/ensemble.safetensors and new/result.json" in out
    assert out.endswith("To see how it went: tiltwalk report new\n")
    status, out, _ = run("resume", "new", "--more", "16", "--quiet", capsys=capsys)
    assert (status, len(out.splitlines())) == (0, 3), out
    assert runs.open("new").run.losses.shape == runs.open("run").run.losses.shape
    status, out, _ = run("predict", "new", "clusters.csv", capsys=capsys)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, len(rows)) == (0, 60)
    assert list(rows[0]) == ["class", *(f"p_{i}" for i in range(3)), *(f"spread_{i}" for i in range(3))]
    p = np.array([[float(row[f"p_{i}"]) for i in range(3)] for row in rows])
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-4)
    assert [int(row["class"]) for row in rows] == p.argmax(1).tolist()
    assert run("predict", "new", "clusters.csv", "--out", "p.npz", capsys=capsys)[0] == 0
    with np.load("p.npz", allow_pickle=False) as found:
        np.testing.assert_allclose(found["probabilities"], p, atol=1e-5)
    folder = runs.open("new")
    X = np.loadtxt("clusters.csv", delimiter=",", skiprows=1)[:, :2]
    np.testing.assert_allclose(folder.ensemble.predict_proba(folder.scaled(X)), p, atol=1e-5)


@pytest.mark.usefixtures("folder")
def test_json_is_one_event_a_line_and_quiet_is_the_result_alone(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("train", "--config", "run.toml", "--out", "new", "--json", capsys=capsys)
    events = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert {event["event"] for event in events} == {"said", "step", "finished"}
    step = next(event for event in reversed(events) if event["event"] == "step")
    names = {
        "phase",
        "step",
        "steps",
        "s",
        "loss",
        "acceptance",
        "updates_per_second",
        "left_seconds",
        "seconds",
        "ess",
        "failed",
    }
    assert names <= set(step)
    assert (step["phase"], step["step"], step["acceptance"].keys()) == ("sampling", 48, {"sweep"})
    assert events[-1]["test"] == json.loads(Path("new/result.json").read_text())["test"]
    status, out, err = run("resume", "new", "--quiet", capsys=capsys)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["test", "negative", "Wrote"]


# ---- the live line ----


def told(step: int, **more: Any) -> dict[str, Any]:
    return {
        "phase": "sampling", "step": step, "steps": 100, "s": 12.5, "loss": 0.25, "acceptance": {"sweep": 0.31, "shoot": 0.2},
        "evaluations": 640.0, "piece_seconds": 0.5, "piece_steps": 10, "seconds": 3.0, "losses": None, "failed": 0,
    } | more  # fmt: skip


def test_the_line_tells_all_that_it_should() -> None:
    shown: list[dict[str, Any]] = []

    class Kept(live.Lines):
        every = 0.0

        def show(self, now: dict[str, Any]) -> None:
            shown.append(now)

    watcher = Kept()
    rng = np.random.default_rng(0)
    for step in range(10, 101, 10):
        watcher.piece(told(step, losses=rng.normal(size=(50, 4, 3))))
    assert live.line(shown[-3]) == (
        "sampling 80/100 | s 12.5 | loss 0.25 | accepted sweep 31%, shoot 20% | 1.28e+03 updates/s | "
        f"ESS {shown[-3]['ess']:.0f} | 1 s left"
    )
    assert 0.5 < shown[0]["ess"] / 200 < 2  # independent draws: as many as there are
    assert shown[0]["left_seconds"] is None, "the first piece compiles"
    assert "3 not a number" in live.line(shown[0] | {"failed": 3})


@pytest.mark.usefixtures("folder")
def test_a_terminal_has_one_line_that_is_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.test_progress import Terminal

    terminal = Terminal()
    with terminal:
        status = cli.main(["train", "--config", "run.toml", "--out", "new"])
    shown = terminal.shown()
    assert status == 0
    assert re.search(r"\r\x1b\[2Ksampling 48/48 \| s [\d.]+ \| loss [\d.]+ \| accepted sweep \d+%", shown)
    assert "\n" not in shown and shown.endswith("\r\x1b[2K"), "and the terminal is left clean"
    out = capsys.readouterr().out
    assert "test accuracy" in out and "updates/s" not in out


# ---- watching, TensorBoard, completion ----


@pytest.mark.usefixtures("folder")
def test_a_run_can_be_watched_from_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(info_run, "EVERY", 0.05)
    ready, done = threading.Event(), threading.Event()

    def writer() -> None:
        with files.locked(Path("run/lock")):
            ready.set()
            time.sleep(0.5)
        done.set()

    thread = threading.Thread(target=writer)
    thread.start()
    ready.wait()
    status, out, _ = run("info", "run", "--watch", capsys=capsys)
    assert done.is_set(), "it ends when nobody writes the run"
    thread.join()
    lines = out.splitlines()
    assert (status, lines[0]) == (0, "run: being written")
    assert sum(line.startswith("sampling 48/48 | s ") for line in lines) >= 2


@pytest.mark.usefixtures("folder")
def test_names_from_a_folder_do_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = info_run.gathered(Path("run"))
    monkeypatch.setattr(info_run, "gathered", lambda folder: found | {"data": "a\x1b[2J\x07b"})
    assert "data       a\ufffd[2J\ufffdb" in run("info", "run", capsys=capsys)[1]


@pytest.mark.usefixtures("folder")
def test_tensorboard_has_the_events_of_every_phase(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    monkeypatch.setattr(live.TensorBoard, "every", 0.0)
    assert run("train", "--config", "run.toml", "--out", "new", "--tensorboard", "--quiet", capsys=capsys)[0] == 0
    found: dict[str, list[tuple[int, float]]] = {}
    for path in Path("new/tensorboard").iterdir():
        content = path.read_bytes()
        while content:  # length, checksum of the length, event, checksum of the event
            size = int.from_bytes(content[:8], "little")
            body, content = content[12 : 12 + size], content[16 + size :]
            assert masked_crc32c(body) is not None
            for value in Event.FromString(body).summary.value:
                found.setdefault(value.tag, []).append((Event.FromString(body).step, value.simple_value))
    assert {"burn-in/loss", "sampling/loss", "sampling/s", "sampling/updates_per_second", "sampling/acceptance/sweep"} <= set(
        found
    )
    folder = runs.open("new")
    loss = folder.arrays("progress")["loss"].mean(0)
    np.testing.assert_allclose([value for _, value in found["burn-in/loss"] + found["sampling/loss"]], loss, rtol=1e-6)
    assert [step for step, _ in found["sampling/loss"]] == list(range(4, 49, 4))
    assert folder.status == "finished"


def test_without_tensorboard_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert 'pip install "tiltwalk[tensorboard]"' in refused(*DATA, "--tensorboard", "--out", "new", capsys=capsys)
    assert not Path("new").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_of_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("completion", shell, capsys=capsys)
    assert status == 0
    assert f"_TILTWALK_COMPLETE={shell}_complete" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tiltwalk re", {"resume", "reproduce"}),
        ("tiltwalk train --eval", {"--evaluations"}),
        ("tiltwalk completion z", {"zsh"}),
    ],
)
def test_bash_completes_commands_options_and_values(words: str, expected: set[str]) -> None:
    program = "import sys; sys.argv[0] = 'tiltwalk'; from tiltwalk.cli import main; sys.exit(main())"
    environment = {"_TILTWALK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}

    found = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True)
    assert expected <= {line.split(",")[-1] for line in found.stdout.splitlines()}, found.stderr


def test_bash_takes_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    script = run("completion", "bash", capsys=capsys)[1]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
