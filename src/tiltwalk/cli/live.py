"""What a person, a pipe or a program sees of a run while it goes: a live line, plain lines, or JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from tiltwalk import check
from tiltwalk.cli.errors import plain

EVERY = 10.0
"""Seconds between plain lines."""

OFTEN = 0.2
"""Seconds between two looks of a live line."""

MOST_DRAWS = 2000
"""Draws from which the effective sample size is estimated; of more, every second is forgotten."""


class Watcher:
    """Is told of every piece, and shows what is worth showing: a subclass says how."""

    every = EVERY

    def __init__(self) -> None:
        self._last = 0.0
        self._draws: list[np.ndarray] = []
        self._stride, self._seen, self._count = 1, 0, 0
        self._ess: float | None = None
        self._ess_at = 0.0

    def piece(self, told: dict[str, Any]) -> None:
        self._remember(told["losses"])
        now = time.monotonic()
        if now - self._last < self.every and told["step"] < told["steps"]:
            return
        self._last = now
        left: float | None = (told["steps"] - told["step"]) * told["piece_seconds"] / told["piece_steps"]
        if told["step"] == told["piece_steps"]:
            left = None  # the first piece of a phase may have compiled: its time says nothing
        self.show(
            {name: told[name] for name in ("phase", "step", "steps", "s", "loss", "acceptance", "failed")}
            | {"updates_per_second": told["evaluations"] / max(told["piece_seconds"], 1e-9), "left_seconds": left}
            | {"seconds": told["seconds"], "ess": self._effective()}
        )

    def show(self, now: dict[str, Any]) -> None:
        raise NotImplementedError

    def say(self, text: str) -> None:
        raise NotImplementedError

    def warn(self, text: str) -> None:
        click.echo(f"tiltwalk: {plain(text)}", err=True)

    def close(self) -> None:
        pass

    def _remember(self, losses: np.ndarray | None) -> None:
        if losses is None:
            return
        for total in losses.sum(-1, dtype=np.float64):
            if self._seen % self._stride == 0:
                self._draws.append(total)
            self._seen += 1
        while len(self._draws) > MOST_DRAWS:
            self._draws, self._stride = self._draws[::2], 2 * self._stride

    def _effective(self) -> float | None:
        """Effective sample size of the total loss so far; None before there is enough, or without ArviZ."""
        if len(self._draws) >= 12 and time.monotonic() - self._ess_at > 2:
            from tiltwalk import diagnostics

            with contextlib.suppress(ImportError):
                found = float(np.asarray(diagnostics.ess(np.stack(self._draws, 1), "mean")))
                self._ess = found if np.isfinite(found) else None
            self._ess_at = time.monotonic()
        return self._ess


class Quiet(Watcher):
    def show(self, now: dict[str, Any]) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class Lines(Watcher):
    """Plain lines, for pipes and files."""

    def show(self, now: dict[str, Any]) -> None:
        click.echo(f"  {line(now)}")

    def say(self, text: str) -> None:
        click.echo(text)


class Live(Watcher):
    """One line that is written over, on a terminal."""

    every = OFTEN

    def show(self, now: dict[str, Any]) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{line(now)[:width]}")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        self.close()
        click.echo(text)

    def warn(self, text: str) -> None:
        self.close()
        super().warn(text)

    def close(self) -> None:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


class Json(Watcher):
    """JSON, one line an event."""

    every = 1.0

    def show(self, now: dict[str, Any]) -> None:
        click.echo(json.dumps(check.of_json({"event": "step"} | now), allow_nan=False))

    def say(self, text: str) -> None:
        click.echo(json.dumps({"event": "said", "text": text}))

    def warn(self, text: str) -> None:
        click.echo(json.dumps({"event": "warned", "text": text}))


class TensorBoard(Watcher):
    """Events for TensorBoard beside what another watcher shows."""

    every = 1.0

    def __init__(self, folder: Path, beside: Watcher) -> None:
        super().__init__()
        try:
            import tensorboardX
        except ImportError:
            raise ImportError('--tensorboard needs tensorboardX: pip install "tiltwalk[tensorboard]".') from None
        library: Any = tensorboardX
        self._open: Callable[[], Any] = lambda: library.SummaryWriter(str(folder / "tensorboard"))
        self._writer: Any = None
        self._beside = beside
        self._before, self._phase = 0, ""

    def piece(self, told: dict[str, Any]) -> None:
        self._beside.piece(told)
        super().piece(told)

    def show(self, now: dict[str, Any]) -> None:
        self._writer = self._writer or self._open()
        phase = now["phase"].split(" on ")[0]
        for name in ("loss", "s", "updates_per_second", "ess"):
            if now[name] is not None:
                self._writer.add_scalar(f"{phase}/{name}", now[name], now["step"])
        for move, rate in now["acceptance"].items():
            self._writer.add_scalar(f"{phase}/acceptance/{move}", rate, now["step"])

    def say(self, text: str) -> None:
        self._beside.say(text)

    def warn(self, text: str) -> None:
        self._beside.warn(text)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._beside.close()


def line(now: dict[str, Any]) -> str:
    """Where a run stands, in one line."""
    accepted = ", ".join(f"{move} {rate:.0%}" for move, rate in now["acceptance"].items())
    words = [
        f"{now['phase'].split(' on ')[0]} {now['step']}/{now['steps']}",
        f"s {now['s']:.4g}",
        f"loss {now['loss']:.4g}",
        f"accepted {accepted}",
        f"{now['updates_per_second']:.3g} updates/s",
    ]
    words += [f"{now['failed']} not a number"] if now["failed"] else []
    words += [f"ESS {now['ess']:.0f}"] if now["ess"] is not None else []
    words += [f"{lasting(now['left_seconds'])} left"] if now["left_seconds"] is not None else []
    return " | ".join(words)


def lasting(seconds: float) -> str:
    """A time in the two largest units that it has."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


@contextlib.contextmanager
def shown(*, quiet: bool, as_json: bool, folder: Path, tensorboard: bool) -> Iterator[Watcher]:
    """The watcher for where the output goes."""
    watcher: Watcher = Quiet() if quiet else Json() if as_json else Live() if sys.stderr.isatty() else Lines()
    if tensorboard:
        watcher = TensorBoard(folder, watcher)
    try:
        yield watcher
    finally:
        watcher.close()


def ended(work: Callable[[], dict[str, Any]], finally_: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What `work` returns; where a signal stopped it, its sentence and the status that says so."""
    from tiltwalk.runs.writer import Stopped

    try:
        return work()
    except Stopped as stopped:
        click.echo(f"tiltwalk: {stopped}", err=True)
        click.get_current_context().exit(128 + stopped.signal)
    finally:
        finally_()
    raise AssertionError
