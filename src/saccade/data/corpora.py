"""Corpora of every kind: embedded ones by name (`phrasebook:test`), datasets as `hub:…`, users' own by path."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..core.table import Table
from ..errors import SaccadeError, did_you_mean
from .conllu import Sentence, read_sentences
from .generated.dates import dates
from .hub import hub_documents, hub_labeled, hub_pairs, hub_sentences, in_hub
from .labeled import Labeled, read_labeled
from .lines import strict
from .pairs import Pair
from .generated.phrasebook import phrasebook
from .readers import read_pairs
from .generated.reviews import reviews
from .text import Document, read_documents

Item = TypeVar("Item")
Parts = dict[str, list[Pair]] | dict[str, list[Labeled]]

table: Table[Callable[..., Parts]] = Table("corpora", "corpus")
table.add("phrasebook", system="S4")(phrasebook)
table.add("dates", system="T5")(dates)
table.add("reviews", system="T4")(reviews)


def embedded(where: str) -> tuple[str, str] | None:
    """('phrasebook', 'test') for `phrasebook:test`; None for anything that is no embedded corpus."""
    name, _, split = where.partition(":")
    return (name, split) if name in table else None


@functools.lru_cache(maxsize=4)
def made(name: str, options: tuple[tuple[str, Any], ...]) -> Parts:
    """An embedded corpus; the last few are kept, since train, dev and test are asked for one after another."""
    return table[name](**dict(options))


def corpus(where: str, options: dict[str, Any] | None = None) -> list[Pair]:
    """The pairs of `phrasebook:test` (made with `options`), of a dataset, or of a file or two."""
    if embedded(where):
        return _part(where, options, "pairs", PAIRS)
    return strict(hub_pairs(where)) if in_hub(where) else read_pairs(where)


def sentences(where: str, options: dict[str, Any] | None = None, column: str = "upos") -> list[Sentence]:
    """Sentences with the tags of a column: of `phrasebook:test` (made with `options`), of a dataset, or of a file."""
    if embedded(where):
        return _part(where, options, "sentences with tags", SENTENCES)
    return strict(hub_sentences(where, column)) if in_hub(where) else read_sentences(where, column)


def labeled(where: str, options: dict[str, Any] | None = None) -> list[Labeled]:
    """Texts with labels: of `reviews:test` (made with `options`), of a dataset, or of a file."""
    if embedded(where):
        return _part(where, options, "texts with labels", LABELED)
    return strict(hub_labeled(where)) if in_hub(where) else read_labeled(where)


def documents(where: str, options: dict[str, Any] | None = None, separated: str = "file") -> list[Document]:
    """Documents: each text of `reviews:test` (made with `options`), of a dataset, or of files, separated as said."""
    if embedded(where):
        return _part(where, options, "documents", DOCUMENTS)
    return strict(hub_documents(where)) if in_hub(where) else read_documents(where, separated)


# What each embedded corpus gives of a kind, and how it is made from its examples.
PAIRS: Mapping[str, Callable[[Any], Pair]] = {"phrasebook": lambda pair: pair, "dates": lambda pair: pair}
SENTENCES: Mapping[str, Callable[[Any], Sentence]] = {
    "phrasebook": lambda pair: Sentence(tuple(pair.source.split()), pair.tags, pair.line)
}
LABELED: Mapping[str, Callable[[Any], Labeled]] = {"reviews": lambda text: text}
DOCUMENTS: Mapping[str, Callable[[Any], Document]] = {
    "phrasebook": lambda pair: Document(pair.source, pair.line),
    "dates": lambda pair: Document(pair.source, pair.line),
    "reviews": lambda text: Document(text.text, text.line),
}


def _part(where: str, options: dict[str, Any] | None, kind: str, ways: Mapping[str, Callable[[Any], Item]]) -> list[Item]:
    """One part of an embedded corpus as items of that kind."""
    name, split = embedded(where) or ("", "")
    if name not in ways:
        raise SaccadeError(f"the corpus '{name}' gives no {kind}; those that do: {', '.join(ways)}")
    try:
        splits = made(name, tuple(sorted((options or {}).items())))
    except TypeError as error:
        raise SaccadeError(f"the corpus '{name}' cannot be made with {options}: {error}") from None
    if split not in splits:
        raise SaccadeError(f"'{where}' names no part of {name}{did_you_mean(split, splits)}")
    return [ways[name](item) for item in splits[split]]
