"""Every sampler beside the others, and beside those that a user would take instead: in one run, on the same data and machine.

Parts, each of which `only` can pick: `perceptron`, effective samples a second and a loss; `mlp` and `lenet`, seconds to a mean
training loss; `mnist32`, seconds to a loss and an accuracy where the tilt is low and paths are long. The JSON is written after
every row, so that a run that is stopped keeps what it found; other parts that the file holds stay as they are.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from tiltwalk.bench import samplers_networks as networks
from tiltwalk.bench import samplers_perceptron as perceptron
from tiltwalk.bench.networks import machine

PARTS = ("perceptron", "mlp", "lenet", "mnist32")
Report = dict[str, Any]


def main(
    shared: pathlib.Path | None = None,
    out: pathlib.Path | None = None,
    quick: bool = False,
    only: str | None = None,
    limit: float | None = None,
) -> Report:
    """Prints the tables, and writes them as JSON where `out` is given.

    `shared` holds `data/` and `prototypes/`. `limit`: seconds for a sampler of the parts on networks.
    """
    parts = [name for name in PARTS if only is None or only in name]
    if not parts:
        raise ValueError(f"--only must be a part of one of these names: {'; '.join(PARTS)}; got {only!r}.")
    book = Book(out, quick)
    for name in parts:
        if name == "perceptron":
            _perceptron(book, shared, quick)
        else:
            _network(book, name, quick, limit)
    for what, why in book.report["skipped"].items():
        print(f"skipped: {what}: {why}")
    if out is not None:
        print(f"wrote {out}")
    return book.report


class Book:
    """The report, and its file."""

    def __init__(self, out: pathlib.Path | None, quick: bool) -> None:
        self.out = out
        found: Report = json.loads(out.read_text()) if out is not None and out.exists() else {}
        self.report: Report = {**found, "machine": machine(), "quick": quick, "skipped": {}}

    def write(self) -> None:
        """Saves what there is, whole or not at all."""
        if self.out is None:
            return
        beside = self.out.with_name(self.out.name + ".new")
        beside.write_text(json.dumps(self.report, indent=1) + "\n")
        os.replace(beside, self.out)

    def skip(self, what: str, why: str) -> None:
        self.report["skipped"][what] = why


def _perceptron(book: Book, shared: pathlib.Path | None, quick: bool) -> None:
    rows: list[Report] = []
    before: list[tuple[int, int]] = [(0, 0)]

    def note(row: Report) -> None:
        rows.append(row)
        if before[-1] != (row["width"], row["length"]):
            before.append((row["width"], row["length"]))
            print(f"\nlinear perceptron, d+1 = {row['width']}, tau = {row['length']}, s = 10, sigma = 0.1")
            print(perceptron.HEAD)
        print(perceptron.line(row), flush=True)
        book.report["perceptron"] = {"rows": rows, "targets": perceptron.targets(rows)}
        book.write()

    perceptron.measure(shared, quick, note, book.skip)
    print("\nthe best of ours over the best of others, in effective samples of Lsum a second")
    for found in perceptron.targets(rows):
        text = f"d+1 = {found['width']:3d}, tau = {found['length']:2d}, {found['kind']:14s}"
        times = [f"{found[f'times_{who}']:8.1f} times {who}" for who in ("peers", "prototype") if f"times_{who}" in found]
        print(text + ", ".join(times))


def _network(book: Book, name: str, quick: bool, limit: float | None) -> None:
    """One part on a network: what the file holds of the same settings is not measured again."""

    def note(rows: list[Report]) -> None:
        book.report[name] = {"rows": rows}
        book.write()

    print(f"\n{networks.title(name)}", flush=True)
    known = book.report.get(name, {}).get("rows", [])
    rows = networks.measure(name, quick, limit, known, note, lambda text: print(text, flush=True))
    for mark in networks.SETTINGS[name].marks:
        print(networks.comparison(rows, mark))
