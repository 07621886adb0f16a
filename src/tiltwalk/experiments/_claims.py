"""What the paper claims of its MNIST figure, and whether it holds here.

    holds           for all points, all of which have settled
    holds so far    no point speaks against it, but some have not settled
    does not hold   settled points, or draws that need not settle, speak against it by more than 3 standard errors
    not decided     points that have not settled speak against it, or could still
    not tested      the points that it is about were not made

A point that has not settled is still on its way down, from the smaller `s` before it: its loss is too high and its accuracy too
low. The first claim is exact in equilibrium: `d E[L] / ds` is minus the variance of the loss, divided by `tau`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

MOST_ERRORS = 3.0
NEAR = 0.02
NEARLY_ALL = 0.98
"""The accuracy that counts as nearly 100 %."""

Point = dict[str, Any]


def verdicts(numbers: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The four claims: each with a verdict, a sentence of evidence, and the figures behind it."""
    points: list[Point] = numbers["points"]
    return [
        _ordered("A larger s lowers the loss.", _neighbours(points, "length", "s")),
        _ordered("At equal s longer paths lower the loss.", _neighbours(points, "s", "length"), _free_order(numbers["free"])),
        plateau(points, numbers["free"], numbers["plateau"]),
        accuracy(points),
    ]


def lines(numbers: dict[str, Any]) -> list[str]:
    """The claims and the comparison of the samplers, in lines to print."""
    said = [f"{claim['claim']} {claim['verdict'].capitalize()}: {claim['evidence']}" for claim in numbers["claims"]]
    points = numbers["points"]
    said.append(f"{sum(p['settled'] for p in points)} of {len(points)} points have settled; the others are drawn hollow.")
    for pair in numbers["agreement"]:
        one, other = pair["samplers"]
        found = "are not both settled, which decides nothing"
        if pair["both_settled"]:
            found = f"differ by {pair['z']:+.2f} standard errors"
        said.append(
            f"At τ = {pair['length']}, s = {pair['s']:g} the samplers {one['sampler']} ({one['loss']:.4f}) and "
            f"{other['sampler']} ({other['loss']:.4f}) {found}."
        )
    flat, gaussian = numbers["drift"]["flat"]["size"], numbers["drift"]["gaussian"]["size"]
    said.append(
        f"Root mean square of the first model, early and late: {flat[0]:.3f} and {flat[-1]:.3f} with a flat start, "
        f"{gaussian[0]:.3f} and {gaussian[-1]:.3f} with the Gaussian one."
    )
    return said


def _neighbours(points: Sequence[Point], same: str, by: str) -> list[tuple[Point, Point]]:
    """Pairs of points that are equal in one setting and next to each other in the other, the smaller first."""
    pairs: list[tuple[Point, Point]] = []
    for value in sorted({p[same] for p in points}):
        line = sorted((p for p in points if p[same] == value), key=lambda p: p[by])
        pairs += pairwise(line)
    return pairs


def _ordered(claim: str, pairs: Sequence[tuple[Point, Point]], note: str = "") -> dict[str, Any]:
    """Whether the second of each pair has the lower loss."""
    if not pairs:
        return {"claim": claim, "verdict": "not tested", "evidence": "there are no points to compare.", "pairs": []}
    shown, against, doubtful, lower, unsettled = [], 0, 0, 0, 0
    for first, second in pairs:
        change, both = second["loss"] - first["loss"], first["settled"] and second["settled"]
        error = float(np.hypot(first["standard_error"], second["standard_error"])) if both else None
        lower += change < 0
        unsettled += not both
        if error is not None:
            against += change > MOST_ERRORS * error
        else:
            doubtful += change >= 0
        shown.append([*(p[key] for p in (first, second) for key in ("length", "s")), round(change, 5), error])
    if against:
        verdict = "does not hold"
    elif doubtful:
        verdict = "not decided"
    else:
        verdict = "holds so far" if unsettled else "holds"
    evidence = f"lower in {lower} of {len(pairs)} neighbouring pairs, {len(pairs) - unsettled} of them with both points settled"
    evidence += f", and higher by more than {MOST_ERRORS:g} standard errors in {against}."
    return {"claim": claim, "verdict": verdict, "evidence": evidence + note, "pairs": shown}


def _free_order(free: Sequence[dict[str, Any]]) -> str:
    text = ", ".join(f"{f['loss']:.2f} ± {f['standard_error']:.2f} at τ = {f['length']}" for f in free)
    if len(free) < 2:
        return ""
    error = np.hypot(free[0]["standard_error"], free[-1]["standard_error"])
    rises = free[-1]["loss"] - free[0]["loss"] > MOST_ERRORS * error
    return f" Without a tilt, s = 0, it is the other way round: {text}; the lines must cross." if rises else ""


def plateau(points: Sequence[Point], free: Sequence[dict[str, Any]], level: float) -> dict[str, Any]:
    """The loss at `s = 0`, which is drawn and not sampled, and at the least `s`."""
    claim = f"The upper plateau of the loss is ln {np.exp(level):.0f} = {level:.3f}."
    least = min((p["s"] for p in points), default=None)
    low = [p for p in points if p["s"] == least]

    def near(p: dict[str, Any]) -> bool:
        return bool(abs(p["loss"] - level) <= max(NEAR * level, MOST_ERRORS * (p["standard_error"] or 0.0)))

    off = [p for p in (*free, *(p for p in low if p["settled"])) if not near(p)]
    unsettled = [p for p in low if not p["settled"]]
    verdict = "does not hold" if off else "not decided" if unsettled or not (low or free) else "holds"
    text = "; ".join(f"τ = {f['length']}: {f['loss']:.2f} ± {f['standard_error']:.2f}" for f in free)
    evidence = f"without a tilt the loss is, {text}."
    if low:
        text = "; ".join(f"τ = {p['length']}: {p['loss']:.3f}" + ("" if p["settled"] else " (not settled)") for p in low)
        evidence += f" At s = {least:g} it is, {text}."
    if any(p["loss"] > level for p in off):
        evidence += " Large logits that know nothing of the data cost more than ln 10, and a small tilt already shrinks them."
    beside = [[p["length"], p["s"], round(p["loss"], 4)] for p in points if abs(p["loss"] / level - 1) <= NEAR]
    return {"claim": claim, "verdict": verdict, "evidence": evidence, "points_within_2_percent": beside}


def accuracy(points: Sequence[Point], length: int = 32, s: float = 50) -> dict[str, Any]:
    claim = f"The accuracy on the training images reaches nearly 100 % at s = {s:g}, τ = {length}."
    point = next((p for p in points if p["length"] == length and p["s"] == s), None)
    if point is None:
        evidence = f"there is no point at s = {s:g}, τ = {length}."
        return {"claim": claim, "verdict": "not tested", "evidence": evidence, "point": None}
    train, test = point["accuracy"]["mean_probability"], point["test_accuracy"]["mean_probability"]
    if train >= NEARLY_ALL:
        verdict = "holds" if point["settled"] else "holds so far"
    else:
        verdict = "does not hold" if point["settled"] else "not decided"
    evidence = (
        f"{train:.1%} of the training images ({test:.1%} of the test images) by mean probability, "
        f"{point['accuracy']['vote']:.1%} by vote, at a loss of {point['loss']:.3f} after {point['evaluations']:,} evaluations"
        f"{'' if point['settled'] else ', not settled'} ({point['why']})."
    )
    return {"claim": claim, "verdict": verdict, "evidence": evidence, "point": [length, s, train, test, point["settled"]]}
