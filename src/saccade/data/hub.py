"""Datasets of the hub (`hub:NAME[:CONFIG]:SPLIT#COLUMNS`), and folders written by `save_to_disk`; needs the extra `hub`."""

import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError, did_you_mean
from .conllu import NONE
from .lines import LineError, convert

PREFIX = "hub:"
FORM = "hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as hub:wmt14:de-en:train"
TRANSLATION = "translation"  # the column of objects {language: text} that translation datasets have
_OUTSIDE_BRACKETS = re.compile(r":(?![^\[]*\])")  # a split may be train[:10%]
Item = TypeVar("Item")


def in_hub(where: str) -> bool:
    """Whether this names a dataset: `hub:…`, or a folder written by `save_to_disk`."""
    return where.startswith(PREFIX) or _saved(where.partition("#")[0]) is not None


def each_row(
    where: str, make: Callable[..., Item], usual: Sequence[Sequence[str]], least: int = 1
) -> Iterator[Item | LineError]:
    """What `make` makes of each row and its columns: at `least` so many named after the #, or those of the usual names."""
    name, mark, named = where.partition("#")
    columns = [part.strip() for part in named.split(",")] if mark else []
    if mark and not (least <= len(columns) <= len(usual) and all(columns)):
        expected = len(usual) if least == len(usual) else f"{least} or {len(usual)}"
        raise SaccadeError(
            f"'{where}' names {len(columns)} columns after the #, but {expected} are read; write them as #a,b",
            code="number-of-columns",
        )
    data = _open(where, name.removeprefix(PREFIX))
    there, feature = list(data.column_names), data.features.get(TRANSLATION, ())
    languages = list(getattr(feature, "languages", None) or feature)
    columns = columns or [
        next((name for name in names if name in there), names[0]) for names in usual
    ]
    for column in columns:
        if column not in (*there, *languages):
            hint = did_you_mean(column, (*there, *languages))
            raise SaccadeError(
                f"'{where}' has no column '{column}' (name others at the end as #a,b){hint}",
                code="unknown-column",
            )
    feature = data.features.get(columns[-1])
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
    classes = getattr(inner, "names", None)

    # datasets write -1 for an unknown class
    def name_class(value: Any, unknown: str | None = None) -> Any:
        if isinstance(value, list):
            return [name_class(one, NONE) for one in value]
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        return (
            str(value)
            if classes is None
            else classes[value]
            if 0 <= value < len(classes)
            else unknown
        )

    def item(number: int, row: dict[str, Any]) -> Item:
        row = {**row, **(row.get(TRANSLATION) or {})}
        row.update((column, name_class(row[column])) for column in columns[1:])
        return make(number, row, *columns, *[None] * (len(usual) - len(columns)))

    # others are not even decoded
    read = dict.fromkeys(column if column in there else TRANSLATION for column in columns)
    return convert(Path(where), enumerate(data.select_columns(list(read)), 1), item)


def _saved(body: str) -> tuple[str, str] | None:
    """The folder written by `save_to_disk` and the split in `folder` or `folder:split`, if there is one."""
    head, _, tail = body.rpartition(":")
    for folder, split in ((body, ""), (head, tail)):
        path = os.path.expanduser(folder)
        if folder and any(
            os.path.isfile(os.path.join(path, name))
            for name in ("dataset_dict.json", "dataset_info.json")
        ):
            return path, split
    return None


def _open(where: str, body: str) -> Any:
    """The dataset that a name without its columns names."""
    saved, parts = _saved(body), _OUTSIDE_BRACKETS.split(body)
    if not saved and (len(parts) not in (2, 3) or not all(parts)):
        raise SaccadeError(
            f"'{where}' does not name a dataset and a split; write {FORM}", code="not-a-split"
        )
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise SaccadeError(
            f"'{where}' needs the package datasets; install it with: pip install 'saccade-attention[hub]'",
            code="package-missing",
        ) from None
    try:
        data = (
            datasets.load_from_disk(saved[0])
            if saved
            else datasets.load_dataset(*parts[:-1], split=parts[-1])
        )
    except Exception as error:  # the library and those below it raise errors of every kind
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SaccadeError(
            f"'{where}' cannot be loaded: {first}; check its name, its split and the network",
            code="cannot-fetch",
        ) from error
    folder, split = saved or ("", "")
    if isinstance(data, dict) and split not in data:
        raise SaccadeError(
            f"'{where}' does not name a split of {folder}{did_you_mean(split, data)}",
            code="unknown-split",
        )
    if split and not isinstance(data, dict):
        raise SaccadeError(
            f"'{where}' names the split '{split}', but {folder} has no splits; leave it out",
            code="unknown-split",
        )
    return data[split] if isinstance(data, dict) else data
