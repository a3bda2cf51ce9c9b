"""Texts as rows of numbers for models of labels: a token's number, and its bytes behind it where the model reads bytes. B N C."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.batches import Rows
from ..data.vocabulary import EOS, SPECIALS, Vocabulary
from ..layers.words import spell


def rows_of(vocabulary: Vocabulary, texts: Sequence[str], reads_bytes: bool) -> list[Rows]:
    """The tokens of each text and <eos>, one row per token."""
    if not reads_bytes:
        return [[[id] for id in [*ids, EOS]] for ids in vocabulary.encode_ids(list(texts))]
    found = []
    for one in vocabulary.encode_batch(list(texts)):
        found.append(with_bytes([*one.ids, EOS], [*one.pieces, SPECIALS[EOS]]))
    return found


def with_bytes(ids: Sequence[int], pieces: Sequence[str]) -> Rows:
    return [[id, *letters] for id, letters in zip(ids, spell(pieces), strict=True)]
