"""Corpora: embedded ones by name (`phrasebook:test`), users' own by path."""

from __future__ import annotations

import functools
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


@functools.lru_cache(maxsize=4)
def made(name: str, options: tuple[tuple[str, Any], ...]) -> dict[str, list[Pair]]:
    """An embedded corpus; the last few are kept, since train, dev and test are asked for one after another."""
    return table[name](**dict(options))


def corpus(where: str, options: dict[str, Any] | None = None) -> list[Pair]:
    """The pairs of `phrasebook:test` (made with `options`), or of a file or two."""
    found = embedded(where)
    if found is None:
        return read_pairs(where)
    name, split = found
    try:
        splits = made(name, tuple(sorted((options or {}).items())))
    except TypeError as error:
        raise SaccadeError(f"the corpus '{name}' cannot be made with {options}: {error}") from None
    if split not in splits:
        raise SaccadeError(f"'{where}' names no part of {name}{did_you_mean(split, splits)}")
    return splits[split]
