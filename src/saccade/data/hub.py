"""Datasets of the Hugging Face hub (`hub:NAME[:CONFIG]:SPLIT`), and folders written by `save_to_disk`; rows count from 1.

Columns are recognized by their names, or named after a `#`: `hub:wmt14:de-en:train#de,en`. Needs the extra `hub`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
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


def in_hub(where: str) -> bool:
    """Whether this names a dataset: `hub:…`, or a folder written by `save_to_disk`."""
    return where.startswith(PREFIX) or _saved(where.partition("#")[0]) is not None


def hub_pairs(where: str) -> Iterator[Pair | LineError]:
    """Pairs from the columns source and target, from two columns `#a,b`, or from two languages `#de,en` of `translation`."""
    data, asked = _open(where, (0, 2))
    there = data.column_names
    if TRANSLATION not in there or set(asked) & set(there) or ("source" in there and not asked):
        return _read(where, data, asked, pair_of, ("source",), ("target",))
    feature = data.features[TRANSLATION]
    languages = list(getattr(feature, "languages", None) or feature)
    if len(asked) != 2:
        what = f"holds translations between {', '.join(languages)}; name source and target"
        raise SaccadeError(f"'{where}' {what}, such as {where}#{','.join((*languages, 'a', 'b')[:2])}")
    for language in asked:
        if language not in languages:
            raise SaccadeError(f"'{where}' has no language '{language}'{did_you_mean(language, languages)}")
    rows = enumerate(data.select_columns([TRANSLATION]), 1)
    return convert(Path(where), rows, lambda number, row: pair_of(number, row[TRANSLATION], *asked))


def hub_sentences(where: str, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Sentences from the columns tokens and `column`, pos_tags or tags; with `#tokens` alone they have no tags."""
    data, asked = _open(where, (0, 1, 2))
    return _read(where, data, asked, sentence_of, ("tokens", "words"), (column, "pos_tags", "tags"), unknown=NONE)


def hub_labeled(where: str) -> Iterator[Labeled | LineError]:
    """Texts from the columns text or sentence, and label; classes by their names. With `#text` alone they have no labels."""
    data, asked = _open(where, (0, 1, 2))
    return _read(where, data, asked, labeled_of, TEXTS, (LABEL,))


def hub_documents(where: str) -> Iterator[Document | LineError]:
    """Documents from the column text, each row one."""
    data, asked = _open(where, (0, 1))
    return within_memory(_read(where, data, asked, document_of, ("text",)), where)


def _read(
    where: str, data: Any, asked: Sequence[str], make: Callable[..., Item], *usual: Sequence[str], unknown: str | None = None
) -> Iterator[Item | LineError]:
    """What `make` makes of each row and the columns asked for, or of those with the usual names; others are not even decoded."""
    there = list(data.column_names)
    columns = list(asked)
    for column in asked:
        if column not in there:
            raise SaccadeError(f"'{where}' has no column named '{column}'{did_you_mean(column, there)}")
    for names in usual if not asked else ():
        columns += [name for name in names if name in there][:1]
        if not set(names) & set(there):
            wanted = " or ".join(f"'{name}'" for name in names)
            raise SaccadeError(f"'{where}' has no column {wanted}, but {', '.join(there)}; name the columns at the end as #a,b")
    feature = data.features[columns[-1]]
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
    classes = getattr(inner, "names", None)

    def name_class(value: Any) -> Any:
        """The name of a class, or of each in a list; datasets write -1 where nobody knows it."""
        if isinstance(value, list):
            return [name_class(one) for one in value]
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        return str(value) if classes is None else classes[value] if 0 <= value < len(classes) else unknown

    def item(number: int, row: dict[str, Any]) -> Item:
        if len(columns) == 2 and make in (sentence_of, labeled_of):
            row = {**row, columns[1]: name_class(row[columns[1]])}
        return make(number, row, *columns, *[None] * (len(usual) - len(columns)))

    return convert(Path(where), enumerate(data.select_columns(columns), 1), item)


# --- names to datasets --------------------------------------------------------------------------------------------------


def _saved(body: str) -> tuple[str, str] | None:
    """The folder written by `save_to_disk` and the split in `folder` or `folder:split`, if there is one."""
    head, _, tail = body.rpartition(":")
    for folder, split in ((body, ""), (head, tail)):
        path = os.path.expanduser(folder)
        if folder and any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "dataset_info.json")):
            return path, split
    return None


def _open(where: str, counts: tuple[int, ...]) -> tuple[Any, tuple[str, ...]]:
    """A dataset and the columns asked for; `counts` are the numbers of columns that may be named after the `#`."""
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
        return _load(where, lambda datasets: datasets.load_dataset(*parts[:-1], split=parts[-1])), asked
    folder, split = saved
    data = _load(where, lambda datasets: datasets.load_from_disk(folder))
    if isinstance(data, dict):
        if split not in data:
            raise SaccadeError(f"'{where}' does not name a split of {folder}{did_you_mean(split, data)}")
        data = data[split]
    elif split:
        raise SaccadeError(f"'{where}' names the split '{split}', but {folder} has no splits; leave it out")
    return data, asked


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
