"""The settings of a run: one typed model, read from TOML, and every fault of it named with its key and what is allowed.

    config = load("run.toml", ["walk.sigma=0.05"])     or read(tables), tables as tomllib gives them
    toml(config)                                       what `load` reads back, with comments where asked for

Parameters are measured in the scales of their own initialisation throughout: `start.scale` and `walk.sigma` are in these units.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import json
import platform
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from tiltwalk import check
from tiltwalk._version import __version__

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError
except ImportError as missing:
    raise ImportError('Run folders need pydantic: pip install "tiltwalk[runs]".') from missing

Above0 = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=2**53)]
Counted = Annotated[int, Field(ge=1, le=2**53)]
Auto = Literal["auto"]


class Section(BaseModel):
    """A table of the file: nothing but its keys, of their own types, never changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


class Data(Section):
    """What to learn from, and what to test on."""

    source: str = Field(default="mnist2048", min_length=1, description="A data set's name, or a CSV, Parquet, NPZ or IDX file.")
    target: str | None = Field(default=None, description="CSV, Parquet: the column to predict. NPZ: the array, such as y.")
    task: Literal["classification", "regression"] | None = Field(default=None, description="By default found from the target.")
    scale: Above0 | None = Field(default=None, description="What images of whole numbers are divided by.")
    test: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.2, description="The part of a file that is kept for the test.")


class Network(Section):
    """The network that every model of a path is."""

    kind: Literal["auto", "lenet", "mlp", "linear"] = Field(default="auto", description="Auto: lenet for images, else mlp.")
    hidden: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default=[32], min_length=1, max_length=100, description="Widths of an mlp's hidden layers."
    )
    activation: Literal["relu", "tanh", "gelu", "sigmoid", "identity"] = Field(default="relu", description="Of an mlp.")


class Walk(Section):
    """The law of a path before any data."""

    kind: Literal["random_walk", "ornstein_uhlenbeck"] = Field(
        default="random_walk", description="The latter is pulled to zero."
    )
    length: Annotated[int, Field(ge=1, le=100_000)] = Field(default=4, description="Models in a path, tau.")
    sigma: Above0 | Auto = Field(
        default="auto", description="Step of the walk; by default twice what the warm-up could move a model by."
    )
    pull: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="Of ornstein_uhlenbeck: part of the way to zero."
    )


class Start(Section):
    """The law of the first model."""

    kind: Literal["normal", "flat"] = Field(default="normal", description="Flat cannot be normalised with cross entropy.")
    scale: Above0 = Field(default=1.0, description="Deviation of a normal start, in initialisation scales.")


class Loss(Section):
    """The loss of one model on all samples."""

    kind: Literal["auto", "cross_entropy", "zero_one", "mse", "gaussian"] = Field(
        default="auto", description="By default cross_entropy for classes and gaussian, with its noise learnt, for values."
    )
    class_weight: Literal["balanced"] | None = Field(default=None, description="Balanced: each class counts the same.")
    noise: Above0 | None = Field(default=None, description="Of gaussian: the deviation, where it is not to be learnt.")


class Move(Section):
    weight: Above0 = Field(default=1.0, description="How often this move is made, relative to the others.")
    step: Share = Field(default=0.1, description="Size of the partial refresh; tuned during burn-in. 1 redraws.")
    fraction: Share = Field(default=1.0, description="The part of the parameters that a proposal changes.")


class Sweep(Move):
    """One update of every model."""

    kind: Literal["sweep"] = "sweep"


class SingleSite(Move):
    """One model, given its neighbours."""

    kind: Literal["single_site"]


class Bridge(Move):
    """Consecutive models between two that stay."""

    kind: Literal["bridge"]
    width: Counted | Literal["any"] = Field(default=1, description="Models.")


class Shoot(Move):
    """One end of the path."""

    kind: Literal["shoot"]
    reach: Counted | Literal["any"] = Field(default="any", description="Models.")


class Rule(Section):
    """How proposals are decided."""

    kind: Literal["metropolis"] = "metropolis"


class Schedule(Section):
    """The tilt."""

    s: Above0 | Auto = Field(
        default="auto",
        description="Tilt of a single model, auto 10 times the number of samples; a path has s / walk.length.",
    )
    kind: Literal["constant", "linear", "geometric"] = Field(default="constant", description="How burn-in comes to it.")
    first: Share = Field(default=0.1, description="Of linear and geometric: the part of s that burn-in begins with.")


class Chains(Section):
    """Independent paths."""

    count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=4, description="Their number.")
    target_acceptance: Share = Field(default=0.25, description="What step sizes are tuned to.")


class Seeds(Section):
    """Of all random numbers: the same seeds give the same run."""

    run: Annotated[int, Field(ge=0, lt=2**32 - 1)] = Field(default=0, description="Of the sampling.")
    split: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=0, description="Of what is kept for the test.")


class Budget(Section):
    """How much is done. Steps that are auto take what the warm-up leaves, a third of it for burn-in."""

    seconds: Annotated[float, Field(ge=1, le=1e9)] | None = Field(
        default=150.0, description="Time to train for: turned into steps by measurements, which are kept."
    )
    evaluations: Annotated[int, Field(ge=100, le=2**53)] | None = Field(
        default=None, description="Losses of one model on all data, in place of seconds: does not depend on the machine."
    )
    warm_up: bool = Field(default=True, description="Begin with single models, by evolution and settling.")
    burn_in: Whole | Auto = Field(default="auto", description="Steps of the path that are not kept.")
    steps: Counted | Auto = Field(default="auto", description="Steps of the path after burn-in, in all.")


class Output(Section):
    """What is kept, and when it is saved."""

    paths: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=8, description="Paths kept of each chain, evenly over the steps; their models are the members."
    )
    path_every: Counted | Auto = Field(default="auto", description="Steps from one kept path to the next, in place of paths.")
    thin: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Steps from one kept draw of the losses to the next."
    )
    piece: Annotated[int, Field(ge=1, le=10_000_000)] | Auto = Field(
        default="auto", description="Steps between two looks at the run; by default half a second."
    )
    save_seconds: Annotated[float, Field(gt=0, le=1e9)] = Field(default=60.0, description="A save after about this time.")
    save_steps: Counted | None = Field(default=None, description="And a save after this many steps, rounded up to pieces.")
    tensorboard: bool = Field(default=False, description="Write events for TensorBoard too; needs tiltwalk[tensorboard].")


AnyMove = Annotated[Sweep | SingleSite | Bridge | Shoot, Field(discriminator="kind")]


class Config(Section):
    """A run of Tiltwalk."""

    data: Data = Data()
    network: Network = Network()
    walk: Walk = Walk()
    start: Start = Start()
    loss: Loss = Loss()
    moves: list[AnyMove] = Field(default=[Sweep()], min_length=1, max_length=100)
    rule: Rule = Rule()
    schedule: Schedule = Schedule()
    chains: Chains = Chains()
    seeds: Seeds = Seeds()
    budget: Budget = Budget()
    output: Output = Output()


# ---- in ----


def load(path: str | Path | None, changes: Iterable[str] = ()) -> Config:
    """The settings of a TOML file, or the defaults, with changes such as `walk.sigma=0.05`."""
    return read(changed(tables(path) if path is not None else {}, changes))


def tables(path: str | Path) -> dict[str, Any]:
    """A TOML file as tables."""
    path = Path(path)
    with path.open("rb") as stream:
        return parsed(path.name, stream.read())


def parsed(name: str, content: bytes) -> dict[str, Any]:
    """The content of a TOML file as tables."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{name} must be TOML; {error}.") from None


def changed(found: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """The tables with `key.key=value` put in; a value is TOML, and text where it is not. `moves.0.step` counts from 0."""
    found = json.loads(json.dumps(found, default=str))
    for change in changes:
        key, equals, text = change.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            raise ValueError(f"--set must be KEY=VALUE, such as walk.sigma=0.05; got {check.shown(change)}.")
        value = _of_toml(text)
        at: Any = found
        for i, part in enumerate(keys):
            place: Any = part
            if isinstance(at, list):
                if not part.isdigit() or int(part) >= len(at):
                    raise ValueError(f"{'.'.join(keys[: i + 1])} must be an entry of {'.'.join(keys[:i])}, 0 to {len(at) - 1}.")
                place = int(part)
            elif not isinstance(at, dict):
                raise ValueError(f"{'.'.join(keys[:i])} has no settings of its own; got {change}.")
            elif keys[0] == "moves" and i == 0:
                at.setdefault("moves", [{"kind": "sweep"}])
            if i == len(keys) - 1:
                at[place] = value
            else:
                at = at.setdefault(place, {}) if isinstance(at, dict) else at[place]
    return found


def _of_toml(text: str) -> Any:
    """One value of TOML; any other text is text."""
    try:
        given = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text.strip()
    return given["value"] if set(given) == {"value"} else text.strip()


def read(found: dict[str, Any]) -> Config:
    """Tables as settings; what is wrong is named by its key, with what is allowed there."""
    try:
        config = Config.model_validate(found)
    except ValidationError as error:
        raise ValueError("; ".join(dict.fromkeys(_faults(error, found)))) from None
    _agree(config)
    if config.budget.evaluations is not None:
        config = config.model_copy(update={"budget": config.budget.model_copy(update={"seconds": None})})
    return config


def _agree(config: Config) -> None:
    """Raises where settings contradict each other."""
    budget, output = config.budget, config.output
    fixed = not budget.warm_up and budget.burn_in != "auto" and budget.steps != "auto"
    if budget.evaluations is not None and budget.seconds not in (None, Budget().seconds):
        raise ValueError("budget.seconds must be left out where budget.evaluations is given; got both.")
    if budget.evaluations is None and budget.seconds is None and not fixed:
        raise ValueError(
            "budget must give seconds or evaluations, or else warm_up = false with burn_in and steps as numbers; got neither."
        )
    for name, value in (("budget.steps", budget.steps), ("output.path_every", output.path_every)):
        if value != "auto" and value % output.thin:
            raise ValueError(f"{name} must be a multiple of output.thin = {output.thin}; got {value}.")
    if config.loss.noise is not None and config.loss.kind != "gaussian":
        raise ValueError(f'loss.noise must be left out unless loss.kind is "gaussian"; got {config.loss.noise:g}.')
    if config.walk.kind == "ornstein_uhlenbeck" and config.start != Start():
        raise ValueError('start must be left out for walk.kind = "ornstein_uhlenbeck", whose start is its own law at rest.')
    if not budget.warm_up and config.walk.sigma == "auto":
        raise ValueError('walk.sigma must be a number where budget.warm_up is false; got "auto".')


def _faults(error: ValidationError, found: dict[str, Any]) -> Iterable[str]:
    schema = json_schema()
    for fault in error.errors():
        keys, value, described = _followed(fault["loc"], found, schema)
        name = ".".join(map(str, keys))
        if fault["type"] == "extra_forbidden":
            there = list(described.get("properties", {}))
            parent = ".".join(map(str, keys[:-1]))
            near = difflib.get_close_matches(str(keys[-1]), there, 1)
            hint = f" Did you mean {'.'.join([*map(str, keys[:-1]), near[0]])}?" if near else ""
            yield f"{name} is not a setting; {f'[{parent}]' if parent else 'a run'} has {', '.join(there)}.{hint}"
        elif fault["type"] == "missing":
            yield f"{name} must be given: {_allowed(described, schema)}."
        else:
            over = fault["type"] in ("less_than_equal", "finite_number")
            yield f"{name} must be {_allowed(described, schema, over)}; got {check.shown(value)}."


def _followed(place: tuple[int | str, ...], found: Any, schema: dict[str, Any]) -> tuple[list[Any], Any, dict[str, Any]]:
    """The keys of a fault, what stands there, and the schema of it; the names of alternatives are no keys."""
    keys: list[Any] = []
    at: Any = found
    described = schema
    for part in place:
        described = _resolved(described, schema)
        if isinstance(at, list) and isinstance(part, int):
            keys, at, described = [*keys, part], at[part], described.get("items", {})
        elif "discriminator" in described and isinstance(at, dict):
            described = described["discriminator"]["mapping"].get(part, {})
            described = _resolved({"$ref": described} if isinstance(described, str) else described, schema)
        elif isinstance(at, dict) and (part in at or part in described.get("properties", {})):
            inner = described.get("properties", {}).get(part)
            keys, at = [*keys, part], at.get(part)
            if inner is None:
                break
            described = inner
        else:
            break
    return keys, at, _resolved(described, schema)


def _resolved(described: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in described:
        described = schema["$defs"][described["$ref"].rsplit("/", 1)[-1]]
    return described


def _allowed(described: dict[str, Any], schema: dict[str, Any], bounded: bool = False) -> str:
    """What a part of the schema allows, in words; `bounded` with the bounds that nobody meets by intention."""
    described = _resolved(described, schema)
    if "discriminator" in described:
        return f"a table with kind one of {', '.join(described['discriminator']['mapping'])}"
    if "anyOf" in described:
        return ", or ".join(_allowed(one, schema, bounded) for one in described["anyOf"] if one.get("type") != "null")
    if "const" in described:
        return f'"{described["const"]}"'
    if "enum" in described:
        return "one of " + ", ".join(f'"{value}"' for value in described["enum"])
    kind = described.get("type")
    if kind == "array":
        least = described.get("minItems", 0)
        return f"a list of at least {least} entries, each {_allowed(described['items'], schema)}"
    if kind in ("integer", "number"):
        text = "a whole number" if kind == "integer" else "a number"
        for word, name in (("above", "exclusiveMinimum"), ("of at least", "minimum")):
            if name in described:
                text += f" {word} {described[name]:g}"
        for word, name in (("below", "exclusiveMaximum"), ("at most", "maximum")):
            if name in described and (bounded or described[name] < 1e9):
                text += f" and {word} {described[name] if kind == 'integer' else format(described[name], 'g')}"
        return text
    return {"string": "text", "boolean": "true or false", "object": "a table"}.get(str(kind), "a setting")


# ---- out ----


def versions() -> tuple[str, ...]:
    """What the head of a run's settings says of what wrote them."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy")]
    return (f"Written by tiltwalk {__version__} with python {platform.python_version()}, {', '.join(found)}.",)


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def toml(config: Config, *, comments: bool = False, head: Iterable[str] = ()) -> str:
    """The settings as TOML. With `comments`, each with what it means; settings that have no value are commented out."""
    schema = json_schema()
    lines = [f"# {line}".rstrip() for line in head]
    for name, value in config:
        for entry in value if isinstance(value, list) else [value]:
            kind = type(entry)
            lines += ["", f"[[{name}]]" if isinstance(value, list) else f"[{name}]"]
            if comments and kind.__doc__:
                lines[-1:] = [f"# {kind.__doc__.strip()}", lines[-1]]
            described = kind.model_json_schema()
            for key in sorted(kind.model_fields, key=lambda key: key != "kind"):
                setting = getattr(entry, key)
                if comments:
                    text = kind.model_fields[key].description or "What it is."
                    lines.append(f"# {text} Allowed: {_allowed(described['properties'][key], described)}.")
                if setting is not None:
                    lines.append(f"{key} = {_value(setting)}")
                elif comments:
                    lines.append(f"# {key} =")
    if comments:
        kinds = ", ".join(_resolved(schema["properties"]["moves"], schema)["items"]["discriminator"]["mapping"])
        lines += ["", f"# More moves make a mixture: further tables [[moves]] with kind one of {kinds}."]
    return "\n".join(lines).strip() + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
