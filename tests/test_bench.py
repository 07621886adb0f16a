"""The benchmarks run, and what they print is what they measured."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import native
from tiltwalk.bench import networks, parts, perceptron, progress, rivals, runs, subjects, timing

TINY = parts.Sizes(samples=32, seconds=0.01, most_models=2, length=3, side=64)


def test_the_perceptron_is_measured_from_equilibrium_and_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("arviz_stats")
    monkeypatch.setattr(perceptron, "SETTINGS", ((2, 8, 2000),))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((64, 1))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/perceptron_2.json").write_text(json.dumps({"X": X.tolist(), "y": (2 * X).tolist()}))
    rows = perceptron.main(tmp_path, tmp_path / "out.json", quick=True)
    assert json.loads((tmp_path / "out.json").read_text()) == rows
    assert [row["name"] for row in rows] == ["sweeps", "the paper's moves"]
    assert all(row["updates_per_second"] > 0 and row["ess_per_second"] > 0 for row in rows)
    assert rows[0]["mean_loss"] == pytest.approx(rows[0]["exact"], rel=0.2)
    assert "sweeps" in capsys.readouterr().out


def test_flop_are_those_of_the_definition():
    by_name = {name: subjects.flop(network) for name, network in subjects.networks().items()}
    lenet = 2 * (24 * 24 * 25 * 6 + 8 * 8 * 150 * 16 + 256 * 120 + 120 * 84 + 84 * 10)
    conv = 2 * 9 * (32 * 32 * 3 * 16 + 16 * 16 * 16 * 32 + 8 * 8 * 32 * 64) + 2 * 1024 * 10
    assert by_name == {"LeNet": lenet, "MLP 784-64-10": 2 * (784 * 64 + 64 * 10), "3x3, 32x32x3": conv}


@pytest.mark.parametrize("library", ["flax", "torch"])
def test_rivals_compute_the_same_losses_of_the_same_models(library):
    pytest.importorskip(library)
    network, (X, y) = subjects.networks()["LeNet"], subjects.images(32)
    thetas = subjects.models(network, 2)
    ours = parts.supervised("LeNet", 32)(thetas)
    for name, call in getattr(rivals, f"{library}_losses")(network, thetas, X, y).items():
        np.testing.assert_allclose(np.asarray(call()), ours, rtol=1e-5, err_msg=name)


def test_the_best_of_interleaved_calls_is_kept_beside_the_limit():
    calls = []
    best, peak = timing.interleaved({"slow": lambda: calls.append(1) or sum(range(20_000)), "quick": lambda: 0}, 0.01, side=64)
    assert len(calls) > 3
    assert 0 < best["quick"] < best["slow"] < 1
    assert peak > 1e6


def test_memory_is_counted_in_bytes_and_covers_what_is_held():
    held = np.ones(20_000_000)
    assert held.nbytes < timing.peak_memory() < 1000 * held.nbytes


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "networks.json"
    before = networks.QUICK
    networks.QUICK = TINY
    try:
        found = networks.main(None, out, quick=True, only="plain forced")
        more = networks.main(None, None, quick=True, only="memory, 32 ")
    finally:
        networks.QUICK = before
    assert json.loads(out.read_text()) == found
    return found, more


def test_a_forced_target_is_measured_or_skipped_with_the_reason(report):
    found, _ = report
    if not native.available():
        assert "ours, plain forced" in found["skipped"]
        return
    assert found["skipped"] == {}
    assert {row["how"] for row in found["rows"]} == {"ours, plain kernel"}
    assert {(row["network"], row["models"]) for row in found["rows"]} == {(n, m) for n in subjects.MODELS for m in (1, 2)}
    lenet = next(row for row in found["rows"] if row["network"] == "LeNet" and row["models"] == 2)
    rate = subjects.flop(subjects.networks()["LeNet"]) * 32 / lenet["seconds_per_model"]
    assert lenet["share"] * found["peak_gflops"] == pytest.approx(lenet["gflops"]) == pytest.approx(rate / 1e9)


def test_memory_is_that_of_a_process_of_its_own(report):
    _, found = report
    assert [row["part"] for row in found["rows"]] == ["memory, 32 images", "memory, 32 images, kernel off"]
    for row in found["rows"]:
        assert 5e7 < row["bytes_before"] <= row["bytes_made"] <= row["bytes"] < 2e9


def test_the_fastest_of_passes_is_kept_and_compared_with_ours():
    first = {"part": "ours", "kind": "loss", "how": "a", "network": "LeNet", "models": 2, "loss": 1.0}
    rows = [{**first, "seconds_per_model": t} for t in (3.0, 2.0, 4.0)]
    other = {**first, "part": "torch", "how": "b", "seconds_per_model": 8.0, "loss": 1.1}
    kept = networks.finished(networks.best([*rows, other]), samples=1, peak=1e6)
    assert [row["times_ours"] for row in kept] == [1.0, 4.0]
    assert [row["same_loss"] for row in kept] == [True, False]


def test_what_cannot_be_measured_is_skipped_with_the_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(networks.importlib.util, "find_spec", lambda name: None)
    found = networks.main(tmp_path, quick=True, only="torch")
    assert found["skipped"] == {"torch": "torch is not installed"}
    found = networks.main(tmp_path, quick=True, only="prototype")
    assert len(found["skipped"]) == 3
    assert "skipped: prototype lenet_kernel.py" in capsys.readouterr().out


def test_the_prototypes_fastest_row_is_found(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('one, loop    12.50 ms a model   92 GFLOP/s\\ntwo   7.40 ms a model  157 GFLOP/s')")
    assert rivals.prototype(script) == ("two", 0.0074)
    script.write_text("print('2.30 ms a model, 490 GFLOP/s, 93% of the matrix product')")
    assert rivals.prototype(script) == ("", 0.0023)
    script.write_text("raise SystemExit('no compiler')")
    with pytest.raises(RuntimeError, match="no compiler"):
        rivals.prototype(script)


def test_updates_of_the_sampler_are_measured():
    found = parts.sampling(TINY)
    assert [row["how"] for row in found["rows"]] == ["ours, the paper's moves", "ours, sweeps", "ours, the paper's moves"]
    assert all(0 < row["seconds_per_model"] < 10 for row in found["rows"])


@pytest.mark.slow
def test_the_quick_form_runs_as_a_script_of_its_own():
    call = "from tiltwalk.bench.networks import main; main(quick=True)"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(networks.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, env=environment, check=True)
    assert "ANOTHER LOSS" not in done.stdout
    for kind in ("loss over", "value and gradient", "updates by", "the most memory"):
        assert kind in done.stdout


def test_a_part_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match=r"--only must be a part of one of these names: ours; .*torch.*; got 'LeNet'"):
        networks.main(quick=True, only="LeNet")


def test_the_progress_line_is_measured_on_a_terminal_and_off(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pty")
    seen = []

    def tiny(quick):
        measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(1.0)), tw.losses.double_well(), 4)
        return {"a double well": (measure, 1.0, 4, 2_000, tw.moves.Sweep())}

    def sample(*args, progress, **given):
        seen.append((progress, sys.stderr.isatty()))
        return real(*args, progress=progress, **given)

    real = tw.sample
    monkeypatch.setattr(progress, "subjects", tiny)
    monkeypatch.setattr(progress.tw, "sample", sample)
    before = sys.stderr
    rows = progress.main(tmp_path / "progress.json", quick=True)
    assert sys.stderr is before
    assert seen == [(False, True)] + 2 * [(False, True), (True, True)]  # compiled first, then in turn
    assert json.loads((tmp_path / "progress.json").read_text()) == rows
    assert rows[0]["cpu_cost"] == pytest.approx(rows[0]["cpu_seconds_shown"] / rows[0]["cpu_seconds"] - 1)
    assert "a double well" in capsys.readouterr().out


@pytest.mark.slow
def test_run_folders_are_measured_and_a_resumed_run_compiles_nothing(tmp_path, capsys):
    report = runs.main(tmp_path / "runs.json", quick=True)
    assert json.loads((tmp_path / "runs.json").read_text()) == report
    assert report["resumed"]["programs_compiled"] == 0
    assert report["memory"]["growth"] < runs.MOST_GROWTH
    assert 0 < report["saving"]["share"] < 1
    printed = capsys.readouterr().out
    assert f"{report['saving']['share']:.2%}" in printed and "resumed, speed beside unstopped" in printed


def test_the_rate_of_a_run_is_that_of_its_pieces_after_a_step():
    class Folder:
        def arrays(self, group):
            assert group == "progress"
            return {"step": np.array([10, 20, 30, 50]), "seconds": np.array([9.0, 10.0, 11.0, 12.0])}

    assert runs.rate_of(Folder(), 10) == 30 / 2
