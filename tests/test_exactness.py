"""Every move, walk, start and schedule leaves the exact law of the linear perceptron where it is; wrong ones do not."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tiltwalk as tw
from tests.statistics import LEVEL, corrected, least_p, p_values, perceptron, whitened_after
from tiltwalk.pytree import pytree
from tiltwalk.shapes import per_parameter

S, CHAINS = 3.0, 4096
ONE = perceptron(inputs=1)


@pytree
class NormalByDensity:
    """A normal start that hides its Gaussian part, so that all of it must enter through the acceptance."""

    scale: Any
    proper: ClassVar[bool] = True
    has_rest: ClassVar[bool] = True
    trailing: ClassVar[bool] = True

    def precision(self) -> Any:
        return 0.0

    def mean(self) -> Any:
        return 0.0

    def rest(self, theta: Any) -> Any:
        return self.log_density(theta)

    def log_density(self, theta: Any) -> Any:
        return -jnp.sum((theta / per_parameter(self.scale, theta)) ** 2, 0) / 2

    def draw(self, key: Any, dim: int) -> Any:
        return tw.Normal(self.scale).draw(key, dim)


PER_PARAMETER = np.array([0.3, 0.8])
WALKS: dict[str, Any] = {
    "flat": tw.RandomWalk(0.5),
    "normal": tw.RandomWalk(PER_PARAMETER, start=tw.Normal(np.array([0.9, 0.6]))),
    "density": tw.RandomWalk(0.6, start=NormalByDensity(0.7)),
    "stationary": tw.OrnsteinUhlenbeck(0.5, pull=0.3, centre=0.4),
    "returning": tw.OrnsteinUhlenbeck(PER_PARAMETER, pull=1.4),
}

MOVES: dict[str, Any] = {
    "shoot": tw.moves.Shoot(),
    "shoot_partly": tw.moves.Shoot(step=0.5, fraction=0.5),
    "shoot_1": tw.moves.Shoot(reach=1, step=0.7),
    "shoot_2": tw.moves.Shoot(reach=2),
    "bridge_1": tw.moves.Bridge(1),
    "bridge_2": tw.moves.Bridge(2, step=0.6),
    "bridge_3": tw.moves.Bridge(3, fraction=0.5),
    "bridge": tw.moves.Bridge(None),
    "bridge_partly": tw.moves.Bridge(None, step=0.5),
    "single_site": tw.moves.SingleSite(),
    "single_site_partly": tw.moves.SingleSite(step=0.5, fraction=0.7),
    "sweep": tw.moves.Sweep(),
    "sweep_partly": tw.moves.Sweep(step=0.4),
    "sweep_some": tw.moves.Sweep(fraction=0.5),
    "sweep_by_group": tw.moves.Sweep(step=0.9, parameters=np.array([1.0, 0.4])),
}


def serves(move: Any, length: int) -> bool:
    try:
        move.check(tw.PathMeasure(tw.RandomWalk(1.0), ONE.loss, length))
    except ValueError:
        return False
    return True


def all_cases() -> list[Any]:
    """Every move on every walk, each at one long and one short length that it can serve, all lengths in turn."""
    cases = []
    for i, (walk, move) in enumerate((w, m) for w in WALKS for m in MOVES):
        short = [n for n in (1, 2, 3, 4, 5) if serves(MOVES[move], n)]
        cases += [(walk, move, length) for length in (short[i % len(short)], 6 + i % 3)]
    return cases


CASES = all_cases()
LENGTHS = [(walk, length) for walk in WALKS for length in (1, 2, 3, 4, 5)]
TESTS = len(CASES) + 2 * len(LENGTHS) + 16


def assert_exact(white: np.ndarray, moved: float) -> None:
    assert moved > 0.02, "nothing moved: the test could not fail"
    found = p_values(white)
    assert corrected(list(found.values())) >= LEVEL / TESTS, found


@pytest.mark.slow
@pytest.mark.parametrize(("walk", "move", "length"), CASES, ids=lambda x: str(x))
def test_every_move_on_every_walk_leaves_the_law_unchanged(walk: str, move: str, length: int) -> None:
    seed = CASES.index((walk, move, length))
    assert_exact(*whitened_after(ONE, WALKS[walk], length, MOVES[move], s=S, steps=6, chains=CHAINS, seed=seed))


@pytest.mark.parametrize("walk", ["flat", "returning"])
def test_steps_of_their_own_for_models_and_parameters_leave_the_law_unchanged(walk: str) -> None:
    move = tw.moves.Sweep(step=0.6, sites=np.array([0.5, 1.0, 1.5, 2.0, 0.8]), parameters=np.array([0.5, 1.2]))
    assert_exact(*whitened_after(ONE, WALKS[walk], 5, move, s=S, steps=6, chains=CHAINS, seed=4001))


@pytest.mark.parametrize(("walk", "length"), LENGTHS, ids=lambda x: str(x))
def test_all_moves_together_leave_the_law_unchanged(walk: str, length: int) -> None:
    mixture = [(move, 1.0) for move in MOVES.values() if serves(move, length)]
    seed = 1000 + LENGTHS.index((walk, length))
    assert_exact(*whitened_after(ONE, WALKS[walk], length, mixture, s=S, steps=12, chains=CHAINS, seed=seed))


@pytest.mark.parametrize(("walk", "length"), LENGTHS, ids=lambda x: str(x))
def test_the_papers_mixture_leaves_the_law_unchanged(walk: str, length: int) -> None:
    seed = 2000 + LENGTHS.index((walk, length))
    moves = tw.moves.paper(length)
    assert_exact(*whitened_after(ONE, WALKS[walk], length, moves, s=S, steps=12, chains=CHAINS, seed=seed))


@pytest.mark.parametrize("move", ["shoot", "bridge_2", "single_site_partly", "sweep"])
def test_chains_on_the_first_axis_leave_the_law_unchanged(move: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tw.sampling, "SMALL_MODEL", 0)
    assert_exact(*whitened_after(ONE, WALKS["normal"], 5, MOVES[move], s=S, steps=6, chains=CHAINS, seed=3000))


def test_several_outputs_and_inputs_leave_the_law_unchanged() -> None:
    case = perceptron(inputs=5, outputs=2)
    walk = tw.RandomWalk(0.2, start=tw.Normal(0.8))
    assert_exact(*whitened_after(case, walk, 6, tw.moves.Sweep(step=0.6), s=S, steps=6, chains=2048, seed=3001))


def test_a_tuned_step_size_leaves_the_law_unchanged_once_frozen() -> None:
    walk = tw.RandomWalk(1.5)
    oracle, length = ONE.oracle, 4
    start = oracle.draw(5, CHAINS, 20.0, 1.5, length)
    measure = tw.PathMeasure(walk, ONE.loss, length)
    tuned = tw.sample(
        measure, 20.0, steps=0, burn_in=300, chains=CHAINS, init=start, target_acceptance=0.5, progress=False
    )  # fmt: skip
    sizes = tuned.steps["sweep"]
    assert sizes.max() < 0.9
    fresh = dataclasses.replace(tuned, state=dataclasses.replace(tuned.state, path=jnp.asarray(start, jnp.float32)))
    run = tw.sample(measure, 20.0, steps=20, chains=CHAINS, init=fresh, key=9, progress=False)
    assert abs(run.acceptance["sweep"] - 0.5) < 0.05
    np.testing.assert_array_equal(run.steps["sweep"], sizes)
    assert_exact(oracle.whiten(np.asarray(run.state.path, float), 20.0, 1.5, length), 1.0)


def some_moves() -> list[tuple[Any, float]]:
    """Those that reach the start: from afar, alone, and beside others."""
    return [(MOVES[name], 1.0) for name in ("shoot", "single_site", "sweep_partly")]


def test_a_normal_start_around_a_centre_leaves_the_law_unchanged() -> None:
    """Data that are shifted along with the centre give the same law, shifted."""
    rng = np.random.default_rng(31)
    X, centre = rng.normal(size=(24, 1)), np.array([1.5, -2.0])
    Y = X @ [[0.7]] + 0.3 * rng.normal(size=(24, 1))
    oracle, law = tw.exact.LinearPerceptron(X, Y), {"sigma": 0.5, "length": 4, "start_scale": np.array([0.4, 0.9])}
    loss = tw.losses.least_squares(X, Y + X * centre[0] + centre[1])
    start = oracle.draw(32, CHAINS, S, **law)
    measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(law["start_scale"], centre)), loss, 4)
    run = tw.sample(measure, S, steps=12, chains=CHAINS, moves=some_moves(), key=33, init=start + centre, progress=False)
    end = np.asarray(run.state.path, float) - centre
    assert_exact(oracle.whiten(end, S, **law), float(np.mean(np.abs(end - start) > 1e-4)))


BEST = np.asarray(ONE.oracle.mean(S, 0.5, 1)).reshape(-1)
LOW, HIGH = BEST - np.array([0.2, 0.3]), BEST + np.array([0.6, 0.4])


def in_the_box(seed: int) -> np.ndarray:
    """Exact draws for a start that is uniform in a box: those of a flat one whose first model lies in it."""
    drawn = np.asarray(ONE.oracle.draw(seed, 30_000, S, sigma=0.5, length=4))
    inside = np.all((drawn[:, 0] >= LOW) & (drawn[:, 0] <= HIGH), -1)
    assert 0.05 < inside.mean() < 0.8, "the box must matter"
    return drawn[inside][:CHAINS].astype(np.float32)


def against_the_box(rule: Any = None) -> tuple[list[float], np.ndarray]:
    """p-values that paths after some moves and new exact draws have one law, by whitened coordinate and for their squares."""
    start, fresh = in_the_box(34), in_the_box(35)
    measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Uniform(LOW, HIGH)), ONE.loss, 4)
    run = tw.sample(
        measure, S, steps=12, chains=len(start), moves=some_moves(), key=36, init=start, rule=rule, progress=False
    )  # fmt: skip
    end = np.asarray(run.state.path)
    assert np.mean(end != start) > 0.1
    one, other = (ONE.oracle.whiten(np.asarray(x, float), S, 0.5, 4).reshape(len(x), -1) for x in (end, fresh))
    columns = [*zip(one.T, other.T, strict=True), ((one**2).sum(1), (other**2).sum(1))]
    return [float(stats.ks_2samp(a, b, method="asymp").pvalue) for a, b in columns], end[:, 0]


def test_a_start_that_is_uniform_in_a_box_leaves_the_law_unchanged() -> None:
    p, first = against_the_box()
    assert np.all((first >= np.float32(LOW)) & (first <= np.float32(HIGH)))
    assert corrected(p) >= LEVEL / TESTS


def test_a_start_whose_walls_do_not_hold_is_caught() -> None:
    p, _ = against_the_box(rule=Forgetful())
    assert corrected(p) < LEVEL / TESTS


SCHEDULES = {
    "linear": tw.schedules.linear(0.5, S, 60),
    "geometric": tw.schedules.geometric(0.5, S, 60),
    "staircase": tw.schedules.staircase([0.5, 8.0, S], steps_each=30),
    "then": tw.schedules.constant(0.5).then(tw.schedules.constant(S), after=60),
}


def after_a_schedule(schedule: Any, length: int = 3) -> tuple[np.ndarray, float]:
    """Whitened paths, from the law of the first tilt, long after the last was reached: short paths soon forget."""
    start = ONE.oracle.draw(37, CHAINS, 0.5, sigma=0.5, length=length)
    measure = tw.PathMeasure(tw.RandomWalk(0.5), ONE.loss, length)
    run = tw.sample(measure, schedule, steps=300, thin=300, chains=CHAINS, key=38, init=start, progress=False)
    return ONE.oracle.whiten(np.asarray(run.state.path, float), S, sigma=0.5, length=length), 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_ends_in_the_law_of_its_last_tilt(name: str) -> None:
    assert_exact(*after_a_schedule(SCHEDULES[name]))


def test_a_schedule_that_ends_elsewhere_is_caught() -> None:
    white, _ = after_a_schedule(tw.schedules.linear(0.5, 0.9 * S, 60))
    assert least_p(white) < LEVEL / TESTS


def test_one_step_at_a_time_is_exact_too() -> None:
    import jax

    length, walk = 5, WALKS["density"]
    measure = tw.PathMeasure(walk, ONE.loss, length)
    start = jnp.asarray(ONE.oracle.draw(7, CHAINS, S, sigma=0.6, length=length, start_scale=0.7), jnp.float32)
    mixture = [(tw.moves.Shoot(), 1.0), (tw.moves.Sweep(step=0.7), 2.0)]

    def chain(key: Any, path: Any) -> Any:
        def body(state: Any, key: Any) -> Any:
            return tw.chain.step(key, state, S, measure=measure, moves=mixture)

        return jax.lax.scan(body, tw.chain.init(measure, path), jax.random.split(key, 6))

    state, info = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(3), CHAINS), start)
    assert info.accepted.shape == (CHAINS, 6)
    end = np.asarray(state.path, float)
    assert_exact(ONE.oracle.whiten(end, S, sigma=0.6, length=length, start_scale=0.7), float(np.mean(end != start)))


# ---- wrong samplers, which must fail ----


def wrong(deviation: float = 1.0, mean: float = 1.0) -> Any:
    @pytree
    class Wrong(tw.RandomWalk):  # type: ignore[misc]
        def sites(self, path: Any, first: int, noise: Any) -> Any:
            m, e = tw.RandomWalk.sites(self, path, first, noise)
            return mean * m, deviation * e

        def window(self, path: Any, first: Any, noise: Any, count: Any) -> Any:
            m, e = tw.RandomWalk.window(self, path, first, noise, count)
            return mean * m, deviation * e

    return Wrong


@pytest.mark.parametrize("move", ["shoot", "bridge_1", "bridge", "single_site", "sweep", "sweep_partly"])
@pytest.mark.parametrize("fault", [{"deviation": 1.1}, {"mean": 0.9}], ids=["deviation", "mean"])
def test_a_wrong_conditional_law_is_caught(move: str, fault: dict[str, float]) -> None:
    walk = wrong(**fault)(0.5)
    white, _ = whitened_after(ONE, walk, 6, MOVES[move], s=S, steps=24, chains=CHAINS, seed=40)
    assert least_p(white) < LEVEL / TESTS


@pytree
class Forgetful(tw.rules.Metropolis):  # type: ignore[misc]
    """The Metropolis rule without the correction."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        proposal = dataclasses.replace(proposal, log_correction=jnp.zeros_like(proposal.log_correction))
        return tw.rules.Metropolis.decide(self, noise, measure, state, proposal, s)


@pytest.mark.parametrize("move", ["shoot", "single_site", "sweep"])
def test_leaving_the_start_out_of_the_acceptance_is_caught(move: str) -> None:
    white, _ = whitened_after(ONE, WALKS["density"], 4, MOVES[move], s=S, steps=12, chains=CHAINS, seed=41, rule=Forgetful())
    assert least_p(white) < LEVEL / TESTS


@pytree
class TooEager(tw.rules.Metropolis):  # type: ignore[misc]
    """Decides with a tilt that is a tenth too small."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        return tw.rules.Metropolis.decide(self, noise, measure, state, proposal, 0.9 * s)


def test_a_wrong_tilt_is_caught() -> None:
    white, _ = whitened_after(ONE, WALKS["flat"], 5, MOVES["sweep"], s=S, steps=24, chains=CHAINS, seed=42, rule=TooEager())
    assert least_p(white) < LEVEL / TESTS


@pytree
class Together(tw.moves.Sweep):  # type: ignore[misc]
    """A sweep that changes all models at once, as if neighbours were independent."""

    def parts(self, length: int) -> Any:
        return (AllAtOnce(self.step),)


@pytree
class AllAtOnce:
    step: Any = 1.0

    def noise_shape(self, length: int) -> tuple[int, int]:
        return length, 1

    def propose(self, noise: Any, state: Any, measure: Any, s: Any) -> Any:
        path, rows = state.path, []
        for first in (0, 1):
            mean, deviation = measure.walk.sites(path, first, noise.normal[first::2, 0])
            rows.append(mean + deviation)
        new = tw.chain._interleaved(jnp.zeros_like(path), rows[0], 0)
        new = tw.chain._interleaved(new, rows[1], 1)
        sites = jnp.arange(path.shape[0], dtype=jnp.int32)[:, None]
        return tw.Proposal(sites, new[:, None], jnp.zeros((path.shape[0], *path.shape[2:])))


def test_changing_neighbours_at_once_is_caught() -> None:
    white, _ = whitened_after(ONE, WALKS["flat"], 6, Together(), s=S, steps=24, chains=CHAINS, seed=43)
    assert least_p(white) < LEVEL / TESTS
