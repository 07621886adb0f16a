"""Decisions on a minibatch beside decisions on all data: LeNet paths on the 60,000 images of MNIST, wall time to the same loss.

Both rules sample the same measure by sweeps, from the same start after a little gradient descent, each with the step size
that moves most per second in a short pilot (expected squared jump: acceptance times the square of the step). They take turns
in one process, so that what else the machine does slows both. `Metropolis` runs for a given number of sweeps; the loss
that it ends with is the mark, and `Minibatch` runs until it is there. Losses are true ones, of the path's models on the first
6,000 images, evaluated outside the clock. Then: the time of an update on 6,000 images and on 60,000, with the same step.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tiltwalk as tw

LENGTH = 16
SIGMA = 0.1  # in units of each parameter's initialisation scale
FEWER = 6_000
STEPS = (0.2, 0.4, 0.8)
WARM = 12  # steps of gradient descent with momentum, on 512 images each


@functools.partial(jax.jit, static_argnames=("steps",))
def sweeps(measure: Any, rule: Any, step: Any, s: Any, state: Any, first: Any, steps: int) -> Any:
    """`steps` sweeps of one chain."""
    moves = [(tw.moves.Sweep(step=step), 1.0)]
    return tw.chain.run(1, state, s, steps=steps, measure=measure, moves=moves, rule=rule, first_step=first)


@jax.jit
def _losses(measure: Any, path: Any) -> Any:
    return measure.losses(path)


class Chain:
    """One chain under one rule, and the seconds that it has run."""

    def __init__(self, measure: Any, rule: Any, step: float, s: float, state: Any) -> None:
        self.measure, self.rule, self.step, self.s, self.state = measure, rule, step, s, state
        self.seconds, self.made, self.accepted, self.evaluations = 0.0, 0, 0.0, 0.0

    def go(self, steps: int) -> None:
        """Runs `steps` sweeps."""
        began = time.perf_counter()
        step = jnp.asarray(self.step, jnp.float32)
        self.state, info = sweeps(self.measure, self.rule, step, self.s, self.state, self.made, steps)
        jax.block_until_ready(self.state)  # type: ignore[no-untyped-call]
        self.seconds += time.perf_counter() - began
        self.made += steps
        self.accepted += float(jnp.sum(info.accepted))
        self.evaluations += float(jnp.sum(info.evaluations))

    def fresh(self, step: float, state: Any, warm: int) -> Chain:
        """The same with another step, compiled."""
        Chain(self.measure, self.rule, step, self.s, state).go(warm)
        return Chain(self.measure, self.rule, step, self.s, state)

    def loss(self, measure: Any) -> float:
        """The mean loss of the path's models, as another measure has it."""
        return float(jnp.mean(_losses(measure, self.state.path)))

    def report(self) -> dict[str, Any]:
        """What it did so far; `data` is the share of the images that a decision about one model touched."""
        each = self.evaluations / (self.made * LENGTH)
        share = each / (2 if isinstance(self.rule, tw.rules.Minibatch) else 1)
        found = {"step": self.step, "sweeps": self.made, "seconds": self.seconds, "acceptance": self.accepted / self.made}
        return {**found, "data": share, "seconds_per_update": self.seconds / (self.made * LENGTH)}


def warm_model(network: Any, loss: Any, steps: int = WARM) -> Any:
    """One model after a little gradient descent with momentum."""
    theta, velocity = network.init(0), jnp.zeros(network.dim)
    for i in range(steps):
        part = loss.on(np.random.default_rng(i).integers(0, loss.n, 512))
        velocity = 0.9 * velocity - 0.02 * part.value_and_grad(theta[None])[1][0]
        theta = theta + velocity
    return theta


def pilot(chain: Chain, sweeps_each: int) -> tuple[float, list[dict[str, Any]]]:
    """The step that moves most per second, and what was seen of each."""
    rows = []
    for step in STEPS:
        tried = chain.fresh(step, chain.state, sweeps_each)
        tried.go(sweeps_each)
        row = tried.report()
        rows.append({**row, "jump_per_second": row["acceptance"] * step**2 / row["seconds"]})
    return max(rows, key=lambda row: row["jump_per_second"])["step"], rows


def measured(measures: dict[int, Any], s: float, theta: Any, tolerance: float, batch: int, full_sweeps: int) -> dict[str, Any]:
    """Both rules at one tilt."""
    few, many = measures[FEWER], measures[max(measures)]
    path = jnp.broadcast_to(theta, (LENGTH, theta.size))
    start = tw.chain.init(many, path)
    state_of_few = tw.chain.init(few, path)
    rule = tw.rules.Minibatch(tolerance, batch)
    # the step for all data is found on fewer images: acceptance is nearly the same, and the time of a sweep is constant
    full_step, full_pilot = pilot(Chain(few, tw.rules.Metropolis(), 1.0, s, state_of_few), 3)
    mini_step, mini_pilot = pilot(Chain(many, rule, 1.0, s, start), 4)
    first_loss = float(jnp.mean(state_of_few.losses))
    full = Chain(many, tw.rules.Metropolis(), 1.0, s, start).fresh(full_step, start, 1)
    mini = Chain(many, rule, 1.0, s, start).fresh(mini_step, start, 4)
    curves: dict[str, list[tuple[float, int, float]]] = {"all": [(0.0, 0, first_loss)], "minibatch": [(0.0, 0, first_loss)]}
    while full.made < full_sweeps:
        for name, chain, steps in (("all", full, 1), ("minibatch", mini, 4)):
            chain.go(steps)
            curves[name].append((chain.seconds, chain.made, chain.loss(few)))
    mark = curves["all"][-1][2]
    while curves["minibatch"][-1][2] > mark and mini.made < 20 * full_sweeps:
        mini.go(4)
        curves["minibatch"].append((mini.seconds, mini.made, mini.loss(few)))
    reached = _time_to(curves["minibatch"], mark)
    sizes = {}
    turns = [Chain(measure, rule, 1.0, s, tw.chain.init(measure, path)) for measure in (few, many)]
    turns = [turn.fresh(mini_step, turn.state, 4) for turn in turns]
    for _ in range(5):
        for turn in turns:
            turn.go(4)
    for n, turn in zip((FEWER, max(measures)), turns, strict=True):
        sizes[str(n)] = turn.report()
    return {
        "s": s,
        "first_loss": first_loss,
        "mark": mark,
        "all": full.report(),
        "minibatch": {**mini.report(), "seconds_to_mark": reached},
        "times_faster": None if reached is None else full.seconds / reached,
        "sizes": sizes,
        "more_images_cost": sizes[str(max(measures))]["seconds_per_update"] / sizes[str(FEWER)]["seconds_per_update"],
        "curves": curves,
        "pilots": {"all": full_pilot, "minibatch": mini_pilot},
    }


def _time_to(curve: list[tuple[float, int, float]], mark: float) -> float | None:
    """Seconds to the mark, by a straight line between the last two points above and below it."""
    for (t0, _, above), (t1, _, below) in itertools.pairwise(curve):
        if below <= mark:
            return t0 + (t1 - t0) * (above - mark) / max(above - below, 1e-12) if above > mark else t0
    return None


def main(
    folder: pathlib.Path | None,
    out: pathlib.Path | None = None,
    quick: bool = False,
    tilts: tuple[float, ...] = (100.0, 300.0),
) -> dict[str, Any]:
    """Prints what was measured, and writes it as JSON where `out` is given; `folder` holds MNIST."""
    data = tw.data.mnist(folder)
    order = np.random.default_rng(0).permutation(len(data.X_train))
    X, y = data.X_train[order], data.y_train[order]
    network = tw.networks.lenet()
    walk = tw.RandomWalk(SIGMA * network.scale(), start=tw.Normal(network.scale()))
    losses = {n: tw.losses.Supervised(network, X[:n], y[:n]) for n in (FEWER, len(X))}
    measures = {n: tw.PathMeasure(walk, loss, LENGTH) for n, loss in losses.items()}
    theta = warm_model(network, losses[FEWER])
    report: dict[str, Any] = {"length": LENGTH, "sigma": SIGMA, "images": len(X), "tolerance": 0.01, "batch": 256, "rows": []}
    print(f"LeNet, {len(X)} images, tau = {LENGTH}, sigma = {SIGMA:g} of the initialisation scale", flush=True)
    for s in tilts[:1] if quick else tilts:
        row = measured(measures, s, theta, report["tolerance"], report["batch"], 4 if quick else 12)
        report["rows"].append(row)
        print(
            f"s = {s:g}: loss {row['first_loss']:.4f} -> {row['mark']:.4f} in {row['all']['seconds']:.1f} s on all images, "
            f"in {row['minibatch']['seconds_to_mark'] or float('nan'):.2f} s by minibatches "
            f"({row['times_faster'] or float('nan'):.1f} times faster), {row['minibatch']['data']:.2%} of the images a "
            "decision; "
            f"an update on {len(X)} images takes {row['more_images_cost']:.2f} times one on {FEWER}",
            flush=True,
        )
        if out is not None:
            out.write_text(json.dumps(report, indent=1) + "\n")
    if out is not None:
        print(f"wrote {out}")
    return report
