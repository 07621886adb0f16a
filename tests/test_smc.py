"""Sequential Monte Carlo: log Z and the mean loss are exact at every tilt, wrong variants are caught, valleys are kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tests.quadrature import on_grid
from tests.statistics import LEVEL, corrected, p_values, perceptron
from tiltwalk import chain
from tiltwalk.smc import resample

ONE = perceptron(inputs=1)
SIGMA, LENGTH, SCALE, PULL = 0.5, 5, 2.0, 0.2
QUIET: dict[str, Any] = {"progress": False}
GIVEN: dict[str, Any] = {"particles": 512, "populations": 16, "key": 1} | QUIET
WALKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gaussian start": (tw.RandomWalk(SIGMA, start=tw.Normal(SCALE)), {"start_scale": SCALE}),
    "stationary": (tw.OrnsteinUhlenbeck(SIGMA, pull=PULL), {"pull": PULL}),
}


def line(name: str = "gaussian start") -> tw.PathMeasure:
    return tw.PathMeasure(WALKS[name][0], ONE.loss, LENGTH)


def off(run: tw.SMCRun, **law: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far mean losses and log Z are from the exact ones, in standard errors."""
    loss = [ONE.oracle.expected_loss(s, SIGMA, LENGTH, **law) for s in run.s]
    log_z = ONE.oracle.log_partition(run.s, SIGMA, LENGTH, **law)
    return (run.curve.loss - loss) / run.curve.error, (run.log_partition - (log_z - log_z[0]))[1:] / run.error[1:]


@pytest.fixture(scope="module")
def gaussian() -> tw.SMCRun:
    return tw.smc(line(), 20.0, **GIVEN)


def check_exact(run: tw.SMCRun, **law: Any) -> None:
    of_loss, of_log_z = off(run, **law)
    assert np.all(np.abs(of_loss) < 4), of_loss
    assert np.all(np.abs(of_log_z) < 4), of_log_z
    assert run.error[-1] < 0.05 and np.all(run.curve.error < 0.02 * run.curve.loss), "errors that are wide say nothing"


def test_log_z_and_the_mean_loss_at_every_rung_are_exact(gaussian: tw.SMCRun) -> None:
    """Null law: Student's t with 15 degrees of freedom, over 7 rungs; 4 standard errors."""
    check_exact(gaussian, start_scale=SCALE)
    assert gaussian.s[0] == 0 and gaussian.s[-1] == 20.0 and gaussian.verdict().converged


@pytest.mark.slow
def test_a_stationary_walk_is_sampled_as_well() -> None:
    check_exact(tw.smc(line("stationary"), 20.0, **GIVEN), **WALKS["stationary"][1])


@pytest.mark.slow
def test_particles_at_the_last_tilt_have_its_law() -> None:
    """Null law: whitened paths are N(0, I), where copies have been moved apart: one particle in 16 of many populations."""
    run = tw.smc(line(), 20.0, **(GIVEN | {"populations": 256, "particles": 64, "steps": 60, "keep": "paths"}))
    paths = np.asarray(run.paths[-1, :, ::16], np.float64).reshape(-1, LENGTH, ONE.dim)
    white = ONE.oracle.whiten(paths, 20.0, SIGMA, LENGTH, start_scale=SCALE)
    found = p_values(white)
    assert corrected(list(found.values())) >= LEVEL, found


# ---- what is wrong is caught ----

SLOW: dict[str, Any] = {"steps": 1, "moves": tw.moves.Sweep(step=0.2), "target_acceptance": None}


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def use(name: str, function: Any) -> None:
        monkeypatch.setitem(tw.smc.__globals__, name, function)

    return use


WRONG: dict[str, tuple[str, Any]] = {
    "particles are not resampled": ("resample", lambda x, u: np.tile(np.arange(x.shape[1]), (len(x), 1))),
    "weights of half the step": ("weigh", lambda totals, ds: -0.5 * ds * totals),
}


def test_the_right_one_is_exact_where_moves_hardly_help() -> None:
    run = tw.smc(line(), 20.0, **GIVEN, **SLOW)
    of_loss, of_log_z = off(run, start_scale=SCALE)
    assert np.all(np.abs(of_loss) < 4) and np.all(np.abs(of_log_z) < 4), (of_loss, of_log_z)


@pytest.mark.parametrize("name", list(WRONG))
def test_a_wrong_variant_is_caught(name: str, wrong: Any) -> None:
    wrong(*WRONG[name])
    of_loss, of_log_z = off(tw.smc(line(), 20.0, **GIVEN, **SLOW), start_scale=SCALE)
    assert np.max(np.abs(of_loss)) > 6 and np.max(np.abs(of_log_z)) > 6


def test_systematic_resampling_copies_as_often_as_weights_say() -> None:
    """The number of copies differs from its mean by less than 1, and is the mean over the uniform number."""
    rng = np.random.default_rng(0)
    exponents = rng.normal(size=(1, 50)) * 2
    weights = np.exp(exponents[0]) / np.exp(exponents[0]).sum()
    u = (np.arange(2000) + 0.5) / 2000
    copies = np.stack([np.bincount(row, minlength=50) for row in resample(np.tile(exponents, (2000, 1)), u)])
    assert np.all(np.abs(copies - 50 * weights) < 1) and np.all(copies.sum(1) == 50)
    np.testing.assert_allclose(copies.mean(0), 50 * weights, atol=2e-3)


# ---- what is returned ----


def test_tilts_keep_the_share_that_was_asked_for(gaussian: tw.SMCRun) -> None:
    np.testing.assert_allclose(gaussian.share[:-1], 0.5, atol=1e-3)
    assert gaussian.share[-1] >= 0.5 and np.all(np.diff(gaussian.s) > 0)


def test_what_is_returned_fits_together(gaussian: tw.SMCRun) -> None:
    assert gaussian.losses.shape == (gaussian.rungs, 16, 512, LENGTH)
    np.testing.assert_allclose(gaussian.losses.sum(-1, dtype=np.float64), gaussian.totals, rtol=1e-5)
    path = np.asarray(gaussian.state.path)
    assert path.shape == (16 * 512, LENGTH, ONE.dim)
    np.testing.assert_allclose(ONE.loss(jnp.asarray(path[777])), gaussian.losses[-1].reshape(-1, LENGTH)[777], rtol=1e-4)
    assert np.all(gaussian.families[0] == 512) and np.all(np.diff(gaussian.families, axis=0) <= 0)
    assert set(gaussian.acceptance) == {"sweep"} and len(gaussian.steps["sweep"]) == gaussian.rungs - 1


def test_log_z_is_there_for_thermodynamics(gaussian: tw.SMCRun) -> None:
    found = tw.thermo.log_partition(gaussian)
    np.testing.assert_array_equal(found.value, gaussian.log_partition)
    np.testing.assert_array_equal(found.error, gaussian.error)
    np.testing.assert_array_equal(tw.thermo.mean_loss(gaussian).value, gaussian.curve.loss)


def test_new_tilts_compile_nothing_and_the_same_key_gives_the_same_run(gaussian: tw.SMCRun) -> None:
    before = chain.advance._cache_size()
    other = tw.smc(line(), 90.0, **(GIVEN | {"key": 2}))
    assert chain.advance._cache_size() == before and other.s[-1] == 90.0
    again = tw.smc(line(), 20.0, **GIVEN)
    np.testing.assert_array_equal(again.losses, gaussian.losses)
    np.testing.assert_array_equal(again.log_partitions, gaussian.log_partitions)


def test_a_flat_start_begins_with_draws_at_its_lowest_tilt() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(SIGMA), ONE.loss, LENGTH)
    paths = ONE.oracle.draw(3, 16 * 512, 1.0, SIGMA, LENGTH)
    run = tw.smc(measure, ladder=[1.0, 2.0, 4.0, 8.0], init=paths, **GIVEN)
    of_loss, of_log_z = off(run)
    assert np.all(np.abs(of_loss) < 4) and np.all(np.abs(of_log_z) < 4), (of_loss, of_log_z)
    np.testing.assert_array_equal(run.s, [1.0, 2.0, 4.0, 8.0])


@pytest.mark.slow
def test_a_run_of_sample_is_what_a_flat_start_begins_with() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(SIGMA), ONE.loss, LENGTH)
    drawn = tw.sample(measure, 1.0, steps=64, chains=8, burn_in=8, keep="paths", **QUIET)
    small = tw.smc(measure, 2.0, s_min=1.0, init=drawn, particles=64, populations=2, steps=2, **QUIET)
    assert small.s[0] == 1.0 and small.s[-1] == 2.0


def test_populations_that_know_little_say_so(gaussian: tw.SMCRun) -> None:
    few = dataclasses.replace(gaussian, families=np.minimum(gaussian.families, 3))
    assert few.verdict().converged is False and "Give more particles" in " ".join(few.verdict().advice)
    stuck = dataclasses.replace(gaussian, acceptance={"sweep": 0.01 * gaussian.acceptance["sweep"]})
    assert "Give more steps" in stuck.verdict().advice[0]
    apart = dataclasses.replace(gaussian, log_partitions=gaussian.log_partitions + 4.0 * np.arange(16))
    assert apart.verdict().converged is False and "Populations disagree" in " ".join(apart.verdict().advice)
    one = {name: getattr(gaussian, name)[:, :1] for name in ("log_partitions", "totals", "families")}
    alone = dataclasses.replace(gaussian, **one)
    assert (
        alone.verdict().converged is None and np.isnan(alone.error[-1]) and "populations=8" in " ".join(alone.verdict().advice)
    )


# ---- many valleys ----

VALLEYS = {"sigma": 0.5, "scale": 3.0, "length": 3}


def himmelblau() -> tw.PathMeasure:
    return tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(3.0)), tw.losses.himmelblau("classic"), 3)


def quadrant(path: Any) -> Any:
    return 2 * (path[..., 0] > 0) + (path[..., 1] > 0)


def test_the_quadrature_is_right() -> None:
    """Against the closed form of the paths of a Gaussian measure, and against itself on another grid."""
    bowl = on_grid(lambda x: (x**2).sum(-1) / 2, 2.0, **VALLEYS)
    walk = np.linalg.inv(np.linalg.cholesky(np.array([[9.0, 9, 9], [9, 9.25, 9.25], [9, 9.25, 9.5]])))
    precision = walk.T @ walk
    exact = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(precision + 2.0 * np.eye(3))[1]
    assert bowl.log_z == pytest.approx(exact, abs=1e-8)
    assert bowl.mean_loss == pytest.approx(np.trace(np.linalg.inv(precision + 2.0 * np.eye(3))) / 3, abs=1e-8)
    fine = on_grid(tw.losses.himmelblau("classic"), 0.5, points=900, **VALLEYS)
    coarse = on_grid(tw.losses.himmelblau("classic"), 0.5, points=600, **VALLEYS)
    assert coarse.log_z == pytest.approx(fine.log_z, abs=1e-4)


def test_populations_find_all_four_valleys() -> None:
    """Null law: Student's t with 31 degrees of freedom, 4 standard errors: log Z, mean losses, the share of each valley."""
    run = tw.smc(himmelblau(), 0.5, particles=512, populations=32, key=8, keep="paths", **QUIET)
    exact = [on_grid(tw.losses.himmelblau("classic"), s, **VALLEYS) for s in run.s]
    log_z, loss = (np.asarray([getattr(x, name) for x in exact]) for name in ("log_z", "mean_loss"))
    assert np.all(np.abs(run.log_partition - log_z)[1:] < 4 * run.error[1:])
    assert np.all(np.abs(run.curve.loss - loss) < 4 * run.curve.error)
    shares = np.stack([(quadrant(run.paths[-1]) == q).mean((1, 2)) for q in range(4)])
    error = shares.std(1, ddof=1) / np.sqrt(32)
    right = np.asarray([exact[-1].share(lambda x, q=q: quadrant(x) == q) for q in range(4)])
    assert np.all(np.abs(shares.mean(1) - right) < 4 * error), (shares.mean(1), right, error)
    assert np.all(right > 6 * error), "a valley that is missed would be seen"


@pytest.mark.slow
def test_the_errors_of_log_z_are_its_errors() -> None:
    """Null law: Student's t with 31 degrees of freedom at the first tilt after the walk and the last, over 20 keys."""
    off = []
    for key in range(20):
        run = tw.smc(himmelblau(), 0.5, particles=512, populations=32, key=100 + key, **QUIET)
        exact = [on_grid(tw.losses.himmelblau("classic"), run.s[i], points=400, **VALLEYS).log_z for i in (1, -1)]
        off.append((run.log_partition[[1, -1]] - exact) / run.error[[1, -1]])
    assert np.all(np.abs(np.mean(off, 0)) < 4 / np.sqrt(20)) and np.all(np.abs(np.std(off, 0) - 1) < 0.6), np.asarray(off)


# ---- input ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"s_max": None}, "smc needs either s_max or a ladder; got neither."),
        ({"ladder": [0.0, 1.0]}, "smc needs either s_max or a ladder; got both."),
        (
            {"s_max": None, "ladder": [1.0, 0.5]},
            "smc.ladder must be two or more increasing tilts of at least 0; got [1.0, 0.5].",
        ),
        ({"particles": 1}, "smc.particles must be a whole number of at least 2; got 1."),
        ({"s_min": 1.0}, "smc.init must hold draws of the measure at the first tilt, s = 1:"),
        ({"init": np.zeros((4, 5, 2))}, "smc.init must be None where the first tilt is 0: the walk is drawn from."),
        (
            {"s_min": 1.0, "init": np.zeros((3, 5, 2))},
            "smc.init must have shape (4096, 5, 2), one path a particle; got (3, 5, 2).",
        ),
        ({"s_min": 3.0, "init": np.zeros((3, 5, 2))}, "smc.s_min must be below s_max = 2; got 3."),
    ],
)
def test_bad_input_says_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tw.smc(line(), **({"s_max": 2.0} | QUIET | given))


def test_a_flat_start_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match=r"smc.s_min must be above 0 for a flat start"):
        tw.smc(tw.PathMeasure(tw.RandomWalk(1.0), ONE.loss, LENGTH), 1.0, **QUIET)
