"""Tables of numbers with one column for the target: CSV and TSV by the standard library, Parquet by Arrow."""

import csv as standard
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[list[str]]
Split = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]
MISSING = ("", "na", "n/a", "nan", "null")
TOGETHER = 4096
SHOWN = 8


def csv(path: Path, target: str | None) -> tuple[tuple[str, ...], Split]:
    """The names of the columns, and features and target, of a file with one row a line.

    The separator is a tab in `.tsv`, else whichever of comma, semicolon and tab the first line has most of. The
    encoding is UTF-8.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            if not first.strip():
                raise ValueError(f"{path.name} must hold a table; its first line is empty.")
            stream.seek(0)
            rows = (row for row in standard.reader(stream, delimiter=separator(path, first)) if row)
            return parsed(path, rows, target)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be text in UTF-8; it is not ({error.reason} at byte {error.start}).") from None
    except standard.Error as error:
        raise ValueError(f"{path.name} must be a table of comma-separated values; it cannot be read ({error}).") from None


def separator(path: Path, line: str) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=line.count)


def parsed(path: Path, rows: Iterator[list[str]], target: str | None) -> tuple[tuple[str, ...], Split]:
    """Features as floats, piece by piece, so that the text of a large file is never held as a whole."""
    first = [cell.strip() for cell in next(rows)]
    if all(is_number(cell) for cell in first):
        names, rows = tuple(str(i) for i in range(len(first))), itertools.chain([first], rows)
    else:
        names = tuple(first)
    place = position(path, names, target)
    kept = [i for i in range(len(names)) if i != place]
    pieces: list[np.ndarray[Any, Any]] = []
    targets: list[str] = []
    bad: dict[str, str] = {}
    seen = 0
    while block := list(itertools.islice(rows, TOGETHER)):
        ragged = next((i for i, row in enumerate(block) if len(row) != len(names)), None)
        if ragged is not None:
            raise ValueError(
                f"{path.name}: every row must have {len(names)} columns, as the first; got {len(block[ragged])} in row "
                f"{seen + ragged + 1}."
            )
        if place is not None:
            targets += [row[place].strip() for row in block]
        try:
            pieces.append(np.array([[row[i] for i in kept] for row in block], float))
        except ValueError:
            for i in kept:
                fault(path, names[i], [row[i].strip() for row in block], seen, bad)
        seen += len(block)
    if bad:
        raise ValueError(f"{path.name}: features must be numbers; got text in {listed(bad)}. Encode or drop these columns.")
    if seen == 0:
        raise ValueError(f"{path.name} must hold at least one row; it holds a header alone.")
    y = None if place is None else typed(path, names[place], targets)
    return names, (np.concatenate(pieces), y)


def position(path: Path, names: tuple[str, ...], target: str | None) -> int | None:
    """Where the target is among the columns."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path.name}: columns must have different names; got {', '.join(map(repr, twice))} twice or more.")
    if target is None:
        return None
    if target not in names:
        shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
        raise ValueError(f"{path.name}: target must be one of its columns, {shown}; got {target!r}.")
    if len(names) == 1:
        raise ValueError(f"{path.name} must hold a column besides the target {target!r}; it holds no other.")
    return names.index(target)


def fault(path: Path, name: str, cells: list[str], seen: int, bad: dict[str, str]) -> None:
    """Raises on a missing value; keeps the first text of a column that holds text."""
    for row, cell in enumerate(cells):
        if cell.lower() in MISSING:
            raise ValueError(f"{path.name}: column {name!r} must have no missing values; got {cell!r} in row {seen + row + 1}.")
        if not is_number(cell):
            bad.setdefault(name, cell)
            return


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def typed(path: Path, name: str, cells: list[str]) -> np.ndarray[Any, Any]:
    """A column of text as whole numbers, else as numbers, else as it is."""
    for row, cell in enumerate(cells):
        if cell.lower() in MISSING:
            raise ValueError(f"{path.name}: target {name!r} must have no missing values; got {cell!r} in row {row + 1}.")
    for kind in (np.int64, np.float64):
        try:
            return np.array(cells).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(cells)


def listed(bad: dict[str, str]) -> str:
    some = [f"{name!r} (such as {cell!r})" for name, cell in itertools.islice(bad.items(), SHOWN)]
    return ", ".join(some) + (f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else "")


def parquet(path: Path, target: str | None) -> tuple[tuple[str, ...], Split]:
    """The names of the columns, and features and target, of a Parquet file."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as format_
    except ImportError:
        raise ImportError(f'{path.name}: reading Parquet needs Arrow: pip install "tiltwalk[tables]".') from None
    try:
        table = format_.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path.name} must be a whole Parquet file; it cannot be read ({str(error)[:120]}).") from None
    names = tuple(table.column_names)
    place = position(path, names, target)
    if table.num_rows == 0 or not names:
        raise ValueError(f"{path.name} must hold at least one row; it holds none.")
    kept = [name for name in names if name != target]
    types = arrow.types
    for name in names:
        if table[name].null_count:
            raise ValueError(f"{path.name}: column {name!r} must have no missing values; got {table[name].null_count}.")

    def numeric(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    bad = {name: str(table[name][0]) for name in kept if not numeric(table[name].type)}
    if bad:
        raise ValueError(f"{path.name}: features must be numbers; got text in {listed(bad)}. Encode or drop these columns.")
    X = np.column_stack([table[name].to_numpy().astype(float) for name in kept])
    if place is None:
        return names, (X, None)
    column = table[target]
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if numeric(column.type):
        return names, (X, column.to_numpy())
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        raise ValueError(f"{path.name}: target {target!r} must be numbers, truth values or text; got {column.type}.")
    return names, (X, np.array(column.to_pylist(), dtype=str))
