"""The one process that writes a run: it makes the phases, keeps their draws, and saves, so that a kill at any moment costs only
what was done since the last save.

It is the `Conductor` of a training: what was decided, such as how many steps fit into a time, and what finished phases
ended with, is in the checkpoint. A run that goes on goes through its recipe again; what was made is then taken from there.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tiltwalk.measure import PathMeasure
from tiltwalk.run import Run
from tiltwalk.runs import checkpoint, files, layout
from tiltwalk.runs.driver import Driver, Piece, run_of
from tiltwalk.training import Conductor

LOOK = 0.5
"""Seconds that a piece should take."""

QUICK = 0.02
TRIAL = 16
"""How much longer a trial piece is where the first takes less than `QUICK` seconds."""

MOST_WAITING = 2**25
"""Bytes of draws that are held before they are written, whether a save is due or not."""

SAMPLING = "sampling"


class Stopped(Exception):
    """A signal asked for the end; everything is saved."""

    def __init__(self, path: Path, number: int) -> None:
        self.signal = number
        super().__init__(f"stopped; all is saved. To go on: tiltwalk resume {path}")


class Watcher(Protocol):
    """Who is told how the run goes."""

    def piece(self, told: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        """Of what a person must know even if they asked for silence."""
        self.say(text)


class Nobody(Watcher):
    def piece(self, told: dict[str, Any]) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class Writer(Conductor):
    """A run that is being written, from a checkpoint on."""

    def __init__(
        self, path: Path, record: dict[str, Any], save_seconds: float, save_steps: int | None, founded: dict[str, str]
    ) -> None:
        self.path, self.record, self.founded = path, record, founded
        self.save_seconds, self.save_steps = save_seconds, save_steps
        self.piece_steps: int | None = None
        self.watcher: Watcher = Nobody()
        self.draws = layout.draws(path, record)
        self.decisions: dict[str, float] = {}
        self.phases: list[dict[str, Any]] = []
        self.extra: dict[str, Any] = {"status": "running", "sessions": 0}
        self.number = 0
        self.saving_seconds = 0.0
        self.content: dict[str, Any] = {}  # of the manifest that was taken up
        self.steps = 0  # of all phases
        self.stop: int | None = None
        self._cursor = 0
        self._driver: Driver | None = None
        self._arrays: dict[str, np.ndarray] = {}
        self._began = self._saved = time.perf_counter()
        self._before = 0.0
        self._saved_steps = 0

    # ---- what a recipe asks of its conductor ----

    def decide(self, name: str, choose: Callable[[], float]) -> float:
        if name not in self.decisions:
            self.decisions[name] = float(choose())
        return self.decisions[name]

    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    def sample(self, name: str, measure: PathMeasure, s: Any, **settings: Any) -> Run:
        """A phase: made, gone on with, or, where it is finished, looked up. Draws are kept of the phase `sampling` alone."""
        settings.pop("progress", None)
        steps = settings.pop("burn_in", 0) + settings.pop("steps", 0)
        init, every = settings.pop("init", None), settings.pop("path_every", None)
        thin = settings.pop("thin", None) if name == SAMPLING else None
        driver = Driver(
            measure, s, steps=steps, moves=settings.pop("moves", None), rule=settings.pop("rule", None),
            chains=settings.pop("chains", 1), key=settings.pop("key", 0), target=settings.pop("target_acceptance", None),
        )  # fmt: skip
        if settings:
            raise TypeError(f"a phase of a run has no setting {', '.join(settings)}.")
        index, self._cursor = self._cursor, self._cursor + 1
        if index == len(self.phases):
            self.phases.append(
                {"name": name, "steps": steps, "done": 0, "first": 0, "finished": False, "moves": driver.names,
                 "evaluations": 0.0, "gradients": 0.0, "failed": 0, "seconds": 0.0}
            )  # fmt: skip
        phase = self.phases[index]
        if phase["name"] != name or phase["moves"] != driver.names:
            raise ValueError(
                f"{self.path} was made by other phases than this version of Tiltwalk makes: {phase['name']}, {name}."
            )
        if not phase["finished"] or phase["done"] < steps:
            if index < len(self.phases) - 1:
                raise checkpoint.Damaged(f"phase {name} must be finished before the next; its steps are not.")
            if phase["done"]:
                driver.restore(self._arrays, phase["first"], phase["done"])
                self._arrays = {}
            else:
                driver.begin(init)
                phase["first"] = driver.first
            self._work(index, driver, steps, thin, every)
        arrays = self._finished(index)
        return run_of(arrays, phase["moves"], phase["first"] + phase["done"], phase["evaluations"], phase["seconds"])

    # ---- a phase ----

    def _work(self, index: int, driver: Driver, steps: int, thin: int | None, every: int | None) -> None:
        phase = self.phases[index]
        phase |= {"steps": steps, "finished": False}
        self._driver = driver
        self.watcher.say(f"{phase['name']}: {steps} steps")
        while phase["done"] < steps:
            window = min(steps, (phase["done"] // every + 1) * every) if every else steps
            size = min(self._piece(phase, driver, thin or 1, every or steps), window - phase["done"])
            began = time.perf_counter()
            piece = driver.advance(size, thin)
            self._keep(index, piece, size, every, time.perf_counter() - began)
            if self.stop is not None:
                self.save("stopped")
                raise Stopped(self.path, self.stop)
            self._perhaps_save()
        phase["finished"] = True
        packed = checkpoint.pack(driver.arrays())
        with self.saving():
            files.write_whole(self._phase_path(index), packed)
        phase |= {"sha256": files.sha256(packed), "bytes": len(packed)}
        self._driver = None
        self.save()

    def _piece(self, phase: dict[str, Any], driver: Driver, thin: int, window: int) -> int:
        """Steps of the next piece, so that it takes about `LOOK` seconds: found on the first few, then kept."""
        draws = max(1, window // thin)
        unit = driver.fit(draws)
        if self.piece_steps is not None:
            return math.ceil(self.piece_steps / thin) * thin
        name = f"piece: {phase['name']}"
        if name in self.decisions:
            return int(self.decisions[name])
        # the first piece compiles, the second is timed; where that is too short to say much, a longer one is
        of_size = [taken for n, taken in phase.setdefault("trials", []) if n == unit * thin]
        longer = [taken for n, taken in phase["trials"] if n == TRIAL * unit * thin]
        if len(of_size) < 2:
            return unit * thin
        rate = of_size[-1] / unit
        if of_size[-1] < QUICK and draws > 2 * TRIAL * unit:
            if not longer:
                return TRIAL * unit * thin
            rate = longer[-1] / (TRIAL * unit)
        units = max(1, draws // unit)
        even = math.ceil(units / max(1, math.ceil(units / max(1, int(LOOK / rate / unit)))))
        best = next((n for n in range(even, even // 2, -1) if units % n == 0), even) * unit
        self.decisions[name] = best * thin
        return best * thin

    def _keep(self, index: int, piece: Piece, steps: int, every: int | None, taken: float) -> None:
        phase, driver = self.phases[index], self._driver
        assert driver is not None
        phase["done"] += steps
        phase["seconds"] += taken
        phase["evaluations"] += piece.evaluations
        phase["gradients"] += piece.gradients
        phase["failed"] += round(piece.failed)
        if f"piece: {phase['name']}" not in self.decisions and self.piece_steps is None:
            phase.setdefault("trials", []).append([steps, taken])
        self.steps += steps
        state = driver.runner.join(driver.groups).state
        rows = layout.progress_rows(self.record, index, phase["name"] == SAMPLING or "burn" in phase["name"], piece, driver)
        rows |= {"step": np.array([self.steps]), "seconds": np.array([self.seconds()])}
        rows["loss"] = np.asarray(state.losses, np.float64).mean(-1)[None]
        for name, values in rows.items():
            self.draws.extend(f"progress/{name}", values)
        if piece.losses is not None:
            thin = steps // len(piece.losses)
            at = np.arange(phase["done"] - steps + thin, phase["done"] + 1, thin)
            self.draws.extend("sample_stats/loss", piece.losses)
            self.draws.extend("sample_stats/s", np.asarray(driver.schedule(at - 1)))
            self.draws.extend("sample_stats/step", at)
            if every and phase["done"] % every == 0:
                self.draws.extend("posterior/theta", np.asarray(state.path)[None])
                self.draws.extend("posterior/step", np.array([phase["done"]]))
        if self.draws.waiting() > MOST_WAITING:
            with self.saving():
                self.draws.flush()
        self.watcher.piece(
            {"phase": phase["name"], "step": phase["done"], "steps": phase["steps"], "s": piece.s,
             "loss": float(np.mean(rows["loss"])), "seconds": self.seconds(), "piece_steps": steps, "piece_seconds": taken,
             "evaluations": piece.evaluations, "losses": piece.losses,
             "failed": sum(phase["failed"] for phase in self.phases),
             "acceptance": dict(zip(driver.names, np.nan_to_num(piece.acceptance).mean(1).tolist(), strict=True))}
        )  # fmt: skip

    def _finished(self, index: int) -> dict[str, np.ndarray]:
        """Where the chains were at the end of a phase."""
        path = self._phase_path(index)
        phase = self.phases[index]
        if phase.get("sha256") is None:
            raise checkpoint.Damaged(f"the manifest must describe {path.name}, the end of a finished phase; it does not.")
        found = checkpoint.unpack(path.name, checkpoint.stored(path, {"bytes": None} | phase))
        self._fits(path.name, found)
        return found

    def _fits(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Raises unless the arrays are chains of this run, as paths or, in the warm-up, as single models."""
        c, tau, d = (self.record[of] for of in ("chains", "length", "dim"))
        path, losses, steps = (arrays.get(of) for of in ("path", "losses", "steps"))
        if (
            path is None or losses is None or steps is None or steps.ndim != 2
            or path.shape not in ((c, tau, d), (c, 1, d)) or losses.shape != path.shape[:2] or steps.shape[1] != c
            or any(x.dtype.kind != "f" for x in arrays.values())
        ):  # fmt: skip
            raise checkpoint.Damaged(f"{name} must hold the chains of this run; it does not.")

    def _phase_path(self, index: int) -> Path:
        # its length is in the name, so that a phase that goes on beyond its end leaves what checkpoints of before stand on
        return checkpoint.folder_of(self.path) / f"phase-{index:02d}-{self.phases[index]['done']}.safetensors"

    # ---- saves ----

    def _perhaps_save(self) -> None:
        due = time.perf_counter() - self._saved >= self.save_seconds
        if due or (self.save_steps is not None and self.steps - self._saved_steps >= self.save_steps):
            self.save()

    def save(self, status: str = "running") -> None:
        """A checkpoint of now. Where the disk does not take it, the one before stands, and the error says so."""
        began = time.perf_counter()
        with self.saving():
            self.draws.flush()
            arrays = {f"tail:{name}": self.draws.tail(name) for name in self.draws.arrays}
            if self._driver is not None:
                arrays |= {f"state:{name}": x for name, x in self._driver.arrays().items()}
            else:
                arrays |= {f"state:{name}": x for name, x in self._arrays.items()}
            self.extra["status"] = status
            content = self.extra | {
                "files": self.founded,
                "digests": {"bytes": self.draws.digests.size, "sha256": self.draws.digests.hexdigest},
                "counts": self.draws.counts,
                "decisions": self.decisions,
                "phases": self.phases,
                "steps": self.steps,
                "seconds": self.seconds(),
                "saving_seconds": self.saving_seconds + time.perf_counter() - began,
                "saved": layout.now(),
            }
            checkpoint.save(self.path, checkpoint.Checkpoint(self.number + 1, content, arrays))
            self.number += 1
            self._saved, self._saved_steps = time.perf_counter(), self.steps
            self._forget_phases()
            self.log("saved", step=self.steps, number=self.number, seconds=round(self._saved - began, 4))

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Says of an error of the disk what it means for the run, and counts the time that saves take."""
        began, before = time.perf_counter(), self.saving_seconds
        try:
            yield
            self.saving_seconds = before + time.perf_counter() - began
        except OSError as error:
            stands = f"it stands as saved at step {self._saved_steps}" if self.number else "nothing was saved before"
            again = f"tiltwalk resume {self.path}" if self.number else "begin again"
            raise OSError(
                f"{self.path} could not be saved ({error.strerror or error}); {stands}. When that is mended: {again}"
            ) from error

    def _forget_phases(self) -> None:
        """Removes the ends of phases that no checkpoint stands on any more: those that went on beyond them."""
        there = {path.name for path in checkpoint.folder_of(self.path).glob("phase-*.safetensors")}
        if len(there) > sum(phase["finished"] for phase in self.phases):
            points = [checkpoint.opened(checkpoint.paths(self.path, n)[1]) for n in checkpoint.numbers(self.path)]
            ends = {f"phase-{i:02d}-{p['done']}.safetensors" for point in points for i, p in enumerate(point["phases"])}
            for name in there - ends:
                files.remove(checkpoint.folder_of(self.path) / name)

    def take_up(self, point: checkpoint.Checkpoint) -> None:
        """Goes on from a checkpoint; raises `Damaged` where the folder does not hold what it stands on."""
        content = point.content
        try:
            tails = {name: point.arrays[f"tail:{name}"] for name in self.draws.arrays}
            self.draws.restore(content["counts"], tails, content["digests"]["bytes"], content["digests"]["sha256"])
            self.decisions, self.phases = dict(content["decisions"]), [{"failed": 0} | phase for phase in content["phases"]]
            self.steps, self._before = int(content["steps"]), float(content["seconds"])
            self.extra = {name: content[name] for name in content if name in ("sessions", "result")} | {"status": "running"}
        except (KeyError, TypeError) as error:
            raise checkpoint.Damaged(f"checkpoint {point.number} must be whole; {error} is missing or wrong.") from None
        except ValueError as error:
            raise checkpoint.Damaged(str(error)) from None
        for index, phase in enumerate(self.phases):
            if phase["finished"]:
                self._finished(index)
        self._arrays = {name.removeprefix("state:"): x for name, x in point.arrays.items() if name.startswith("state:")}
        if self._arrays:
            self._fits(f"checkpoint {point.number}", self._arrays)
        self.content = content
        self.saving_seconds = float(content.get("saving_seconds", 0))
        self.number, self._saved_steps = point.number, self.steps
        self._began = self._saved = time.perf_counter()

    def reopen(self) -> None:
        """Lets the last phase go on beyond its end, and keeps that it shall."""
        if self.phases and self.phases[-1]["finished"] and self.phases[-1]["name"] == SAMPLING:
            self._arrays = self._finished(len(self.phases) - 1)
        self.save()

    def log(self, event: str, **more: Any) -> None:
        """A line of log.jsonl."""
        line = {"time": layout.now(), "event": event} | more
        files.add_line(self.path / layout.LOG, json.dumps(line, allow_nan=False))

    @contextlib.contextmanager
    def obeying(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run at the next look, after a save; a second SIGINT ends it at once."""

        def asked(number: int, frame: Any) -> None:
            if self.stop is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stop = number
            self.watcher.say("stopping: saving what was done")

        before: dict[int, Any] = {}
        with contextlib.suppress(ValueError):  # not the main thread: whoever has that decides
            before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
