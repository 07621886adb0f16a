"""The figures: their numbers are right, their files repeat, and their captions say which corrections apply."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import experiments
from tiltwalk.experiments import _common, annealing, landscape, linear

plotting = pytest.importorskip("matplotlib", reason="figures need the extra plots")

ROOT = Path(__file__).parent.parent
SMALL: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (linear, {"lengths_sampled": [1, 4], "chains": 64, "updates": 1_600, "draws": 200}),
    "annealing": (annealing, {"steps_each": 200, "chains": 32}),
    "landscape": (landscape, {"snapshots": 3}),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., experiments.Result]:
    """Figures of a small size, each made once; `again` makes it anew in another folder."""
    made: dict[tuple[str, str], experiments.Result] = {}

    def figure(name: str, folder: str = "first", seed: int = 0) -> experiments.Result:
        if (name, folder) not in made:
            module, size = SMALL[name]
            with pytest.MonkeyPatch.context() as patch:
                full = module.settings(True)
                patch.setattr(module, "settings", lambda quick: full | size)
                made[name, folder] = experiments.reproduce(name, quick=True, out=tmp_path_factory.mktemp(folder), seed=seed)
        return made[name, folder]

    return figure


@pytest.mark.parametrize("name", SMALL)
def test_a_figure_is_a_png_an_svg_and_a_json_of_its_numbers(name: str, small: Any) -> None:
    png, svg, numbers = small(name).files
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "<svg" in svg.read_text(encoding="utf-8")
    record = json.loads(numbers.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert record["figure"] == name
    assert record["seed"] == 0
    assert record["seconds"] > 0
    assert record["machine"]["cores"] >= 1
    assert {"python", "tiltwalk", "jax", "numpy", "matplotlib"} <= record["versions"].keys()


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_files(name: str, small: Any) -> None:
    one, two = small(name), small(name, "second")
    assert one.record["numbers"] == two.record["numbers"]
    for first, second in zip(one.files[:2], two.files[:2], strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_panels_are_where_the_solver_puts_them_but_for_its_last_digits() -> None:
    from tiltwalk.experiments import _plots

    figure, panels = _plots.canvas(6.0, 3.0, "A caption.")
    for part in panels.subfigures(2, 1):
        part.subplots(1, 3)
    figure.draw_without_rendering()
    solved = np.array([axes.get_position(original=True).bounds for axes in figure.axes])
    _plots.pin(figure)
    placed = np.array([axes.get_position(original=True).bounds for axes in figure.axes])
    inside = [part.bbox_relative.get_points() for part in (*figure.subfigs, *panels.subfigs)]
    assert len(np.unique(solved.round(3), axis=0)) == 3  # in each part, three in a row
    np.testing.assert_allclose(placed, solved, atol=1e-3)
    assert all(np.array_equal(np.round(x, 6), x) for x in inside)
    figure.draw_without_rendering()
    np.testing.assert_array_equal(placed, [axes.get_position(original=True).bounds for axes in figure.axes])


def test_another_seed_gives_another_path(small: Any) -> None:
    assert small("landscape").record["numbers"] != small("landscape", "other", seed=1).record["numbers"]


@pytest.mark.parametrize("name", SMALL)
def test_a_figure_can_be_drawn_again_from_its_json_alone(name: str, small: Any, tmp_path: Path) -> None:
    from tiltwalk.experiments import _plots

    png, _, numbers = small(name).files
    record = json.loads(numbers.read_text(encoding="utf-8"))
    _plots.save(lambda: experiments.load(name).draw(record), tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == png.read_bytes()


@pytest.mark.parametrize("name", SMALL)
def test_svg_files_hold_no_date(name: str, small: Any) -> None:
    assert "<dc:date>" not in small(name).files[1].read_text(encoding="utf-8")


def test_drawing_leaves_no_state_behind(tmp_path: Path) -> None:
    program = (
        "import sys, matplotlib; matplotlib.rcParams['lines.linewidth'] = 7; before = matplotlib.rcParams.copy()\n"
        "from tiltwalk.experiments import _plots\n"
        f"_plots.save(lambda: _plots.canvas(2.0, 1.0, 'text')[0], __import__('pathlib').Path({str(tmp_path / 'a.png')!r}))\n"
        "assert matplotlib.rcParams.copy() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


# ---- what the captions say ----


@pytest.mark.parametrize(
    ("name", "corrections"),
    [
        ("linear", ["2/σ² + sA inside", "1/σ² + sA at the ends", "partition sum", "least loss", "three regimes", "minus sign"]),
        ("annealing", ["s increases", "1/s decreases", "precision matrix", "minus sign"]),
        ("landscape", ["(x + y²)²", "(x + y² - 7)²", "p(θ₁)", "minus sign"]),
    ],
)
def test_a_caption_names_the_corrections_that_apply(name: str, corrections: list[str], small: Any) -> None:
    caption = small(name).record["caption"]
    assert "Corrections to the paper that apply" in caption
    assert [text for text in corrections if text not in caption] == []


# ---- the linear perceptron ----


def test_the_data_of_the_line_never_change() -> None:
    X, Y = _common.line_data()
    assert X.shape == Y.shape == (100, 1)
    pinned = [0.0012301533574825742, -2.0353289449399323, -0.3298326110924024, -1.1661671742034945]
    np.testing.assert_allclose([X[0, 0], X[-1, 0], Y[0, 0], Y[-1, 0]], pinned, rtol=1e-12)


def test_exact_lines_have_their_limits(small: Any) -> None:
    """One model lies (d + 1)/(2s) above the least loss; so does, divided by tau, a stiff path; and at large s all meet."""
    record = small("linear").record
    tilts, least = np.array(record["settings"]["tilts"]), record["numbers"]["least_loss"]
    lines = {(line["sigma"], line["length"]): np.array(line["loss"]) for line in record["numbers"]["lines"]}
    assert len(lines) == 2 * 7
    for sigma in (0.1, 1.0):
        np.testing.assert_allclose(lines[sigma, 1], least + 1 / tilts, rtol=1e-9)
        assert all(np.all(lines[sigma, 2 * n] < lines[sigma, n]) for n in (1, 2, 4, 8, 16, 32))
    np.testing.assert_allclose(lines[0.1, 2][0], least + 1 / (2 * tilts[0]), rtol=0.01)


def test_sampled_points_lie_on_the_exact_lines(small: Any) -> None:
    """20 points, each (sampled - exact)/error of Student's law with 63 degrees of freedom: 4.2 is passed by one in 600 sets."""
    points = small("linear").record["numbers"]["points"]
    assert len(points) == 20
    assert np.abs(linear.deviations(points)).max() < 4.2


def test_a_point_that_is_off_is_reported_as_off(small: Any) -> None:
    record = json.loads(json.dumps(small("linear").record))
    point = record["numbers"]["points"][3]
    before = int(np.sum(np.abs(linear.deviations(record["numbers"]["points"])) <= 3))
    point["loss"] = point["exact"] + 3.1 * point["standard_error"]
    assert linear.summary(record)[0].startswith(f"{before - 1} of 20 sampled points are within 3")
    assert f"{before - 1} of 20 within 3" in linear.caption(record)


def test_standard_errors_are_of_the_mean_over_chains() -> None:
    """Of 4,000 sets of 50 normal numbers, the mean is within one standard error with the chance of Student's law, 0.678."""
    sets = np.random.default_rng(5).normal(size=(4_000, 50))
    inside = [abs(mean) < error for mean, error in map(_common.mean_and_error, sets)]
    assert abs(np.mean(inside) - 0.678) < 4 * np.sqrt(0.678 * 0.322 / 4_000)


def test_no_two_parts_of_a_figure_share_a_key() -> None:
    assert len({_common.key_of(seed, part) for seed in (0, 1, 2**32 - 1) for part in range(50)}) == 150


# ---- annealing ----


def test_the_tilt_climbs_and_the_loss_falls(small: Any) -> None:
    numbers = small("annealing").record["numbers"]
    assert np.all(np.diff(numbers["s"]) >= 0)
    assert len(set(numbers["s"])) == 6
    assert np.all(np.diff([stair["loss"] for stair in numbers["stairs"]]) < 0)
    assert len(numbers["step"]) == len(numbers["mean"]) == len(numbers["one_chain"])


def test_each_stair_settles_at_the_exact_mean(small: Any) -> None:
    """The first stairs of a short run, where moves are still accepted often: within 4 standard errors."""
    for stair in small("annealing").record["numbers"]["stairs"][1:4]:
        assert abs(stair["loss"] - stair["exact"]) < 4 * stair["standard_error"] + 0.02 * stair["exact"]


# ---- the landscape ----


def test_both_forms_are_walked_from_the_same_first_path(small: Any) -> None:
    paths = small("landscape").record["numbers"]["paths"]
    assert [path["form"] for path in paths] == ["paper", "classic"]
    assert paths[0]["snapshots"][0]["path"] == paths[1]["snapshots"][0]["path"]
    assert paths[0]["snapshots"][-1]["path"] != paths[1]["snapshots"][-1]["path"]


def test_snapshots_are_50_steps_apart_and_their_losses_are_the_functions(small: Any) -> None:
    for path, shift in zip(small("landscape").record["numbers"]["paths"], (0.0, 7.0), strict=True):
        assert [snapshot["step"] for snapshot in path["snapshots"]] == [0, 50, 100]
        for snapshot in path["snapshots"]:
            x, y = np.array(snapshot["path"]).T
            np.testing.assert_allclose(snapshot["losses"], (x**2 + y - 11) ** 2 + (x + y**2 - shift) ** 2, rtol=1e-3, atol=1e-3)
            assert np.abs(snapshot["path"][0]).max() <= 1  # the start is uniform in the box, at every step


def test_the_marked_minima_are_minima() -> None:
    classic = landscape._minima("classic")
    assert len(classic) == 4
    assert np.all(np.abs(landscape._height("classic", *classic.T)) < 0.02)
    assert len(landscape._minima("paper")) >= 2


# ---- what is refused ----


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ({"name": "lines"}, ValueError, "reproduce.name must be one of annealing, landscape, linear, mnist"),
        ({"seed": -1}, ValueError, "reproduce.seed must be a whole number between 0 and 4294967295; got -1"),
        ({"seed": 0.5}, TypeError, "reproduce.seed must be a whole number"),
        ({"out": __file__}, OSError, "reproduce.out must be a folder that can be written"),
        ({"out": f"{__file__}/below"}, OSError, "reproduce.out must be a folder that can be written"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(
    bad: dict[str, Any], error: type[Exception], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "compute", lambda *_: pytest.fail("computed"))
    with pytest.raises(error, match=text.replace(".", r"\.")):
        experiments.reproduce(**({"name": "linear", "out": tmp_path} | bad))


def test_without_matplotlib_the_extra_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(linear, "compute", lambda *_: pytest.fail("computed"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"tiltwalk\[plots\]"):
        experiments.reproduce("linear", out=tmp_path)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_figure_has_a_module_with_the_functions_of_an_experiment(name: str) -> None:
    module = experiments.load(name)
    assert all(callable(getattr(module, function)) for function in ("settings", "compute", "caption", "summary", "draw"))


# ---- what is committed ----


def test_the_picture_of_the_readme_is_there_and_small() -> None:
    assert "docs/images/landscape.png" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / "docs/images/landscape.png").stat().st_size < 200_000


@pytest.mark.parametrize("name", SMALL)
def test_committed_results_say_what_their_numbers_say(name: str) -> None:
    record = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert record["quick"] is False
    assert record["settings"] == json.loads(json.dumps(experiments.load(name).settings(False)))
    assert record["caption"] == experiments.load(name).caption(record)
    assert (ROOT / "results" / f"{name}.png").is_file()
    assert (ROOT / "results" / f"{name}.svg").is_file()


def test_the_exact_numbers_of_the_committed_figure_are_still_those_of_the_oracle() -> None:
    record = json.loads((ROOT / "results" / "linear.json").read_text(encoding="utf-8"))
    oracle = tw.exact.LinearPerceptron(*_common.line_data())
    for line in record["numbers"]["lines"]:
        expected = oracle.expected_loss(np.array(record["settings"]["tilts"]), line["sigma"], line["length"])
        np.testing.assert_allclose(line["loss"], expected, rtol=1e-9)


def test_plots_are_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(line.startswith("matplotlib") for line in project["optional-dependencies"]["plots"])


@pytest.mark.slow
def test_all_quick_points_are_within_three_and_a_half_standard_errors(tmp_path: Path) -> None:
    """30 points at a fixed seed; by chance one set in 70 would have a point beyond."""
    record = experiments.reproduce("linear", quick=True, out=tmp_path).record
    assert np.abs(linear.deviations(record["numbers"]["points"])).max() < 3.5
