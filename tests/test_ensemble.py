"""Ensembles: what they predict follows from their members, whatever the blocks, and survives a file."""

import contextlib
import json
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.special import softmax
from scipy.stats import entropy

from tiltwalk import ensemble as ensemble_module
from tiltwalk import ensemble_file, networks
from tiltwalk.ensemble import Ensemble

NET = networks.mlp([4, 5, 3], "tanh")


@dataclass(frozen=True)
class Other:
    """A network that is not ours: outputs `theta[0] X` and `theta[1]`."""

    dim: int = 2
    n_out: int = 2

    def apply_many(self, thetas, X):
        first = thetas[:, :1] * X[None, :, 0]
        return jnp.stack([first, jnp.broadcast_to(thetas[:, 1:], first.shape)], axis=-1)


def members(m, network=NET, scale=1.0, seed=0):
    return scale * np.random.default_rng(seed).normal(size=(m, network.dim)).astype(np.float32)


def samples(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)


def direct(network, thetas, X):
    """Outputs one model at a time, in float64."""
    return np.stack([np.asarray(network.apply(theta, X), np.float64) for theta in thetas])


def test_predictions_follow_from_the_members():
    thetas, X = members(7), samples(20)
    outputs = direct(NET, thetas, X)
    p = softmax(outputs, -1)
    made = Ensemble(NET, thetas)
    assert made.task == "classification" and len(made) == 7
    np.testing.assert_allclose(made.members(X), outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made.predict_proba(X), p.mean(0), rtol=1e-5)
    np.testing.assert_allclose(made.mean(X), p.mean(0), rtol=1e-5)
    np.testing.assert_allclose(made.std(X), p.std(0), rtol=1e-4, atol=1e-7)
    assert made.predict(X).tolist() == p.mean(0).argmax(1).tolist()
    assert made.votes(X).tolist() == [np.bincount(column, minlength=3).tolist() for column in p.argmax(2).T]


def test_uncertainty_splits_the_entropy_into_what_is_expected_and_what_members_disagree_about():
    thetas, X = members(7, scale=3.0), samples(20)
    p = softmax(direct(NET, thetas, X), -1)
    found = Ensemble(NET, thetas).uncertainty(X)
    np.testing.assert_allclose(found.total, entropy(p.mean(0), axis=-1), rtol=1e-5)
    np.testing.assert_allclose(found.expected, entropy(p, axis=-1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.total, found.expected + found.mutual_information, rtol=1e-6)
    assert (found.mutual_information > 0).all()


def test_equal_members_do_not_disagree():
    X = samples(5)
    found = Ensemble(NET, np.repeat(members(1), 6, axis=0)).uncertainty(X)
    np.testing.assert_allclose(found.mutual_information, 0, atol=1e-7)
    np.testing.assert_allclose(Ensemble(NET, np.repeat(members(1), 6, axis=0)).std(X), 0, atol=1e-7)


def test_a_tie_of_votes_goes_to_the_class_with_the_larger_mean_probability():
    # Logits theta[0] x and theta[1] at x = 1: members (2, 0) and (0, 1) vote for classes 0 and 1; the first is surer.
    made = Ensemble(Other(), np.array([[2.0, 0.0], [0.0, 1.0]]))
    assert made.votes([[1.0]]).tolist() == [[1, 1]] and made.vote([[1.0]]).tolist() == [0]
    # Two weak votes beat a strong one, where the mean probability decides otherwise.
    made = Ensemble(Other(), np.array([[5.0, 0.0], [0.0, 0.5], [0.0, 0.5]]))
    assert made.vote([[1.0]]).tolist() == [1] and made.predict([[1.0]]).tolist() == [0]


def test_regression_gives_mean_and_deviation_of_the_outputs():
    network = networks.mlp([4, 6, 1])
    thetas, X = members(9, network), samples(11)
    made = Ensemble(network, thetas)
    outputs = direct(network, thetas, X)
    assert made.task == "regression" and made.predict(X).shape == (11,)
    np.testing.assert_allclose(made.predict(X), outputs.mean(0)[:, 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made.mean(X), outputs.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made.uncertainty(X).deviation, outputs.std(0)[:, 0], rtol=1e-4)
    two = Ensemble(NET, members(3), "regression")
    assert two.predict(X).shape == (11, 3) and two.uncertainty(X).deviation.shape == (11, 3)


def test_the_deviation_does_not_cancel_beside_a_large_mean():
    # Outputs 1e4 + {0, 1, 2}: exact in float32. Sums of squares in float32 would lose all of it.
    made = Ensemble(Other(), np.array([[0, 1e4], [0, 1e4 + 1], [0, 1e4 + 2]]), "regression", block=2)
    np.testing.assert_allclose(made.std(np.ones((5, 1)))[:, 1], np.std([0, 1, 2]), rtol=1e-12)


def test_paths_of_many_chains_and_draws_are_as_many_members():
    thetas, X = members(24), samples(6)
    flat = Ensemble(NET, thetas)
    for shape in [(4, 6), (2, 3, 4)]:
        made = Ensemble(NET, jnp.asarray(thetas.reshape(*shape, -1)))
        assert len(made) == 24
        np.testing.assert_array_equal(made.predict_proba(X), flat.predict_proba(X))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 23), st.integers(1, 25), st.integers(1, 80), st.integers(0, 100))
def test_blocks_change_nothing(m, n, block, together, seed):
    thetas, X = members(m, scale=2.0, seed=seed), samples(n, seed)
    whole, cut = Ensemble(NET, thetas), Ensemble(NET, thetas, block=block)
    before = [whole.predict_proba(X), whole.std(X), whole.members(X), whole.uncertainty(X).total, whole.vote(X)]
    kept = ensemble_module.TOGETHER
    ensemble_module.TOGETHER = together  # a few members at a time
    try:
        after = [cut.predict_proba(X), cut.std(X), cut.members(X), cut.uncertainty(X).total, cut.vote(X)]
    finally:
        ensemble_module.TOGETHER = kept
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_one_program_serves_all_blocks(monkeypatch):
    seen = []
    real = ensemble_module._outputs
    monkeypatch.setattr(ensemble_module, "_outputs", lambda *args: seen.append([a.shape for a in args[1:]]) or real(*args))
    monkeypatch.setattr(ensemble_module, "TOGETHER", 60)
    Ensemble(NET, members(11), block=10).predict(samples(37))
    assert len(seen) > 4 and all(shapes == seen[0] for shapes in seen)


def test_extreme_logits_give_probabilities_and_not_nan():
    made = Ensemble(Other(), np.array([[1e4, -1e4], [-1e4, 1e4]]))
    assert made.predict_proba([[1.0]]).tolist() == [[0.5, 0.5]]
    found = made.uncertainty([[1.0]])
    assert found.expected[0] == 0 and found.mutual_information[0] == pytest.approx(np.log(2))


def test_images_are_read_with_or_without_their_channel():
    network = networks.lenet()
    X = np.random.default_rng(0).uniform(size=(5, 28, 28, 1)).astype(np.float32)
    thetas = np.stack([np.asarray(network.init(key)) for key in range(3)])
    made = Ensemble(network, thetas, block=2)
    np.testing.assert_array_equal(made.predict_proba(X), made.predict_proba(X[..., 0]))
    np.testing.assert_allclose(made.members(X), direct(network, thetas, X), rtol=1e-4, atol=1e-5)


def test_labels_come_back_as_they_were():
    thetas, X = members(5), samples(9)
    made = Ensemble(NET, thetas, classes=("ant", "bee", "cat"))
    codes = Ensemble(NET, thetas)
    assert made.predict(X).tolist() == [("ant", "bee", "cat")[c] for c in codes.predict(X)]
    assert made.vote(X).tolist() == [("ant", "bee", "cat")[c] for c in codes.vote(X)]


@pytest.mark.parametrize("network", [NET, networks.mlp([4, 1]), networks.lenet(image_size=16), networks.linear(3, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_saved_ensemble_is_loaded_exactly(tmp_path, network, dtype):
    made = Ensemble(network, members(6, network).astype(dtype) / 3)
    made.save(tmp_path / "e.safetensors")
    back = Ensemble.load(tmp_path / "e.safetensors")
    assert back.network == network and back.task == made.task and back.classes is None
    assert back.thetas.dtype == dtype and np.array_equal(back.thetas, made.thetas)
    X = np.random.default_rng(2).normal(size=(4, *network.input_shape))
    np.testing.assert_array_equal(back.predict(X), made.predict(X))


def test_task_and_labels_are_saved_too(tmp_path):
    Ensemble(NET, members(2), "regression").save(tmp_path / "r.safetensors")
    assert Ensemble.load(tmp_path / "r.safetensors").task == "regression"
    Ensemble(NET, members(2), classes=np.array([3, 5, 7])).save(tmp_path / "c.safetensors")
    assert Ensemble.load(tmp_path / "c.safetensors").classes == (3, 5, 7)


def test_the_same_ensemble_makes_the_same_file_and_leaves_nothing_beside_it(tmp_path):
    for name in ("a", "b", "b"):
        Ensemble(NET, members(2)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_network_that_is_not_ours_must_be_given_again(tmp_path):
    Ensemble(Other(), np.ones((3, 2))).save(tmp_path / "e")
    with pytest.raises(ValueError, match=r"made from 'Other', which no file can hold; make it again and pass it"):
        Ensemble.load(tmp_path / "e")
    assert Ensemble.load(tmp_path / "e", Other()).predict([[1.0]]).tolist() == [0]
    with pytest.raises(ValueError, match=r"Ensemble.load.network must be the one that e was saved with; it differs"):
        Ensemble.load(tmp_path / "e", NET)


def test_a_network_of_ours_may_be_given_and_must_then_compute_the_same(tmp_path):
    Ensemble(NET, members(2)).save(tmp_path / "e")
    assert Ensemble.load(tmp_path / "e", networks.mlp([4, 5, 3], "tanh", initialiser="he")).task == "classification"
    with pytest.raises(ValueError, match="it differs"):
        Ensemble.load(tmp_path / "e", networks.mlp([4, 5, 3], "relu"))


def head(**changes):
    described = ensemble_file.to_dict(NET)
    return {"format": "ensemble", "version": 1, "network": described, "task": "classification", "classes": None} | changes


def layers(*parts, input_shape=(4,)):
    return {"network": {"input_shape": list(input_shape), "initialiser": "he", "layers": list(parts)}}


DENSE = {"layer": "Dense", "n_in": 4, "n_out": 3}


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        (None, {"thetas": members(2)}, "must be an ensemble of Tiltwalk; it is another kind of safetensors file"),
        (head(), {"weights": members(2)}, "must be an ensemble of Tiltwalk; it is another kind"),
        (head(), {"thetas": members(2), "more": members(2)}, "must be an ensemble of Tiltwalk; it is another kind"),
        (head(), {"thetas": members(2)[0]}, r"must hold members as float32 or float64 \(m, d\); got F32"),
        (head(), {"thetas": members(2).astype(np.int32)}, r"must hold members as float32 or float64 \(m, d\); got I32"),
        (head(), {"thetas": members(2)[:0]}, r"got F32 \[0, 43\]"),
        (head(), {"thetas": members(2)[:, 1:]}, "must hold members of 43 parameters, as its network; got 42"),
        (head(), {"thetas": np.full((2, 43), np.nan, np.float32)}, "must hold finite members"),
        ("{not json", {"thetas": members(2)}, "must describe its network in JSON"),
        ("[" * 100_000, {"thetas": members(2)}, "must describe its network in JSON"),
        ("[1]", {"thetas": members(2)}, "it says that it is something else"),
        (head(format="run"), {"thetas": members(2)}, "it says that it is something else"),
        (head(version=2), {"thetas": members(2)}, "must be of format version 1; got 2. A newer Tiltwalk"),
        (head(task="ranking"), {"thetas": members(2)}, "must name its task, one of classification, regression; got 'ranking'"),
        (head(task=["regression"]), {"thetas": members(2)}, "must name its task"),
        (head(classes="abc"), {"thetas": members(2)}, "must name its classes in a list"),
        (head(classes=[1, [2], 3]), {"thetas": members(2)}, "must name its classes in a list"),
        (head(classes=[1, 2]), {"thetas": members(2)}, "Ensemble.classes must be 3 different labels"),
        (head(classes=[1, 1, 2]), {"thetas": members(2)}, "Ensemble.classes must be 3 different labels"),
        (head(network=None), {"thetas": members(2)}, "must describe its network; got None"),
        (head(**layers()), {"thetas": members(2)}, "the number of layers must be between 1 and 10000; got 0"),
        (
            head(**layers({"layer": "Exec", "code": "1"})),
            {"thetas": members(2)},
            "known layers and all parts; 'Exec' is not so",
        ),
        (head(**layers({"n_in": 4})), {"thetas": members(2)}, "known layers and all parts; 'layer' is not so"),
        (head(**layers({**DENSE, "x": 1})), {"thetas": members(2)}, "must be one that can be built"),
        (head(**layers({**DENSE, "n_in": "4"})), {"thetas": members(2)}, "Dense.n_in must be a whole number"),
        (head(**layers({**DENSE, "n_in": 5})), {"thetas": members(2)}, "must follow a vector of 5 values"),
        (head(**layers({**DENSE, "n_out": 10**30})), {"thetas": members(2)}, "the number of parameters must be at most"),
        (head(**layers(DENSE, input_shape=["a"])), {"thetas": members(2)}, "must be one that can be built"),
        (head(**layers("Dense")), {"thetas": members(2)}, "must be one that can be built"),
        (head(**layers(["layer"])), {"thetas": members(2)}, "must be one that can be built"),
    ],
)
def test_files_that_are_no_ensembles_are_refused(tmp_path, metadata, tensors, message):
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    save_file(tensors, tmp_path / "e", metadata=None if metadata is None else {"tiltwalk": text})
    with pytest.raises(ValueError, match=message):
        Ensemble.load(tmp_path / "e")


def test_damaged_files_are_refused_wherever_they_are_cut(tmp_path):
    Ensemble(NET, members(2)).save(tmp_path / "e")
    content = (tmp_path / "e").read_bytes()
    cuts = [0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1]
    for bad in [content[:n] for n in cuts] + [content + b"x", b"\xff" * 8 + content[8:], b"junk" * 100]:
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(ValueError, match=r"bad must be a whole safetensors file; it is damaged or cut short"):
            Ensemble.load(tmp_path / "bad")
    with pytest.raises(FileNotFoundError, match=r"Ensemble.load.path must be a file"):
        Ensemble.load(tmp_path / "none")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_gives_an_ensemble_or_a_value_error(tmp_path_factory, place, value):
    folder = tmp_path_factory.mktemp("byte")
    Ensemble(NET, members(2)).save(folder / "e")
    content = bytearray((folder / "e").read_bytes())
    content[place % len(content)] = value
    (folder / "e").write_bytes(content)
    with contextlib.suppress(ValueError):
        Ensemble.load(folder / "e")


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Ensemble("lenet", members(2)), TypeError, "Ensemble.network must be a network, with dim, n_out"),
        (lambda: Ensemble(NET, members(2)[:, 1:]), ValueError, r"models of 43 parameters: .*got an array of shape \(2, 42\)"),
        (lambda: Ensemble(NET, members(2)[0]), ValueError, r"Ensemble.paths must be .*got an array of shape \(43,\)"),
        (lambda: Ensemble(NET, members(2)[:0]), ValueError, r"Ensemble.paths must be .*got an array of shape \(0, 43\)"),
        (lambda: Ensemble(NET, members(2) * np.nan), ValueError, "Ensemble.paths must be finite; got 86 NaN"),
        (lambda: Ensemble(NET, [["a"] * 43]), TypeError, "Ensemble.paths must be models of 43 parameters"),
        (lambda: Ensemble(NET, members(2), "rank"), ValueError, "Ensemble.task must be one of classification, regression"),
        (lambda: Ensemble(networks.mlp([4, 1]), np.ones((1, 5)), "classification"), ValueError, "two or more; got 1"),
        (lambda: Ensemble(NET, members(2), classes=("a", "b")), ValueError, "Ensemble.classes must be 3 different labels"),
        (lambda: Ensemble(NET, members(2), "regression", classes="abc"), ValueError, "Ensemble.classes must be None for"),
        (lambda: Ensemble(NET, members(2), block=0), ValueError, "Ensemble.block must be a whole number of at least 1"),
    ],
)
def test_ensembles_that_cannot_be_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones((3, 5)), ValueError, r"X must have shape \(N, 4\)"),
        (np.ones(4), ValueError, r"Ensemble.X must be one row for each of at least one sample; got .*\(4,\)"),
        (np.ones((0, 4)), ValueError, r"at least one sample; got an array of shape \(0, 4\)"),
        ([[1, 2, 3, np.nan]], ValueError, "Ensemble.X must be finite; got NaN or infinity in sample 0"),
        (np.full((2, 4), 1e300), ValueError, "Ensemble.X must be finite"),
        (np.array([["a"] * 4]), TypeError, "Ensemble.X must be an array of numbers, samples first"),
        (np.array([[1, 2, 3, None]]), TypeError, "Ensemble.X must be an array of numbers.*object"),
    ],
)
def test_inputs_that_cannot_be_predicted_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        Ensemble(NET, members(2)).predict(X)


def test_questions_for_the_other_task_are_refused():
    made = Ensemble(NET, members(2), "regression")
    for ask in (made.predict_proba, made.vote, made.votes):
        with pytest.raises(ValueError, match=f"Ensemble.{ask.__name__} must be asked of classification"):
            ask(samples(2))


def test_a_member_that_overflows_is_named():
    made = Ensemble(Other(), np.array([[1.0, 0.0], [3e38, 0.0]], np.float32))
    with pytest.raises(ValueError, match="must give finite outputs; got NaN or infinity from member 1 for sample 2"):
        made.predict([[1.0], [1.0], [10.0]])


def test_double_precision_is_used_where_it_is_switched_on():
    thetas, X = members(3).astype(np.float64), samples(4).astype(np.float64)
    with jax.enable_x64(True):
        found = Ensemble(NET, thetas).members(X)
    W, b, V, c = (np.split(thetas, [20, 25, 40], axis=1)[i] for i in range(4))
    hidden = np.tanh(np.einsum("ni,mij->mnj", X, W.reshape(3, 4, 5)) + b[:, None])
    np.testing.assert_allclose(found, hidden @ V.reshape(3, 5, 3) + c[:, None], rtol=1e-12)
    assert found.dtype == np.float64


def test_a_description_builds_the_same_network():
    conv = networks.sequential(
        (9, 8, 2), [networks.Conv(3, 2, 4, 2, "same"), networks.AvgPool(2), networks.Flatten(), networks.Dense(16, 2)]
    )
    for network in (NET, networks.lenet(), conv, replace(NET, initialiser="glorot")):
        described = json.loads(json.dumps(ensemble_file.to_dict(network)))
        assert ensemble_file.from_dict(described).program == network.program
