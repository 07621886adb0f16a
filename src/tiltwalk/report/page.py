"""The page: what stands where, its head, its style. One file without scripts, which asks the network for nothing."""

from __future__ import annotations

import math
import time
from importlib.resources import files
from typing import Any

from tiltwalk._version import __version__
from tiltwalk.report import classes, course, origin, predictions, values, where
from tiltwalk.report.markup import Html, element, items, joined, paragraph, short, table
from tiltwalk.report.subject import Subject, counted, number, percent

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What a browser may do for the page: use the style in it and show the images in it. Nothing else."""

CONTENTS = (
    ("verdict", "Verdict"), ("course", "How it went"), ("predictions", "Predictions"), ("where", "Where the models are"),
    ("origin", "What was run"),
)  # fmt: skip


def html(subject: Subject) -> str:
    """The whole page."""
    title = f"Report on {short(subject.name, 60)}"
    css = files("tiltwalk.report").joinpath("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"tiltwalk {__version__}"),
        element("title", title),
        element("style", Html(css)),
    )
    contents = element("ul", *(element("li", element("a", name, href=f"#{place}")) for place, name in CONTENTS))
    main = [
        element("section", part, aria_labelledby=place)
        for (place, _), part in zip(
            CONTENTS,
            (
                verdict(subject),
                course.section(subject),
                predictions.section(subject),
                where.section(subject),
                origin.section(subject),
            ),
            strict=True,
        )
    ]
    body = element(
        "body",
        element("a", "Skip to the report", class_="skip", href="#main"),
        element("header", element("h1", title), paragraph(_lead(subject), class_="lead"), _facts(subject)),
        element("nav", contents, aria_label="Contents"),
        element("main", *main, id="main", tabindex="-1"),
        element(
            "footer",
            paragraph(f"Written by tiltwalk {__version__} on {time.strftime('%Y-%m-%d')}. All of it is in this one file."),
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _lead(subject: Subject) -> str:
    folder = subject.folder
    data = folder.record["data"]
    what = f"An ensemble for {data['task']}, trained without gradients on {counted(data['train'], 'sample')} of "
    what += f"{short(str(data['name']).replace(chr(92), '/').rsplit('/', 1)[-1], 60)}. "
    if folder.status == "finished":
        return what + "The run is finished."
    stands = "stopped" if folder.status == "stopped" else "not finished"
    return what + f"The run is {stands}: this is where it stood when it was last saved, {folder.manifest['saved']}."


def _facts(subject: Subject) -> Html:
    """The figures that people look for first."""
    found: list[tuple[str, str]] = []
    tested = subject.tested
    if not isinstance(tested, str):
        if subject.task == "classification":
            quality = classes.quality(tested)
            found.append(
                (percent(quality["accuracy"][1], 2), f"test accuracy; {percent(quality['accuracy'][0], 2)} for one member")
            )
            found.append(
                (number(quality["nll"][1], 3), f"negative log-likelihood; {number(quality['nll'][0], 3)} for one member")
            )
        else:
            error, alone = values.errors(tested)
            found.append((number(error, 3), f"root mean square error; {number(alone, 3)} for one member"))
    if subject.ensemble is not None:
        found.append((number(len(subject.ensemble)), f"members of {counted(subject.folder.network.dim, 'parameter')}"))
    if subject.verdict.summary is not None:
        fewest = min(m.ess_bulk for m in subject.verdict.summary.measures.values())
        found.append((whole(fewest), f"effective draws at least, of {number(subject.run.draws * subject.run.chains)}"))
    found.append((_lasting(float(subject.folder.manifest["seconds"])), "at work"))
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for value, name in found), class_="facts-above"
    )


def verdict(subject: Subject) -> Html:
    """Whether the draws can be trusted, in words."""
    found = subject.verdict
    kind, mark = {True: ("good", "✓"), False: ("bad", "!"), None: ("open", "?")}[found.converged]
    words = element("p", element("span", f"{mark} ", aria_hidden="true"), found.words, class_="word")
    parts: list[Any] = [
        element("h2", "Has it converged?", id="verdict"),
        element("div", words, items(found.advice), class_=f"verdict {kind}"),
    ]
    if found.summary is not None:
        rows = [
            (name, f"{m.rhat:.4f}", whole(m.ess_bulk), whole(m.ess_tail), number(m.autocorrelation_time, 3), signed(m.trend))
            for name, m in found.summary.measures.items()
        ]  # fmt: skip
        caption = f"What the draws say: {counted(subject.run.chains, 'chain')} of {counted(subject.run.draws, 'draw')}"
        parts.append(
            table(caption, ("Quantity", "R-hat", "Bulk ESS", "Tail ESS", "Autocorrelation, draws", "Trend, errors"), rows)
        )
        parts.append(
            paragraph(
                "R-hat is near 1 where chains agree, and should be at most 1.01. ESS is the number of independent draws that "
                "these are worth, and should be 400 or more. The trend is the last third of the draws against the first, in "
                "standard errors. Predictions may be good long before the draws have converged: the verdict is on the "
                "probability law, not on the accuracy.",
                class_="aside",
            )
        )
    return joined(parts)


def whole(value: float) -> str:
    return number(round(value)) if math.isfinite(value) else "unknown"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "unknown"


def _lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
