"""Damage to run folders, by accident and by malice, and what the command line must make of each.

    damage(kind, folder, rng, other)     does it to a copy, and says what it did
    trial(runs, kind, seed, place)       a copy of a run, damaged, through every command

A command that is given a damaged run either says what it would have said of the whole one, or of the checkpoint before, and
then that it fell back; or it ends with status 2 and one sentence. Everything else fails: a traceback, a fault of ours, more
memory than `MOST_MEMORY`, more time than `MOST_SECONDS`, and a number that is not the true one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.run_cases import draws, small
from tiltwalk import cli
from tiltwalk.bench.timing import peak_memory
from tiltwalk.runs import checkpoint, files, layout, session
from tiltwalk.runs import draws as draws_
from tiltwalk.runs.writer import Stopped, Watcher

MOST_SECONDS = 60
MOST_MEMORY = 2**29
HUGE = 2**38
"""Bytes of a file that holds none of them: reading it whole would take all memory."""

SIZE = ("network.kind=mlp", "network.hidden=[16]", "budget.burn_in=16", "budget.steps=96")


# ---- damage ----


def files_of(folder: Path) -> list[Path]:
    """The files of a run that something depends on."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")


def one_of(folder: Path, rng: random.Random, some: list[Path] | None = None) -> Path:
    """A file of a run: of those on top, of the checkpoints, of the chunks or of what describes them, each as often."""
    kinds: dict[str, list[Path]] = {}
    for path in files_of(folder) if some is None else some:
        place = path.relative_to(folder)
        kinds.setdefault("described" if place.name == "zarr.json" else place.parts[0] * (len(place.parts) > 1), []).append(path)
    return rng.choice(kinds[rng.choice(sorted(kinds))])


def truncated(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng, [path for path in files_of(folder) if path.stat().st_size])
    size = rng.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.relative_to(folder)} cut to {size} bytes"


def flipped(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng, [path for path in files_of(folder) if path.stat().st_size])
    content = bytearray(path.read_bytes())
    places = [rng.randrange(8 * len(content)) for _ in range(rng.choice([1, 1, 1, 20]))]
    for place in places:
        content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return f"{len(places)} bits of {path.relative_to(folder)} flipped"


def emptied(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng)
    content = path.read_bytes()
    first = rng.randrange(max(1, len(content)))
    path.write_bytes(content[:first] + bytes(len(content) - first))
    return f"{path.relative_to(folder)} is zero from byte {first}"


def scribbled(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng)
    path.write_bytes(rng.randbytes(rng.choice([1, 100, path.stat().st_size])))
    return f"{path.relative_to(folder)} is noise"


def missing(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng)
    path.unlink()
    return f"{path.relative_to(folder)} is missing"


def missing_folder(folder: Path, rng: random.Random, other: Path) -> str:
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_dir()))
    shutil.rmtree(path)
    return f"the folder {path.relative_to(folder)} is missing"


def swapped(folder: Path, rng: random.Random, other: Path) -> str:
    one = one_of(folder, rng)
    beside = [path for path in files_of(folder) if path.suffix == one.suffix and path != one] or files_of(folder)
    two = rng.choice(beside)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"{one.relative_to(folder)} and {two.relative_to(folder)} swapped"


def of_another_run(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng, [path for path in files_of(folder) if (other / path.relative_to(folder)).is_file()])
    shutil.copyfile(other / path.relative_to(folder), path)
    return f"{path.relative_to(folder)} is that of another run"


def renumbered(folder: Path, rng: random.Random, other: Path) -> str:
    number = rng.choice(checkpoint.numbers(folder))
    to = rng.choice([number + 7, 99_999_999, 0])
    for old, new in zip(checkpoint.paths(folder, number), checkpoint.paths(folder, to), strict=True):
        old.rename(new)
    return f"checkpoint {number} calls itself {to}"


def huge_file(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng)
    os.truncate(path, HUGE)
    return f"{path.relative_to(folder)} has {HUGE} bytes"


def huge_shape(folder: Path, rng: random.Random, other: Path) -> str:
    path = rng.choice(sorted((folder / "draws.zarr").rglob("zarr.json")))
    content = json.loads(path.read_text())
    if content["node_type"] == "array":
        grid = content["chunk_grid"]["configuration"]
        for place, key in rng.sample([(content, "shape"), (grid, "chunk_shape")], rng.choice([1, 2])):
            place[key] = [rng.choice([2**31, 2**62, -1]) for _ in place[key]]
    else:
        content["attributes"] = {"moves": [2**62] * 1000}
    path.write_text(json.dumps(content))
    return f"{path.relative_to(folder)} claims a huge shape"


def huge_header(folder: Path, rng: random.Random, other: Path) -> str:
    path = rng.choice(sorted(folder.rglob("*.safetensors")))
    content = path.read_bytes()
    path.write_bytes(rng.choice([2**24, 2**40, 2**63, 2**64 - 1]).to_bytes(8, "little") + content[8:])
    return f"the header of {path.relative_to(folder)} claims a huge length"


def deep(folder: Path, rng: random.Random, other: Path) -> str:
    path = one_of(folder, rng, [path for path in files_of(folder) if path.suffix in (".json", ".jsonl")])
    text = rng.choice(["[" * 200_000, '{"a":' * 200_000, "[" * 900 + "]" * 900, "9" * 100_000, '{"a":1e999999}', '{"a":NaN}'])
    path.write_text(text)
    return f"{path.relative_to(folder)} is JSON of {len(text)} characters that begins {text[:5]}"


def linked(folder: Path, rng: random.Random, other: Path) -> str:
    """The right content, but behind a link that leads out."""
    path = rng.choice([one_of(folder, rng), one_of(folder, rng), folder / "checkpoints", folder / "draws.zarr"])
    outside = folder.parent / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(rng.choice([outside, Path(os.path.relpath(outside, path.parent))]))
    return f"{path.relative_to(folder)} is a link that leads out"


def strange(folder: Path, rng: random.Random, other: Path) -> str:
    path = rng.choice([one_of(folder, rng), one_of(folder, rng), folder / "lock", folder / "checkpoints" / "00000099.json"])
    path.unlink(missing_ok=True)
    kind = rng.choice(["folder", "pipe", "nothing to be read"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return f"{path.relative_to(folder)} is a {kind}"


def climbing(folder: Path, rng: random.Random, other: Path) -> str:
    """Names that lead out, where a name may stand; what is sealed is sealed again."""
    name = rng.choice(["../../../outside", "/etc/passwd", "..", "a/../../b", "\x00", "/dev/zero", "con\x1b[2Jtrol"])
    place = rng.choice(["digests", "data", "phase", "config", "moves"])
    if place == "digests":
        path = folder / "draws.sha256"
        lines = path.read_text().splitlines() if path.exists() else ["0" * 64 + "  x"]
        path.write_text("\n".join([*lines[:-1], f"{lines[-1][:66]}{name}"]) + "\n")
    elif place == "config":
        path = folder / "config.toml"
        path.write_text(
            path.read_text().replace("[network]", f'[network]\nkind = "{name}"', 1).replace("\x00", "").replace("\x1b", "")
        )
    elif place == "phase":
        path = newest(folder)
        resealed(path, lambda content: content["phases"][-1].update(done=name))
    elif place == "moves":
        path = folder / "run.json"
        resealed(path, lambda content: content["moves"].append(name))
    else:
        path = folder / "run.json"
        resealed(path, lambda content: content["data"].update(name=name))
    return f"{path.relative_to(folder)} holds the name {name!r}"


def lying(folder: Path, rng: random.Random, other: Path) -> str:
    """A field of run.json or of the newest manifest that is not what it should be, under a seal that holds."""
    path = rng.choice([folder / "run.json", newest(folder)])
    said = ""

    def lie(content: dict[str, Any]) -> None:
        nonlocal said
        at: Any = content
        keys: list[Any] = []
        while isinstance(at, dict | list) and at and (not keys or rng.random() < 0.7):
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            keys, before, at = [*keys, key], at, at[key]
        value = rng.choice([-1, 0, 2**39, 2**62, 10**400, 1e308, "text", "", None, True, [], {}, [[]], at])
        if value is at:
            del before[keys[-1]]
        else:
            before[keys[-1]] = value
        said = f"{'.'.join(map(str, keys))} is {'missing' if value is at else repr(value)[:30]}"

    resealed(path, lie)
    return f"{path.relative_to(folder)}: {said}, and sealed"


def newer(folder: Path, rng: random.Random, other: Path) -> str:
    path = rng.choice([folder / "run.json", newest(folder)])
    resealed(path, lambda content: content.update(version=checkpoint.VERSION + 1))
    return f"{path.relative_to(folder)} is of a newer format"


def newest(folder: Path) -> Path:
    return checkpoint.paths(folder, checkpoint.numbers(folder)[0])[1]


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes what is under a seal, and all that speaks of it."""
    content = json.loads(path.read_text())
    del content["checksum"]
    change(content)
    path.write_bytes(checkpoint.sealed(content))
    if path.name == layout.RECORD:
        digest = files.sha256(path.read_bytes())
        for number in checkpoint.numbers(path.parent):
            resealed(checkpoint.paths(path.parent, number)[1], lambda content: content["files"].update({layout.RECORD: digest}))


KINDS: dict[str, Callable[[Path, random.Random, Path], str]] = {
    made.__name__: made
    for made in (
        truncated, flipped, emptied, scribbled, missing, missing_folder, swapped, of_another_run, renumbered, huge_file,
        huge_shape, huge_header, deep, linked, strange, climbing, lying, newer,
    )
}  # fmt: skip

INVENTED = ("lying", "climbing")
"""Damage that is sealed again: what it says of itself cannot be told from the truth, but it must not harm."""


# ---- what must come of it ----


class Cases:
    """Runs to be damaged, and what each command says of them when they are whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "clusters.csv"
        with small_chunks():
            self.finished = self.made(folder / "finished")
            self.stopped = self.made(folder / "stopped", stop=18)
            self.other = self.made(folder / "other", "seeds.run=7")
            self.others = self.made(folder / "others", "seeds.run=7", stop=18)
            self.end = draws(self.finished)
            self.truths = {name: self.truth(name) for name in ("finished", "stopped")}

    def made(self, path: Path, *changes: str, stop: int | None = None) -> Path:
        with contextlib.suppress(Stopped):
            session.begin(small(self.folder, *SIZE, *changes), path, StopAfter(stop))
        return path

    def truth(self, name: str) -> list[tuple[dict[str, Any], str]]:
        """What `info` and `predict` say at the newest checkpoint, and at the one before."""
        found = []
        for back in (0, 1):
            path = shutil.copytree(self.folder / name, self.folder / f"{name}-{back}")
            if back:
                newest(path).unlink()
            _, out, _ = called("info", path, "--json")
            _, table, _ = called("predict", path, self.data)
            found.append((said(out), table))
            shutil.rmtree(path)
        assert found[0][0]["draws"] > 0 and found[0][1] != ""
        return found


class StopAfter(Watcher):
    """A watcher that has SIGTERM sent to the run after some pieces."""

    def __init__(self, pieces: int | None) -> None:
        self.left = -1 if pieces is None else pieces

    def piece(self, told: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def say(self, text: str) -> None:
        pass


@contextlib.contextmanager
def small_chunks() -> Iterator[None]:
    """Chunks of a few draws, so that a small run has some that are finished."""
    before, draws_.MOST_ROWS = draws_.MOST_ROWS, 8
    try:
        yield
    finally:
        draws_.MOST_ROWS = before


def said(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)
    return {name: value for name, value in found.items() if name not in ("folder", "notes", "seconds", "saved", "status")}


def called(*words: object) -> tuple[int, str, str]:
    """A command in this process: status, stdout, stderr; held against the limits."""
    out, err = io.StringIO(), io.StringIO()

    def late(*_: object) -> None:
        raise AssertionError(f"took more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    held = peak_memory()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main([str(word) for word in words])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    more = peak_memory() - held
    if more > MOST_MEMORY:
        raise AssertionError(f"took {more / 2**20:.0f} MiB more memory")
    return status, out.getvalue(), err.getvalue()


def refused(status: int, out: str, err: str) -> bool:
    """Whether a command refused; raises where it did neither that nor its work."""
    if "Traceback" in err or status not in (0, 2):
        raise AssertionError(f"status {status}: {err.strip()[:600]}")
    if "too little memory" in err:
        raise AssertionError(f"asked for more memory than there is: {err.strip()}")
    if status == 2 and (err.count("\n") != 1 or not err.startswith("tiltwalk: ")):
        raise AssertionError(f"one sentence was expected: {err.strip()[:600]}")
    return status == 2


def trial(cases: Cases, name: str, kind: str, seed: int, commands: tuple[str, ...] = ("info", "predict", "resume")) -> str:
    """One damaged copy of the run `name` through the commands; raises where one does what it must not, else says what came."""
    rng = random.Random(f"{seed} {kind} {name}")
    place = cases.folder / f"damaged-{kind}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    folder = shutil.copytree(cases.folder / name, place / "run")
    what = KINDS[kind](folder, rng, cases.other if name == "finished" else cases.others)
    came = []
    try:
        for command in commands:
            if command == "resume" and kind in INVENTED:
                continue  # it may say, validly, that it is to take forever
            came.append(f"{command} {held(cases, name, kind, folder, command)}")
    except Exception as error:
        raise AssertionError(f"{name}, {kind} {seed}: {what}: {command}: {error}") from error
    shutil.rmtree(place)
    return f"{name}: {what}: {', '.join(came)}"


def held(cases: Cases, name: str, kind: str, folder: Path, command: str) -> str:
    """What a command made of a damaged run, held against the truth."""
    words: dict[str, tuple[object, ...]] = {
        "info": ("info", folder, "--json"),
        "predict": ("predict", folder, cases.data),
        "resume": ("resume", folder, "--json"),
        "report": ("report", folder),
    }
    began = time.perf_counter()
    with small_chunks():
        status, out, err = called(*words[command])
        if refused(status, out, err):
            if out and command != "resume":
                raise AssertionError(f"it refused, but printed {out[:200]}")
            return "refuses"
        if kind in INVENTED:
            return "takes it"
        if command == "resume":
            found = draws(folder)
            for array, expected in cases.end.items():
                np.testing.assert_array_equal(found[array], expected, err_msg=array)
            return f"ends right ({time.perf_counter() - began:.1f} s)"
        truth = [(info if command == "info" else table) for info, table in cases.truths[name]]
        shown = said(out) if command == "info" else out
        fell = bool(json.loads(out)["notes"]) if command == "info" else "falling back" in err
        # an older checkpoint may be what is damaged, under a newer number: then the newest is fallen back to
        if command != "report" and shown not in (truth if fell else truth[:1]):
            raise AssertionError(f"{'fell back and ' if fell else ''}took for right what is not: {str(shown)[:300]}")
        return "falls back, rightly" if fell else "right"
