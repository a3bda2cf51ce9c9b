"""Corpora of every kind: generated ones by name (`phrasebook:test`), datasets as `hub:…`, users' own by path."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..errors import SaccadeError, did_you_mean
from ..table import Table
from .conllu import Sentence, each_sentence, sentence_of
from .generated.dates import dates
from .generated.phrasebook import phrasebook
from .generated.reviews import reviews
from .hub import each_row, in_hub
from .labeled import LABEL, TEXTS, Labeled, each_labeled, labeled_of
from .lines import strict
from .pairs import Pair, each_pair, pair_of
from .text import Document, document_of, each_document, within_memory

Options = dict[str, Any] | None
Parts = dict[str, list[Pair]] | dict[str, list[Labeled]]

table: Table[Callable[..., Parts]] = Table("corpora", "corpus")
table.add("phrasebook")(phrasebook)
table.add("dates")(dates)
table.add("reviews")(reviews)


class Kind(NamedTuple):
    """One kind of data: its readers of files and of datasets, the generated corpora that have it, and how their examples become it."""

    what: str
    from_file: Callable[..., Iterable[Any]]
    from_hub: Callable[..., Iterable[Any]]
    generated: tuple[str, ...]
    make: Callable[[Any], Any] = lambda example: example


PAIRS = Kind("pairs", each_pair, lambda where: each_row(where, pair_of, (("source",), ("target",)), 2), ("phrasebook", "dates"))
SENTENCES = Kind(
    "sentences with tags",
    each_sentence,
    lambda where, column="upos": each_row(where, sentence_of, (("tokens", "words"), (column, "pos_tags", "tags"))),
    ("phrasebook",),
    lambda pair: Sentence(tuple(pair.source.split()), pair.tags, pair.line),
)
LABELED = Kind("texts with labels", each_labeled, lambda where: each_row(where, labeled_of, (TEXTS, (LABEL,))), ("reviews",))
DOCUMENTS = Kind(
    "documents",
    each_document,
    lambda where, _="file": within_memory(each_row(where, document_of, (("text",),)), where),
    ("phrasebook", "dates", "reviews"),
    lambda example: Document(example.text if isinstance(example, Labeled) else example.source, example.line),
)


def read(kind: Kind, where: str, options: Options = None, *how: str) -> list[Any]:
    """The examples of `phrasebook:test` (generated with `options`), of a dataset, or of files; `how` is for the kind's own reader."""
    found = list(strict(each_item(kind, where, options, *how)))
    if not found and not is_generated(where):
        raise SaccadeError(f"{where} holds no {kind.what}; add at least one")
    return found


corpus, labeled = functools.partial(read, PAIRS), functools.partial(read, LABELED)
sentences = functools.partial(read, SENTENCES)  # `how` is the column of the tags, upos or xpos
documents = functools.partial(read, DOCUMENTS)  # `how` is what a document is: file, line or blank


def each_item(kind: Kind, where: Any, options: Options = None, *how: str) -> Iterable[Any]:
    """Each item of that kind, or the `LineError` it is."""
    if not is_generated(where):
        return (kind.from_hub if isinstance(where, str) and in_hub(where) else kind.from_file)(where, *how)
    name, _, split = where.partition(":")
    if name not in kind.generated:
        raise SaccadeError(f"the corpus '{name}' has no {kind.what}; those that have: {', '.join(kind.generated)}")
    try:
        parts = generate(name, tuple(sorted((options or {}).items())))
    except TypeError as error:
        raise SaccadeError(f"the corpus '{name}' cannot be generated with {options}: {error}") from None
    if split not in parts:
        raise SaccadeError(f"'{where}' is not a part of {name}{did_you_mean(split, parts)}")
    return [kind.make(example) for example in parts[split]]


def is_generated(where: Any) -> bool:
    """Whether this names a generated corpus, such as `phrasebook:test`."""
    return isinstance(where, str) and where.partition(":")[0] in table


@functools.lru_cache(maxsize=4)
def generate(name: str, options: tuple[tuple[str, Any], ...]) -> Parts:
    """A generated corpus; the last few are kept, since train, dev and test are asked for one after another."""
    return table[name](**dict(options))
