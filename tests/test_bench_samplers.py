"""The benchmark of samplers measures what it says, and a sampler of another law shows."""

import json

import numpy as np
import pytest

from tiltwalk.bench import samplers, samplers_peers, samplers_perceptron


def tiny_case(width=2, length=4):
    return samplers_perceptron.case(width, length, None, 0.02, True)


def test_a_sampler_is_measured_beside_the_closed_form_and_a_wrong_one_shows(monkeypatch):
    pytest.importorskip("arviz_stats")
    case = tiny_case()
    exact = float(case.oracle.expected_loss(10.0, 0.1, 4))
    make = lambda: samplers_perceptron.ours(case, samplers_perceptron.tw.moves.Sweep(), 64, 400)  # noqa: E731
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
