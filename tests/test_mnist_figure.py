"""The MNIST figure on a small scale: when a point has settled, stopping and going on, and what is said of the claims."""

from __future__ import annotations

import copy
import dataclasses
import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import cli
from tiltwalk.experiments import _claims, _climb, _mnist_data, _mnist_panels, _parts, mnist
from tiltwalk.settling import ENOUGH, judge

# more than chain.LONG_STEP parameters, so that runs of all lengths are one compiled program
TINY: dict[str, Any] = {
    **mnist._by("sweeps"),
    "images": 60,
    "test_images": 50,
    "network": [784, 22, 10],
    "lengths": [2, 5],
    "tilts": [5, 40],
    "most_sweeps": [600, 30],
    "first_round": 0.25,
    "enough": 40,
    "most_seconds": None,
    "free_paths": 3,
    "agreement": [[2, 5]],
    "drift": {"length": 2, "s": 5, "sweeps": 40, "thin": 10},
}


def silent(share: float, text: str) -> None:
    pass


def autoregressive(n: int, memory: float, seed: int) -> np.ndarray:
    """A stationary AR(1) of variance 1 around 3."""
    noise = np.random.default_rng(seed).normal(size=n) * np.sqrt(1 - memory**2)
    x = np.empty(n)
    x[0] = np.random.default_rng([seed, 1]).normal()
    for i in range(1, n):
        x[i] = memory * x[i - 1] + noise[i]
    return 3 + x


# ---- settling ----


@pytest.mark.parametrize("memory", [0.0, 0.8, 0.95])
def test_a_stationary_series_settles_in_most_seeds_with_an_honest_error(memory: float) -> None:
    """|z| <= 2 has probability 0.95, so of 40 seeds 32 or fewer settle with probability below 1e-4."""
    n = int(200 * (1 + memory) / (1 - memory))
    found = [judge(autoregressive(n, memory, seed)) for seed in range(40)]
    assert sum(j.settled for j in found) > 32
    # autocorrelation time (1 + memory) / (1 - memory), so 200 values count
    assert 150 < np.mean([j.effective for j in found]) < 250
    off = np.array([(j.mean - 3) / j.standard_error for j in found if j.settled])
    assert np.mean(off**2) < 1.8 and abs(off.mean()) < 4 / np.sqrt(32)


@pytest.mark.parametrize(("memory", "drift"), [(0.0, 1.2), (0.8, 1.5), (0.95, 3.0)])
def test_a_series_that_drifts_has_not_settled(memory: float, drift: float) -> None:
    n = int(200 * (1 + memory) / (1 - memory))
    found = [judge(autoregressive(n, memory, seed) - drift * np.linspace(0, 1, n)) for seed in range(40)]
    assert sum(j.settled for j in found) <= 6
    assert np.mean([j.mean for j in found]) < 3 - 0.6 * drift, "its mean is that of its second half"


def test_a_smooth_slide_is_too_short_for_its_own_memory() -> None:
    j = judge(np.exp(-np.linspace(0, 1, 5000)))
    assert not j.settled and j.effective < ENOUGH and "too short" in j.why


def test_a_series_that_never_moves_or_is_tiny_has_not_settled() -> None:
    assert judge(np.full(500, 2.3)).why == "nothing moved"
    assert not judge(np.full(500, 0.1)).settled
    assert "only 5" in judge(np.arange(5.0)).why and not judge(np.zeros(0)).settled


def test_rounds_double_and_spend_the_whole_budget() -> None:
    assert _climb.rounds(300, 1000) == [300, 700]
    assert _climb.rounds(300, 4000) == [300, 600, 3100]
    assert _climb.rounds(300, 200) == [200]
    for first, most in ((1, 1), (7, 1000), (600, 20_000)):
        sizes = _climb.rounds(first, most)
        assert sum(sizes) == most and all(b >= 2 * a for a, b in pairwise(sizes))


# ---- one point ----


def line() -> tuple[tw.PathMeasure, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1))
    Y = 0.5 * X + 0.1 * rng.normal(size=(40, 1))
    return tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.least_squares(X, Y), 5), tw.exact.LinearPerceptron(X, Y)


@pytest.mark.parametrize("sampler", _climb.SAMPLERS)
def test_a_point_that_settles_is_at_the_exact_loss(sampler: str) -> None:
    measure, oracle = line()
    place = _climb.Place(oracle.draw(1, 1, 0.1, 0.3, 5)[0].astype(np.float32), {})
    point = _climb.sample_until_settled(measure, 10.0, sampler, place, _climb.Budget(8_000, 8_000), seed=0, part=3)
    assert point.settling.settled and point.stopped_by == "settled"
    exact = float(oracle.expected_loss(10.0, 0.3, 5))
    assert abs(point.settling.mean - exact) < 4 * point.settling.standard_error < 0.4 * exact
    assert point.evaluations + (_climb.GRADIENT - 1) * point.gradients >= 5 * point.sweeps * 0.5
    names = {"best": {"hamiltonian"}, "sweeps": {"sweep"}, "paper": {"shoot_1", "bridge_1"}}
    assert set(point.acceptance) == names[sampler]
    # the paper's step is never tuned
    assert sampler != "paper" or all(step == 1 for step in point.place.steps.values())


def test_a_point_ends_when_its_time_is_up_but_not_before_its_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, oracle = line()
    path = oracle.draw(1, 1, 0.1, 0.3, 5)[0].astype(np.float32)
    run = tw.sample(measure, 1.0, steps=0, init=path, progress=False)
    sizes: list[int] = []
    seconds = 100.0

    def clock() -> float:
        return seconds

    def round_of_a_hundredth_of_a_second(*given: Any) -> Any:
        nonlocal seconds
        sizes.append(given[4])
        seconds += 0.01
        return dataclasses.replace(run, evaluations=1, gradients=2), np.arange(40.0)

    monkeypatch.setattr(_climb, "_round", round_of_a_hundredth_of_a_second)
    place = _climb.Place(path, {})
    budget = _climb.Budget(30, 5000, until=0.0, clock=clock)
    point = _climb.sample_until_settled(measure, 1.0, "sweeps", place, budget, seed=0, part=3)
    assert (point.stopped_by, sizes, point.settling.settled) == ("time", [_climb.FEWEST], False), "what may be left at least"
    sizes.clear()
    # 100 sweeps a second for a second, of which the first round wants ten seconds
    budget = _climb.Budget(1000, 5000, until=seconds + 1, rate=100.0, clock=clock)
    point = _climb.sample_until_settled(measure, 1.0, "sweeps", place, budget, seed=0, part=3)
    assert sizes == [100, 4000], "it is found to be faster than was known, and the second round is made whole"
    sizes.clear()
    point = _climb.sample_until_settled(measure, 1.0, "sweeps", place, _climb.Budget(30, 210, clock=clock), seed=0, part=3)
    assert (point.stopped_by, sizes, point.evaluations, point.gradients) == ("budget", [30, 60, 120], 3, 6)


# ---- the figure ----


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("mnist")
    numbers = mnist.compute(mnist.settings(quick=True) | TINY, 0, silent, folder)
    return numbers, folder


def without_times(numbers: Any) -> Any:
    if isinstance(numbers, dict):
        times = ("seconds", "cpu_seconds", "wall_seconds", "parts_read_back")
        return {key: without_times(value) for key, value in numbers.items() if key not in times}
    return [without_times(value) for value in numbers] if isinstance(numbers, list) else numbers


def test_every_point_is_there_and_json_can_hold_it(made: tuple[dict[str, Any], Path]) -> None:
    numbers, folder = made
    assert [(p["length"], p["s"]) for p in numbers["points"]] == [(2, 5), (2, 40), (5, 5), (5, 40)]
    assert json.loads(json.dumps(numbers, allow_nan=False))["points"] == numbers["points"]
    assert numbers["parts_read_back"] == 0
    assert len(list(folder.glob("*.npz"))) == 2 + 1 + 1 + 4
    assert not list(folder.glob("*.writing"))
    assert [c["verdict"] in ("holds", "holds so far", "does not hold", "not decided", "not tested") for c in numbers["claims"]]
    assert len(numbers["digits"]) == 10 and len(bytes.fromhex(numbers["digits"][3])) == 784


def test_a_point_whose_budget_is_spent_says_so_and_has_no_error(made: tuple[dict[str, Any], Path]) -> None:
    for p in made[0]["points"]:
        assert p["settled"] == (p["stopped_by"] == "settled") == (p["standard_error"] is not None)
        assert p["settled"] or p["why"] != "settled"
    short = [p for p in made[0]["points"] if p["length"] == 5]
    assert all(not p["settled"] and p["stopped_by"] == "budget" and p["sweeps"] == 30 for p in short)


def test_going_on_after_a_stop_gives_the_same_numbers(made: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    numbers, folder = made
    for file in folder.glob("*.npz"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "sweeps_tau5_s40.npz").unlink()
    again = mnist.compute(mnist.settings(quick=True) | TINY, 0, silent, tmp_path)
    assert again["parts_read_back"] == 7
    assert without_times(again) == without_times(numbers)
    with np.load(folder / "sweeps_tau5_s40.npz") as old, np.load(tmp_path / "sweeps_tau5_s40.npz") as new:
        np.testing.assert_array_equal(old["path"], new["path"])
        np.testing.assert_array_equal(old["series"], new["series"])


def test_an_interrupted_command_goes_on_where_it_was(
    made: tuple[dict[str, Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    tiny, write, written = mnist.settings(quick=True) | TINY, _parts.write, []

    def interrupted(folder: Any, name: str, *rest: Any) -> None:
        if len(written) == 6:
            raise KeyboardInterrupt
        write(folder, name, *rest)
        if "under_way" not in name:
            written.append(name)

    monkeypatch.setattr(mnist, "settings", lambda quick, sampler="best": tiny)
    monkeypatch.setattr(_parts, "write", interrupted)
    words = ["reproduce", "mnist", "--quick", "--out", str(tmp_path)]
    assert cli.main(words) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert {file.stem for file in (tmp_path / "mnist_quick_parts").iterdir()} == set(written)
    assert not list(tmp_path.glob("mnist_quick.*"))
    monkeypatch.setattr(_parts, "write", write)
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    record = json.loads((tmp_path / "mnist_quick.json").read_text(encoding="utf-8"))
    assert record["numbers"]["parts_read_back"] == 6
    assert without_times(record["numbers"]) == without_times(made[0])
    assert all(claim["claim"] in said for claim in record["numbers"]["claims"])
    assert cli.main([*words, "--seed", "1"]) == 2, "parts of another seed are not those of this one"
    assert "it has seed = 0 and not 1" in capsys.readouterr().err


def test_a_point_goes_on_after_the_round_in_which_it_was_stopped(
    made: tuple[dict[str, Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, make, long = mnist.settings(quick=True) | TINY, _climb._round, []

    def interrupted(measure: Any, *rest: Any) -> Any:
        long.append(measure.length)
        if long.count(5) == 2:
            raise KeyboardInterrupt
        return make(measure, *rest)

    monkeypatch.setattr(_climb, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mnist.compute(tiny, 0, silent, tmp_path)
    assert (tmp_path / "sweeps_tau5_s5_under_way.npz").is_file()
    calls = len(long)
    monkeypatch.setattr(_climb, "_round", lambda *given: long.append(0) or make(*given))
    again = mnist.compute(tiny, 0, silent, tmp_path)
    # the second round of this point, and both of the next
    assert len(long) == calls + 3 and len(_climb.rounds(8, 30)) == 2
    assert without_times(again) == without_times(made[0])
    assert not list(tmp_path.glob("*under_way*"))


@pytest.mark.slow
def test_a_signal_stops_the_command_and_leaves_whole_parts(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.test_mnist_figure import TINY; from tiltwalk.cli import main\n"
        "from tiltwalk.experiments import mnist; tiny = mnist.settings(True) | TINY\n"
        "mnist.settings = lambda quick, sampler='best': tiny\n"
        "sys.exit(main(['reproduce', 'mnist', '--quick', '--out', sys.argv[1]]))\n"
    )
    parts = tmp_path / "mnist_quick_parts"
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        while running.poll() is None and len(list(parts.glob("*.npz"))) < 3:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=300)
    assert running.returncode == 130
    assert "interrupted" in err and "Traceback" not in err
    kept = {file: file.read_bytes() for file in parts.iterdir()}
    assert len(kept) >= 3 and all(file.suffix == ".npz" for file in kept)
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads((tmp_path / "mnist_quick.json").read_text(encoding="utf-8"))["numbers"]["parts_read_back"] == len(kept)
    assert kept == {file: file.read_bytes() for file in kept}


def test_longer_paths_grow_from_shorter_ones_at_the_same_tilt(tmp_path: Path) -> None:
    """The first draws of the longer path are those of a path whose models are the shorter one's, several times over."""
    own = {**mnist._by("best"), "most_sweeps": [300, 300], "agreement": [], "first_round": 1.0}
    tiny = mnist.settings(quick=True) | TINY | own | {"drift": TINY["drift"] | {"sweeps": 2, "thin": 1}}
    starts: dict[tuple[int, float], np.ndarray] = {}
    sample, ends = _climb.sample_until_settled, {}

    def seen(measure: Any, s: float, sampler: str, place: _climb.Place, *rest: Any, **more: Any) -> Any:
        starts[measure.length, s] = place.path
        point = sample(measure, s, sampler, place, *rest, **more)
        ends[measure.length, s] = point.place.path
        return point

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_climb, "sample_until_settled", seen)
        found = mnist.compute(tiny, 0, silent, tmp_path)
    assert all(p["gradients"] > 0 and p["sampler"] == "best" for p in found["points"])
    np.testing.assert_array_equal(starts[2, 40.0], ends[2, 5.0])
    for s in (5.0, 40.0):
        np.testing.assert_array_equal(starts[5, s], ends[2, s][[0, 0, 0, 1, 1]])


def test_parts_can_be_made_anew(tmp_path: Path) -> None:
    _parts.write(tmp_path, "a", {}, ({}, {}))
    (tmp_path / "b.writing").write_bytes(b"cut off")
    (tmp_path / "notes.txt").write_text("mine")
    _parts.forget(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    _parts.forget(tmp_path / "absent")


def test_parts_of_a_sampler_that_was_changed_are_refused(
    made: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    better = dataclasses.replace(_climb.SAMPLERS["sweeps"], what="something better")
    monkeypatch.setitem(_climb.SAMPLERS, "sweeps", better)
    with pytest.raises(ValueError, match=r"it has moves = sweeps with .* and not something better"):
        mnist.compute(mnist.settings(quick=True) | TINY, 0, silent, made[1])


def test_parts_made_with_other_settings_are_refused(made: tuple[dict[str, Any], Path]) -> None:
    before = {file: file.read_bytes() for file in made[1].glob("*.npz")}
    with pytest.raises(ValueError, match=r"must have been made with the settings asked for; it has sigma = 0.05 and not 0.1\."):
        mnist.compute(mnist.settings(quick=True) | TINY | {"sigma": 0.1}, 0, silent, made[1])
    assert before == {file: file.read_bytes() for file in made[1].glob("*.npz")}


def test_a_larger_tilt_can_be_added_to_what_is_there(made: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    for file in made[1].glob("*.npz"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    longer = mnist.settings(quick=True) | TINY | {"tilts": [5, 40, 60], "lengths": [5], "most_sweeps": [30], "agreement": []}
    again = mnist.compute(longer, 0, silent, tmp_path)
    assert again["parts_read_back"] == 4 and [p["s"] for p in again["points"]] == [5, 40, 60]


def test_a_broken_part_is_named_and_never_run(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match=r"a\.npz must be a part that was written whole; delete it"):
        _parts.read(tmp_path, "a", {})
    with (tmp_path / "b.npz").open("wb") as file:
        np.savez(file, json=np.array({"pickled": 1}, object))
    with pytest.raises(ValueError, match=r"b\.npz must be a part"):
        _parts.read(tmp_path, "b", {})
    assert _parts.read(tmp_path, "c", {}) is None and _parts.read(None, "a", {}) is None


def test_settings_of_the_full_figure_are_the_papers() -> None:
    full = mnist.settings(quick=False, sampler="paper")
    assert full["lengths"] == [2, 4, 8, 16, 32] and full["images"] == 2048 and full["sigma"] == 0.05
    assert len(full["tilts"]) >= 8 and (min(full["tilts"]), max(full["tilts"])) == (5, 50)
    with pytest.raises(ValueError, match="sampler must be one of best, paper, sweeps; got 'good'"):
        mnist.settings(quick=True, sampler="good")


def test_accuracies_are_those_of_the_ensemble() -> None:
    network = tw.networks.mlp(TINY["network"])
    X, y, *_ = _mnist_data.images(mnist.settings(quick=True) | TINY)
    assert np.bincount(y, minlength=10).tolist() == [6] * 10
    path = np.stack([np.asarray(network.init(k)) for k in range(6)])
    found, ensemble = _mnist_data.accuracies(network, path, X, y), tw.Ensemble(network, path)
    assert found["mean_probability"] == tw.metrics.accuracy(y, ensemble.predict(X))
    assert found["vote"] == tw.metrics.accuracy(y, ensemble.vote(X))
    assert found["models"] == pytest.approx(
        np.mean([tw.metrics.accuracy(y, tw.Ensemble(network, p[None]).vote(X)) for p in path])
    )


def test_points_that_have_not_settled_are_drawn_hollow(made: tuple[dict[str, Any], Path]) -> None:
    pytest.importorskip("matplotlib")
    numbers = copy.deepcopy(made[0])
    for i, p in enumerate(numbers["points"]):
        p |= {"settled": i == 0, "standard_error": 0.01 if i == 0 else None}
    record = {"settings": mnist.settings(quick=True) | TINY, "numbers": numbers, "caption": ""}
    figure = mnist.draw(record)
    (loss,) = [axes for axes in figure.findobj(lambda a: hasattr(a, "get_ylabel")) if axes.get_ylabel() == "loss per model"]
    faces = [line.get_markerfacecolor() for line in loss.lines if line.get_marker() == "o"]
    assert len(faces) == 4 and [face == "white" for face in faces] == [False, True, True, True]
    assert "1 of 4 have settled" in _mnist_panels.caption(record)


# ---- claims ----


def point(
    length: int, s: float, loss: float, settled: bool = True, error: float = 0.01, accuracy: float = 0.5
) -> dict[str, Any]:
    share = {"mean_probability": accuracy, "vote": accuracy, "models": accuracy}
    return {
        "length": length, "s": s, "loss": loss, "settled": settled, "standard_error": error if settled else None,
        "accuracy": share, "test_accuracy": share, "evaluations": 10, "why": "settled" if settled else "drifts",
    }  # fmt: skip


def said(points: list[dict[str, Any]], free: float = 2.3) -> list[str]:
    numbers = {
        "points": points,
        "plateau": np.log(10),
        "free": [{"length": 2, "loss": free, "standard_error": 0.001, "paths": 9}],
    }
    return [claim["verdict"] for claim in _claims.verdicts(numbers, {})]


def test_claims_hold_where_all_points_settle_in_order() -> None:
    points = [point(2, 5, 2.3), point(2, 50, 1.5), point(32, 5, 2.29), point(32, 50, 0.05, accuracy=0.99)]
    assert said(points) == ["holds"] * 4


def test_claims_of_points_that_have_not_settled_are_held_back() -> None:
    points = [point(2, 5, 2.3), point(2, 50, 1.5), point(32, 5, 2.29), point(32, 50, 0.5, settled=False, accuracy=0.9)]
    assert said(points) == ["holds so far", "holds so far", "holds", "not decided"]
    points[3] = point(32, 50, 1.6, settled=False, accuracy=0.99)
    assert said(points) == ["holds so far", "not decided", "holds", "holds so far"]


def test_claims_that_points_contradict_do_not_hold() -> None:
    points = [point(2, 5, 2.5), point(2, 50, 2.6), point(32, 5, 2.6), point(32, 50, 2.9, accuracy=0.6)]
    assert said(points) == ["does not hold"] * 4
    assert said([point(2, 5, 2.3), point(2, 50, 2.32)])[0] == "holds", "0.02 is within 3 standard errors"
    assert said([point(2, 5, 2.3)], free=40.0) == ["not tested", "not tested", "does not hold", "not tested"]


# ---- what is committed ----

COMMITTED = sorted((Path(__file__).parent.parent / "results").glob("mnist*.json"))


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_committed_figures_say_of_each_claim_what_their_points_say(file: Path) -> None:
    record = json.loads(file.read_text(encoding="utf-8"))
    numbers = record["numbers"]
    found = json.loads(json.dumps(_claims.verdicts(numbers, record["settings"])))
    assert [claim["verdict"] for claim in numbers["claims"]] == [claim["verdict"] for claim in found]
    assert record["caption"] == _mnist_panels.caption(record)
    assert record["quick"] == ("quick" in file.stem) and record["seconds"] > 0 and record["machine"]["cores"] >= 1
    assert all(file.with_suffix(ending).is_file() for ending in (".png", ".svg"))
    assert {(p["length"], p["s"]) for p in numbers["points"]} == {
        (length, s) for length in record["settings"]["lengths"] for s in record["settings"]["tilts"]
    }


def test_the_quick_figure_is_committed() -> None:
    assert "mnist_quick" in [file.stem for file in COMMITTED]
