"""Lines to rows: one parser per format (TSV, JSONL, CSV, blocks between empty lines), whatever the rows are then made into."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError
from .lines import LineError, each_line, readable

Row = TypeVar("Row")
Item = TypeVar("Item")
Rows = Iterable[tuple[int, Row | LineError]]


def convert(path: Path, rows: Rows[Row], make: Callable[[int, Row], Item]) -> Iterator[Item | LineError]:
    """What `make` makes of each numbered row, or the error it is: a strict reader raises that error, a report collects it."""
    for number, row in rows:
        try:
            if isinstance(row, LineError):
                raise row
            yield make(number, row)
        except LineError as error:
            yield error.at(path, number)


def strict(items: Iterable[Item | LineError]) -> list[Item]:
    """All items; the first bad line is raised as the error it is."""
    good = []
    for item in items:
        if isinstance(item, LineError):
            raise item
        good.append(item)
    return good


def at_least_one(items: Iterable[Item], sentence: str) -> Iterator[Item]:
    """The items as they are; none at all is an error with this sentence."""
    none = True
    for item in items:
        none = False
        yield item
    if none:
        raise SaccadeError(sentence)


def full_lines(path: Path, *limits: Any) -> Rows[str]:
    """Each line as text or as the error it is; an empty line is an error."""
    for number, line in each_line(path, *limits):
        empty = isinstance(line, str) and not line.strip()
        yield number, LineError("empty line", "the line is empty; remove it") if empty else line


def split_columns(line: str, counts: tuple[int, ...], form: str, number: int | None = None) -> list[str]:
    """The cells of a line of TSV; `number` is the line's where it differs from its row's."""
    cells = line.split("\t")
    if len(cells) not in counts:
        there, expected = f"{len(cells)} column{'s' * (len(cells) > 1)}", " or ".join(map(str, counts))
        raise LineError("columns", f"{there} instead of {expected}; a line is {form}", line=number)
    return cells


def parse_object(line: str, example: str) -> dict[str, Any]:
    """The object on one line of JSONL."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LineError("JSON", f"not JSON ({what}); write one object on each line") from None
    if not isinstance(entry, dict):
        raise LineError("JSON", f"{type(entry).__name__} instead of an object such as {example}")
    return entry


def value_of(entry: dict[str, Any], key: str, needs: str) -> Any:
    """The value under a key that must be there."""
    if key not in entry:
        there = ", ".join(f'"{name[:20]}"' for name in list(entry)[:8]) or "nothing"
        raise LineError("JSON", f'no "{key}"; {needs}, and here is: {there}')
    return entry[key]


def text_of(entry: dict[str, Any], key: str, needs: str, name: str = "text") -> str:
    """The text under a key that must be there, with something to read in it; `name` is what an error calls it."""
    value = value_of(entry, key, needs)
    if not isinstance(value, str):
        raise LineError("JSON", f'"{key}" is {type(value).__name__} instead of a string')
    if not value.strip():
        raise LineError("empty side", f"the {name} is empty; remove this line")
    return readable(value, name)


def csv_rows(path: Path) -> Rows[list[str]]:
    """Rows of CSV with the number of their first line; a quoted text may have commas and line breaks."""
    wrong: dict[int, LineError] = {}

    def lines() -> Iterator[str]:
        for number, line in each_line(path):
            if isinstance(line, LineError):
                wrong[number] = line  # reported with its row: an error raised in here would end the reading
            yield (line if isinstance(line, str) else "") + "\n"

    rows, start = csv.reader(lines(), strict=True), 1
    while True:
        row: list[str] | LineError | None
        try:
            row = next(rows, None)
        except csv.Error as error:
            row = LineError("columns", f"invalid CSV ({error}); close each quote, and double those inside a text")
        if row is None:
            return
        inside = next((wrong[number] for number in range(start, rows.line_num + 1) if number in wrong), None)
        yield start, inside or row or LineError("empty line", "the line is empty; remove it")
        start = rows.line_num + 1


def blocks(path: Path) -> Rows[list[tuple[int, str]]]:
    """The numbered lines between empty ones, or the first line among them that cannot be read."""
    for empty, group in groupby(each_line(path), key=lambda row: isinstance(row[1], str) and not row[1].strip(" ")):
        if not empty:
            rows = list(group)
            wrong = next((line for _, line in rows if isinstance(line, LineError)), None)
            yield rows[0][0], wrong or [(number, line) for number, line in rows if isinstance(line, str)]
