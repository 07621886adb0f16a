"""Run folders: what is in them, that they go on as if never stopped, and what they make of damage."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tiltwalk as tw
from tests.run_cases import KillAfter, Killed, copied, made, same, small
from tiltwalk import cli, runs
from tiltwalk.runs import config, session

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests copy it before they change it."""
    return made(tmp_path_factory.mktemp("runs"))


# ---- what is in a folder ----


def test_a_run_has_the_draws_that_sampling_in_one_go_has(whole: Path) -> None:
    folder = runs.open(whole)
    measure = folder.measure
    moves = [(tw.moves.Sweep(step=0.1), 1.0)]
    run = tw.sample(
        measure, folder.run.s[0], steps=48, burn_in=16, thin=2, moves=moves, chains=2, key=1, keep="paths",
        target_acceptance=0.25, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(folder.run.losses, run.losses)
    np.testing.assert_array_equal(folder.paths, run.paths[:, 3::4])
    np.testing.assert_array_equal(folder.run.state.path, run.state.path)
    np.testing.assert_allclose(folder.run.steps["sweep"], run.steps["sweep"])
    np.testing.assert_allclose(folder.run.acceptance["sweep"], run.acceptance["sweep"], rtol=1e-5)


def test_a_folder_opens_in_xarray_and_arviz_without_our_package(whole: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    folder = runs.open(whole)
    tree = xarray.open_datatree(whole / "draws.zarr", engine="zarr", consolidated=False)
    for group in ("sample_stats", "posterior", "progress"):
        for name, values in folder.arrays(group).items():
            np.testing.assert_array_equal(tree[group][name].values, values)
    assert tree["sample_stats"]["loss"].dims == ("chain", "draw", "time")
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "time", "parameter")
    arviz = pytest.importorskip("arviz_base")
    flat = arviz.extract(arviz.convert_to_datatree(tree), group="sample_stats", var_names="loss", keep_dataset=False)
    np.testing.assert_array_equal(flat.transpose("sample", "time").values, folder.run.losses.reshape(-1, 3))


def test_a_flipped_bit_in_a_chunk_is_noticed_by_zarr_too(whole: Path, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = copied(whole, tmp_path / "run")
    chunk = path / "draws.zarr/sample_stats/loss/c/0/0/0"
    content = bytearray(chunk.read_bytes())
    content[17] ^= 4
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open(path / "draws.zarr", mode="r")["sample_stats/loss"][:]


def test_nothing_in_a_folder_is_code(whole: Path) -> None:
    kinds = {path.suffix for path in whole.rglob("*") if path.is_file() and path.suffix}
    assert kinds <= {".toml", ".json", ".jsonl", ".safetensors", ".sha256"}
    assert all(not path.stat().st_mode & 0o111 for path in whole.rglob("*") if path.is_file())


def test_the_digests_of_finished_chunks_are_in_the_form_of_sha256sum(tmp_path: Path) -> None:
    # models of 1,500 parameters: several chunks of paths
    path = tmp_path / "run"
    session.begin(small(tmp_path, "network.kind=mlp", "network.hidden=[3000]", "output.path_every=2"), path)
    lines = (path / "draws.sha256").read_text().splitlines()
    assert len(lines) >= 3
    done = subprocess.run(["sha256sum", "--check", "--quiet", "draws.sha256"], cwd=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert runs.open(path).paths.shape == (2, 24, 3, 3 * 3000 + 3 * 3001)


# ---- going on ----


@pytest.mark.parametrize("pieces", [1, 3, 4, 7, 12])
def test_a_killed_run_goes_on_as_if_never_stopped(pieces: int, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(Killed):
        session.begin(small(tmp_path), path, KillAfter(pieces))
    for again in (2, 5):  # and is killed twice more
        try:
            session.resume(path, watcher=KillAfter(again))
        except Killed:
            continue
    if runs.open(path).status != "finished":
        session.resume(path)
    same(path, whole)


def test_steps_are_steps_in_all_and_more_steps_come_on_top(whole: Path, tmp_path: Path) -> None:
    path, other, short = (copied(whole, tmp_path / name) for name in ("run", "other", "short"))
    session.resume(path, steps=80)
    session.resume(other, more=32)
    same(path, other)
    assert runs.open(path).run.losses.shape == (2, 40, 3)
    session.begin(small(tmp_path, "budget.steps=80"), tmp_path / "long")
    same(path, tmp_path / "long")
    with pytest.raises(ValueError, match="--steps must be at least 48"):
        session.resume(short, steps=40)
    with pytest.raises(ValueError, match=r"must be a multiple of output\.thin = 2"):
        session.resume(short, more=5)


def test_a_finished_run_that_is_gone_on_with_stays_as_it_is(whole: Path, tmp_path: Path) -> None:
    path = copied(whole, tmp_path / "run")
    result = session.resume(path)
    assert result["test"]["accuracy"] == json.loads((whole / "result.json").read_text())["test"]["accuracy"]
    same(path, whole)


# ---- settings ----


def test_the_example_is_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--example"]) == 0
    text = capsys.readouterr().out
    assert config.read(tomllib.loads(text)) == config.Config()
    named = {line.split("=")[0].strip("# ") for line in text.splitlines() if re.match(r"(# )?\w+ =", line)}
    sections = [type(value[0] if isinstance(value, list) else value) for _, value in config.Config()]
    assert named == {key for section in sections for key in section.model_fields}


def test_settings_survive_being_written(tmp_path: Path) -> None:
    changes = [
        "walk.sigma=0.05", 'data.source="a \\"b\\" \\\\ c.csv"', "network.hidden=[3, 4]", "budget.evaluations=500",
        "chains.target_acceptance=1", 'moves=[{kind="bridge", width="any"}, {kind="shoot", reach=2, weight=3}]',
    ]  # fmt: skip
    chosen = config.load(None, changes)
    for comments in (False, True):
        (tmp_path / "run.toml").write_text(config.toml(chosen, comments=comments), encoding="utf-8")
        assert config.load(tmp_path / "run.toml") == chosen
    assert chosen.data.source == 'a "b" \\ c.csv'
    assert [move.kind for move in chosen.moves] == ["bridge", "shoot"]


def test_the_published_schema_is_the_current_one() -> None:
    published = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))
    assert published == config.json_schema(), "write it again: tiltwalk train --schema > docs/run.schema.json"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("walk.sigm=1", "walk.sigm is not a setting; [walk] has kind, length, sigma, pull. Did you mean walk.sigma?"),
        ("wlak.sigma=1", "wlak is not a setting; a run has data, network, walk"),
        ("walk=3", "walk must be a table; got 3."),
        ("walk.sigma=-1", 'walk.sigma must be a number above 0, or "auto"; got -1.'),
        ("walk.sigma=nan", 'walk.sigma must be a number above 0, or "auto"; got nan.'),
        ("walk.sigma=wide", "walk.sigma must be a number above 0, or \"auto\"; got 'wide'."),
        ("walk.length=2.5", "walk.length must be a whole number of at least 1 and at most 100000; got 2.5."),
        ("walk.length=true", "walk.length must be a whole number"),
        ("network.hidden=[8, 0]", "network.hidden.1 must be a whole number of at least 1"),
        ("network.hidden=[]", "network.hidden must be a list of at least 1 entries"),
        ("network.activation=rel", 'network.activation must be one of "relu", "tanh"'),
        (
            "moves=[]",
            "moves must be a list of at least 1 entries, each a table with kind one of bridge, shoot, single_site, sweep",
        ),
        ('moves=[{kind="swep"}]', "moves.0 must be a table with kind one of bridge, shoot, single_site, sweep"),
        ("moves.0.step=1.5", "moves.0.step must be a number above 0 and at most 1; got 1.5."),
        ("moves.1.step=0.5", "moves.1 must be an entry of moves, 0 to 0."),
        ('moves=[{kind="sweep", width=2}]', "moves.0.width is not a setting; [moves.0] has weight, step, fraction, kind."),
        ("data.source=7", "data.source must be text; got 7."),
        ("budget.warm_up=1", "budget.warm_up must be true or false; got 1."),
        ("budget.warm_up=false", "walk.sigma must be a number where budget.warm_up is false"),
        ("budget.steps=7", "budget.steps must be a multiple of output.thin = 2; got 7."),
        ("loss.noise=0.5", "loss.noise must be left out unless loss.kind is"),
        ("walk.sigma", "--set must be KEY=VALUE, such as walk.sigma=0.05; got 'walk.sigma'."),
        ("=1", "--set must be KEY=VALUE"),
        ("walk.sigma.more=1", "walk.sigma has no settings of its own"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(change: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        config.load(None, ["output.thin=2", *([] if change != "walk.sigma.more=1" else ["walk.sigma=1"]), change])


def test_a_budget_is_seconds_or_evaluations(tmp_path: Path) -> None:
    (tmp_path / "both.toml").write_text("[budget]\nseconds = 20.0\nevaluations = 500\n")
    with pytest.raises(ValueError, match=r"budget\.seconds must be left out where budget\.evaluations is given"):
        config.load(tmp_path / "both.toml")
    assert config.load(None, ["budget.evaluations=500"]).budget.seconds is None


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    for content in (b"[walk\n", b"\xff\xfe", b"x = " + b"[" * 5000):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.toml must be TOML"):
            config.load(tmp_path / "bad.toml")
