"""The progress line: what it shows on a terminal, and that it is silent everywhere else."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tqdm import tqdm

import tiltwalk as tw
from tiltwalk import progress
from tiltwalk.progress import Progress

pty = pytest.importorskip("pty")  # not on Windows
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

SIZE = b"\x28\x00\xa0\x00\x00\x00\x00\x00"  # 40 lines of 160 columns


class Terminal:
    """A pseudo-terminal in the place of stderr, and all that was written to it."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        self.stream = os.fdopen(theirs, "w")
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                return
            if not piece:
                return
            self._pieces.append(piece)

    def __enter__(self) -> Terminal:
        self._before, sys.stderr = sys.stderr, self.stream
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr = self._before

    def shown(self) -> str:
        """All of it; the terminal is closed."""
        self.stream.close()
        self._reader.join(10)
        os.close(self._ours)
        return b"".join(self._pieces).decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    # every report is drawn, however fast the machine
    monkeypatch.setattr(progress, "tqdm", lambda **settings: tqdm(**(settings | {"mininterval": 0})))
    yield made
    if not made.stream.closed:
        made.shown()


def sample(**given: Any) -> tw.Run:
    measure = tw.PathMeasure(tw.RandomWalk(0.5, start=tw.Normal(1.0)), tw.losses.double_well(), 4)
    return tw.sample(measure, 2.5, steps=30_000, burn_in=10_000, chains=4, workers=1, **given)


LINE = re.compile(
    r"(?P<done>[\d.]+k?)/40\.0k \[\d\d:\d\d<(?P<left>\d\d:\d\d|\?), +(?P<rate>[\d.]+[kM]? steps/s|\? steps/s),"
    r" s (?P<s>[\d.]+), loss (?P<loss>[\d.]+), accepted (?P<accepted>\d+)%\]"
)


def test_a_terminal_shows_step_rate_loss_acceptance_and_time_left(terminal: Terminal) -> None:
    with terminal:
        run = sample()
    shown = terminal.shown()
    lines = [line for line in re.split(r"[\r\n]+", shown) if "accepted" in line]
    found = [LINE.search(line) for line in lines]
    assert len(lines) >= 4 and all(found), shown  # it moves: Python sees the run in pieces
    for m in found:
        assert m is not None
        assert m["s"] == "2.5"
        assert 0.02 < float(m["loss"]) < 5  # four chains of a double well: of order one
        assert 10 <= int(m["accepted"]) <= 90
    done = [float(m["done"].rstrip("k")) for m in found if m]
    assert done == sorted(done) and done[-1] == 40.0
    last = found[-1]
    assert last is not None and last["left"] == "00:00" and re.fullmatch(r"[\d.]+[kM]? steps/s", last["rate"])
    assert int(last["accepted"]) == round(100 * run.acceptance["sweep"])
    assert "burn-in" in lines[0] and "burn-in" not in lines[-1] and "100%" in lines[-1]


def test_progress_false_shows_nothing_on_a_terminal(terminal: Terminal) -> None:
    with terminal:
        assert sys.stderr.isatty()
        sample(progress=False)
    assert terminal.shown() == ""


@pytest.mark.parametrize("shown", [True, False])
def test_what_is_no_terminal_is_shown_nothing(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    sample(progress=shown)
    with Progress(10, shown) as bar:
        assert bar.silent
        bar.advance(10, s=1.0, loss=1.0, acceptance=0.5)
    assert capfd.readouterr() == ("", "")


def test_the_terminal_is_left_in_order_after_an_error(terminal: Terminal) -> None:
    with terminal, pytest.raises(TypeError, match="mine"):
        sample(keep=fails)
    shown = terminal.shown()
    assert "0.00/40.0k" in shown and shown.endswith("\n")


def fails(state: tw.ChainState) -> Any:
    raise TypeError("mine")
