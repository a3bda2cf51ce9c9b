"""Texts with a label: text<TAB>label, JSONL, CSV, and lines that start with their label; a bad line is named by file and line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from . import lines
from .lines import LineError, Rows, convert, split_columns

FORMS = "a .tsv (text<TAB>label), .jsonl or .csv file, or one of lines 'LABEL TEXT' (each may end in .gz or .xz)"
TEXTS = ("text", "sentence")  # what the column of texts may be called
LABEL = "label"
PREFIX = "__label__"  # how fastText marks a label

_HEADER = re.compile(r"[^\S\t]*(text|sentence)[^\S\t]*\t[^\S\t]*label[^\S\t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Labeled:
    """A text and its label, if that is known; `line` is where it starts in its file, counted from 1."""

    text: str
    label: str | None = None
    line: int = 0


def each_labeled(where: str | Path) -> Iterator[Labeled | LineError]:
    """Each text of a file with its label, or the error it is."""
    path = lines.one_file(where, FORMS)
    suffix = lines.bare_suffix(path)
    if suffix == ".conllu":
        raise SaccadeError(f"{path} holds sentences with tags, not texts with labels; give {FORMS}")
    if suffix == ".csv":
        return convert(path, _csv_entries(path), labeled_of)
    rows = lines.full_lines(path)
    first = next(rows)
    if suffix != ".tsv" or not _HEADER.fullmatch(str(first[1])):
        rows = chain([first], rows)
    parsers = {".tsv": _from_tsv, ".jsonl": lines.from_json(labeled_of)}
    return convert(path, rows, parsers.get(suffix, partial(_from_line, str(first[1]).lstrip().startswith(PREFIX))))


def labeled_of(number: int, entry: dict[str, Any], text: str = "text", label: str | None = LABEL) -> Labeled:
    """The text of a row with its label: a string, a whole number, true or false; null is a label that nobody knows."""
    value = entry.get(label) if label else None
    if isinstance(value, bool):
        value = str(value).lower()
    elif value is not None and not isinstance(value, str | int):
        raise LineError("label", f'"label" is {type(value).__name__} instead of text, a whole number, true or false')
    elif value is not None:
        value = lines.readable(str(value), "label").strip()
        if not value:
            raise LineError("label", "the label is empty; write one for each text")
    return Labeled(lines.text_of(entry, text), value, number)


def _from_tsv(number: int, line: str) -> Labeled:
    text, label = split_columns(line, (2,), "text<TAB>label")
    return labeled_of(number, {"text": text, LABEL: label})


def _csv_entries(path: Path) -> Rows[dict[str, str]]:
    """Rows by the names of their columns, which the first row gives."""
    rows = lines.csv_rows(path)
    number, first = next(rows)
    if isinstance(first, LineError):
        raise first.at(path, number)
    names = ["text" if name.strip().lower() in TEXTS else name.strip().lower() for name in first]
    if names.count("text") != 1 or names.count(LABEL) != 1:
        there = ", ".join(f"'{name[:20]}'" for name in first[:8])
        what = f"the first line must name one column text and one label, such as text,label, and here is: {there}"
        raise LineError("columns", what, path, number)
    for number, row in rows:
        if isinstance(row, list) and len(row) != len(names):
            what = f"{len(row)} columns instead of the {len(names)} that line 1 names; put quotes around a text with commas"
            row = LineError("columns", what)
        yield number, row if isinstance(row, LineError) else dict(zip(names, row, strict=True))


def _from_line(marked: bool, number: int, line: str) -> Labeled:
    """The text of `1 a stirring , funny film` or of `__label__good a stirring film`; `marked`: whether line 1 has the prefix."""
    label, text = (*line.split(None, 1), "")[:2]
    here = label.startswith(PREFIX)
    if here != marked:
        what = f"'{label[:40]}' is {'with' if here else 'without'} {PREFIX}, unlike line 1; write all lines alike"
        raise LineError("label", what)
    if text.startswith(PREFIX):
        raise LineError("label", f"more than one label: '{label[:40]}', '{text.split()[0][:40]}'; give each text one")
    if not text:
        raise LineError("empty side", f"the label '{label[:40]}' without a text; a line is LABEL TEXT")
    return labeled_of(number, {"text": text.strip(), LABEL: label.removeprefix(PREFIX)})
