"""Texts with a label: text<TAB>label, JSONL, CSV, and lines that start with their label; a bad line is named by file and line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SaccadeError
from .lines import LineError, bare_suffix, each_line, json_object, json_string, one_file, parsed, readable, some, strict

FORMS = "a .tsv (text<TAB>label), .jsonl or .csv file, or one of lines 'LABEL TEXT' (each may end in .gz or .xz)"
TEXTS = ("text", "sentence")  # what the column of texts may be called
LABEL = "label"
PREFIX = "__label__"  # how fastText marks a label


@dataclass(frozen=True, slots=True)
class Labeled:
    """A text and its label, if that is known; `line` is where it starts in its file, counted from 1."""

    text: str
    label: str | None = None
    line: int = 0


def read_labeled(where: str | Path) -> list[Labeled]:
    """All texts of a file with their labels; the first bad line is an error that names it."""
    return strict(each_labeled(where))


def each_labeled(where: str | Path) -> Iterator[Labeled | LineError]:
    """Each text with its label, or the error it is: the strict reader raises that error, a report collects it."""
    path = one_file(where, FORMS)
    suffix = bare_suffix(path)
    if suffix == ".conllu":
        raise SaccadeError(f"{path} holds sentences with tags, not texts with labels; give {FORMS}")
    read = _READERS.get(suffix, _from_lines)
    yield from some(read(path), f"{path} holds no texts, only the names of columns; give {FORMS}")


def label_of(path: Path, number: int, value: object) -> str | None:
    """A label from JSON: text, a whole number, true or false; null is a label that nobody knows."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        what = f'"label" is {type(value).__name__} instead of text, a whole number, true or false'
        raise LineError("label", path, number, what)
    return _label(path, number, str(value))


def labeled_of(path: Path, number: int, text: str, label: str | None) -> Labeled:
    """The text with its label, if there is something to read in it."""
    if not text or text.isspace():
        raise LineError("empty side", path, number, "the text is empty; remove this line")
    return Labeled(readable(text, "text", path, number), label, number)


def _label(path: Path, number: int, label: str) -> str:
    label = readable(label, "label", path, number).strip()
    if not label:
        raise LineError("label", path, number, "the label is empty; write one for each text")
    return label


def _is_header(columns: list[str]) -> bool:
    names = [name.strip().lower() for name in columns]
    return len(names) == 2 and names[0] in TEXTS and names[1] == LABEL


def _from_tsv(path: Path) -> Iterator[Labeled | LineError]:
    def parse(path: Path, number: int, line: str) -> Labeled | None:
        columns = line.split("\t")
        if len(columns) != 2:
            count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise LineError("columns", path, number, f"{count} instead of 2; a line is text<TAB>label")
        if number == 1 and _is_header(columns):
            return None
        return labeled_of(path, number, columns[0], _label(path, number, columns[1]))

    return (item for item in parsed(path, parse) if item is not None)


def _from_json(path: Path) -> Iterator[Labeled | LineError]:
    def parse(path: Path, number: int, line: str) -> Labeled:
        entry = json_object(path, number, line, '{"text": …, "label": …}')
        text = json_string(path, number, entry, "text", 'a labeled text needs "text", and may have "label"')
        return labeled_of(path, number, text, label_of(path, number, entry.get(LABEL)))

    return parsed(path, parse)


def _from_csv(path: Path) -> Iterator[Labeled | LineError]:
    """Rows of CSV, where a quoted text may have commas and line breaks; the first row names the columns."""
    wrong: dict[int, LineError] = {}

    def lines() -> Iterator[str]:
        for number, line in each_line(path):
            if isinstance(line, LineError):
                wrong[number] = line  # told with its row: an error raised in here would end the reading
            yield (line if isinstance(line, str) else "") + "\n"

    rows = csv.reader(lines(), strict=True)
    try:
        text_at, label_at, width = _header(path, next(rows, []), wrong)
    except csv.Error as error:
        raise LineError(
            "columns", path, 1, f"no CSV ({error}); the first line must name the columns, such as text,label"
        ) from None
    start = 2
    while True:
        try:
            row = next(rows, None)
            if row is None:
                return
            if inside := _first(wrong, start, rows.line_num):
                raise inside
            if not row:
                raise LineError("empty line", path, start, "the line is empty; remove it")
            if len(row) != width:
                what = f"{len(row)} columns instead of the {width} that line 1 names; put quotes around a text with commas"
                raise LineError("columns", path, start, what)
            yield labeled_of(path, start, row[text_at], _label(path, start, row[label_at]))
        except LineError as error:
            yield error
        except csv.Error as error:
            what = f"no CSV ({error}); close each quote, and double those inside a text"
            yield _first(wrong, start, rows.line_num) or LineError("columns", path, start, what)
        start = rows.line_num + 1


def _first(wrong: dict[int, LineError], start: int, end: int) -> LineError | None:
    """The first wrong line of a row; a row may have many lines."""
    return next((wrong[number] for number in range(start, end + 1) if number in wrong), None)


def _header(path: Path, row: list[str], wrong: dict[int, LineError]) -> tuple[int, int, int]:
    """Where texts and labels stand, and how many columns there are."""
    if 1 in wrong:
        raise wrong[1]
    names = [name.strip().lower() for name in row]
    texts = [place for place, name in enumerate(names) if name in TEXTS]
    labels = [place for place, name in enumerate(names) if name == LABEL]
    if len(texts) != 1 or len(labels) != 1:
        there = ", ".join(f"'{name[:20]}'" for name in row[:8]) or "nothing"
        what = f"the first line must name one column text and one label, such as text,label, and here is: {there}"
        raise LineError("columns", path, 1, what)
    return texts[0], labels[0], len(names)


def _from_lines(path: Path) -> Iterator[Labeled | LineError]:
    """Lines of `1 a stirring , funny film` or of `__label__good a stirring film`, all of one kind."""
    marked = False

    def parse(path: Path, number: int, line: str) -> Labeled:
        nonlocal marked
        label, text = (*line.split(None, 1), "")[:2]
        if number == 1:
            marked = label.startswith(PREFIX)
        if label.startswith(PREFIX) != marked:
            first, here = ("with", "without") if marked else ("without", "with")
            raise LineError(
                "label", path, number, f"'{label[:40]}' stands {here} {PREFIX}, and line 1 {first}; write all lines alike"
            )
        if text.startswith(PREFIX):
            raise LineError(
                "label", path, number, f"more than one label: '{label[:40]}', '{text.split()[0][:40]}'; give each text one"
            )
        if not text:
            raise LineError("empty side", path, number, f"the label '{label[:40]}' without a text; a line is LABEL TEXT")
        return labeled_of(path, number, text.strip(), _label(path, number, label.removeprefix(PREFIX)))

    return parsed(path, parse)


_READERS = {".tsv": _from_tsv, ".jsonl": _from_json, ".csv": _from_csv}
