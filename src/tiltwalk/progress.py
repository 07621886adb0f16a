"""A progress line for long runs: step, rate, loss, acceptance, time left. Silent where there is no terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tqdm import tqdm


class Progress:
    """A context manager around a bar of `total` steps, None where it is not known beforehand.

    `shown=False` shows nothing, `True` only on a terminal.
    """

    def __init__(self, total: int | None, shown: bool) -> None:
        self._bar: Any = tqdm(
            total=total,
            disable=None if shown else True,
            unit=" steps",
            unit_scale=True,
            dynamic_ncols=True,
            smoothing=0.1,
            mininterval=0.2,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.close()

    @property
    def silent(self) -> bool:
        """Whether there is nobody to show anything to."""
        return bool(self._bar.disable)

    def advance(self, steps: int, *, s: float, loss: float, acceptance: float, phase: str = "") -> None:
        """Counts `steps` more and shows where the run stands."""
        if self.silent:
            return
        self._bar.set_description_str(phase, refresh=False)
        self._bar.set_postfix_str(f"s {s:.4g}, loss {loss:.4g}, accepted {acceptance:.0%}", refresh=False)
        self._bar.update(steps)
