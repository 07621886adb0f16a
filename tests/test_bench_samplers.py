"""The benchmark of samplers measures what it says, and a sampler of another law shows."""

import json

import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk.bench import samplers, samplers_networks, samplers_peers, samplers_perceptron


def tiny_case(width=2, length=4):
    return samplers_perceptron.case(width, length, None, 0.02, True)


def test_a_sampler_is_measured_beside_the_closed_form_and_a_wrong_one_shows(monkeypatch):
    pytest.importorskip("arviz_stats")
    case = tiny_case()
    exact = float(case.oracle.expected_loss(10.0, 0.1, 4))
    make = lambda: samplers_perceptron.ours(case, tw.moves.Sweep(), 64, 400)  # noqa: E731
    row = samplers_perceptron.clocked(make(), 0.02, 4, exact)
    assert row["agrees"] and row["mean_loss"] == pytest.approx(exact, abs=5 * row["mean_loss_error"])
    assert 0 < row["ess_per_evaluation_Lsum"] < 1 / 4
    assert row["ess_per_second_norm"] > 0 and row["chains"] == 64 and row["draws"] >= 800
    wrong = samplers_perceptron.clocked(make(), 0.02, 4, 1.2 * exact)
    named = {"name": "sweeps", **wrong}
    assert not wrong["agrees"] and samplers_perceptron.line(named).endswith("NOT THE SAME LAW")


def test_a_peer_samples_the_same_law():
    pytest.importorskip("blackjax")
    pytest.importorskip("arviz_stats")
    case = tiny_case()
    exact = float(case.oracle.expected_loss(10.0, 0.1, 4))
    starts = case.starts(samplers_peers.CHAINS)
    go = samplers_peers.gradient_peer("hmc", case.measure, 10.0, starts, 200, 100)
    row = samplers_perceptron.clocked(go, 0.02, 4, exact)
    assert row["agrees"] and row["chains"] == 16 and row["with_gradient"]
    assert samplers_peers.log_density(case.measure, 10.0)(starts[0]) == pytest.approx(
        float(case.measure.log_density(starts[0], 10.0)) + 3 * 2 * np.log(0.1 * np.sqrt(2 * np.pi)), rel=1e-4
    )


def test_the_best_of_ours_is_held_against_the_best_of_others():
    about = {"width": 2, "length": 8, "kind": "gradient"}
    rates = {"sweeps": 30.0, "other": 20.0, "BlackJAX A": 2.0, "BlackJAX B": 3.0, "prototype": 15.0}
    rows = [{**about, "name": name, "ess_per_second_Lsum": rate} for name, rate in rates.items()]
    found = samplers_perceptron.targets(rows)
    assert found[1] == {**about, "times_peers": 10.0, "times_prototype": 2.0} and "times_peers" not in found[0]


def test_the_table_is_written_row_by_row_and_what_is_absent_is_named(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.json"
    out.write_text('{"other": 1}')
    row = {"width": 2, "length": 4, "kind": "gradient-free", "name": "sweeps", "chains": 1, "mean_loss": 1.0, "exact": 1.0}
    row |= {"ess_per_second_Lsum": 5.0, "ess_per_evaluation_Lsum": 0.1, "evaluations_per_second": 50.0, "agrees": True}

    def measure(shared, quick, note, skip):
        note(row)
        assert json.loads(out.read_text())["perceptron"]["rows"] == [row]
        skip("BlackJAX", "it is not there")

    monkeypatch.setattr(samplers_perceptron, "measure", measure)
    found = samplers.main(None, out, only="perceptron")
    assert found["other"] == 1 and found["skipped"] == {"BlackJAX": "it is not there"}
    assert "skipped: BlackJAX: it is not there" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--only must be a part of one of"):
        samplers.main(only="nothing")


SMALL = samplers_networks.Setting("mlp", 4, 300.0, 0.1, True, (2.0,), 0.99, 0.2, 0.2)


@pytest.fixture(scope="module")
def small():
    return samplers_networks.problem(SMALL, samples=32)


def test_a_sampler_of_a_network_is_run_to_its_marks_from_the_given_path(small):
    grown = []
    found = samplers_networks.timed(small, samplers_networks.SAMPLERS[1], 0.2, lambda row: grown.append(len(row["curve"])))
    assert grown == list(range(1, len(grown) + 1)) and found["seconds"] == found["curve"][-1]["seconds"] > 0
    assert found["evaluations"] >= 4 * len(grown) and found["curve"][-1]["loss"] < float(small.measure.losses(small.first)[0])
    reached = [point["seconds"] for point in found["curve"] if point["loss"] <= 2.0]
    assert found["seconds_to_2"] == (reached[0] if reached else None)
    assert "loss" in samplers_networks.line(found) and "accuracy" in samplers_networks.line(found)


def test_accuracies_are_those_of_the_ensemble_and_of_its_models(small):
    thetas = np.asarray(small.first + 0.05 * np.random.default_rng(0).normal(size=small.first.shape))
    network, data = small.measure.loss.network, tw.data.mnist2048()
    X, y = data.X_train[:32].reshape(32, -1), data.y_train[:32]
    each = np.stack([np.asarray(network.apply(np.float32(theta), X)) for theta in thetas])
    odds = np.exp(each) / np.exp(each).sum(-1, keepdims=True)
    expected = np.mean(odds.mean(0).argmax(-1) == y), np.mean(each.argmax(-1) == y)
    assert small.accuracies(thetas) == pytest.approx(expected)


def test_marks_are_first_times_and_absent_where_they_were_not_reached():
    seen = ((1, 0.6, 0.9), (2, 0.4, 1.0), (3, 0.6, 1.0))
    curve = [{"seconds": t, "loss": loss, "ensemble_accuracy": right, "model_accuracy": 0.5} for t, loss, right in seen]
    assert samplers_networks.reached(curve, (0.5, 0.1), 0.99) == {
        "seconds_to_0.5": 2, "seconds_to_0.1": None, "seconds_to_ensemble_accuracy": 2, "seconds_to_model_accuracy": None,
    }  # fmt: skip


def test_times_are_compared_between_the_best_of_both_kinds():
    rows = [
        {"kind": kind, "seconds": 9.0, "seconds_to_0.1": time}
        for kind, time in (("gradient", 3.0), ("gradient", 2.0), ("approximate", 1.0), ("gradient-free", None))
    ]
    assert samplers_networks.comparison(rows, 0.1).endswith("without not in 9 s: more than 4.5 times sooner")
    rows += [{"kind": "gradient-free", "seconds": 9.0, "seconds_to_0.1": 8.0}, {"kind": "check", "seconds": 9.0}]
    assert samplers_networks.comparison(rows, 0.1).endswith("without in 8.00 s: 4.0 times sooner")
    assert samplers_networks.comparison(rows[3:], 0.1) == "no sampler with a gradient came to 0.1"


def test_what_was_measured_with_the_same_settings_is_not_measured_again(tmp_path, monkeypatch, capsys):
    called = []

    def timed(problem, sampler, limit, note):
        called.append(sampler.name)
        row = {"name": sampler.name, "kind": sampler.kind, "limit": limit, "setting": samplers_networks.asdict(SMALL)}
        row |= {"seconds": 1.0, "loss": 1.0, "curve": [{"loss": 1.0}], "seconds_to_2": 0.5}
        note(row)
        if len(called) == 3:
            raise KeyboardInterrupt
        return row

    monkeypatch.setitem(samplers_networks.SETTINGS, "mlp", SMALL)
    monkeypatch.setattr(samplers_networks, "problem", lambda *given: None)
    monkeypatch.setattr(samplers_networks, "timed", timed)
    out = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        samplers.main(None, out, quick=True, only="mlp")
    held = json.loads(out.read_text())["mlp"]["rows"]
    assert [row["whole"] for row in held] == [True, True, False], "the one that was stopped shows what it had"
    samplers.main(None, out, quick=True, only="mlp")
    names = [sampler.name for sampler in samplers_networks.SAMPLERS[:5]] + [samplers_networks.FROM_TRAINED.name]
    assert called == names[:3] + names[2:], "the first two are kept, the third begins again"
    samplers.main(None, out, quick=True, only="mlp", limit=7.0)
    assert called[7:] == names, "another limit is another measurement"
