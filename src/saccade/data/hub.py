"""Datasets of the Hugging Face hub (`hub:NAME[:CONFIG]:SPLIT`), and folders written by `save_to_disk`; rows count from 1.

Which columns are read is known by their names, or said after a `#`: `hub:wmt14:de-en:train#de,en`. Needs the extra `hub`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError, did_you_mean
from .conllu import NONE, Sentence, sentence_of
from .labeled import LABEL, TEXTS, Labeled, label_of, labeled_of
from .lines import LineError
from .pairs import Pair
from .readers import checked
from .text import Document, document_of, within_memory

PREFIX = "hub:"
FORM = "hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as hub:wmt14:de-en:train"
TRANSLATION = "translation"  # the column of objects {language: text} that translation datasets have
_OUTSIDE_BRACKETS = re.compile(r":(?![^\[]*\])")  # a split may be train[:10%]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Rows:
    """A dataset, how it was named, and the columns asked for after the `#`."""

    where: str
    data: Any
    asked: tuple[str, ...]

    def each(self, columns: Sequence[str], make: Callable[[Path, int, dict[str, Any]], Item]) -> Iterator[Item | LineError]:
        """What `make` makes of each row, or the error it is; other columns are not even decoded."""
        name = Path(self.where)
        for number, row in enumerate(self.data.select_columns(list(columns)), 1):
            try:
                yield make(name, number, row)
            except LineError as error:
                yield error

    def column(self, place: int, usual: Sequence[str]) -> str:
        """The column asked for at this place, or the first of the usual names that there is."""
        there = list(self.data.column_names)
        if place < len(self.asked):
            if self.asked[place] not in there:
                raise SaccadeError(
                    f"'{self.where}' has no column named '{self.asked[place]}'{did_you_mean(self.asked[place], there)}"
                )
            return self.asked[place]
        found = next((name for name in usual if name in there), None)
        if found is None:
            wanted = " or ".join(f"'{name}'" for name in usual)
            raise SaccadeError(
                f"'{self.where}' has no column {wanted}, but {', '.join(there)}; name the columns at the end as #a,b"
            )
        return found

    def names(self, column: str) -> list[str] | None:
        """The names behind the numbers of a column of classes, or of lists of classes."""
        feature = self.data.features[column]
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
        return getattr(inner, "names", None)


def in_hub(where: str) -> bool:
    """Whether this names a dataset: `hub:…`, or a folder written by `save_to_disk`."""
    return where.startswith(PREFIX) or _saved(where.partition("#")[0]) is not None


def hub_pairs(where: str) -> Iterator[Pair | LineError]:
    """Pairs from the columns source and target, from two columns `#a,b`, or from two languages `#de,en` of `translation`."""
    rows = _open(where, (0, 2))
    there = rows.data.column_names
    if TRANSLATION in there and not set(rows.asked) & set(there) and ("source" not in there or rows.asked):
        yield from _translations(rows)
        return
    source, target = rows.column(0, ("source",)), rows.column(1, ("target",))

    def make(name: Path, number: int, row: dict[str, Any]) -> Pair:
        texts = [_text(name, number, column, row[column]) for column in (source, target)]
        return checked(Pair(texts[0], texts[1], number), name, name)

    yield from rows.each((source, target), make)


def hub_sentences(where: str, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Sentences from the columns tokens and `column`, pos_tags or tags; with `#tokens` alone they have no tags."""
    rows = _open(where, (0, 1, 2))
    words = rows.column(0, ("tokens", "words"))
    tags = None if len(rows.asked) == 1 else rows.column(1, (column, "pos_tags", "tags"))
    names = rows.names(tags) if tags else None

    def make(name: Path, number: int, row: dict[str, Any]) -> Sentence:
        found = row[tags] if tags else None
        if isinstance(found, list):
            found = [_class(tag, names) or NONE if isinstance(tag, int) else tag for tag in found]
        return sentence_of(name, number, row[words], found)

    return rows.each((words, tags) if tags else (words,), make)


def hub_labeled(where: str) -> Iterator[Labeled | LineError]:
    """Texts from the columns text or sentence, and label; classes by their names. With `#text` alone they have no labels."""
    rows = _open(where, (0, 1, 2))
    text = rows.column(0, TEXTS)
    label = None if len(rows.asked) == 1 else rows.column(1, (LABEL,))
    names = rows.names(label) if label else None

    def make(name: Path, number: int, row: dict[str, Any]) -> Labeled:
        value = row[label] if label else None
        known = _class(value, names) if names is not None and isinstance(value, int) else label_of(name, number, value)
        return labeled_of(name, number, _text(name, number, text, row[text]), known)

    return rows.each((text, label) if label else (text,), make)


def hub_documents(where: str) -> Iterator[Document | LineError]:
    """Documents from the column text, each row one."""
    rows = _open(where, (0, 1))
    text = rows.column(0, ("text",))

    def make(name: Path, number: int, row: dict[str, Any]) -> Document:
        return document_of(name, number, _text(name, number, text, row[text]))

    return within_memory(rows.each((text,), make), where)


def _translations(rows: Rows) -> Iterator[Pair | LineError]:
    feature = rows.data.features[TRANSLATION]
    languages = list(getattr(feature, "languages", None) or feature)
    if len(rows.asked) != 2:
        first, second = (*languages, "a", "b")[:2]
        what = (
            f"holds translations between {', '.join(languages)}; say from which to which, such as {rows.where}#{first},{second}"
        )
        raise SaccadeError(f"'{rows.where}' {what}")
    for language in rows.asked:
        if language not in languages:
            raise SaccadeError(f"'{rows.where}' has no language '{language}'{did_you_mean(language, languages)}")

    def make(name: Path, number: int, row: dict[str, Any]) -> Pair:
        both = [_text(name, number, language, row[TRANSLATION][language]) for language in rows.asked]
        return checked(Pair(both[0], both[1], number), name, name)

    return rows.each((TRANSLATION,), make)


def _text(name: Path, number: int, column: str, value: object) -> str:
    if not isinstance(value, str):
        raise LineError("JSON", name, number, f'"{column}" is {type(value).__name__} instead of a string')
    return value


def _class(value: int, names: list[str] | None) -> str | None:
    """The name of a class; datasets write -1 where nobody knows it."""
    if names is None:
        return str(value)
    return names[value] if 0 <= value < len(names) else None


# --- names to datasets ----------------------------------------------------------------------------------------------------


def _saved(body: str) -> tuple[str, str] | None:
    """The folder written by `save_to_disk` and the split in `folder` or `folder:split`, if there is one."""
    head, _, tail = body.rpartition(":")
    for folder, split in ((body, ""), (head, tail)):
        path = os.path.expanduser(folder)
        if folder and any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "dataset_info.json")):
            return path, split
    return None


def _open(where: str, columns: tuple[int, ...]) -> Rows:
    """The rows of a dataset; `columns` are the numbers of columns that may be named after the `#`."""
    body, mark, named = where.removeprefix(PREFIX).partition("#")
    asked = tuple(part.strip() for part in named.split(",")) if mark else ()
    if len(asked) not in columns or not all(asked):
        counts = " or ".join(str(count) for count in columns if count)
        raise SaccadeError(f"'{where}' names {len(asked)} columns after the #, but {counts} are read; write them as #a,b")
    saved = _saved(body)
    if saved is None:
        return Rows(where, _from_hub(where, body), asked)
    folder, split = saved
    data = _loaded(where, lambda datasets: datasets.load_from_disk(folder))
    if isinstance(data, dict):
        if split not in data:
            raise SaccadeError(f"'{where}' names no split of {folder}{did_you_mean(split, data)}")
        data = data[split]
    elif split:
        raise SaccadeError(f"'{where}' names the split '{split}', but {folder} has no splits; leave it out")
    return Rows(where, data, asked)


def _from_hub(where: str, body: str) -> Any:
    parts = _OUTSIDE_BRACKETS.split(body)
    if len(parts) not in (2, 3) or not all(parts):
        raise SaccadeError(f"'{where}' names no dataset and split; write {FORM}")
    return _loaded(where, lambda datasets: datasets.load_dataset(*parts[:-1], split=parts[-1]))


def _loaded(where: str, load: Callable[[Any], Any]) -> Any:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise SaccadeError(f"'{where}' needs the package datasets; install it with: pip install 'saccade[hub]'") from None
    try:
        return load(datasets)
    except Exception as error:  # the library and those below it raise errors of every kind
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SaccadeError(f"'{where}' cannot be loaded: {first}; check its name, its split and the network") from error
