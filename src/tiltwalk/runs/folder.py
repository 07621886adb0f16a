"""Reading a run folder: what is in it, each number held against the digest that it was written with."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from tiltwalk.run import Run
from tiltwalk.types import ChainState

if TYPE_CHECKING:
    from tiltwalk.ensemble import Ensemble
    from tiltwalk.measure import PathMeasure
    from tiltwalk.runs.config import Config
    from tiltwalk.runs.prepare import Data
    from tiltwalk.runs.writer import Writer

LAST = 16
"""Kept paths of each chain that the noise is read from."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run as its newest whole checkpoint has it, whether it is still being written or not.

    `config` are its settings, `record` what run.json says, `status` running, stopped or finished; `notes` say which checkpoints
    could not be used. Everything else is read when it is asked for. What is damaged raises a ValueError that names it.
    """

    path: Path
    config: Config
    record: dict[str, Any]
    notes: tuple[str, ...]
    _writer: Writer

    @property
    def status(self) -> str:
        """running (which a run that was killed still says), stopped or finished."""
        return str(self.manifest["status"])

    @property
    def manifest(self) -> dict[str, Any]:
        """What the checkpoint says: status, phases, steps, seconds, decisions, counts; `result` once finished."""
        return self._writer.content

    @property
    def phases(self) -> list[dict[str, Any]]:
        """The phases so far: name, steps, done, finished, evaluations, seconds."""
        return self._writer.phases

    @property
    def decisions(self) -> dict[str, float]:
        """What was measured when the run was made, such as how many steps a budget came to."""
        return self._writer.decisions

    @property
    def result(self) -> dict[str, Any] | None:
        """The figures on the test data, once finished: s, sigma, warm_up, test."""
        found = self.manifest.get("result")
        return found if isinstance(found, dict) else None

    def arrays(self, group: str) -> dict[str, np.ndarray]:
        """A group of draws.zarr, `sample_stats`, `posterior` or `progress`: arrays by name, see docs/run-folder.md."""
        names = [name for name in self._writer.draws.arrays if name.startswith(f"{group}/")]
        if not names:
            raise ValueError(f"RunFolder.arrays.group must be sample_stats, posterior or progress; got {group!r}.")
        return {name.split("/")[1]: self._writer.draws.read(name) for name in names}

    @cached_property
    def run(self) -> Run:
        """The draws of the sampling phase, without the paths: those are fewer, see `paths`."""
        stats = self.arrays("sample_stats")
        progress = self.arrays("progress")
        names = list(self.record["moves"][:-1])
        mine = progress["phase"] == len(self.phases) - 1
        made = progress["made"][:-1][:, mine]
        rates = np.where(made > 0, progress["acceptance"][:, :-1][:, :, mine], 0)
        with np.errstate(invalid="ignore"):
            accepted = (rates * made).sum(-1) / made.sum(-1)
        sizes = progress["step_size"][:, :-1, -1] if progress["step_size"].shape[-1] else np.zeros((0, len(names)))
        arrays = self._state()
        return Run(
            losses=stats["loss"], paths=None, kept=None, s=stats["s"],
            acceptance={n: float(a.mean()) for n, a in zip(names, accepted.T, strict=True)},
            acceptance_by_chain=dict(zip(names, accepted.T, strict=True)), steps=dict(zip(names, sizes.T, strict=True)),
            state=arrays, step_number=int(stats["step"][-1]) if len(stats["step"]) else 0,
            evaluations=round(float(progress["evaluations"].sum())), seconds=float(self.manifest["seconds"]),
            first_draw_seconds=0.0, failed=sum(phase["failed"] for phase in self.phases),
        )  # fmt: skip

    @property
    def paths(self) -> np.ndarray:
        """The paths that were kept, `(chains, draws, tau, d)`."""
        return self.arrays("posterior")["theta"]

    def _state(self) -> ChainState:
        arrays = self._writer._arrays
        if not arrays and self.phases:
            arrays = self._writer._finished(len(self.phases) - 1)
        if not arrays:
            c, tau, d = (self.record[name] for name in ("chains", "length", "dim"))
            nothing = np.float32(np.nan)
            return ChainState(np.broadcast_to(nothing, (c, tau, d)), np.broadcast_to(nothing, (c, tau)))  # type: ignore[arg-type]
        return ChainState(jnp.asarray(arrays["path"]), jnp.asarray(arrays["losses"]))

    @cached_property
    def network(self) -> Any:
        """The network that every model is."""
        from tiltwalk import ensemble_file

        network = ensemble_file.from_dict(self.record["network"])
        if not 0 <= self.record["dim"] - network.dim <= 1:
            raise ValueError(f"run.json must hold models of the network's {network.dim} parameters; got {self.record['dim']}.")
        return network

    @cached_property
    def ensemble(self) -> Ensemble:
        """All models of the paths that were kept so far."""
        from tiltwalk.runs import session

        return session.ensemble_of(self._writer, self.network)

    @cached_property
    def noise(self) -> float | None:
        """The noise that the last kept paths have learnt, on average; None where the loss has none to learn."""
        if not self.manifest["counts"]["posterior/step"] or self.record["dim"] == self.network.dim:
            return None
        count = self.manifest["counts"]["posterior/step"]
        last = self._writer.draws.read("posterior/theta", max(0, count - LAST), count)
        return float(np.exp(last[..., -1].astype(float)).mean())

    @cached_property
    def data(self) -> Data:
        """What the run learns from and is tested on: X, y, test_X, test_y, task, classes, features."""
        from tiltwalk.runs import prepare, session

        found = prepare.load_for(session.located(self.config, self.path))
        if found.digest() != self.record["data"]["sha256"]:
            raise ValueError(f"{self.config.data.source} must hold the data that the run began with; they were changed since.")
        return found

    @cached_property
    def measure(self) -> PathMeasure:
        """What is sampled; needs the data."""
        from tiltwalk.measure import PathMeasure
        from tiltwalk.runs import prepare

        loss = prepare.loss(self.config, self.network, self.data)
        sigma = self.config.walk.sigma if self.config.walk.sigma != "auto" else (self.result or {}).get("sigma")
        if sigma is None:
            raise ValueError(f"{self.path} must be finished, so that the step of its walk is known; go on with it first.")
        return PathMeasure(prepare.walk(self.config, loss, sigma), loss, self.config.walk.length)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of log.jsonl."""
        from tiltwalk.runs import session

        return list(session.iterate(self.path))

    def scaled(self, samples: Any) -> np.ndarray:
        """Columns of a table as the run's network takes them."""
        found = self.record["data"]
        X: np.ndarray = np.asarray(samples, np.float32)
        if list(X.shape[1:]) != found["shape"]:
            raise ValueError(f"samples must have shape {tuple(found['shape'])}, as those of the run; got {X.shape[1:]}.")
        if found["centre"] is not None:
            centre, spread = (np.asarray(found[name], np.float32) for name in ("centre", "spread"))
            X = (X - centre) / spread
        return X


def open(path: str | Path) -> RunFolder:
    """Opens a run folder to read it. Nothing is written, and nothing in it is executed.

    What was damaged since it was written is not used: the newest checkpoint that is whole counts. A folder with none raises a
    ValueError.
    """
    from tiltwalk.runs import files, layout, session

    path = Path(path)
    session.guard(path)
    config, record = session.read(path)
    for attempt in range(5):
        try:
            writer, notes = session.restored(path, config, record)
            break
        except ValueError:
            # a run that is being written may have removed what was just found
            if attempt == 4 or not files.is_locked(path / layout.LOCK):
                raise
    return RunFolder(path, config, record, tuple(notes), writer)
