"""Statistics against series whose law is known, verdicts on runs that did and did not converge, and ArviZ's container."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import diagnostics

pytest.importorskip("arviz_stats")


def autoregressive(persistence: float, chains: int, draws: int, seed: int = 0) -> np.ndarray:
    """x' = a x + sqrt(1 - a^2) noise, begun in equilibrium: its integrated autocorrelation time is (1 + a) / (1 - a)."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws))
    x[:, 0] = rng.normal(size=chains)
    noise = np.sqrt(1 - persistence**2) * rng.normal(size=(chains, draws))
    for i in range(1, draws):
        x[:, i] = persistence * x[:, i - 1] + noise[:, i]
    return x


@functools.cache
def sampled() -> tw.Run:
    """A run that converged: paths of a bowl, with paths kept."""
    measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(1.0)), tw.losses.bowl(), 4)
    return tw.sample(measure, 1.0, steps=2000, chains=4, burn_in=50, keep="paths", progress=False)


def run_of(x: np.ndarray, **more: Any) -> tw.Run:
    """A run with the losses `x (chains, draws)` of paths of one model, and nothing to say of acceptance."""
    given = {"losses": x[..., None], "paths": None, "s": np.ones(x.shape[1]), "acceptance": {}, **more}
    return dataclasses.replace(sampled(), **given)


@pytest.mark.parametrize("persistence", [0.0, 0.8])
def test_autocorrelation_time_and_ess_of_a_known_series(persistence: float) -> None:
    x = autoregressive(persistence, 8, 20_000)
    exact = (1 + persistence) / (1 - persistence)
    assert diagnostics.autocorrelation_time(x) == pytest.approx(exact, rel=0.1)
    assert diagnostics.ess(x, "mean") == pytest.approx(x.size / exact, rel=0.1)
    assert diagnostics.ess(x) == pytest.approx(x.size / exact, rel=0.1)
    assert diagnostics.ess(x, "tail") < 1.3 * x.size
    assert diagnostics.rhat(x) < 1.005
    assert abs(diagnostics.trend(x)) < 3


def test_many_quantities_at_once_are_each_on_its_own() -> None:
    one, other = autoregressive(0.0, 4, 500), autoregressive(0.9, 4, 500, seed=1)
    both = np.stack([one, other], -1)
    np.testing.assert_allclose(diagnostics.ess(both), [diagnostics.ess(one), diagnostics.ess(other)])
    np.testing.assert_allclose(diagnostics.rhat(both), [diagnostics.rhat(one), diagnostics.rhat(other)])


def test_rhat_sees_other_means_other_spreads_and_single_chains_that_drift() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, 1000))
    assert diagnostics.rhat(x) < 1.01
    assert diagnostics.rhat(x + np.array([0, 0, 0, 1.0])[:, None]) > 1.1
    assert diagnostics.rhat(x * np.array([1, 1, 1, 3.0])[:, None]) > 1.1, "of equal means, which the folded ranks see"
    assert diagnostics.rhat(rng.standard_cauchy((4, 1000))) < 1.01, "ranks do not mind that there is no mean"
    assert diagnostics.rhat(x[:1]) < 1.02
    assert diagnostics.rhat(x[:1] + np.linspace(0, 2, 1000)) > 1.1


def test_a_trend_is_seen_and_has_a_sign() -> None:
    x = autoregressive(0.5, 4, 2000)
    assert diagnostics.trend(x + np.linspace(1, 0, 2000)) < -10
    assert diagnostics.trend(x + np.linspace(0, 1, 2000)) > 10


def test_what_never_changed_is_worth_nothing() -> None:
    still = np.ones((4, 100))
    assert np.isnan(diagnostics.rhat(still))
    assert np.isnan(diagnostics.ess(still))


def test_a_run_that_converged_is_told_so() -> None:
    run = sampled()
    verdict = run.verdict()
    assert verdict.converged is True
    assert "Converged, as far as can be seen" in str(run)
    assert verdict.advice == ()
    assert verdict is run.verdict(), "found once"
    assert list(verdict.summary.measures) == ["total loss", "loss of model 1", "loss of model 4", "norm of model 1"]
    table = run.summary()
    assert table["total loss"] == diagnostics.measures(run.total_losses)
    assert len(str(table).splitlines()) == 1 + 1 + 4 + 1


def test_printing_a_long_run_does_not_wait_for_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltwalk.run.QUICK", 10)
    assert "run.verdict()" in str(run_of(autoregressive(0.0, 4, 60)))


def test_chains_in_different_wells_are_told_so() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.1, start=tw.Normal(5.0)), tw.losses.double_well(1.0, 2.0), 4)
    places = np.repeat(np.array([[-2.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [2.0, 0.0]])[:, None], 4, axis=1)
    run = tw.sample(measure, 20.0, steps=500, burn_in=100, chains=4, init=places, keep=_first, progress=False)
    verdict = run.verdict()
    assert verdict.converged is False
    assert "R-hat" in verdict.words and "kept['place']" in verdict.words
    assert any("disagree" in line for line in verdict.advice)
    assert run.to_arviz()["posterior"]["place"].dims == ("chain", "draw")


def _first(state: tw.ChainState) -> dict[str, Any]:
    return {"place": state.path[0, 0]}


def test_a_run_that_still_falls_is_told_to_burn_in() -> None:
    verdict = run_of(autoregressive(0.5, 4, 600) + np.linspace(9, 3, 600)).verdict()
    assert verdict.converged is False
    assert any("total loss still falls" in line and "burn_in" in line for line in verdict.advice)


def test_a_short_run_is_told_how_long_to_run() -> None:
    verdict = run_of(autoregressive(0.0, 4, 60)).verdict()
    assert verdict.converged is False
    assert verdict.words.startswith("Too short: the draws of the total loss are worth")
    assert any("times as long" in line for line in verdict.advice)


def test_one_chain_is_told_to_have_company() -> None:
    verdict = run_of(autoregressive(0.0, 1, 2000)).verdict()
    assert verdict.converged is True
    assert any("chains=4" in line for line in verdict.advice)


def test_acceptance_near_zero_and_near_one_is_told_what_to_do() -> None:
    def advice(rate: float, step: float = 1.0, **more: Any) -> str:
        one = {"acceptance": {"sweep": rate}, "steps": {"sweep": np.full(4, step)}, **more}
        return " ".join(dataclasses.replace(sampled(), **one).verdict().advice)

    assert "too far away" in advice(0.001) and "target_acceptance" in advice(0.001)
    assert "may step further" in advice(0.99, step=0.01)
    assert advice(0.99) == "", "the whole walk is redrawn: there is nothing larger"
    assert advice(0.4) == ""
    assert "1 of the chains" in advice(0.4, acceptance_by_chain={"sweep": np.array([0.5, 0.0, 0.5, 0.5])})


def test_what_cannot_be_judged_says_why() -> None:
    x = autoregressive(0.0, 4, 60)
    assert "the tilt goes from 1 to 2" in run_of(x, s=np.linspace(1, 2, 60)).verdict().words
    short = run_of(x[:, :5]).verdict()
    assert short.converged is None and "5 draws" in short.words
    nothing = dataclasses.replace(run_of(x), losses=None).verdict()
    assert nothing.converged is None and "nothing" in nothing.words
    still = run_of(np.ones((4, 60))).verdict()
    assert still.converged is False and "never changed" in still.words


def test_a_flat_start_with_cross_entropy_is_cautioned_and_a_normal_one_is_not() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    loss = tw.losses.Supervised(tw.networks.linear(2, 2), X, (X[:, 0] > 0).astype(int))
    with pytest.warns(UserWarning, match="cannot be normalised"):
        flat = tw.PathMeasure(tw.RandomWalk(0.3), loss, 2)
    assert "cannot be normalised" in diagnostics.cautions(flat)[0]
    assert diagnostics.cautions(tw.PathMeasure(tw.RandomWalk(0.3, start=tw.Normal(1.0)), loss, 2)) == ()
    assert diagnostics.cautions(tw.PathMeasure(tw.RandomWalk(0.3), tw.losses.bowl(), 2)) == ()
    run = tw.sample(flat, 300.0, steps=600, chains=4, keep="paths", progress=False)
    assert any("norm of model 1 drifts" in line and "Normal(network.scale())" in line for line in run.verdict().advice)


def test_a_cold_gap_in_a_ladder_is_named_with_a_rung_to_put_there() -> None:
    (line,) = diagnostics.ladder_advice([0.4, 0.02, 0.3], [1.0, 2.0, 8.0, 16.0])
    assert "Rungs 2 and 3" in line and "near s = 4" in line
    assert diagnostics.ladder_advice([0.4, 0.3]) == ()
    assert "fewer rungs" in diagnostics.ladder_advice([0.95, 0.97])[0]
    assert "near s = 0.5" in diagnostics.ladder_advice([0.01], [0.0, 1.0])[0]


def test_without_arviz_the_verdict_says_what_to_install_and_still_judges_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(autoregressive(0.0, 4, 60), acceptance={"sweep": 0.0})
    monkeypatch.setitem(sys.modules, "arviz_stats", None)
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    verdict = run.verdict()
    assert verdict.converged is None
    assert "tiltwalk[arviz]" in verdict.words
    assert any("too far away" in line for line in verdict.advice)
    for call in (run.summary, run.to_arviz, lambda: diagnostics.rhat(np.zeros((2, 20)))):
        with pytest.raises(ImportError, match=r"tiltwalk\[arviz\]"):
            call()


def test_arviz_gets_named_groups_and_dims() -> None:
    tree = sampled().to_arviz()
    assert set(tree.children) == {"posterior", "sample_stats"}
    theta, stats = tree["posterior"]["theta"], tree["sample_stats"]
    assert theta.dims == ("chain", "draw", "model", "parameter")
    assert dict(theta.sizes) == {"chain": 4, "draw": 2000, "model": 4, "parameter": 2}
    assert stats["loss"].dims == ("chain", "draw", "model")
    assert stats["total_loss"].dims == stats["s"].dims == ("chain", "draw")
    np.testing.assert_array_equal(stats["total_loss"], sampled().total_losses)
    assert tree["posterior"].attrs["inference_library"] == "tiltwalk"
    assert set(dataclasses.replace(sampled(), paths=None).to_arviz().children) == {"sample_stats"}


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: diagnostics.rhat(np.zeros(5)), ValueError, ["rhat.x", "(chains, draws, ...)", "(5,)"]),
        (lambda: diagnostics.ess(np.zeros((2, 5))), ValueError, ["ess.x", "at least 12 draws", "5"]),
        (lambda: diagnostics.ess(np.zeros((2, 50)), "middle"), ValueError, ["ess.kind", "bulk", "middle"]),
        (lambda: diagnostics.rhat("x"), TypeError, ["rhat.x", "array", "'x'"]),
        (lambda: diagnostics.measures(np.zeros((2, 50, 2))), ValueError, ["measures.x", "(chains, draws)"]),
        (lambda: diagnostics.ladder_advice([0.5, 1.2]), ValueError, ["swap_rates", "between 0 and 1", "1.2"]),
        (lambda: diagnostics.ladder_advice([0.5], [1.0]), ValueError, ["ladder_advice.ladder", "2 rungs", "1"]),
        (lambda: diagnostics.summary(run_of(np.zeros((2, 9)), losses=None)), ValueError, ["summary.run", "nothing"]),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)
