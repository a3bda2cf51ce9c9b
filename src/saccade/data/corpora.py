"""Corpora: embedded ones by name (`phrasebook:test`), users' own by path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.table import Table
from ..errors import SaccadeError, did_you_mean
from .pairs import Pair
from .phrasebook import phrasebook
from .readers import read_pairs

table: Table[Callable[..., dict[str, list[Pair]]]] = Table("corpora", "corpus")
table.add("phrasebook", system="S4")(phrasebook)


def embedded(where: str) -> tuple[str, str] | None:
    """('phrasebook', 'test') for `phrasebook:test`; None for anything that is no embedded corpus."""
    name, _, split = where.partition(":")
    return (name, split) if name in table else None


def corpus(where: str, options: dict[str, Any] | None = None) -> list[Pair]:
    """The pairs of `phrasebook:test` (made with `options`), or of a file or two."""
    found = embedded(where)
    if found is None:
        return read_pairs(where)
    name, split = found
    try:
        splits = table[name](**(options or {}))
    except TypeError as error:
        raise SaccadeError(f"the corpus '{name}' cannot be made with {options}: {error}") from None
    if split not in splits:
        raise SaccadeError(f"'{where}' names no part of {name}{did_you_mean(split, splits)} Write {name}:test, say.")
    return splits[split]
