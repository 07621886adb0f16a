"""What was run, and how to repeat it: command, settings, versions, phases."""

from __future__ import annotations

import shlex
from typing import Any

from tiltwalk.report.markup import Html, element, items, joined, paragraph, short, table
from tiltwalk.report.subject import Subject, counted, number

MOST_SETTINGS = 20_000
"""Letters of the settings that are shown."""


def section(subject: Subject) -> Html:
    """What was run."""
    folder, record, config = subject.folder, subject.folder.record, subject.folder.config
    data = record["data"]
    kinds = ", ".join(dict.fromkeys(move.kind for move in config.moves))
    of = f"{data['task']}" + (f" into {counted(len(data['classes']), 'class', 'classes')}" if data["classes"] else "")
    rows = [
        (
            "Data",
            f"{short(data['name'], 80)}: {counted(data['train'], 'sample')} to train on, {number(data['test'])} to test; {of}",
        ),
        ("Network", f"{config.network.kind}, {counted(folder.network.dim, 'parameter')}"),
        ("Loss", f"{config.loss.kind}, on all training data"),
        ("Paths", f"{counted(record['chains'], 'chain')} of {counted(record['length'], 'model')}, walk {config.walk.kind}"),
        ("Tilt", _tilt(subject)),
        ("Moves", f"{kinds}; decided by {config.rule.kind}"),
        ("Budget", _budget(subject)),
        ("Begun", f"{record['made']}; last saved {folder.manifest['saved']}, {_sessions(subject)}"),
        (
            "Versions",
            ", ".join([f"tiltwalk {record['tiltwalk']}", *(f"{n} {v}" for n, v in record.get("versions", {}).items())]),
        ),
        ("Device", f"{record.get('device', '')}, {record['dtype']}"),
        ("Rejected for a loss that was no number", counted(subject.run.failed, "proposal")),
        ("Digest of the data", element("code", data["sha256"], class_="digest")),
    ]
    phases = [(phase["name"], _made(phase), number(phase["evaluations"]), f"{phase['seconds']:.1f}") for phase in folder.phases]
    parts = [
        element("h2", "What was run", id="origin"),
        table("The run", (), rows, class_="facts"),
        element("h3", "How to repeat it"),
        _repeat(subject),
        element("h3", "Phases"),
        table(
            "Phases: steps made, losses of single models evaluated, seconds",
            ("Phase", "Steps", "Evaluations", "Seconds"),
            phases,
        )
        if phases
        else paragraph("None was begun."),
        element("h3", "Settings"),
        element(
            "details",
            element("summary", "All settings, as config.toml has them"),
            element("pre", element("code", _settings(subject)), tabindex="0", role="region", aria_label="Settings"),
        ),
    ]
    if folder.notes:
        parts += [element("h3", "Damage"), paragraph("The newest save could not be used:"), items(folder.notes)]
    return joined(parts)


def _made(phase: dict[str, Any]) -> str:
    done, steps = number(phase["done"]), number(phase["steps"])
    return done if done == steps else f"{done} of {steps}"


def _tilt(subject: Subject) -> str:
    config = subject.folder.config
    assert config.schedule.s != "auto"
    found = (
        f"s = {number(config.schedule.s)} for a single model, {number(config.schedule.s / config.walk.length)} for a path of "
    )
    found += f"{config.walk.length}; {config.schedule.kind} in burn-in"
    sigma = (subject.folder.result or {}).get("sigma", config.walk.sigma)
    return f"{found}; sigma = {sigma if isinstance(sigma, str) else number(sigma)} initialisation scales"


def _budget(subject: Subject) -> str:
    budget = subject.folder.config.budget
    done = sum(float(phase["evaluations"]) for phase in subject.folder.phases)
    given = (
        f"{number(budget.evaluations)} evaluations"
        if budget.evaluations is not None
        else f"{number(budget.seconds or 0)} seconds"
    )
    if budget.evaluations is None and budget.seconds is None:
        given = "a number of steps"
    return f"{given}; made: {number(done)} losses of single models in {number(subject.folder.manifest['seconds'], 3)} s"


def _sessions(subject: Subject) -> str:
    count = int(subject.folder.manifest.get("sessions", 0))
    return "in one session" if count == 0 else f"gone on with {counted(count, 'time')} after a stop"


def _repeat(subject: Subject) -> Html:
    config, record = subject.folder.config, subject.folder.record
    parts = []
    command = record.get("command")
    if isinstance(command, str):
        parts += [paragraph("It was begun with:"), code(short(command, 2000))]
    place = shlex.quote(f"{subject.place}/config.toml")
    parts += [
        paragraph("With the settings that came of it, which are all in the run folder:"),
        code(f"tiltwalk train --config {place} --out {shlex.quote(subject.place + '-again')}"),
    ]
    if config.budget.evaluations is None and config.budget.seconds is not None:
        done = round(sum(float(phase["evaluations"]) for phase in subject.folder.phases))
        parts.append(
            paragraph(
                "Its budget is a time, which is turned into steps by a measurement: another machine, or another day, makes "
                "another number of steps, and so other draws. For a run of this size that is the same each time, put ",
                element("code", f"evaluations = {max(100, done)}"),
                " in the place of seconds, under [budget].",
            )
        )
    else:
        parts.append(
            paragraph(
                "The budget does not depend on the machine: the same versions on the same kind of device make the same draws."
            )
        )
    return joined(parts)


def code(line: str) -> Html:
    """A line to copy."""
    return element("pre", element("code", line), tabindex="0", role="region", aria_label="Command", class_="command")


def _settings(subject: Subject) -> str:
    from tiltwalk.runs.config import toml

    text = toml(subject.folder.config, head=[f"tiltwalk {subject.folder.record['tiltwalk']}"])
    return text if len(text) <= MOST_SETTINGS else text[:MOST_SETTINGS] + "\n# … the rest is in config.toml"
