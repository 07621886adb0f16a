"""Losses of many networks on one data set, beside this machine's matrix product, Flax, PyTorch and the prototypes.

Every row is measured in this run, on this machine, on the same 2,048 images: the best of many calls, in two passes, with the
matrix product timed in between. The share of peak is that of the fastest product seen. `tables` prints what is found here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax

import tiltwalk
from tiltwalk.bench import rivals, subjects, tables
from tiltwalk.bench.parts import Sizes

QUICK = Sizes(samples=128, seconds=0.05, most_models=2, length=8, side=256)
MANY = 60_000
Found = dict[str, Any]


def main(
    shared: pathlib.Path | None = None, out: pathlib.Path | None = None, quick: bool = False, only: str | None = None
) -> Found:
    """Prints the tables, and writes what they show as JSON where `out` is given.

    `shared` holds `prototypes/`. `quick` shows in a minute or two that everything runs; its figures mean nothing. `only` keeps
    the parts whose name contains it, such as "ours" or "memory".
    """
    sizes = QUICK if quick else Sizes()
    rows: list[Found] = []
    skipped: dict[str, str] = {}
    parts = [(name, part) for name, part in _parts(sizes, shared, quick) if only is None or only in name]
    if not parts:
        names = [name for name, _ in _parts(sizes, shared, quick)]
        raise ValueError(f"bench networks: --only must be a part of one of these names: {'; '.join(names)}; got {only!r}.")
    peaks: dict[str, list[float]] = {"peak": [0.0], "torch_peak": [0.0]}
    kernel = ""
    for number in range(1 if quick else 2):
        for name, measure in parts:
            print(f"{name}{' again' if number else ''} ...", file=sys.stderr, flush=True)
            try:
                found = measure()
            except RuntimeError as error:
                skipped[name] = str(error)
                continue
            rows += [{"part": name, **row} for row in found["rows"]]
            for which, seen in peaks.items():
                seen.append(found.get(which) or 0.0)
            kernel = kernel or found.get("reason", "")
    peak, torch_peak = (max(seen) for seen in peaks.values())
    report = {
        "machine": machine(),
        "settings": dataclasses.asdict(sizes),
        "kernel": kernel,
        "peak_gflops": peak / 1e9,
        "torch_peak_gflops": torch_peak / 1e9,
        "rows": finished(best(rows), sizes.samples, peak),
        "skipped": skipped,
    }
    tables.show(report)
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")
        print(f"wrote {out}")
    return report


def machine() -> Found:
    """What this was measured on."""
    known = pathlib.Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"cpu": name, "cores": os.cpu_count(), "python": platform.python_version(), "jax": jax.__version__}


# ---- what is measured ----


def _parts(sizes: Sizes, shared: pathlib.Path | None, quick: bool) -> list[tuple[str, Callable[[], Found]]]:
    """Names, and functions that measure or raise RuntimeError."""
    arm = platform.machine().lower() in ("arm64", "aarch64")
    many = dataclasses.replace(sizes, samples=4 * sizes.samples if quick else MANY)

    def part(name: str, measures: str, sizes: Sizes = sizes, target: str = "", needs: str = "jax") -> Any:
        return name, lambda: _process(measures, sizes, target, needs)

    parts = [part("ours", "losses")]
    parts += [part(f"ours, {t} forced", "forward", target=t) for t in (("neon",) if arm else ("avx512", "avx2"))]
    parts += [part("ours, plain forced", "forward", target="plain"), part("ours, kernel off", "losses", target="off")]
    parts += [part("flax", "flax", needs="flax"), part("torch", "torch", needs="torch"), part("sampling", "sampling")]
    for target in ("", "off"):
        for these in (sizes, many):
            parts.append(part(f"memory, {these.samples} images{', kernel off' * bool(target)}", "memory", these, target))
    scripts = [("lenet_layouts.py", "1"), ("lenet_layouts.py", "2"), ("lenet_kernel.py",)]
    for script, *devices in scripts:
        name = f"prototype {script}" + "".join(f", {n} host device{'s' * (n != '1')}" for n in devices)
        parts.append((name, lambda name=name, script=script, devices=devices: _prototype(name, script, devices, shared, quick)))
    return parts


def _process(measures: str, sizes: Sizes, target: str, needs: str) -> Found:
    """What a function of `parts` finds in a process of its own, with a target of the kernel forced on it or none."""
    if importlib.util.find_spec(needs) is None:
        raise RuntimeError(f"{needs} is not installed")
    environment = dict(os.environ)
    if target:
        environment["TILTWALK_NATIVE"] = target
    source = str(pathlib.Path(tiltwalk.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    call = [sys.executable, "-m", "tiltwalk.bench.parts", measures, json.dumps(dataclasses.asdict(sizes))]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    found: Found = json.loads(done.stdout.splitlines()[-1])
    if target not in ("", "off", found.get("target", target)):
        raise RuntimeError(found["reason"])
    return found


def _prototype(name: str, script: str, devices: list[str], shared: pathlib.Path | None, quick: bool) -> Found:
    path = None if shared is None else shared / "prototypes" / script
    if quick or path is None or not path.exists():
        raise RuntimeError("left out of the quick form" if quick else "the prototypes are not at hand")
    which, seconds = min((rivals.prototype(path, *devices) for _ in range(1 if devices else 3)), key=lambda found: found[1])
    row = {"kind": "loss", "how": name, "network": subjects.LENET, "models": rivals.MODELS, "seconds_per_model": seconds}
    return {"rows": [{**row, "which": which}]}


# ---- what it comes to ----


def best(rows: list[Found]) -> list[Found]:
    """Of rows that measure the same, the fastest or smallest; network by network."""
    kept: dict[tuple[Any, ...], Found] = {}
    for row in rows:
        key = tuple(row.get(k) for k in ("part", "kind", "how", "network", "models", "samples"))
        measure = "bytes" if row["kind"] == "memory" else "seconds_per_model"
        if key not in kept or row[measure] < kept[key][measure]:
            kept[key] = row
    order = list(subjects.MODELS)
    return sorted(kept.values(), key=lambda row: order.index(row["network"]))


def finished(rows: list[Found], samples: int, peak: float) -> list[Found]:
    """The rows with their rates, shares and ratios."""
    return [{**row, **_ratios(row, rows, samples, peak)} for row in rows]


def _ratios(row: Found, rows: list[Found], samples: int, peak: float) -> Found:
    def base(kind: str, part: str, network: str) -> Found | None:
        same = [r for r in rows if (r["kind"], r["part"], r["network"]) == (kind, part, network)]
        return max(same, key=lambda r: r["models"], default=None)

    if row["kind"] == "memory":
        few = min((r for r in rows if r["kind"] == "memory" and r["how"] == row["how"]), key=lambda r: r["samples"])
        return {"allowed_bytes": tables.MOST_BYTES if few is row else 1.2 * few["bytes"] + row["data_bytes"]}
    found: Found = {}
    if row["kind"] == "gradient":
        value = base("loss", row["part"], row["network"])
        return found if value is None else {"times_value": row["seconds_per_model"] / value["seconds_per_model"]}
    rate = subjects.flop(subjects.networks()[row["network"]]) * samples / row["seconds_per_model"]
    found["gflops"] = rate / 1e9
    if peak:
        found["share"] = rate / peak
    ours = base("loss", "ours", row["network"])
    if row["kind"] == "loss" and ours is not None:
        found["times_ours"] = row["seconds_per_model"] / ours["seconds_per_model"]
        if "loss" in row:  # of the same first model in every row
            found["same_loss"] = abs(row["loss"] - ours["loss"]) <= 1e-4 * abs(ours["loss"])
    return found
