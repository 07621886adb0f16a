"""Where the models are: in two principal components, and over the landscape where they have two parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltwalk import plots
from tiltwalk.report.figures import figure
from tiltwalk.report.markup import Html, element, joined, paragraph
from tiltwalk.report.subject import Subject, counted, number, percent

MOST_MODELS = 512
"""Models that components are found from: of more, those of some draws, evenly chosen, the last among them."""


def section(subject: Subject) -> Html:
    """The paths, seen from above."""
    parts: list[Any] = [element("h2", "Where the models are", id="where")]
    if subject.ensemble is None:
        return joined([*parts, paragraph("No path was kept yet.", class_="aside")])
    paths = _some(subject.ensemble.paths)
    figures = [_components("components", paths, None)]
    if len(paths) > 1 and paths[0].size:
        figures.append(_components("component-of-one", paths, 0))
    asides: list[str] = []
    if paths.shape[-1] == 2:
        figures += _landscape(subject, paths, asides)
    else:
        asides.append(
            f"The path over the landscape of the loss is for models of two parameters; these have {number(paths.shape[-1])}."
        )
    return joined([*parts, element("div", *figures, class_="figures"), *(paragraph(line, class_="aside") for line in asides)])


def _some(paths: np.ndarray) -> np.ndarray:
    draws = max(2, MOST_MODELS // (paths.shape[0] * paths.shape[2]))
    chosen = np.unique(np.linspace(0, paths.shape[1] - 1, min(draws, paths.shape[1])).round().astype(int))
    return paths[:, chosen]


def _components(name: str, paths: np.ndarray, chain: int | None) -> Html:
    of = paths if chain is None else paths[[chain]]
    flat = of.reshape(-1, of.shape[-1]).astype(float)
    size = np.linalg.svd(flat - flat.mean(0), compute_uv=False) ** 2
    share = np.append(size / max(size.sum(), 1e-300), [0.0, 0.0])[:2]
    whose = (
        f"All kept models of {counted(len(paths), 'chain')}" if chain is None else "The kept models of the first chain alone"
    )
    step = np.linalg.norm(np.diff(of.astype(float), axis=2), axis=-1)
    apart = f" Neighbours on a path are {number(step.mean(), 3)} apart on average." if step.size else ""
    says = (
        f"{whose} ({number(len(flat))}) along their two principal components, which hold {percent(share[0], 0)} and "
        f"{percent(share[1], 0)} of their spread.{apart}"
    )
    caption = (
        f"{whose} in two principal components, and the last path as a line, from its first model (blue, square) to its last."
    )
    return figure(name, lambda ax: plots.components(paths, ax, chain=chain), says, caption, height=3.5)


def _landscape(subject: Subject, paths: np.ndarray, asides: list[str]) -> list[Html]:
    from tiltwalk.runs import prepare

    if isinstance(subject.data, str):
        asides.append(f"The landscape of the loss is left out: {subject.data}")
        return []
    loss = prepare.loss(subject.folder.config, subject.folder.network, subject.data)
    if loss.dim != 2:
        asides.append(f"The landscape of the loss is for two parameters; this loss has {loss.dim}, its noise among them.")
        return []
    ends = paths[0, -1]
    says = (
        f"The last path of {counted(min(len(paths), 4), 'chain')} over the landscape of the loss. That of the first goes from "
        f"({number(ends[0, 0], 3)}, {number(ends[0, 1], 3)}) to ({number(ends[-1, 0], 3)}, {number(ends[-1, 1], 3)})."
    )
    caption = (
        "The last path of each chain over the loss of its two parameters, which is lowest where the page shows through most."
    )
    return [figure("landscape", lambda ax: plots.landscape(paths, loss, ax), says, caption, height=3.7, class_="shaded")]
