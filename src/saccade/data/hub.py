"""Datasets of the Hugging Face hub (`hub:NAME[:CONFIG]:SPLIT`), and folders written by `save_to_disk`; rows count from 1.

Columns are recognized by their names, or named after a `#`: `hub:wmt14:de-en:train#de,en`. Needs the extra `hub`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError, did_you_mean
from .conllu import NONE, Sentence, sentence_of
from .labeled import LABEL, TEXTS, Labeled, labeled_of
from .lines import LineError
from .pairs import Pair, pair_of
from .rows import convert
from .text import Document, document_of, within_memory

PREFIX = "hub:"
FORM = "hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as hub:wmt14:de-en:train"
TRANSLATION = "translation"  # the column of objects {language: text} that translation datasets have
_OUTSIDE_BRACKETS = re.compile(r":(?![^\[]*\])")  # a split may be train[:10%]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Table:
    """A dataset, how it was named, and the columns asked for after the `#`."""

    where: str
    data: Any
    asked: tuple[str, ...]

    def each(self, columns: Sequence[str | None], make: Callable[[int, dict[str, Any]], Item]) -> Iterator[Item | LineError]:
        """What `make` makes of each row, or the error it is; other columns are not even decoded."""
        rows = self.data.select_columns([column for column in columns if column])
        return convert(Path(self.where), enumerate(rows, 1), make)

    def column(self, index: int, *usual: str) -> str:
        """The column asked for at this index, or the first of the usual names that there is."""
        there = list(self.data.column_names)
        if index < len(self.asked):
            if self.asked[index] not in there:
                wrong = self.asked[index]
                raise SaccadeError(f"'{self.where}' has no column named '{wrong}'{did_you_mean(wrong, there)}")
            return self.asked[index]
        found = next((name for name in usual if name in there), None)
        if found is None:
            wanted = " or ".join(f"'{name}'" for name in usual)
            raise SaccadeError(
                f"'{self.where}' has no column {wanted}, but {', '.join(there)}; name the columns at the end as #a,b"
            )
        return found

    def name_classes(self, column: str | None, unknown: str | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Replaces the numbers in a column, single or in lists, by the names of their classes; -1 is `unknown`."""
        feature = self.data.features[column] if column else None
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
        names = getattr(inner, "names", None)

        def name(value: Any) -> Any:
            if isinstance(value, list):
                return [name(one) for one in value]
            if not isinstance(value, int) or isinstance(value, bool):
                return value
            return str(value) if names is None else names[value] if 0 <= value < len(names) else unknown

        return lambda row: {**row, column: name(row[column])} if column else row


def in_hub(where: str) -> bool:
    """Whether this names a dataset: `hub:…`, or a folder written by `save_to_disk`."""
    return where.startswith(PREFIX) or _saved(where.partition("#")[0]) is not None


def hub_pairs(where: str) -> Iterator[Pair | LineError]:
    """Pairs from the columns source and target, from two columns `#a,b`, or from two languages `#de,en` of `translation`."""
    table = _open(where, (0, 2))
    there = table.data.column_names
    if TRANSLATION in there and not set(table.asked) & set(there) and ("source" not in there or table.asked):
        return _translations(table)
    source, target = table.column(0, "source"), table.column(1, "target")
    return table.each((source, target), partial(pair_of, source=source, target=target))


def hub_sentences(where: str, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Sentences from the columns tokens and `column`, pos_tags or tags; with `#tokens` alone they have no tags."""
    table = _open(where, (0, 1, 2))
    words = table.column(0, "tokens", "words")
    tags = None if len(table.asked) == 1 else table.column(1, column, "pos_tags", "tags")
    named = table.name_classes(tags, NONE)
    return table.each((words, tags), lambda number, row: sentence_of(number, named(row), words, tags))


def hub_labeled(where: str) -> Iterator[Labeled | LineError]:
    """Texts from the columns text or sentence, and label; classes by their names. With `#text` alone they have no labels."""
    table = _open(where, (0, 1, 2))
    text = table.column(0, *TEXTS)
    label = None if len(table.asked) == 1 else table.column(1, LABEL)
    named = table.name_classes(label, None)
    return table.each((text, label), lambda number, row: labeled_of(number, named(row), text, label))


def hub_documents(where: str) -> Iterator[Document | LineError]:
    """Documents from the column text, each row one."""
    table = _open(where, (0, 1))
    text = table.column(0, "text")
    return within_memory(table.each((text,), partial(document_of, text=text)), where)


def _translations(table: Table) -> Iterator[Pair | LineError]:
    feature = table.data.features[TRANSLATION]
    languages = list(getattr(feature, "languages", None) or feature)
    if len(table.asked) != 2:
        what = f"holds translations between {', '.join(languages)}; name source and target"
        raise SaccadeError(f"'{table.where}' {what}, such as {table.where}#{','.join((*languages, 'a', 'b')[:2])}")
    for language in table.asked:
        if language not in languages:
            raise SaccadeError(f"'{table.where}' has no language '{language}'{did_you_mean(language, languages)}")
    source, target = table.asked
    return table.each((TRANSLATION,), lambda number, row: pair_of(number, row[TRANSLATION], source, target))


# --- names to datasets --------------------------------------------------------------------------------------------------


def _saved(body: str) -> tuple[str, str] | None:
    """The folder written by `save_to_disk` and the split in `folder` or `folder:split`, if there is one."""
    head, _, tail = body.rpartition(":")
    for folder, split in ((body, ""), (head, tail)):
        path = os.path.expanduser(folder)
        if folder and any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "dataset_info.json")):
            return path, split
    return None


def _open(where: str, counts: tuple[int, ...]) -> Table:
    """The rows of a dataset; `counts` are the numbers of columns that may be named after the `#`."""
    body, mark, named = where.removeprefix(PREFIX).partition("#")
    asked = tuple(part.strip() for part in named.split(",")) if mark else ()
    if len(asked) not in counts or not all(asked):
        expected = " or ".join(str(count) for count in counts if count)
        raise SaccadeError(f"'{where}' names {len(asked)} columns after the #, but {expected} are read; write them as #a,b")
    saved = _saved(body)
    if saved is None:
        parts = _OUTSIDE_BRACKETS.split(body)
        if len(parts) not in (2, 3) or not all(parts):
            raise SaccadeError(f"'{where}' does not name a dataset and a split; write {FORM}")
        return Table(where, _load(where, lambda datasets: datasets.load_dataset(*parts[:-1], split=parts[-1])), asked)
    folder, split = saved
    data = _load(where, lambda datasets: datasets.load_from_disk(folder))
    if isinstance(data, dict):
        if split not in data:
            raise SaccadeError(f"'{where}' does not name a split of {folder}{did_you_mean(split, data)}")
        data = data[split]
    elif split:
        raise SaccadeError(f"'{where}' names the split '{split}', but {folder} has no splits; leave it out")
    return Table(where, data, asked)


def _load(where: str, load: Callable[[Any], Any]) -> Any:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise SaccadeError(f"'{where}' needs the package datasets; install it with: pip install 'saccade[hub]'") from None
    try:
        return load(datasets)
    except Exception as error:  # the library and those below it raise errors of every kind
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SaccadeError(f"'{where}' cannot be loaded: {first}; check its name, its split and the network") from error
