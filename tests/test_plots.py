"""What plots draw: the values of their lines, dots and cells against arithmetic by hand, and how they refuse."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk.plots import prediction, sampling, style

pytest.importorskip("matplotlib", reason="plots need the extra plots")
from matplotlib.figure import Figure

RNG = np.random.default_rng(0)
DARK = "#14171a"


def run_of(losses: Any = None, paths: Any = None, s: Any = None, chains: int = 2, draws: int = 5) -> tw.Run:
    """A run with the given draws; what no plot looks at is left empty."""
    draws = draws if losses is None else losses.shape[1]
    return tw.Run(
        losses=losses,
        paths=paths,
        kept=None,
        s=np.full(draws, 2.5) if s is None else s,
        acceptance={"sweep": 0.3, "shoot": 0.1},
        acceptance_by_chain={"sweep": np.array([0.25, 0.35]), "shoot": np.array([0.1, 0.1])},
        steps={"sweep": np.array([0.04, 0.06]), "shoot": np.array([1.0, 1.0])},
        state=tw.ChainState(np.zeros((chains, 3, 2)), np.zeros((chains, 3))),
        step_number=draws,
        evaluations=10,
        seconds=1.0,
        first_draw_seconds=0.1,
    )


def axes() -> Any:
    return Figure().add_subplot()


def xy(line: Any) -> tuple[list[float], list[float]]:
    return list(line.get_xdata()), list(line.get_ydata())


def test_loss_draws_a_line_a_chain_and_their_mean() -> None:
    losses = RNG.uniform(1, 2, (2, 5, 3))
    ax = tw.plots.loss(run_of(losses), axes())
    *chains, mean = ax.lines
    for line, chain in zip(chains, losses, strict=True):
        np.testing.assert_allclose(line.get_ydata(), chain.mean(-1))
    np.testing.assert_allclose(mean.get_ydata(), losses.mean((0, 2)))
    assert ax.get_title("left") == "$s$ = 2.5" and len(ax.figure.axes) == 1 and ax.get_yscale() == "linear"


def test_loss_has_an_axis_for_a_tilt_that_changes() -> None:
    s = np.array([1.0, 10.0, 100.0, 100.0])
    ax = tw.plots.loss(run_of(np.geomspace(1e3, 1, 4)[None, :, None] * np.ones((2, 4, 3)), s=s), axes())
    left, right = ax.figure.axes
    assert left is ax and xy(right.lines[0]) == ([0, 1, 2, 3], s.tolist())
    assert ax.get_yscale() == right.get_yscale() == "log"


def test_long_runs_are_thinned_from_the_first_draw_to_the_last() -> None:
    losses = np.arange(1, 5001, dtype=float)[None, :, None]
    x, y = xy(tw.plots.loss(run_of(losses), axes()).lines[-1])
    assert len(x) == sampling.SHOWN and (x[0], x[-1], y[0], y[-1]) == (0, 4999, 1, 5000)


def test_acceptance_and_step_sizes_are_those_of_each_move_and_chain() -> None:
    ax = tw.plots.acceptance(run_of(np.ones((2, 5, 3))), axes())
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.3, 0.1])
    assert xy(ax.lines[0])[1] == [0.25, 0.35] and ax.get_ylim() == (0, 1)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["sweep\nstep 0.05", "shoot\nstep 1"]
    ax = tw.plots.step_sizes(run_of(np.ones((2, 5, 3))), axes())
    assert [xy(line)[1] for line in ax.lines] == [[0.04, 0.06], [1.0, 1.0]] and ax.get_yscale() == "log"
    assert ax.get_ylim() == pytest.approx((0.01, 1.0))


def test_loss_by_position_has_the_mean_and_nine_tenths_of_the_draws() -> None:
    losses = RNG.gamma(2.0, size=(3, 50, 4))
    ax = tw.plots.by_position(run_of(losses, chains=3), axes())
    x, y = xy(ax.lines[0])
    assert x == [1, 2, 3, 4]
    np.testing.assert_allclose(y, losses.mean((0, 1)))
    band = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(
        [band[band[:, 0] == 2, 1].min(), band[band[:, 0] == 2, 1].max()], np.quantile(losses[..., 1], [0.05, 0.95])
    )


def test_autocorrelation_is_that_of_the_definition() -> None:
    noise = RNG.normal(size=(2, 400))
    x = np.zeros_like(noise)
    for t in range(1, 400):
        x[:, t] = 0.8 * x[:, t - 1] + noise[:, t]
    ax = tw.plots.autocorrelation(run_of(x[:, :, None]), axes(), lags=20)
    c = x - x.mean(1, keepdims=True)
    direct = np.array([[(row[: 400 - k] * row[k:]).sum() / (row**2).sum() for k in range(21)] for row in c])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), direct[0], atol=1e-12)
    np.testing.assert_allclose(ax.lines[2].get_ydata(), direct.mean(0), atol=1e-12)
    assert ax.lines[3].get_ydata()[0] == pytest.approx(-1.96 / 20)


def test_autocorrelation_of_chains_that_never_moved_is_left_out() -> None:
    x = np.ones((2, 50, 1))
    x[0] = RNG.normal(size=(50, 1))
    ax = tw.plots.autocorrelation(run_of(x), axes(), lags=10)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), ax.lines[2].get_ydata())
    assert np.isnan(ax.lines[1].get_ydata()).all()


def test_curve_has_three_errors_in_the_order_of_s() -> None:
    found = SimpleNamespace(s=np.array([10.0, 1.0]), loss=np.array([1.0, 3.0]), error=np.array([0.1, np.nan]))
    for what in (found, SimpleNamespace(curve=found)):
        ax = tw.plots.curve(what, axes())
        line, _, (bars,) = ax.containers[0]
        assert xy(line) == ([1.0, 10.0], [3.0, 1.0])
        np.testing.assert_allclose(bars.get_segments()[1][:, 1], [0.7, 1.3])


def test_reliability_has_the_bins_of_the_metric() -> None:
    y, p = np.array([0, 1, 1, 0]), np.array([[0.9, 0.1], [0.2, 0.8], [0.55, 0.45], [0.6, 0.4]])
    ax = tw.plots.reliability(y, p, axes(), bins=5)
    found = np.asarray(ax.collections[-1].get_offsets())
    np.testing.assert_allclose(found, [[0.575, 0.5], [0.8, 1.0], [0.9, 1.0]])
    assert ax.get_title("left") == f"calibration error {tw.metrics.calibration_error(y, p, bins=5):.3f}"


def test_confusion_has_true_classes_in_rows() -> None:
    ax = tw.plots.confusion([0, 0, 0, 1], [0, 1, 1, 1], axes(), classes=["cat", "dog", "eel"])
    np.testing.assert_allclose(ax.images[0].get_array(), [[1 / 3, 2 / 3, 0], [0, 1, 0], [0, 0, 0]])
    assert {(t.get_position(), t.get_text()) for t in ax.texts} == {((0, 0), "1"), ((1, 0), "2"), ((1, 1), "1")}
    assert [t.get_text() for t in ax.get_yticklabels()] == ["cat", "dog", "eel"]


def test_predicted_values_stand_against_the_true_ones_with_their_deviation() -> None:
    ax = tw.plots.predicted([[1.0], [3.0]], [[1.5], [2.0]], [[0.5], [0.25]], axes())
    assert xy(ax.lines[0]) == ([1.0, 3.0], [1.0, 3.0]) and xy(ax.lines[1]) == ([1.0, 3.0], [1.5, 2.0])
    bars = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert bars == [[[1.0, 1.0], [1.0, 2.0]], [[3.0, 1.75], [3.0, 2.25]]]
    assert not tw.plots.predicted([1.0, 3.0], [1.5, 2.0], ax=axes()).collections


def small_ensemble(task: str | None = None) -> tuple[tw.Ensemble, np.ndarray, np.ndarray]:
    network = tw.networks.linear(2, 3)
    X = RNG.normal(size=(30, 2)).astype(np.float32)
    return tw.Ensemble(network, RNG.normal(size=(2, 2, 3, network.dim)), task), X, RNG.integers(0, 3, 30)  # type: ignore[arg-type]


def test_accuracy_against_members_is_that_of_the_first_few_of_each_order() -> None:
    ensemble, X, y = small_ensemble()
    ax = tw.plots.members(ensemble, X, y, axes())
    sizes, accuracy = xy(ax.lines[0])
    assert sizes == [1, 2, 4, 8, 12]
    orders = [np.random.default_rng(i).permutation(12) for i in range(prediction.ORDERS)]
    by_hand = [[np.mean(tw.Ensemble(ensemble.network, ensemble.thetas[o[:n]]).predict(X) == y) for n in sizes] for o in orders]
    np.testing.assert_allclose(prediction.by_members(ensemble, X, y)[1], by_hand)
    np.testing.assert_allclose(accuracy, np.mean(by_hand, 0))
    assert accuracy[-1] == np.mean(ensemble.predict(X) == y)


def test_error_against_members_of_a_regression_ends_at_that_of_all() -> None:
    ensemble, X, _ = small_ensemble("regression")
    y = RNG.normal(size=(30, 3))
    ax = tw.plots.members(ensemble, X, y, axes())
    assert xy(ax.lines[0])[1][-1] == pytest.approx(np.sqrt(np.mean((ensemble.mean(X) - y) ** 2)))
    assert ax.get_ylabel() == "root mean square error"


P = np.array([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.05, 0.95]])


def test_images_are_chosen_by_entropy_and_by_the_probability_of_the_truth() -> None:
    y = np.array([0, 1, 0, 0])
    assert prediction.most_uncertain(P, 2).tolist() == [1, 2]
    # equal probabilities count for the first class, so that sample 1 is wrong too, but less so
    assert prediction.most_wrong(y, P, 9).tolist() == [3, 2, 1]
    images = np.arange(4)[:, None, None] * np.ones((4, 8, 8)) / 3
    ax = tw.plots.wrong_images(images, y, P, axes(), classes=["nought", "one"])
    assert [t.get_text() for t in ax.texts] == ["nought: one 95%", "nought: one 70%", "one: nought 50%"]
    sheet = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(sheet[3:11, :8, 0], 1.0)  # the worst is sample 3, which is white
    np.testing.assert_allclose(sheet[3:11, 9:17, 0], 2 / 3)
    assert tw.plots.wrong_images(images, [0, 0, 1, 1], P, axes()).texts[0].get_text() == "none"
    assert len(tw.plots.uncertain_images(images, y, P, axes(), count=2).texts) == 2


def test_components_are_those_of_the_covariance() -> None:
    paths = RNG.normal(size=(2, 20, 3, 5)) * [3.0, 0.1, 1.0, 0.1, 0.1] + 7.0
    ax = tw.plots.components(run_of(paths=paths, draws=20), axes())
    values, directions = np.linalg.eigh(np.cov(paths.reshape(-1, 5).T))
    share = values[::-1] / values.sum()
    assert ax.get_xlabel() == f"component 1 ({100 * share[0]:.0f} % of the spread)"
    along = (paths[0, -1] - paths.mean((0, 1, 2))) @ directions[:, [-1, -2]]
    drawn = np.stack(xy(ax.lines[0]), 1)
    np.testing.assert_allclose(np.abs(drawn), np.abs(along), atol=1e-9)
    assert len(ax.lines) == 2
    alone = tw.plots.components(paths[1:], axes())
    np.testing.assert_array_equal(xy(tw.plots.components(paths, axes(), chain=1).lines[0]), xy(alone.lines[0]))


def test_one_parameter_has_a_second_component_of_nothing() -> None:
    ax = tw.plots.components(run_of(paths=RNG.normal(size=(1, 4, 2, 1))), axes())
    assert "(0 % of the spread)" in ax.get_ylabel() and set(xy(ax.lines[0])[1]) == {0.0}


def test_landscape_shows_the_last_path_of_each_chain() -> None:
    paths = RNG.normal(size=(2, 4, 3, 2))
    ax = tw.plots.landscape(run_of(paths=paths), tw.losses.himmelblau("classic"), axes())
    lines = [line for line in ax.lines if len(line.get_xdata()) == 3]
    for line, path in zip(lines, paths[:, -1], strict=True):
        np.testing.assert_allclose(np.stack(xy(line), 1), path)
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    assert x0 < paths[:, -1, :, 0].min() and x1 > paths[:, -1, :, 0].max() and y0 < paths[:, -1, :, 1].min() < y1


def test_rungs_of_a_ladder_are_chains() -> None:
    losses = RNG.uniform(1, 2, (3, 2, 5, 4))
    run = dataclasses.replace(run_of(np.ones((1, 5, 4))), losses=losses)
    assert len(tw.plots.loss(run, axes()).lines) == 3 * 2 + 1


def test_without_axes_a_new_figure_is_made() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    before = set(plt.get_fignums())
    ax = tw.plots.loss(run_of(np.ones((1, 5, 4))))
    assert len(set(plt.get_fignums()) - before) == 1
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tw.plots.loss(run_of(), axes()), "plots.loss.run must hold losses: sample with keep"),
        (lambda: tw.plots.loss(np.ones((3, 4)), axes()), r"plots.loss.run must hold losses of shape .* got \(3, 4\)"),
        (lambda: tw.plots.autocorrelation(np.ones((1, 2, 3)), axes()), "at least 4 draws"),
        (lambda: tw.plots.autocorrelation(np.ones((1, 9, 3)), axes(), lags=9), "lags must be .* between 1 and 8; got 9"),
        (lambda: tw.plots.components(run_of(), axes()), "plots.components.run must hold paths: sample with keep"),
        (lambda: tw.plots.components(np.ones((2, 3, 4, 5)), axes(), chain=2), "chain must be .* between 0 and 1; got 2"),
        (lambda: tw.plots.landscape(np.ones((1, 2, 3, 4)), tw.losses.bowl(), axes()), "models of two parameters; got 4"),
        (lambda: tw.plots.curve(run_of(), axes()), "plots.curve.run must be a run of anneal or exchange"),
        (lambda: tw.plots.acceptance(3, axes()), "plots.acceptance.run must be a run, with acceptance_by_chain; got 3"),
        (lambda: tw.plots.wrong_images(np.ones((4, 9)), [0, 0, 0, 0], P, axes()), r"must be images .* got \(4, 9\)"),
        (lambda: tw.plots.wrong_images(np.ones((3, 9, 9)), [0] * 4, P, axes()), "as many as labels and probabilities; got 3"),
        (lambda: tw.plots.predicted([1.0, 2.0], [1.0], ax=axes()), "plots.predicted.mean must be as many as y; got 2 and 1"),
        (lambda: tw.plots.uncertain_images(np.ones((4, 9, 9)), [0] * 4, P, axes(), count=0), "count must be .* at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_stand_out_from_white_and_from_dark_by_three_to_one() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for colour in (*style.TONES, *style.ALONG):
        assert contrast(colour, "#ffffff") > 3 and contrast(colour, DARK) > 3, colour
    assert contrast("#440154", DARK) < 3  # the dark end of viridis would not


def test_matplotlib_is_imported_when_something_is_drawn_and_named_where_it_is_missing() -> None:
    code = (
        "import sys, tiltwalk, numpy; assert 'matplotlib' not in sys.modules; sys.modules['matplotlib'] = None\n"
        "try: tiltwalk.plots.loss(numpy.ones((1, 2, 3)))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == 'Figures need matplotlib: pip install "tiltwalk[plots]".\n'


def test_names_are_drawn_as_they_are_and_not_as_mathematics() -> None:
    ax = tw.plots.confusion([0, 1], [0, 0], axes(), classes=[r"$\frac{", "a\nb" + 20 * "c"])
    ax.figure.savefig(__import__("io").BytesIO(), format="svg")
    assert [t.get_text() for t in ax.get_yticklabels()] == [r"\$\frac{", "a bcccccccc…"]


def test_a_curve_of_annealed_sigma_is_drawn_against_sigma() -> None:
    found = SimpleNamespace(
        s=np.full(3, 10.0), sigma=np.array([1.0, 0.5, 0.2]), loss=np.array([3.0, 2.0, 1.0]), error=np.full(3, 0.1)
    )
    ax = tw.plots.curve(SimpleNamespace(curve=found), axes())
    assert xy(ax.containers[0][0]) == ([0.2, 0.5, 1.0], [1.0, 2.0, 3.0]) and "sigma" in ax.get_xlabel()
    climbed = SimpleNamespace(**(vars(found) | {"s": np.array([0.0, 1.0, 4.0]), "sigma": np.ones(3)}))
    assert xy(tw.plots.curve(climbed, axes()).containers[0][0])[0] == [0.0, 1.0, 4.0]
