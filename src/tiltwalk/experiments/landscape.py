"""A path finding its way on Himmelblau's landscape, every 50 steps (the paper's fifth figure), for both forms of the function.

The first path is drawn from the walk: its first model is uniform in [-1, 1]², each next one a step of deviation 1 away. The
moves are the paper's, and one step is one move. `python -m tiltwalk.experiments.landscape FILE.png` draws the small picture
at the head of the README.
"""

# ruff: noqa: RUF001 (captions hold mathematics)

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import tiltwalk as tw
from tiltwalk.experiments import _plots
from tiltwalk.experiments._common import Record, Report, key_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = {"paper": "(x² + y − 11)² + (x + y²)²", "classic": "(x² + y − 11)² + (x + y² − 7)²"}
EVERY = 50
REACH = 5.0


def settings(quick: bool) -> dict[str, Any]:
    return {
        "forms": dict(FORMS),
        "sigma": 1.0,
        "s": 1.0,
        "length": 16,
        "start": "uniform in [-1, 1]²",
        "every": EVERY,
        "snapshots": 4 if quick else 8,
        "moves": "the paper's: one end with probability 2/τ, else a bridge of one model",
    }


def compute(settings: dict[str, Any], seed: int, report: Report) -> dict[str, Any]:
    paths = []
    for part, form in enumerate(settings["forms"]):
        report(part / len(settings["forms"]), f"walking on the {form} form")
        paths.append({"form": form, "snapshots": snapshots(form, settings, seed)})
    report(1.0, "drawing")
    return {"paths": paths}


def snapshots(form: str, settings: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """The path before the first step and after every 50, with the loss of each of its models."""
    loss = tw.losses.himmelblau(variant=form)
    walk = tw.RandomWalk(settings["sigma"], start=tw.Uniform(-1.0, 1.0))
    measure = tw.PathMeasure(walk, loss, settings["length"])
    # both forms start from the same path and see the same noise
    first = measure.draw(jax.random.key(seed))
    run = tw.sample(
        measure,
        settings["s"],
        steps=settings["every"] * (settings["snapshots"] - 1),
        thin=settings["every"],
        moves=tw.moves.paper(settings["length"]),
        key=key_of(seed, 0),
        init=first,
        keep="paths",
        progress=False,
    )
    assert run.paths is not None and run.losses is not None
    paths = np.concatenate([np.asarray(first)[None], run.paths[0]]).astype(float)
    losses = np.concatenate([np.asarray(loss(first))[None], run.losses[0]]).astype(float)
    return [
        {"step": i * settings["every"], "path": path.tolist(), "losses": each.tolist()}
        for i, (path, each) in enumerate(zip(paths, losses, strict=True))
    ]


def summary(record: Record) -> list[str]:
    lines = []
    for path in record["numbers"]["paths"]:
        first, last = path["snapshots"][0], path["snapshots"][-1]
        fell = f"{np.mean(first['losses']):.1f} at step 0, {np.mean(last['losses']):.2f} at step {last['step']}"
        lines.append(f"{NAMED[path['form']]} loss per model {fell}.")
    return lines


def caption(record: Record) -> str:
    chosen = record["settings"]
    return (
        f"One path of τ = {chosen['length']} models on a landscape of two parameters, every {chosen['every']} steps; σ = "
        f"{chosen['sigma']:g}, s = {chosen['s']:g}, the first model uniform in [-1, 1]² (square). Colour runs along the "
        "path, from its first model (dark) to its last (bright); crosses are the minima; models beyond the frame are not "
        "seen; beside the step, the mean loss of the models.\n"
        "Corrections to the paper that apply: the paper prints (x + y²)² where Himmelblau's function has (x + y² - 7)², "
        "and both are shown; the start is not flat, so that a move of the first model has the ratio of p(θ₁) in its "
        "acceptance; the first factor of the bridge's kernel has a minus sign in its exponent."
    )


def draw(record: Record) -> Figure:
    paths = record["numbers"]["paths"]
    columns = min(4, len(paths[0]["snapshots"]))
    rows_each = -(-len(paths[0]["snapshots"]) // columns)
    figure, panels = _plots.canvas(10.0, len(paths) * (2.65 * rows_each + 0.75), record["caption"])
    for part, path in zip(panels.subfigures(len(paths), 1, squeeze=False)[:, 0], paths, strict=True):
        part.suptitle(f"{NAMED[path['form']]}  {record['settings']['forms'][path['form']]}", x=0.02, ha="left", fontsize=11)
        grid = part.subplots(rows_each, columns, sharex=True, sharey=True, squeeze=False)
        for axes, snapshot in zip(grid.ravel(), path["snapshots"], strict=False):
            _draw_snapshot(axes, path["form"], snapshot)
        for axes in grid.ravel()[len(path["snapshots"]) :]:
            axes.set_visible(False)
        _label_outside(grid)
    return figure


NAMED = {"paper": "As the paper prints it:", "classic": "Himmelblau's function:"}


def _label_outside(grid: Any) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("$x$")
    for axes in grid[:, 0]:
        axes.set_ylabel("$y$")


def _draw_snapshot(axes: Axes, form: str, snapshot: dict[str, Any]) -> None:
    x, y = np.meshgrid(*[np.linspace(-REACH, REACH, 101)] * 2)
    height = np.log1p(_height(form, x, y))
    box = (-REACH, REACH, -REACH, REACH)
    # shades as an image, lines as lines: as shapes, the shades would take megabytes of SVG
    shades = axes.contourf(x, y, height, levels=np.arange(0.0, 9.5, 0.5), cmap="Greys", vmin=-1.0, vmax=17.0, extend="both")
    shades.set_rasterized(True)
    axes.contour(x, y, height, levels=np.arange(1.0, 7.0), colors="white", linewidths=0.7)
    low = _minima(form)
    axes.plot(low[:, 0], low[:, 1], "x", color=_plots.WARM, markersize=6, markeredgewidth=1.6)
    path = np.asarray(snapshot["path"])
    colours = _plots.colours(len(path))
    axes.plot(path[:, 0], path[:, 1], color=_plots.INK, linewidth=1.0)
    axes.scatter(path[:, 0], path[:, 1], c=colours, s=26, edgecolors="white", linewidths=0.6, zorder=3)
    axes.scatter(path[:1, 0], path[:1, 1], c=colours[:1], s=40, marker="s", edgecolors="white", linewidths=0.8, zorder=4)
    axes.set(xlim=box[:2], ylim=box[2:], aspect="equal", xticks=[-4, 0, 4], yticks=[-4, 0, 4])
    axes.grid(visible=False)
    mean = float(np.mean(snapshot["losses"]))
    axes.set_title(
        f"step {snapshot['step']}: loss {mean:,.0f}" if mean >= 100 else f"step {snapshot['step']}: loss {mean:.3g}", loc="left"
    )


def _height(form: str, x: Any, y: Any) -> Any:
    thetas = np.stack([np.ravel(x), np.ravel(y)], -1)
    return np.asarray(tw.losses.himmelblau(variant=form)(jnp.asarray(thetas))).reshape(np.shape(x))


def _minima(form: str) -> np.ndarray[Any, Any]:
    """The points of a fine grid that are lower than all around them."""
    x, y = np.meshgrid(*[np.linspace(-REACH, REACH, 401)] * 2)
    h = np.pad(_height(form, x, y), 1, constant_values=np.inf)
    inside = h[1:-1, 1:-1]
    around = [
        h[1 + i : h.shape[0] - 1 + i, 1 + j : h.shape[1] - 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
    ]
    lowest = np.all([inside < other for other in around], axis=0)
    return np.stack([x[lowest], y[lowest]], -1)


def picture(file: Path, seed: int = 10) -> None:
    """The small picture of the README: one row of snapshots on the classic form."""
    chosen = settings(quick=False) | {"forms": {"classic": FORMS["classic"]}}
    found = compute(chosen, seed, lambda share, text: None)["paths"][0]["snapshots"]

    def drawn() -> Figure:
        figure, panels = _plots.canvas(10.0, 2.9)
        grid = panels.subplots(1, 4, sharey=True, squeeze=False)
        for axes, snapshot in zip(grid[0], [found[i] for i in (0, 1, 3, 7)], strict=True):
            _draw_snapshot(axes, "classic", snapshot)
        _label_outside(grid)
        return figure

    _plots.save(drawn, file)


if __name__ == "__main__":
    picture(Path(sys.argv[1]))
