"""The command line: what it prints, what it refuses and how, and what it imports."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import cli, experiments
from tiltwalk.cli import info
from tiltwalk.cli.errors import ours

ROOT = Path(__file__).parent.parent


def run(*words: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command."""
    status = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(*words: object, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence on stderr of a command that must exit 2 with nothing else."""
    status, out, err = run(*words, capsys=capsys)
    assert (status, out) == (2, ""), err
    assert err.startswith("tiltwalk: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# ---- help ----


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("--help", capsys=capsys)
    assert status == 0
    assert [name for name in cli.COMMANDS if not re.search(rf"^  {name}\s+\S", out, re.MULTILINE)] == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(name, "--help", capsys=capsys)
    assert status == 0
    assert out.startswith(f"Usage: tiltwalk {name}")


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys=capsys) == (0, f"tiltwalk {tw.__version__}\n", "")


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys=capsys)
    assert status == 2
    assert "Commands:" in out


def test_help_imports_no_command_and_nothing_heavy() -> None:
    program = (
        "import sys; from tiltwalk.cli import main; assert main(['--help']) == 0\n"
        "heavy = {'matplotlib', 'sklearn', 'torch', 'flax', 'equinox', 'pandas', 'pyarrow', 'arviz_base'} & set(sys.modules)\n"
        "late = {f'tiltwalk.cli.{name}' for name in ('reproduce', 'exact', 'info')} & set(sys.modules)\n"
        "assert not heavy | late, heavy | late\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tiltwalk": "tiltwalk.cli:main"}


# ---- what is refused ----

BAD = [
    (["nothing"], "No such command 'nothing'"),
    (["--wrong"], "No such option"),
    (["reproduce"], "Missing argument 'NAME'"),
    (["reproduce", "lines"], "'lines' is not one of 'linear', 'annealing', 'landscape', 'mnist'"),
    (
        ["reproduce", "linear", "--sampler", "paper"],
        "reproduce.sampler must be left out for linear: it is for mnist; got 'paper'",
    ),
    (["reproduce", "landscape", "--fresh"], "reproduce.fresh must be left out for landscape"),
    (["reproduce", "mnist", "--sampler", "good"], "'good' is not one of 'paper', 'sweeps', 'best'"),
    (["reproduce", "mnist", "--quick", "--out", __file__], "reproduce.out must be a folder that can be written"),
    (["reproduce", "linear", "--seed", "-1"], "Invalid value for '--seed': -1 is not in the range"),
    (["reproduce", "linear", "--seed", "one"], "Invalid value for '--seed'"),
    (["reproduce", "linear", "--out", __file__], "reproduce.out must be a folder that can be written"),
    (["reproduce", "linear", "--out", f"{__file__}/x"], "reproduce.out must be a folder that can be written"),
    (["exact", "--sigma", "0"], "LinearPerceptron.sigma must be a positive number"),
    (["exact", "--sigma", "wide"], "Invalid value for '--sigma': 'wide' is not a valid float"),
    (["exact", "--sigma", "nan"], "LinearPerceptron.sigma must be"),
    (["exact", "--length", "0"], "LinearPerceptron.length must be a whole number of at least 1; got 0"),
    (["exact", "--length", "2.5"], "Invalid value for '--length'"),
    (["exact", "--s", "-1"], "LinearPerceptron.s must be >= 0"),
    (["exact", "--s", "1,many"], "'1,many' must be a number, or numbers between commas"),
    (["exact", "--s", ""], "must be a number, or numbers between commas"),
    (["exact", "--s", "0"], "LinearPerceptron.s must be positive for a flat start"),
    (["exact", "--start-scale", "-2"], "LinearPerceptron.start_scale must be a positive number"),
    (["exact", "absent.csv"], "absent.csv is not there or is a folder"),
    (["exact", "absent.json"], "absent.json"),
    (["exact", "notes.md"], "must end in .csv"),
    (["exact", "table.csv"], "--target must name the column to predict; table.csv has a, b, c"),
    (["exact", "table.csv", "--target", "z"], "target must be one of its columns, a, b, c; got 'z'"),
    (["exact", "text.csv", "--target", "b"], "text.csv"),
    (["exact", "broken.json"], "broken.json must be JSON"),
    (["exact", "list.json"], 'list.json must be an object with "X" and "y"'),
    (["exact", "ragged.json"], "LinearPerceptron.X must be an array of numbers"),
    (["exact", "short.json"], "LinearPerceptron.Y must have shape (3,)"),
    (["exact", "copies.json"], "LinearPerceptron.X must have rank 3"),
    (["exact", "empty.npz"], "empty.npz must be an NPZ file"),
    (["exact", "arrays.npz", "--target", "w"], "target must be one of its arrays, x, y; got 'w'"),
    (["info", "more", "still"], "unexpected extra argument (still)"),
    (["info", "nowhere"], "nowhere must be a run folder; it is not there or is a file"),
    (["predict", "nowhere", "table.csv"], "RUN must be a run folder or an ensemble.safetensors; nowhere is not there"),
    (["bench", "perceptron", "--only", "ours"], "--only is for bench networks and samplers; bench perceptron has no parts"),
    (["bench", "networks", "--limit", "5"], "--limit is for bench samplers; bench networks takes the time that it takes"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with good and bad files, as the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = ["0,1,2", "1,0,3.5", "2,2,1", "3,1,0", "1,4,2"]
    files = {
        "notes.md": "# notes",
        "table.csv": "\n".join(["a,b,c", *rows]),
        "text.csv": "\n".join(["a,b", "1,2", "one,3"]),
        "broken.json": '{"X": [[1], [2]',
        "list.json": "[1, 2, 3]",
        "ragged.json": '{"X": [[1], [2, 3]], "y": [1, 2]}',
        "short.json": '{"X": [[1], [2], [4]], "y": [1, 2]}',
        "copies.json": '{"X": [[1, 2], [2, 4], [3, 6]], "y": [1, 2, 4]}',
        "good.json": '{"X": [[0], [1], [2], [3]], "y": [0.1, 1, 2.1, 2.9], "note": "more keys may be there"}',
        "empty.npz": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    X = np.random.default_rng(0).normal(size=(20, 2))
    np.savez(tmp_path / "arrays.npz", x=X, y=X @ [1.0, -1.0] + 0.5)
    return tmp_path


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(words).replace(__file__, "FILE") for words, _ in BAD])
@pytest.mark.usefixtures("folder")
def test_bad_input_is_one_sentence_and_exit_2(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert text in refused(*words, capsys=capsys)


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'pip install "tiltwalk[plots]"' in refused("reproduce", "linear", "--out", tmp_path, capsys=capsys)


# ---- what is not the user's fault ----


def test_a_fault_of_ours_asks_to_be_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(info, "gathered", lambda: {}["absent"])
    status, _, err = run("info", capsys=capsys)
    assert status == 1
    assert err == "tiltwalk: this is a fault of tiltwalk, please report it with what --debug prints (KeyError: 'absent').\n"


def test_an_error_from_deep_in_a_library_is_not_called_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(info, "gathered", lambda: json.loads("{"))
    status, _, err = run("info", capsys=capsys)
    assert status == 1
    assert "please report it" in err


@pytest.mark.parametrize("words", [["--debug", "info"], ["info", "--debug"]])
def test_debug_shows_the_traceback(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(info, "gathered", lambda: {}["absent"])
    status, _, err = run(*words, capsys=capsys)
    assert status == 1
    assert "Traceback" in err
    assert "KeyError: 'absent'" in err


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "gathered", interrupted)
    status, _, err = run("info", capsys=capsys)
    assert status == 130
    assert err.strip() == "tiltwalk: interrupted."


def test_an_error_belongs_to_who_raised_it() -> None:
    def trace(call: Any) -> Any:
        try:
            call()
        except Exception as error:
            return error.__traceback__

    assert ours(trace(lambda: tw.schedules.constant(-1.0)))
    assert not ours(trace(lambda: np.zeros(3).reshape(2)))
    assert not ours(None)


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-5"])
def test_a_terminal_without_our_letters_is_served(encoding: str) -> None:
    program = "import sys; from tiltwalk.cli import main; sys.exit(main(['exact', '--start-scale', '2']))"  # prints a ²
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert found.returncode == 0, found.stderr
    assert b"start Normal(0, 2" in found.stdout


# ---- exact ----


def test_exact_prints_what_the_oracle_says(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("exact", "--s", "0.5,20", "--sigma", 0.3, "--length", 5, capsys=capsys)
    assert status == 0
    oracle = tw.exact.LinearPerceptron(*experiments.line_data())
    for line, s in zip(out.splitlines()[-2:], (0.5, 20.0), strict=True):
        expected = [s, oracle.expected_loss(s, 0.3, 5), oracle.log_partition(s, 0.3, 5)]
        np.testing.assert_allclose([float(word) for word in line.split()], expected, rtol=1e-7)


def test_exact_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("exact", "--json", "--start-scale", 2.0, "--s", "0,1", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert found["s"] == [0.0, 1.0]
    oracle = tw.exact.LinearPerceptron(*experiments.line_data())
    np.testing.assert_allclose(found["loss_per_model"], oracle.expected_loss([0.0, 1.0], 0.1, 8, 2.0), rtol=1e-12)
    np.testing.assert_allclose(found["log_partition"], oracle.log_partition([0.0, 1.0], 0.1, 8, 2.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "samples", "parameters"),
    [(["good.json"], 4, 2), (["table.csv", "--target", "c"], 5, 3), (["arrays.npz"], 20, 3)],
    ids=["json", "csv", "npz"],
)
@pytest.mark.usefixtures("folder")
def test_exact_reads_a_users_file(words: list[str], samples: int, parameters: int, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("exact", *words, "--json", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert (found["data"], found["samples"], found["parameters"]) == (words[0], samples, parameters)
    assert all(loss > found["least_loss"] for loss in found["loss_per_model"])


@pytest.mark.usefixtures("folder")
def test_whole_numbers_are_values_and_not_classes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("whole.csv").write_text("a,c\n0,5\n1,7\n2,9\n3,11\n", encoding="utf-8")
    found = json.loads(run("exact", "whole.csv", "--target", "c", "--json", capsys=capsys)[1])
    assert found["least_loss"] == pytest.approx(0.0, abs=1e-10)


# ---- reproduce ----


def test_reproduce_says_what_it_found_and_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: dict[str, Any] = {}

    def figure(name: str, **given: Any) -> experiments.Result:
        made.update(given, name=name)
        given["report"](0.5, "half")
        return experiments.Result((tmp_path / "linear.png",), ("All points lie on the line.",), {})

    monkeypatch.setattr(experiments, "reproduce", figure)
    status, out, err = run("reproduce", "linear", "--quick", "--seed", 7, "--out", tmp_path, capsys=capsys)
    assert (status, err) == (0, "")  # no progress where there is no terminal
    assert (made["name"], made["quick"], made["seed"], made["out"]) == ("linear", True, 7, tmp_path)
    assert out.splitlines()[0] == "All points lie on the line."
    assert re.fullmatch(rf"Wrote {re.escape(str(tmp_path))}/linear\.png in \d+ s\.", out.splitlines()[1])


def test_every_sampler_of_the_long_figures_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    from tiltwalk.experiments import mnist

    offered = re.search(r"--sampler \[([a-z|]+)\]", run("reproduce", "--help", capsys=capsys)[1])
    assert offered is not None and set(offered[1].split("|")) == set(mnist.SAMPLERS)


# ---- info ----


def test_info_tells_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("info", capsys=capsys)
    assert status == 0
    for word in (tw.__version__, "jax", "devices", "cores", "memory", "kernel", *info.EXTRAS):
        assert word in out


def test_info_is_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    from tiltwalk import native

    found = json.loads(run("info", "--json", capsys=capsys)[1])
    assert found["tiltwalk"] == tw.__version__
    assert found["cores"] >= 1
    assert found["memory_bytes"] is None or found["memory_bytes"] > 2**28
    assert found["native"] == {"available": native.available(), "target": native.target(), "reason": native.reason()}


def test_info_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(info, "EXTRAS", {"plots": ("no-such-package",)})
    assert 'plots missing: pip install "tiltwalk[plots]"' in run("info", capsys=capsys)[1]


def test_info_knows_the_extras_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra: tuple(re.split(r"[>=<\[]", line)[0] for line in lines) for extra, lines in extras.items() if extra != "all"}
    assert named == info.EXTRAS
