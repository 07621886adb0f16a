"""How good the predictions are: of classes or of values, whichever the run is for."""

from __future__ import annotations

from typing import Any

from tiltwalk.report import classes, values
from tiltwalk.report.markup import Html, element, joined, paragraph
from tiltwalk.report.subject import Subject, counted, number


def section(subject: Subject) -> Html:
    """Predictions of the test data."""
    parts: list[Any] = [element("h2", "Predictions", id="predictions")]
    tested = subject.tested
    if isinstance(tested, str):
        return joined([*parts, paragraph(tested, class_="aside")])
    more = f", the first of {number(tested.all)}" if tested.all > len(tested.X) else ""
    parts.append(
        paragraph(
            f"Tested on {counted(len(tested.X), 'sample')} that no step of the run has seen{more}. "
            f"The ensemble has {counted(len(tested.ensemble), 'member')}."
        )
    )
    parts.append(values.section(subject, tested) if subject.task == "regression" else classes.section(subject, tested))
    return joined(parts)
