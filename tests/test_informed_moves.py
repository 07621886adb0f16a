"""Moves along the gradient leave every law where it is, at any setting; what they cost; what they need."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tiltwalk as tw
from tests.statistics import LEVEL, corrected, least_p, p_values, perceptron, whitened_after
from tests.test_exactness import CHAINS, ONE, WALKS, Forgetful, S
from tiltwalk.moves import hamiltonian
from tiltwalk.pytree import pytree

Langevin, Hamiltonian = tw.moves.LangevinSweep, tw.moves.Hamiltonian
BEND = np.array([0.5, 1.2])
TURN = np.array([[0.8, -0.6], [0.6, 0.8]])

MOVES: dict[str, Any] = {
    "langevin": Langevin(step=0.8),
    "langevin_whole_step": Langevin(step=1.0),
    "langevin_curvature": Langevin(step=0.7, curvature=BEND),
    "hamiltonian": Hamiltonian(leaps=3, step=0.4),
    "hamiltonian_fixed": Hamiltonian(leaps=2, step=0.7, spread=0.0, curvature=BEND),
    "hamiltonian_centre": Hamiltonian(leaps=1, step=0.9, curvature=BEND, centre=np.array([0.4, 0.1])),
    "hamiltonian_basis": Hamiltonian(leaps=2, step=0.6, curvature=BEND, centre=np.array([0.4, 0.1]), basis=TURN),
    "hamiltonian_basis_walk": Hamiltonian(leaps=2, step=0.4, curvature=BEND, basis=TURN),
}
LENGTHS = (1, 2, 3, 4, 5, 9)
ALIKE = ("flat", "density", "stationary")
"""Walks that are alike in all parameters, as a basis needs."""
EACH = [(walk, move, n) for walk in WALKS for move in MOVES for n in LENGTHS if walk in ALIKE or "basis" not in move]
TURNED = [("flat", "hamiltonian_basis", 4), ("density", "hamiltonian_basis", 1), ("stationary", "hamiltonian_basis_walk", 3)]
TOGETHER = [("flat", 4), ("normal", 9), ("density", 3), ("stationary", 2), ("returning", 5)]
TESTS = len(EACH) + len(TOGETHER) + len(TURNED) + 10


def assert_exact(white: np.ndarray, moved: float) -> None:
    assert moved > 0.02, "nothing moved: the test could not fail"
    found = p_values(white)
    assert corrected(list(found.values())) >= LEVEL / TESTS, found


@pytest.mark.slow
@pytest.mark.parametrize(("walk", "move", "length"), EACH, ids=lambda x: str(x))
def test_every_informed_move_on_every_walk_leaves_the_law_unchanged(walk: str, move: str, length: int) -> None:
    seed = 5000 + EACH.index((walk, move, length))
    assert_exact(*whitened_after(ONE, WALKS[walk], length, MOVES[move], s=S, steps=6, chains=CHAINS, seed=seed))


@pytest.mark.parametrize(("walk", "length"), TOGETHER, ids=lambda x: str(x))
def test_informed_moves_together_with_a_plain_one_leave_the_law_unchanged(walk: str, length: int) -> None:
    chosen = ("langevin_curvature", "hamiltonian", "hamiltonian_centre")
    mixture = [*((MOVES[name], 1.0) for name in chosen), (tw.moves.Shoot(step=0.8), 1.0)]
    seed = 6000 + TOGETHER.index((walk, length))
    assert_exact(*whitened_after(ONE, WALKS[walk], length, mixture, s=S, steps=10, chains=CHAINS, seed=seed))


@pytest.mark.parametrize(("walk", "move", "length"), TURNED, ids=lambda x: str(x))
def test_a_basis_leaves_the_law_unchanged(walk: str, move: str, length: int) -> None:
    seed = 6100 + TURNED.index((walk, move, length))
    assert_exact(*whitened_after(ONE, WALKS[walk], length, MOVES[move], s=S, steps=6, chains=CHAINS, seed=seed))


@pytest.mark.parametrize("move", ["langevin_curvature", "hamiltonian_centre", "hamiltonian_basis"])
def test_chains_on_the_first_axis_leave_the_law_unchanged(move: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tw.sampling, "SMALL_MODEL", 0)
    walk = WALKS["flat" if "basis" in move else "normal"]
    assert_exact(*whitened_after(ONE, walk, 4, MOVES[move], s=S, steps=4, chains=CHAINS, seed=7000))


def test_several_outputs_and_inputs_leave_the_law_unchanged() -> None:
    case = perceptron(inputs=5, outputs=2)
    moves = [(Langevin(step=0.6), 1.0), (Hamiltonian(leaps=2, step=0.3, centre=0.2), 1.0)]
    walk = tw.RandomWalk(0.2, start=tw.Normal(0.8))
    assert_exact(*whitened_after(case, walk, 6, moves, s=S, steps=4, chains=2048, seed=7001))


@pytest.mark.parametrize("move", ["langevin", "hamiltonian"])
def test_double_precision_leaves_the_law_unchanged(move: str) -> None:
    x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with x64(True):
        case = perceptron(inputs=1)
        white, _ = whitened_after(case, WALKS["density"], 3, MOVES[move], s=S, steps=4, chains=2048, seed=7002)
    assert_exact(white, 1.0)


def test_at_no_tilt_the_walk_is_left_unchanged_and_nothing_is_rejected() -> None:
    for name in ("langevin", "hamiltonian"):
        start = ONE.oracle.draw(1, CHAINS, 0.0, 0.5, 4, start_scale=0.7)
        measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(0.7)), ONE.loss, 4)
        run = tw.sample(measure, 0.0, steps=5, chains=CHAINS, moves=MOVES[name], init=start, key=2, progress=False)
        white = ONE.oracle.whiten(np.asarray(run.state.path, float), 0.0, 0.5, 4, start_scale=0.7)
        assert_exact(white, 1.0)
        # the walk's own law is integrated exactly; the start is a kick of the Hamiltonian move
        assert run.acceptance[run_name(name)] > (0.99999 if name == "langevin" else 0.9)


def run_name(name: str) -> str:
    return str(MOVES[name].name)


# ---- wrong ones, which must fail ----


@pytest.mark.parametrize("move", ["langevin", "hamiltonian"])
def test_leaving_out_the_correction_is_caught(move: str) -> None:
    white, _ = whitened_after(ONE, WALKS["flat"], 4, MOVES[move], s=S, steps=12, chains=CHAINS, seed=50, rule=Forgetful())
    assert least_p(white) < LEVEL / TESTS


@pytree
class StaleLosses(tw.rules.Metropolis):  # type: ignore[misc]
    """Remembers the losses of what was taken a little wrong, as a cache that is not kept up would."""

    def decide(self, noise: Any, measure: Any, state: Any, proposal: Any, s: Any) -> Any:
        decision = tw.rules.Metropolis.decide(self, noise, measure, state, proposal, s)
        old = tw.rules.metropolis.current_losses(state, proposal)
        return dataclasses.replace(decision, losses=0.7 * decision.losses + 0.3 * old)


def test_a_cache_that_is_not_kept_up_is_caught() -> None:
    moves = MOVES["langevin"]
    white, _ = whitened_after(ONE, WALKS["flat"], 4, moves, s=S, steps=12, chains=CHAINS, seed=51, rule=StaleLosses())
    assert least_p(white) < LEVEL / TESTS


def test_momenta_of_a_wrong_scale_are_caught() -> None:
    @pytree
    class Hot(Hamiltonian):  # type: ignore[misc]
        def propose(self, noise: Any, state: Any, measure: Any, s: Any) -> Any:
            return Hamiltonian.propose(self, dataclasses.replace(noise, normal=1.1 * noise.normal), state, measure, s)

    move = Hot(leaps=3, step=0.4, centre=0.3)
    white, _ = whitened_after(ONE, WALKS["flat"], 4, move, s=S, steps=12, chains=CHAINS, seed=52)
    assert least_p(white) < LEVEL / TESTS


def test_directions_that_are_too_long_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hamiltonian._turned
    monkeypatch.setattr(hamiltonian, "_turned", lambda matrix, path: 1.05 * right(matrix, path))
    move = Hamiltonian(leaps=2, step=0.6, curvature=0.97 * BEND, centre=0.3, basis=TURN)
    white, _ = whitened_after(ONE, WALKS["flat"], 4, move, s=S, steps=12, chains=CHAINS, seed=53)
    assert least_p(white) < LEVEL / TESTS


# ---- what they do ----


def test_a_path_that_follows_the_mass_is_independent_after_a_quarter_turn() -> None:
    """With the curvature and the centre of a bowl, one leap of a quarter turn draws a new path: nothing of the old is left."""
    length, chains, s = 8, 4096, 5.0
    bowl = tw.losses.bowl(curvature=np.array([1.0, 3.0]), centre=np.array([0.5, -0.2]))
    measure = tw.PathMeasure(tw.RandomWalk(0.3), bowl, length)
    move = Hamiltonian(leaps=1, step=1.0, spread=0.0, curvature=np.array([1.0, 3.0]), centre=np.array([0.5, -0.2]))
    first = tw.sample(measure, s, steps=3, chains=chains, moves=move, init=np.zeros((length, 2)), progress=False)
    assert first.acceptance["hamiltonian"] > 0.9999
    after = tw.sample(measure, s, steps=1, chains=chains, moves=move, init=first, key=1, progress=False)
    before, now = (np.asarray(run.state.path).reshape(chains, -1) for run in (first, after))
    between = [stats.pearsonr(a, b).pvalue for a, b in zip(before.T, now.T, strict=True)]
    assert corrected(between) > 1e-3


def test_a_quadratic_loss_with_its_own_directions_is_drawn_afresh_in_one_leap() -> None:
    case = perceptron(inputs=4)
    curvature, basis = np.linalg.eigh(case.oracle.A)
    move = Hamiltonian(leaps=1, step=1.0, spread=0.0, curvature=curvature, centre=case.oracle.best, basis=basis)
    measure, start = tw.PathMeasure(tw.RandomWalk(0.3), case.loss, 8), case.oracle.draw(3, 2048, 5.0, 0.3, 8)
    run = tw.sample(measure, 5.0, steps=1, chains=2048, moves=move, init=start, progress=False)
    assert run.acceptance["hamiltonian"] > 0.999
    before, now = (np.asarray(x, float).reshape(2048, -1) for x in (start, run.state.path))
    assert corrected([stats.pearsonr(a, b).pvalue for a, b in zip(before.T, now.T, strict=True)]) > 1e-3


def test_the_rotation_keeps_the_energy_of_the_walk() -> None:
    measure = tw.PathMeasure(tw.OrnsteinUhlenbeck(BEND, pull=0.3, centre=0.4), tw.losses.bowl(), 7)

    @jax.jit
    def turns(away: Any, speed: Any) -> Any:
        split = hamiltonian._Split.of(Hamiltonian(), measure, away, 2.0)
        turn = split.rotation(jnp.asarray(0.7))
        turned = turn(away, speed)
        energies = [jnp.sum(split.turned * x**2 + split.mass * v**2) for x, v in ((away, speed), turned)]
        return energies, turn(turned[0], -turned[1])[0]

    away, speed = np.random.default_rng(0).normal(size=(2, 7, 2)).astype(np.float32)
    (before, after), back = turns(away, speed)
    assert float(after) == pytest.approx(float(before), rel=1e-5)
    np.testing.assert_allclose(back, away, atol=1e-5)


@pytest.mark.parametrize(
    ("walk", "centre"), [("normal", None), ("normal", 0.3), ("density", 0.3), ("stationary", None), ("returning", 0.3)]
)
def test_modes_and_ends_together_make_the_energy_of_the_walk(walk: str, centre: Any) -> None:
    """Change of the walk's log density = change of what is rotated + what the kicks say that they gained."""

    @jax.jit
    def changes(old: Any, new: Any) -> Any:
        measure = tw.PathMeasure(WALKS[walk], tw.losses.bowl(), len(old))
        split = hamiltonian._Split.of(Hamiltonian(centre=centre, curvature=BEND), measure, old, 2.0)
        rotated = split.mass if split.turned is None else split.turned

        def energy(path: Any) -> Any:
            return jnp.sum(rotated * hamiltonian.to_modes(path - split.centre) ** 2) / 2

        def gained(path: Any) -> Any:
            return split.gained(old, path, *(split.modes(x - split.centre) for x in (old, path)))

        made = gained(new) - energy(new) + energy(old)
        force = split.force(new, split.modes(new - split.centre), jnp.zeros_like(new))
        return made, measure.log_walk(new) - measure.log_walk(old), force, split.modes(jax.grad(gained)(new))

    for length in (1, 6):
        made, expected, force, slope = changes(*np.random.default_rng(3).normal(size=(2, length, 2)).astype(np.float32))
        assert float(made) == pytest.approx(float(expected), rel=2e-4, abs=2e-4)
        np.testing.assert_allclose(force, slope, rtol=1e-4, atol=1e-4)


def test_cosine_modes_are_orthonormal_and_undone() -> None:
    for length in (1, 2, 9):
        waves = hamiltonian._cosines(length)
        np.testing.assert_allclose(waves @ waves.T, np.eye(length), atol=1e-12)
        path = jax.random.normal(jax.random.key(0), (length, 3, 4))
        np.testing.assert_allclose(hamiltonian.from_modes(hamiltonian.to_modes(path)), path, atol=1e-5)


# ---- what they cost, and what compiles again ----


def counting(seen: list[int]) -> tw.losses.Function:
    """A bowl that notes of how many models it was asked, and of how many the gradient."""

    def note(kind: str, count: int) -> None:
        seen.append(count if kind == "value" else -count)

    @jax.custom_vjp
    def loss(thetas: Any) -> Any:
        jax.debug.callback(lambda: note("value", len(thetas)), ordered=True)
        return jnp.sum(thetas**2, -1) / 2

    def forward(thetas: Any) -> Any:
        jax.debug.callback(lambda: note("gradient", len(thetas)), ordered=True)
        return jnp.sum(thetas**2, -1) / 2, thetas

    loss.defvjp(forward, lambda thetas, g: (g[:, None] * thetas,))
    return tw.losses.Function(loss, 2)


@pytest.mark.parametrize(
    ("move", "length", "calls"),
    [
        (Langevin(), 5, [-3, -2]),
        (Langevin(), 1, [-1]),
        (Hamiltonian(leaps=1), 5, [-5]),
        (Hamiltonian(leaps=3), 4, [-4, -4, -4]),
        (tw.moves.SingleSite(), 5, [1]),
    ],
    ids=lambda x: str(x),
)
def test_each_model_costs_one_loss_with_gradient_and_old_ones_are_remembered(move: Any, length: int, calls: list[int]) -> None:
    seen: list[int] = []
    measure = tw.PathMeasure(tw.RandomWalk(0.1), counting(seen), length)
    informed = tw.chain.informed([move])
    state = tw.chain.init(measure, jnp.zeros((length, 2)), gradients=informed)
    step = jax.jit(lambda key, state: tw.chain.step(key, state, 0.1, measure=measure, moves=[(move, 1.0)]))
    for i in range(3):
        jax.effects_barrier()
        seen.clear()
        state, info = jax.block_until_ready(step(jax.random.key(i), state))
        jax.effects_barrier()
        assert seen == calls
        assert int(info.evaluations) == sum(abs(n) for n in calls)
        assert int(info.gradients) == -sum(n for n in calls if n < 0)
    if informed:
        np.testing.assert_allclose(state.grads, state.path, rtol=1e-6)


def test_a_plain_move_beside_an_informed_one_keeps_the_gradients_up() -> None:
    measure = tw.PathMeasure(tw.RandomWalk(0.5), tw.losses.himmelblau(), 5)
    mixture = [(Langevin(step=0.1), 1.0), (tw.moves.Shoot(step=0.1), 1.0), (Hamiltonian(step=0.02), 1.0)]
    run = tw.sample(measure, 0.1, steps=60, chains=3, moves=mixture, init=np.ones((5, 2)), progress=False)
    losses, grads = jax.jit(jax.vmap(measure.value_and_grad))(run.state.path)
    np.testing.assert_allclose(run.state.losses, losses, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(run.state.grads, grads, rtol=1e-4, atol=1e-3)
    assert all(0.02 < rate <= 1 for rate in run.acceptance.values())
    assert run.gradients == run.evaluations > 60 * 3


def test_new_settings_trace_nothing() -> None:
    traces: list[Any] = []

    def loss(thetas: Any) -> Any:
        traces.append(1)
        return jnp.sum(thetas**2, -1)

    counted = tw.losses.Function(loss, 2)

    def traced(sigma: float, *moves: Any) -> int:
        before = len(traces)
        measure = tw.PathMeasure(tw.RandomWalk(sigma), counted, 4)
        checked = len(traces)  # the constructor looks at shapes, which is a trace
        tw.sample(measure, 1.0, steps=8, chains=2, moves=[(m, 1.0) for m in moves], progress=False)
        return len(traces) - checked if len(traces) > before else -1

    first = (Langevin(step=0.5), Hamiltonian(step=0.3))
    assert traced(0.5, *first) > 0
    assert traced(0.6, Langevin(step=0.2, curvature=2.0), Hamiltonian(step=0.1, spread=0.5, curvature=3.0)) == 0
    assert traced(0.6, first[0], Hamiltonian(leaps=2)) > 0, "another number of leaps is another program"


# ---- what they need ----


def test_a_loss_without_a_gradient_is_refused_in_words() -> None:
    box = tw.losses.BlackBox(lambda thetas: np.sum(thetas**2, -1), 2)
    measure = tw.PathMeasure(tw.RandomWalk(0.1), box, 4)
    for move in (Langevin(), Hamiltonian()):
        with pytest.raises(TypeError, match=rf"{type(move).__name__} needs a differentiable loss; got BlackBox"):
            tw.sample(measure, 1.0, steps=1, moves=move, progress=False)


def test_bad_settings_are_refused_in_words() -> None:
    bowl, uneven = (tw.PathMeasure(tw.RandomWalk(sigma), tw.losses.bowl(), 4) for sigma in (0.1, np.array([0.1, 0.2])))
    for make, message in (
        (lambda: Langevin(step=0.0), r"LangevinSweep.step must be a number in \(0, 1\]; got 0.0."),
        (lambda: Langevin(curvature=-1.0), "LangevinSweep.curvature must be at least 0; got -1."),
        (lambda: Hamiltonian(leaps=0), "Hamiltonian.leaps must be a whole number of at least 1; got 0."),
        (lambda: Hamiltonian(step=1.5), r"Hamiltonian.step must be a number in \(0, 1\]; got 1.5."),
        (lambda: Hamiltonian(spread=2.0), r"Hamiltonian.spread must be a number in \[0, 1\]; got 2.0."),
        (lambda: Hamiltonian(centre=np.nan), "Hamiltonian.centre must be finite; got nan."),
        (lambda: Hamiltonian(basis=np.ones((2, 2))), "Hamiltonian.basis must be a square orthonormal matrix"),
        (lambda: Hamiltonian(basis=np.eye(3)).check(bowl), r"Hamiltonian.basis must have shape \(2, 2\); got \(3, 3\)."),
        (lambda: Hamiltonian(basis=np.eye(2)).check(uneven), "Hamiltonian.basis needs a walk whose sigma, start and pull"),
        (lambda: Hamiltonian(curvature=[[1.0]]), r"Hamiltonian.curvature must have shape \(\) or \(d,\); got \(1, 1\)."),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    measure = tw.PathMeasure(tw.RandomWalk(0.1), tw.losses.bowl(), 4)
    for move in (Langevin(curvature=np.ones(3)), Hamiltonian(curvature=np.ones(3)), Hamiltonian(centre=np.ones(3))):
        with pytest.raises(ValueError, match="must be one number or one per parameter, 2 of them; got 3"):
            move.check(measure)
