"""Sessions: a run is begun in one, and gone on with in others, until it is finished."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tiltwalk import check, metrics
from tiltwalk._version import __version__
from tiltwalk.ensemble import Ensemble
from tiltwalk.ensemble_file import to_dict
from tiltwalk.measure import PathMeasure
from tiltwalk.runs import checkpoint, files, forms, layout, prepare
from tiltwalk.runs.writer import SAMPLING, Nobody, Watcher, Writer
from tiltwalk.sampling import names_of
from tiltwalk.training import Budget, even, step_size, warm_up
from tiltwalk.warm import grow

if TYPE_CHECKING:
    from tiltwalk.runs.config import Config

MOST_SETTINGS = 2**20
"""Bytes of config.toml."""

PACKAGES = ("jax", "jaxlib", "numpy", "scipy")
MOST_MEMBERS = 2**28
"""Numbers in all members of an ensemble, above which some of the paths are left out, evenly."""


def begin(
    config: Config, path: Path, watcher: Watcher | None = None, head: tuple[str, ...] = (), *, command: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Makes the folder, and the run in it, to its end; returns the figures on the test data.

    `command` is what somebody typed to have it made: it is kept for them to read.
    """
    watcher = watcher or Nobody()
    found = prepare.load_for(config)
    config = prepare.resolved(config, found)
    network = prepare.network(config, found)
    loss = prepare.loss(config, network, found)
    mixture = prepare.mixture(config)
    for move, _ in mixture:  # what does not fit is refused before anything is written
        move.check(PathMeasure(prepare.walk(config, loss, 1.0), loss, config.walk.length))
    prepare.tilt(config, 1)
    fresh = not path.exists()
    _room(path)
    record = {
        "tiltwalk": __version__,
        "command": command if command is not None and len(command) <= forms.MOST_LETTERS else None,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "device": str(jax.devices()[0].device_kind),
        "data": {
            "name": config.data.source,
            "sha256": found.digest(),
            "train": len(found.X),
            "test": len(found.test_X),
            "shape": list(found.X.shape[1:]),
            "task": found.task,
            "classes": None if found.classes is None else list(found.classes),
            "features": list(found.features),
            "centre": None if found.centre is None else found.centre.tolist(),
            "spread": None if found.spread is None else found.spread.tolist(),
        },
        "network": to_dict(network),
        "dim": loss.dim,
        "chains": config.chains.count,
        "length": config.walk.length,
        "dtype": str(jnp.zeros(0).dtype),
        "moves": [*names_of(mixture), layout.WARM_UP],
    }
    from tiltwalk.runs.config import toml

    written = {layout.CONFIG: toml(config, head=head).encode(), layout.RECORD: layout.sealed_record(record)}
    files.make_folder(path / "checkpoints")
    with files.locked(path / layout.LOCK):
        try:
            writer = _writer(path, config, json.loads(written[layout.RECORD]))
            writer.founded = {name: files.sha256(content) for name, content in written.items()}
            writer.watcher = watcher
            with writer.saving():
                files.write_whole(path / layout.CONFIG, written[layout.CONFIG])
            writer.log("began", tiltwalk=__version__)
            writer.save()
            with writer.saving():
                files.write_whole(path / layout.RECORD, written[layout.RECORD])  # last: from here on there is a run
            watcher.say(
                f"{Path(config.data.source).name}: {len(found.X)} samples to train on, {len(found.test_X)} to test; "
                f"a model has {network.dim} parameters"
            )
            return _carried_out(writer, config, found, network, loss)
        except ValueError:
            if fresh and _steps(path) == 0:
                shutil.rmtree(path)  # nothing was made: the next attempt may have the name
            raise


def resume(path: Path, steps: int | None = None, more: int | None = None, watcher: Watcher | None = None) -> dict[str, Any]:
    """Goes on with a run to its end, or to `steps` steps in all, or `more` steps beyond where its end was."""
    watcher = watcher or Nobody()
    guard(path)
    if not os.access(path, os.W_OK) or not os.access(path / "checkpoints", os.W_OK):
        raise ValueError(f"{path} must be a folder that can be written, to go on with its run; it is read-only.")
    with files.locked(path / layout.LOCK):
        config, record = read(path)
        writer, notes = restored(path, config, record)
        writer.watcher = watcher
        for note in notes:
            watcher.warn(note)
            writer.log("fell back", reason=note)
        found = prepare.load_for(located(config, path))
        if found.digest() != record["data"]["sha256"]:
            raise ValueError(f"{config.data.source} must hold the data that the run began with; they were changed since.")
        network = prepare.network(config, found)
        loss = prepare.loss(config, network, found)
        planned = writer.decisions.get("steps in all")
        if steps is not None or more is not None:
            if planned is None:
                raise ValueError(
                    "--steps and --more count steps of sampling, which this run has not come to: resume it without them first."
                )
            wanted = int(steps if steps is not None else planned + (more or 0))
            done = next((phase["done"] for phase in writer.phases if phase["name"] == SAMPLING), 0)
            if wanted % config.output.thin:
                raise ValueError(f"steps must be a multiple of output.thin = {config.output.thin}; got {wanted} in all.")
            if wanted < done:
                raise ValueError(f"--steps must be at least {done}, the steps of sampling already made; got {wanted}.")
            writer.decisions["steps in all"] = wanted
            writer.reopen()
        writer.extra["sessions"] = int(writer.extra.get("sessions", 0)) + 1
        writer.log("resumed", step=writer.steps, checkpoint=writer.number)
        watcher.say(f"{path}: going on from step {writer.steps}")
        return _carried_out(writer, config, found, network, loss)


def read(path: Path) -> tuple[Config, dict[str, Any]]:
    """Settings and record, each as it was written."""
    from tiltwalk.runs import config as settings

    record = layout.read_record(path)
    try:
        text = files.read(path / layout.CONFIG, MOST_SETTINGS)
    except FileNotFoundError:
        raise checkpoint.Damaged(f"{path / layout.CONFIG} is missing.") from None
    return settings.read(settings.parsed(layout.CONFIG, text)), record


def restored(path: Path, config: Config, record: dict[str, Any]) -> tuple[Writer, list[str]]:
    """A writer at the newest checkpoint that is whole, and what is to be said of newer ones that are not."""
    notes: list[str] = []
    there = checkpoint.numbers(path)
    for number in there:
        writer = _writer(path, config, record)
        try:
            point = checkpoint.load(path, number)
            writer.founded = layout.digests(path)
            changed = [name for name, digest in writer.founded.items() if point.content["files"].get(name) != digest]
            if changed:
                raise checkpoint.Damaged(f"{' and '.join(changed)} must be as the run began with; changed since.")
            writer.take_up(point)
        except checkpoint.Damaged as error:
            notes.append(f"checkpoint {number} cannot be used: {error}")
            continue
        for older in there[there.index(number) + 1 :]:
            newer = checkpoint.claimed(path, older)
            if newer > number:
                notes.append(f"checkpoint {newer} cannot be used: it lies where checkpoint {older} should")
        if notes:
            notes.append(f"falling back to checkpoint {number}, step {writer.steps}")
        return writer, notes
    why = f": {'; '.join(note.rstrip('.') for note in notes)}" if notes else ", and there is none"
    raise checkpoint.Damaged(
        f"{path} holds no checkpoint that is whole{why}. To begin again: tiltwalk train --config {path / layout.CONFIG}"
    )


def guard(path: Path) -> None:
    """Raises unless `path` is a run folder of plain files and folders: no link leads out of it."""
    if not path.is_dir():
        raise ValueError(f"{path} must be a run folder; it is not there or is a file.")
    if not (path / layout.RECORD).is_file():
        raise ValueError(
            f"{path} must be a run folder; it holds no {layout.RECORD}. "
            "One that was killed as it began is begun again: tiltwalk train."
        )
    for inner, folders, names in os.walk(path):
        for name in (*folders, *names):
            place = os.path.join(inner, name)
            with contextlib.suppress(FileNotFoundError):  # a run that is being written replaces files
                kind = os.lstat(place).st_mode
                if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                    what = "a link" if stat.S_ISLNK(kind) else "a pipe, a socket or a device"
                    raise ValueError(f"{place} must be a file or folder of the run itself; it is {what}.")


def located(config: Config, path: Path) -> Config:
    """The settings with the data where they are now: where they were, or in or beside a run folder that was moved."""
    source = Path(config.data.source)
    if source.is_absolute() and not source.exists():
        for folder in (path, path.parent, path.parent.parent, Path()):
            if (folder / source.name).is_file():
                there = str((folder / source.name).resolve())
                return config.model_copy(update={"data": config.data.model_copy(update={"source": there})})
        raise ValueError(
            f"{source} must be there to go on with the run, since it holds the data; put it back, or a copy beside {path}."
        )
    return config


def ensemble_of(writer: Writer, network: Any) -> Ensemble:
    """The models of all paths that were kept; of very many, an even choice."""
    count = writer.draws.counts["posterior/step"]
    if not count:
        raise ValueError(f"{writer.path} has kept no paths yet: go on with it, tiltwalk resume {writer.path}")
    one = int(np.prod([writer.record[name] for name in ("chains", "length", "dim")]))
    chosen = range(0, count, max(1, -(-count * one // MOST_MEMBERS)))
    paths = np.concatenate([writer.draws.read("posterior/theta", i, i + 1) for i in chosen], 1)
    found = writer.record["data"]
    classes = None if found["classes"] is None else tuple(found["classes"])
    return Ensemble(network, paths[..., : network.dim], found["task"], classes)


def figures(ensemble: Ensemble, X: Any, y: Any) -> dict[str, float]:
    """How good the ensemble is on the test data, and one member on average."""
    some = ensemble.thetas[:: max(1, len(ensemble) // 8)]
    ones = [Ensemble(ensemble.network, member[None], ensemble.task) for member in some]
    if ensemble.task == "regression":
        error = [float(np.sqrt(np.mean((e.mean(X).reshape(np.shape(y)) - y) ** 2))) for e in [ensemble, *ones]]
        return {"rmse": error[0], "rmse_of_one_member": float(np.mean(error[1:]))}
    p = ensemble.predict_proba(X)
    alone = [metrics.accuracy(y, one.predict_proba(X).argmax(-1)) for one in ones]
    return {
        "accuracy": metrics.accuracy(y, p.argmax(-1)),
        "accuracy_of_one_member": float(np.mean(alone)),
        "nll": metrics.nll(y, p),
        "calibration_error": metrics.calibration_error(y, p),
    }


def _carried_out(writer: Writer, config: Config, found: prepare.Data, network: Any, loss: Any) -> dict[str, Any]:
    """The recipe of a run, from wherever the writer stands: warm-up, burn-in, sampling, and the test."""
    budget = Budget(config.budget.seconds, config.budget.evaluations, config.chains.count)
    assert config.schedule.s != "auto"
    history: list[dict[str, float]] = []
    chains, length = config.chains.count, config.walk.length
    with writer.obeying():
        init: Any = None
        sigma = config.walk.sigma
        if config.budget.warm_up:
            run, history = warm_up(
                loss, prepare.start(config, loss), budget, writer, s=config.schedule.s, chains=chains, key=config.seeds.run,
                progress=False, report=writer.watcher.say,
            )  # fmt: skip
            init = grow(run, length)
            sigma = 2 * step_size(run) if sigma == "auto" else sigma
        assert sigma != "auto"
        burn_in, steps, every = _steps_of_the_path(config, budget, writer)
        measure = PathMeasure(prepare.walk(config, loss, sigma), loss, length)
        common: dict[str, Any] = {
            "moves": prepare.mixture(config), "rule": prepare.rule(config), "chains": chains, "key": config.seeds.run + 1
        }  # fmt: skip
        if burn_in:
            init = writer.sample(
                "burn-in", measure, prepare.tilt(config, burn_in), burn_in=burn_in, init=init,
                target_acceptance=config.chains.target_acceptance, **common,
            )  # fmt: skip
        writer.sample(
            SAMPLING,
            measure,
            prepare.tilt(config, 0),
            steps=steps,
            thin=config.output.thin,
            path_every=every,
            init=init,
            **common,
        )
    ensemble = ensemble_of(writer, network)
    test = figures(ensemble, found.test_X, found.test_y)
    test |= {"members": len(ensemble), "seconds": round(writer.seconds(), 1)}
    result = check.of_json({
        "data": config.data.source, "network": config.network.kind, "seed": config.seeds.run,
        "s": config.schedule.s / length, "sigma": sigma, "length": length, "warm_up": history, "test": test,
    })  # fmt: skip
    with writer.saving():
        files.write_whole(writer.path / layout.ENSEMBLE, ensemble.packed())
        files.write_whole(writer.path / layout.RESULT, (json.dumps(result, indent=1) + "\n").encode())
    writer.extra["result"] = result
    writer.save("finished")
    writer.log("finished", step=writer.steps)
    return dict(result)


def _steps_of_the_path(config: Config, budget: Budget, writer: Writer) -> tuple[int, int, int]:
    """Burn-in, sampling, and steps from one kept path to the next."""
    given, output = config.budget, config.output
    sweeps = 0
    if given.burn_in == "auto" or given.steps == "auto":
        paths = output.paths if output.path_every == "auto" else 1
        sweeps = max(2 * paths * output.thin, budget.steps(writer, "paths", 1.0, config.walk.length))
    burn_in = sweeps // 3 if given.burn_in == "auto" else given.burn_in
    left = max(output.thin, sweeps - burn_in) if given.steps == "auto" else given.steps
    if output.path_every != "auto":
        every = output.path_every
    else:
        every = even(max(1, left // output.paths // output.thin)) * output.thin
    every = int(writer.decide("steps from path to path", lambda: every))
    first = left // every * every if given.steps == "auto" and left >= every else left // output.thin * output.thin
    return burn_in, int(writer.decide("steps in all", lambda: first)), every


def _writer(path: Path, config: Config, record: dict[str, Any]) -> Writer:
    writer = Writer(path, record, config.output.save_seconds, config.output.save_steps, {})
    writer.piece_steps = None if config.output.piece == "auto" else config.output.piece
    return writer


def _room(path: Path) -> None:
    """Makes the folder, or raises where it cannot be or holds a run already."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"train.out must be a folder that can be written; got {path}, but {place} is a file.")
    begun = checkpoint.numbers(path)
    if (path / layout.RECORD).exists() or begun not in ([], [1]):  # a first save without a record: killed as it began
        raise ValueError(
            f"{path} holds a run already: go on with it, tiltwalk resume {path}, or name another folder with --out."
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        files.write_whole(path / ".probe", b"")
        (path / ".probe").unlink()
    except OSError as error:
        raise ValueError(f"train.out must be a folder that can be written; got {path} ({error.strerror}).") from None


def _steps(path: Path) -> int:
    with contextlib.suppress(Exception):
        return int(checkpoint.load(path, checkpoint.numbers(path)[0]).content["steps"])
    return 0


def compiled_once() -> None:
    """Keeps compiled programs in a folder of the user's, so that a run that is gone on with does not compile again."""
    settings: Any = jax.config
    if settings.jax_compilation_cache_dir is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        settings.update("jax_compilation_cache_dir", os.path.join(home, "tiltwalk", "programs"))
        settings.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def iterate(path: Path) -> Iterator[dict[str, Any]]:
    """The events of log.jsonl; lines that cannot be read are left out."""
    with contextlib.suppress(FileNotFoundError):
        for line in files.read(path / layout.LOG, layout.MOST).decode("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event
