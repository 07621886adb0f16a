"""What run.json and the manifest of a checkpoint must hold, whoever wrote them.

A checksum says that nothing was changed by accident, not that we wrote it.

Sizes are bounded before anything is made in their size, and no text of a file becomes part of a path.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
except ImportError as missing:
    raise ImportError('Run folders need pydantic: pip install "tiltwalk[runs]".') from missing

MOST_LETTERS = 10_000
MOST_NUMBERS = 2**40
"""In one draw of all chains, losses or paths."""

Size = Annotated[int, Field(ge=1, lt=2**40)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, Field(max_length=MOST_LETTERS)]


class Form(BaseModel):
    """Keys that must be there, of their own types; others may be there too."""

    model_config = ConfigDict(extra="allow", strict=True)


class Data(Form):
    name: Word
    sha256: Digest
    train: Count
    test: Count
    shape: Annotated[list[Size], Field(min_length=1, max_length=8)]
    task: Literal["classification", "regression"]
    classes: list[str | int | float | bool] | None
    features: list[str]
    centre: list[Real] | None
    spread: list[Real] | None

    @model_validator(mode="after")
    def _scaled_by_columns(self) -> Data:
        for scale in (self.centre, self.spread):
            if scale is not None and [len(scale)] != self.shape:
                raise ValueError("must give centre and spread of every column")
        if (self.centre is None) != (self.spread is None):
            raise ValueError("must give centre and spread, or neither")
        return self


class Record(Form):
    """run.json."""

    tiltwalk: Word
    made: Word
    data: Data
    network: dict[str, Any]
    dim: Size
    chains: Size
    length: Size
    dtype: Literal["float32", "float64"]
    moves: Annotated[list[Word], Field(min_length=2, max_length=1000)]
    versions: dict[str, Word] = {}
    device: Word = ""
    command: Word | None = None

    @model_validator(mode="after")
    def _of_some_size(self) -> Record:
        if self.chains * self.length * self.dim > MOST_NUMBERS or self.chains * len(self.moves) > MOST_NUMBERS:
            raise ValueError(f"must hold draws of at most {MOST_NUMBERS} numbers")
        return self


class Phase(Form):
    name: Word
    steps: Count
    done: Count
    first: Count
    finished: bool
    moves: list[Word]
    evaluations: Real
    gradients: Real
    failed: Count = 0
    seconds: Real
    sha256: Digest | None = None
    bytes: Count | None = None


class Stored(Form):
    """A file by its size and digest."""

    bytes: Count
    sha256: Digest


class Result(Form):
    s: Real
    sigma: Real
    test: dict[str, Real | None]  # None: it is not a finite number

    @model_validator(mode="after")
    def _of_a_test(self) -> Result:
        if not ({"rmse", "rmse_of_one_member"} <= set(self.test) or set(self.test) >= MEASURED):
            raise ValueError("must hold the figures of a test")
        return self


MEASURED = {"accuracy", "accuracy_of_one_member", "nll", "calibration_error", "members"}


class Manifest(Form):
    """checkpoints/NUMBER.json."""

    status: Literal["running", "stopped", "finished"]
    state: Stored
    files: dict[str, Digest]
    digests: Stored
    counts: dict[str, Count]
    decisions: dict[str, Real]
    phases: Annotated[list[Phase], Field(max_length=10_000)]
    steps: Count
    seconds: Real
    saving_seconds: Real = 0.0
    saved: Word
    sessions: Count = 0
    result: Result | None = None


Some = TypeVar("Some", bound=Form)


def fault(form: type[Some], found: dict[str, Any]) -> str | None:
    """What is wrong with `found`, or None."""
    try:
        form.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        return f"{place}: {first['msg'][:200]}"
    return None
