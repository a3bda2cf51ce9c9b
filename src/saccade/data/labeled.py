"""Texts with a label: text<TAB>label, JSONL, CSV, and lines that start with their label; a bad line is named by file and line."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from . import lines
from .delimited import LABELS, SUFFIXES, TEXTS, each_entry, split_name
from .lines import LineError, convert, split_columns

FORMS = "a .tsv (text<TAB>label), .jsonl or .csv file, or one of lines 'LABEL TEXT' (each may end in .gz or .xz)"
LABEL = "label"
PREFIX = "__label__"  # how fastText marks a label


@dataclass(frozen=True, slots=True)
class Labeled:
    """A text and its label, if that is known; `line` is where it starts in its file, counted from 1."""

    text: str
    label: str | None = None
    line: int = 0


def each_labeled(where: str | Path) -> Iterator[Labeled | LineError]:
    """Each text of a file with its label, or the error it is; `my.csv#review,sentiment` names the columns of a table."""
    name, columns = split_name(where)
    path = lines.one_file(str(name), FORMS)
    suffix = lines.bare_suffix(path)
    if suffix == ".conllu":
        raise SaccadeError(
            f"{path} holds sentences with tags, not texts with labels; give {FORMS}",
            code="wrong-format",
        )
    if suffix in SUFFIXES:
        return each_entry(path, labeled_of, (TEXTS, LABELS), columns, _from_tsv)
    if columns:
        raise SaccadeError(
            f"{path} has no columns to choose with a #; give a .csv, .tsv or .jsonl file",
            code="no-columns",
        )
    rows = lines.full_lines(path)
    first = next(rows)
    return convert(
        path, chain([first], rows), partial(_from_line, str(first[1]).lstrip().startswith(PREFIX))
    )


def labeled_of(
    number: int, entry: dict[str, Any], text: str = "text", label: str | None = LABEL
) -> Labeled:
    """The text of a row with its label."""
    value = label_of(entry.get(label) if label else None)
    return Labeled(lines.text_of(entry, text), value, number)


def label_of(value: Any, name: str = LABEL, thing: str = "text") -> str | None:
    """A label as text: a string, a whole number, true or false; null is an unknown label."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is not None and not isinstance(value, str | int):
        raise LineError(
            "label",
            f'"{name}" is {type(value).__name__} instead of text, a whole number, true or false',
        )
    if value is None:
        return None
    found = lines.readable(str(value), name).strip()
    if not found:
        raise LineError("label", f"the {name} is empty; write one for each {thing}")
    return found


def _from_tsv(number: int, line: str) -> Labeled:
    text, label = split_columns(line, (2,), "text<TAB>label")
    return labeled_of(number, {"text": text, LABEL: label})


def _from_line(marked: bool, number: int, line: str) -> Labeled:
    """The text of `1 a stirring , funny film` or of `__label__good a stirring film`; `marked`: whether line 1 has the prefix."""
    label, text = (*line.split(None, 1), "")[:2]
    here = label.startswith(PREFIX)
    if here != marked:
        what = f"'{label[:40]}' is {'with' if here else 'without'} {PREFIX}, unlike line 1; write all lines alike"
        raise LineError("label", what)
    if text.startswith(PREFIX):
        raise LineError(
            "label",
            f"more than one label: '{label[:40]}', '{text.split()[0][:40]}'; give each text one",
        )
    if not text:
        raise LineError(
            "empty side", f"the label '{label[:40]}' without a text; a line is LABEL TEXT"
        )
    return labeled_of(number, {"text": text.strip(), LABEL: label.removeprefix(PREFIX)})
