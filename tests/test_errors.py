"""Wrong calls: the exact type of the exception, and a message that names the parameter, what is allowed and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiltwalk as tw
from tiltwalk import losses, moves, schedules

NAN, INF = float("nan"), float("inf")


def measure(length: int = 4, loss: Any = None, walk: Any = None) -> tw.PathMeasure:
    """A measure that is right but for what is given."""
    return tw.PathMeasure(
        walk if walk is not None else tw.RandomWalk(0.5, start=tw.Normal(1.0)),
        loss if loss is not None else losses.double_well(),
        length,
    )


def sample(s: Any = 1.0, **given: Any) -> tw.Run:
    """A call that is right but for what is given."""
    call = {"measure": measure(), "steps": 4, "progress": False} | given
    return tw.sample(call.pop("measure"), s, **call)


def function(made: Callable[[Any], Any]) -> losses.Function:
    return losses.Function(made, 2)


class NoDim:
    """Called like a loss, but it does not say how many parameters a model has."""

    def __call__(self, thetas: Any) -> Any:
        return jnp.sum(thetas, 1)


class WrongDim(NoDim):
    dim = 2.0


POSITIVE = "a positive number or one per parameter"
WHOLE = "a whole number of at least "

# what was called: (the call, the exception, what the message says: the parameter, what is allowed, what came)
STARTS_AND_WALKS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "a negative scale": (lambda: tw.Normal(-1.0), ValueError, ("Normal.scale", POSITIVE, "got -1.0")),
    "a zero scale": (lambda: tw.Normal(0), ValueError, ("Normal.scale", POSITIVE, "got 0")),
    "a scale with a zero": (lambda: tw.Normal([1.0, 0.0]), ValueError, ("Normal.scale", POSITIVE, "0.0 for parameter 1")),
    "a scale as a matrix": (lambda: tw.Normal(np.ones((2, 2))), ValueError, ("Normal.scale", POSITIVE, "shape (2, 2)")),
    "a NaN centre": (lambda: tw.Normal(1.0, NAN), ValueError, ("Normal.centre", "finite", "got nan")),
    "a text as centre": (lambda: tw.Normal(1.0, "x"), TypeError, ("Normal.centre", "numbers of shape () or (d,)", "got 'x'")),
    "a box inside out": (lambda: tw.Uniform(1, 0), ValueError, ("Uniform.low", "below Uniform.high", "got 1 and 0")),
    "a box without width": (lambda: tw.Uniform([0, 1], [1, 1]), ValueError, ("Uniform.low", "below", "got [0, 1] and [1, 1]")),
    "a box of two dimensions": (
        lambda: tw.Uniform([0, 1], [1, 2, 3]), ValueError, ("Uniform.low and Uniform.high", "one per parameter", "2 and 3")),
    "an infinite box": (lambda: tw.Uniform(0, INF), ValueError, ("Uniform.high", "finite", "got inf")),
    "a draw from a flat start": (
        lambda: tw.Flat().draw(jax.random.key(0), 2), ValueError, ("Flat", "no normalisation", "Normal(scale)")),
    "a negative sigma": (lambda: tw.RandomWalk(-1.0), ValueError, ("RandomWalk.sigma", POSITIVE, "got -1.0")),
    "a zero sigma": (lambda: tw.RandomWalk(0), ValueError, ("RandomWalk.sigma", POSITIVE, "got 0")),
    "a NaN sigma": (lambda: tw.RandomWalk(NAN), ValueError, ("RandomWalk.sigma", POSITIVE, "finite", "got nan")),
    "an infinite sigma": (lambda: tw.RandomWalk(INF), ValueError, ("RandomWalk.sigma", POSITIVE, "finite", "got inf")),
    "a text as sigma": (lambda: tw.RandomWalk("0.1"), TypeError, ("RandomWalk.sigma", POSITIVE, "got '0.1'")),
    "no sigma": (lambda: tw.RandomWalk(None), TypeError, ("RandomWalk.sigma", POSITIVE, "got None")),
    "a truth value as sigma": (lambda: tw.RandomWalk(True), TypeError, ("RandomWalk.sigma", POSITIVE, "got True")),
    "a complex sigma": (lambda: tw.RandomWalk(1j), TypeError, ("RandomWalk.sigma", POSITIVE, "got 1j")),
    "an empty sigma": (lambda: tw.RandomWalk([]), ValueError, ("RandomWalk.sigma", POSITIVE, "shape (0,)")),
    "one negative sigma of two": (
        lambda: tw.RandomWalk([1.0, -2.0]), ValueError, ("RandomWalk.sigma", POSITIVE, "-2.0 for parameter 1")),
    "a number as start": (
        lambda: tw.RandomWalk(1.0, start=3), TypeError, ("RandomWalk.start", "Flat() or Normal(scale)", "got 3")),
    "a start that was not called": (
        lambda: tw.RandomWalk(1.0, start=tw.Flat), TypeError, ("RandomWalk.start", "Flat() or Normal(scale)", "class")),
    "a negative sigma, pulled": (
        lambda: tw.OrnsteinUhlenbeck(-1.0, 0.5), ValueError, ("OrnsteinUhlenbeck.sigma", POSITIVE, "got -1.0")),
    "a pull of 0": (lambda: tw.OrnsteinUhlenbeck(1.0, 0.0), ValueError, ("OrnsteinUhlenbeck.pull", "in (0, 2)", "got 0.0")),
    "a pull of 2": (lambda: tw.OrnsteinUhlenbeck(1.0, 2.0), ValueError, ("OrnsteinUhlenbeck.pull", "in (0, 2)", "got 2.0")),
    "one pull too large": (
        lambda: tw.OrnsteinUhlenbeck(1.0, [0.5, 2.5]), ValueError, ("OrnsteinUhlenbeck.pull", "in (0, 2)", "2.5")),
    "a NaN centre, pulled": (
        lambda: tw.OrnsteinUhlenbeck(1.0, 0.5, NAN), ValueError, ("OrnsteinUhlenbeck.centre", "finite", "got nan")),
}  # fmt: skip

MEASURES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "length 0": (lambda: measure(0), ValueError, ("PathMeasure.length", WHOLE + "1", "got 0")),
    "a negative length": (lambda: measure(-3), ValueError, ("PathMeasure.length", WHOLE + "1", "got -3")),
    "a length that is a float": (lambda: measure(4.0), TypeError, ("PathMeasure.length", WHOLE + "1", "got 4.0")),
    "a length that is a truth value": (lambda: measure(True), TypeError, ("PathMeasure.length", WHOLE + "1", "got True")),
    "a number as walk": (lambda: measure(walk=3), TypeError, ("PathMeasure.walk", "RandomWalk(sigma)", "got 3")),
    "a walk that was not called": (
        lambda: measure(walk=tw.RandomWalk), TypeError, ("PathMeasure.walk", "RandomWalk(sigma)", "class")),
    "three sigmas for two parameters": (
        lambda: measure(walk=tw.RandomWalk(np.ones(3))), ValueError, ("RandomWalk.sigma", "one per parameter, 2 of them", "3")),
    "three scales for two parameters": (
        lambda: measure(walk=tw.RandomWalk(1.0, start=tw.Normal(np.ones(3)))), ValueError,
        ("Normal.scale", "one per parameter, 2 of them", "got 3")),
    "three bounds for two parameters": (
        lambda: measure(walk=tw.RandomWalk(1.0, start=tw.Uniform(np.zeros(3), 1.0))), ValueError,
        ("Uniform.low", "one per parameter, 2 of them", "got 3")),
    "three pulls for two parameters": (
        lambda: measure(walk=tw.OrnsteinUhlenbeck(1.0, np.full(3, 0.5))), ValueError,
        ("OrnsteinUhlenbeck.pull", "one per parameter, 2 of them", "got 3")),
    "a function as loss": (
        lambda: measure(loss=lambda thetas: thetas.sum(1)), TypeError,
        ("PathMeasure.loss", "`dim`", "losses.Function or losses.BlackBox", "got <function")),
    "a loss without dim": (lambda: measure(loss=NoDim()), TypeError, ("PathMeasure.loss", "`dim`", "got <", "NoDim")),
    "a loss with half a dim": (lambda: measure(loss=WrongDim()), TypeError, ("PathMeasure.loss.dim", WHOLE + "1", "got 2.0")),
    "a loss that was not called": (
        lambda: measure(loss=losses.LeastSquares), TypeError, ("PathMeasure.loss", "`dim`", "class")),
    "a loss a parameter": (
        lambda: measure(loss=function(lambda thetas: thetas)), ValueError,
        ("PathMeasure.loss", "one real number a model, shape (m,), for thetas of shape (m, 2)", "m = 3", "shape (3, 2)")),
    "one loss for all models": (
        lambda: measure(loss=function(jnp.sum)), ValueError, ("PathMeasure.loss", "shape (m,)", "returned shape ()")),
    "a loss with its accuracy": (
        lambda: measure(loss=function(lambda thetas: (thetas.sum(1), 0.5))), TypeError,
        ("PathMeasure.loss", "shape (m,)", "got a tuple")),
    "a loss of nothing": (
        lambda: measure(loss=function(lambda thetas: None)), TypeError, ("PathMeasure.loss", "shape (m,)", "got None")),
    "a complex loss": (
        lambda: measure(loss=function(lambda thetas: thetas.sum(1) + 1j)), TypeError,
        ("PathMeasure.loss", "one real number", "got complex64")),
    "a loss in NumPy": (
        lambda: measure(loss=function(lambda thetas: np.sum(np.asarray(thetas), 1))), TypeError,
        ("PathMeasure.loss", "jax.numpy", "losses.BlackBox(fn, dim)", "got Function(")),
    "a loss that branches on values": (
        lambda: measure(loss=function(lambda thetas: thetas[:, 0] if thetas.sum() > 0 else thetas[:, 1])), TypeError,
        ("PathMeasure.loss", "compiled", "losses.BlackBox(fn, dim)", "got Function(")),
    "a path of a flat start": (
        lambda: measure(walk=tw.RandomWalk(1.0)).draw(jax.random.key(0)), ValueError, ("Flat", "no normalisation", "Normal")),
}  # fmt: skip

LOSSES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "a number as function": (lambda: losses.Function(3, 2), TypeError, ("Function.function", "(m, d) -> (m,)", "got 3")),
    "no parameters": (lambda: losses.Function(jnp.sum, 0), ValueError, ("Function.dim", WHOLE + "1", "got 0")),
    "an unknown variant": (
        lambda: losses.himmelblau("printed"), ValueError, ("himmelblau.variant", "classic, paper", "got 'printed'")),
    "a well of no height": (lambda: losses.double_well(0), ValueError, ("double_well.height", "in (0, inf)", "got 0")),
    "two distances": (
        lambda: losses.double_well(distance=[1, 2]), ValueError, ("double_well.distance", "in (0, inf)", "shape (2,)")),
    "a text as stiffness": (
        lambda: losses.double_well(stiffness="x"), TypeError, ("double_well.stiffness", "in (0, inf)", "got 'x'")),
    "a bowl of no parameters": (lambda: losses.bowl(dim=0), ValueError, ("bowl.dim", WHOLE + "1", "got 0")),
    "a bowl upside down": (lambda: losses.bowl(-1.0), ValueError, ("bowl.curvature", POSITIVE, "got -1.0")),
    "three curvatures in two dimensions": (
        lambda: losses.bowl([1.0, 2.0, 3.0]), ValueError, ("bowl.curvature", "one number or 2", "got 3")),
    "a bowl nowhere": (lambda: losses.bowl(centre=NAN), ValueError, ("bowl.centre", "finite", "got nan")),
    "NaN features": (
        lambda: losses.least_squares([[1.0, NAN]], [1.0]), ValueError, ("least_squares.X", "finite", "got 1 entries")),
    "NaN targets": (
        lambda: losses.least_squares([[1.0], [2.0]], [NAN, INF]), ValueError, ("least_squares.Y", "finite", "got 2 entries")),
    "more targets than samples": (
        lambda: losses.least_squares([[1.0, 2.0]], [1.0, 2.0]), ValueError, ("least_squares.Y", "the 1 rows of X", "got 2")),
    "features as a vector": (
        lambda: losses.least_squares([1.0, 2.0], [1.0, 2.0]), ValueError, ("least_squares.X", "shape (N, d)", "got (2,)")),
    "targets of three axes": (
        lambda: losses.least_squares([[1.0]], np.zeros((1, 1, 1))), ValueError,
        ("least_squares.Y", "shape (N,) or (N, k)", "got (1, 1, 1)")),
    "no samples": (
        lambda: losses.least_squares(np.ones((0, 2)), np.ones(0)), ValueError, ("least_squares.X", "no empty axis", "(0, 2)")),
    "words as features": (
        lambda: losses.least_squares([["a"]], [1.0]), TypeError, ("least_squares.X", "numbers of shape (N, d)", "got [['a']]")),
    "ragged features": (
        lambda: losses.least_squares([[1.0, 2.0], [3.0]], [1.0, 2.0]), TypeError,
        ("least_squares.X", "numbers of shape (N, d)", "got [[1.0, 2.0], [3.0]]")),
}  # fmt: skip

STEP = "a number in (0, 1]"

MOVES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "a bridge over nothing": (lambda: moves.Bridge(0), ValueError, ("Bridge.width", WHOLE + "1", "got 0")),
    "half a model": (lambda: moves.Bridge(1.5), TypeError, ("Bridge.width", WHOLE + "1", "got 1.5")),
    "a step of 0": (lambda: moves.Bridge(step=0), ValueError, ("Bridge.step", STEP, "got 0")),
    "a step above 1": (lambda: moves.SingleSite(step=1.5), ValueError, ("SingleSite.step", STEP, "got 1.5")),
    "a negative step": (lambda: moves.Shoot(step=-0.1), ValueError, ("Shoot.step", STEP, "got -0.1")),
    "a NaN step": (lambda: moves.Sweep(step=NAN), ValueError, ("Sweep.step", STEP, "got nan")),
    "no step": (lambda: moves.Sweep(step=None), TypeError, ("Sweep.step", STEP, "got None")),
    "two steps": (lambda: moves.Sweep(step=[0.5, 0.5]), ValueError, ("Sweep.step", STEP, "shape (2,)")),
    "a fraction of 0": (lambda: moves.Shoot(fraction=0), ValueError, ("Shoot.fraction", STEP, "got 0")),
    "a fraction above 1": (lambda: moves.Sweep(fraction=1.1), ValueError, ("Sweep.fraction", STEP, "got 1.1")),
    "a text as fraction": (lambda: moves.Sweep(fraction="half"), TypeError, ("Sweep.fraction", STEP, "got 'half'")),
    "a reach of 0": (lambda: moves.Shoot(reach=0), ValueError, ("Shoot.reach", WHOLE + "1", "got 0")),
    "a truth value as reach": (lambda: moves.Shoot(reach=True), TypeError, ("Shoot.reach", WHOLE + "1", "got True")),
    "the paper's moves for no models": (lambda: moves.paper(0), ValueError, ("paper.length", WHOLE + "1", "got 0")),
    "the paper's moves for half a model": (lambda: moves.paper(4.5), TypeError, ("paper.length", WHOLE + "1", "got 4.5")),
    "a bridge too wide": (
        lambda: sample(moves=moves.Bridge(3)), ValueError, ("Bridge.width", "between 1 and length - 2 = 2", "got 3")),
    "a bridge on two models": (
        lambda: sample(measure=measure(2), moves=moves.Bridge(None)), ValueError, ("Bridge", "at least 3 models", "length 2")),
    "a reach too far": (
        lambda: sample(moves=moves.Shoot(reach=4)), ValueError, ("Shoot.reach", "between 1 and length - 1 = 3", "got 4")),
}  # fmt: skip

TILT, NON_NEGATIVE = "a number, a schedule, or one value for each of the burn_in + steps = 4 steps", "a number in [0, inf)"

SCHEDULES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "a negative constant": (lambda: schedules.constant(-1), ValueError, ("constant.s", NON_NEGATIVE, "got -1")),
    "a constant of two": (lambda: schedules.constant([1, 2]), ValueError, ("constant.s", NON_NEGATIVE, "shape (2,)")),
    "linear from below 0": (lambda: schedules.linear(-1, 1, 9), ValueError, ("linear.a", NON_NEGATIVE, "got -1")),
    "linear to NaN": (lambda: schedules.linear(0, NAN, 9), ValueError, ("linear.b", NON_NEGATIVE, "got nan")),
    "linear in no steps": (lambda: schedules.linear(0, 1, 0), ValueError, ("linear.steps", WHOLE + "1", "got 0")),
    "linear in half a step": (lambda: schedules.linear(0, 1, 0.5), TypeError, ("linear.steps", WHOLE + "1", "got 0.5")),
    "geometric from 0": (lambda: schedules.geometric(0, 1, 9), ValueError, ("geometric.a", "in (0, inf)", "got 0")),
    "geometric to 0": (lambda: schedules.geometric(1, 0, 9), ValueError, ("geometric.b", "in (0, inf)", "got 0")),
    "a staircase without stairs": (
        lambda: schedules.staircase([], 1), ValueError, ("staircase.values", "no empty axis", "got (0,)")),
    "a staircase below 0": (lambda: schedules.staircase([1, -1], 1), ValueError, ("staircase.values", "at least 0", "got -1")),
    "a staircase of one number": (lambda: schedules.staircase(3.0, 1), ValueError, ("staircase.values", "shape (k,)", "()")),
    "stairs of no length": (lambda: schedules.staircase([1], 0), ValueError, ("staircase.steps_each", WHOLE + "1", "got 0")),
    "a number after a schedule": (
        lambda: schedules.constant(1).then(2.0, after=3), TypeError, ("Schedule.then.other", "a schedule", "got 2.0")),
    "a schedule after no steps": (
        lambda: schedules.constant(1).then(schedules.constant(2), after=0), ValueError,
        ("Schedule.then.after", WHOLE + "1", "got 0")),
    "a negative s": (lambda: sample(-1.0), ValueError, ("s must be", NON_NEGATIVE, "got -1.0")),
    "a NaN s": (lambda: sample(NAN), ValueError, ("s must be", NON_NEGATIVE, "got nan")),
    "a text as s": (lambda: sample("large"), TypeError, ("s must be", "an array over steps, or a schedule", "got 'large'")),
    "no s": (lambda: sample(None), TypeError, ("s must be", "an array over steps, or a schedule", "got None")),
    "a truth value as s": (lambda: sample(True), TypeError, ("s must be", NON_NEGATIVE, "got True")),
    "too few values of s": (lambda: sample(np.ones(3)), ValueError, ("s must be", TILT, "got shape (3,)")),
    "a matrix of s": (lambda: sample(np.ones((4, 1))), ValueError, ("s must be", TILT, "got shape (4, 1)")),
    "one NaN in s": (
        lambda: sample([1.0, 1.0, NAN, 1.0]), ValueError, ("s must be", "finite and at least 0", "got nan at step 2")),
    "a schedule that falls below 0": (
        lambda: sample(lambda step: 1.0 - step), ValueError, ("must be finite and at least 0", "got -1.0 at step 2")),
    "a schedule of the wrong shape": (
        lambda: sample(lambda step: np.ones(7)), TypeError, ("one number for each step", "shape (4,)", "shape (7,)")),
}  # fmt: skip

MIXTURE = "a move or a list of (move, weight)"
PATHS = "shape (4, 2), or (3, 4, 2) with one path a chain"

SAMPLE: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "a loss as measure": (
        lambda: sample(measure=losses.double_well()), TypeError, ("sample.measure", "a PathMeasure", "got DoubleWell(")),
    "negative steps": (lambda: sample(steps=-1), ValueError, ("sample.steps", WHOLE + "0", "got -1")),
    "steps as a float": (lambda: sample(steps=1e3), TypeError, ("sample.steps", WHOLE + "0", "got 1000.0")),
    "no chains": (lambda: sample(chains=0), ValueError, ("sample.chains", WHOLE + "1", "got 0")),
    "a truth value as chains": (lambda: sample(chains=True), TypeError, ("sample.chains", WHOLE + "1", "got True")),
    "thinning by 0": (lambda: sample(thin=0), ValueError, ("sample.thin", WHOLE + "1", "got 0")),
    "thinning by a half": (lambda: sample(thin=0.5), TypeError, ("sample.thin", WHOLE + "1", "got 0.5")),
    "a negative burn-in": (lambda: sample(burn_in=-1), ValueError, ("sample.burn_in", WHOLE + "0", "got -1")),
    "no workers": (lambda: sample(workers=0), ValueError, ("sample.workers", WHOLE + "1", "got 0")),
    "an unknown keep": (
        lambda: sample(keep="weights"), ValueError, ("sample.keep", '"losses", "paths" or a function', "got 'weights'")),
    "no keep": (lambda: sample(keep=None), ValueError, ("sample.keep", '"losses", "paths" or a function', "got None")),
    "a keep of words": (lambda: sample(keep=lambda state: "loss"), TypeError, ("sample.keep", "tree of arrays", "got 'loss'")),
    "a number as rule": (lambda: sample(rule=3), TypeError, ("sample.rule", "rules.Metropolis()", "got 3")),
    "a rule that was not called": (
        lambda: sample(rule=tw.rules.Metropolis), TypeError, ("sample.rule", "rules.Metropolis()", "class")),
    "an unknown move": (lambda: sample(moves="sweep"), TypeError, ("sample.moves", "tiltwalk.moves", "got 'sweep'")),
    "a move that was not called": (lambda: sample(moves=moves.Sweep), TypeError, ("sample.moves", "tiltwalk.moves", "class")),
    "an unknown move in a mixture": (
        lambda: sample(moves=[("sweep", 1.0)]), TypeError, ("sample.moves", "tiltwalk.moves", "got 'sweep'")),
    "an empty mixture": (lambda: sample(moves=[]), ValueError, ("sample.moves", MIXTURE, "got an empty list")),
    "a mixture without weights": (lambda: sample(moves=[moves.Sweep()]), TypeError, ("sample.moves", MIXTURE, "got the entry")),
    "a weight of 0": (
        lambda: sample(moves=[(moves.Sweep(), 0)]), ValueError, ("sample.moves' weight", "in (0, inf)", "got 0")),
    "a negative weight": (
        lambda: sample(moves=[(moves.Sweep(), -1.0)]), ValueError, ("sample.moves' weight", "in (0, inf)", "got -1.0")),
    "a text as weight": (
        lambda: sample(moves=[(moves.Sweep(), "1")]), TypeError, ("sample.moves' weight", "in (0, inf)", "got '1'")),
    "a target without burn-in": (
        lambda: sample(target_acceptance=0.3), ValueError,
        ("sample.target_acceptance", "burn_in above 0", "got burn_in = 0")),
    "a target of 0": (
        lambda: sample(target_acceptance=0, burn_in=4), ValueError, ("sample.target_acceptance", STEP, "got 0")),
    "a target above 1": (
        lambda: sample(target_acceptance=1.5, burn_in=4), ValueError, ("sample.target_acceptance", STEP, "got 1.5")),
    "a first path of the wrong length": (
        lambda: sample(init=np.zeros((3, 2)), chains=3), ValueError, ("sample.init", PATHS, "got (3, 2)")),
    "first paths for two of three chains": (
        lambda: sample(init=np.zeros((2, 4, 2)), chains=3), ValueError, ("sample.init", PATHS, "got (2, 4, 2)")),
    "a NaN first path": (lambda: sample(init=np.full((4, 2), NAN)), ValueError, ("sample.init", "finite", "a path with NaN")),
    "a text as first path": (lambda: sample(init="zeros"), TypeError, ("sample.init", "shape (4, 2)", "got 'zeros'")),
    "a loss that is not a number at first": (
        lambda: sample(measure=measure(loss=function(lambda thetas: NAN * thetas[:, 0])), chains=3), ValueError,
        ("loss", "3 of 3 chains", "give a better init")),
    "a text as key": (lambda: sample(key="seed"), TypeError, ("key must be", "an int or a JAX key", "got 'seed'")),
    "a float as key": (lambda: sample(key=1.0), TypeError, ("key must be", "an int or a JAX key", "got 1.0")),
    "no key": (lambda: sample(key=None), TypeError, ("key must be", "an int or a JAX key", "got None")),
    "two keys": (
        lambda: sample(key=jax.random.split(jax.random.key(0))), ValueError, ("key must be", "one JAX key", "shape (2,)")),
    "the total of losses not kept": (
        lambda: sample(steps=0, keep=lambda state: state.path[0]).total_losses, ValueError,
        ("Run.total_losses", 'keep="losses" or keep="paths"')),
}  # fmt: skip

TABLES = {
    "starts and walks": STARTS_AND_WALKS, "measures": MEASURES, "losses": LOSSES, "moves": MOVES, "schedules": SCHEDULES,
    "sample": SAMPLE,
}  # fmt: skip
CASES = [pytest.param(*case, id=f"{table}: {name}") for table, cases in TABLES.items() for name, case in cases.items()]


@pytest.mark.parametrize(("call", "kind", "fragments"), CASES)
def test_a_wrong_call_says_which_parameter_what_is_allowed_and_what_came(
    call: Callable[[], Any], kind: type[Exception], fragments: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert caught.type is kind
    message = str(caught.value)
    assert len(message) < 400 and "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 120


def test_a_right_call_passes() -> None:
    """What every wrong call above differs from in one place: else the table would test nothing."""
    assert sample(steps=0, chains=3).losses.shape == (3, 0, 4)
