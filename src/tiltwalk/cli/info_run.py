"""`tiltwalk info RUN`: what a run is and where it stands, without touching it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from tiltwalk import check
from tiltwalk.cli.errors import plain
from tiltwalk.cli.live import lasting
from tiltwalk.cli.train import spoken

EVERY = 3.0


def show(folder: Path, watch: bool, as_json: bool) -> None:
    """Prints where the run stands; with `watch` again and again, a line each time, until nobody writes it."""
    found = gathered(folder)
    click.echo(json.dumps(check.of_json(found), allow_nan=False) if as_json else plain(text(found)))
    while watch and found["being_written"]:
        time.sleep(EVERY)
        found = gathered(folder)
        click.echo(json.dumps(check.of_json(found), allow_nan=False) if as_json else plain(short(found)))


def gathered(folder: Path) -> dict[str, Any]:
    """Where a run stands, as JSON can hold it."""
    from tiltwalk import runs
    from tiltwalk.runs import files, layout

    run = runs.open(folder)
    progress = run.arrays("progress")
    last = {
        name: float(np.asarray(progress[name][..., -1]).mean()) for name in ("s", "loss", "seconds") if progress[name].shape[-1]
    }
    phase = run.phases[-1] if run.phases else None
    rates = {}
    if progress["phase"].size:
        recent = progress["acceptance"][..., -1]
        rates = {name: float(rate) for name, rate in zip(run.record["moves"], recent.mean(0), strict=True) if np.isfinite(rate)}
    return {
        "folder": str(folder),
        "status": run.status,
        "being_written": files.is_locked(folder / layout.LOCK),
        "notes": list(run.notes),
        "data": run.record["data"]["name"],
        "made": run.record["made"],
        "saved": run.manifest["saved"],
        "tiltwalk": run.record["tiltwalk"],
        "chains": run.record["chains"],
        "length": run.record["length"],
        "parameters": run.record["dim"],
        "phase": None if phase is None else {name: phase[name] for name in ("name", "done", "steps")},
        "draws": int(run.manifest["counts"]["sample_stats/step"]),
        "paths": int(run.manifest["counts"]["posterior/step"]),
        "acceptance": rates,
        "failed": sum(phase["failed"] for phase in run.phases),
        "test": None if run.result is None else run.result["test"],
    } | last


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"{found['folder']}: {standing(found)}",
        f"data       {found['data']}",
        f"models     {found['chains']} paths of {found['length']} models of {found['parameters']} parameters",
        f"made       {found['made']} by tiltwalk {found['tiltwalk']}; saved {found['saved']}",
        f"at         {short(found)}",
        f"kept       {found['draws']} draws of the losses and {found['paths']} paths of each chain",
    ]
    lines += [f"test       {line}" for line in spoken(found["test"])] if found["test"] else []
    if found["failed"]:
        lines.append(f"rejected   {found['failed']} proposals because their loss was not a number")
    lines += [f"note       {note}" for note in found["notes"]]
    if not found["being_written"] and found["status"] != "finished":
        lines.append(f"To go on: tiltwalk resume {found['folder']}")
    return "\n".join(lines)


def standing(found: dict[str, Any]) -> str:
    if found["being_written"]:
        return "being written"
    return "not finished; what wrote it was killed" if found["status"] == "running" else str(found["status"])


def short(found: dict[str, Any]) -> str:
    if found["phase"] is None:
        return "the beginning"
    phase = found["phase"]
    accepted = ", ".join(f"{name} {rate:.0%}" for name, rate in found["acceptance"].items())
    return (
        f"{phase['name']} {phase['done']}/{phase['steps']} | s {found['s']:.4g} | loss {found['loss']:.4g} | "
        f"accepted {accepted} | after {lasting(found['seconds'])}"
    )
