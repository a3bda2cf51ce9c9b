"""Texts as rows of numbers for models of labels: a token's number, and its bytes behind it where the model reads bytes. B N C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.batches import rounded
from ..data.vocabulary import EOS, SPECIALS, Vocabulary
from ..layers.words import spell

Rows = list[list[int]]  # a row a token: [number] or [number, *bytes]


def rows_of(vocabulary: Vocabulary, texts: Sequence[str], reads_bytes: bool) -> list[Rows]:
    """Each text's tokens and <eos>, a row each."""
    if not reads_bytes:
        return [[[id] for id in [*ids, EOS]] for ids in vocabulary.encode_ids(list(texts))]
    found = []
    for one in vocabulary.encode_batch(list(texts)):
        found.append(with_bytes([*one.ids, EOS], [*one.pieces, SPECIALS[EOS]]))
    return found


def with_bytes(ids: Sequence[int], pieces: Sequence[str]) -> Rows:
    return [[id, *letters] for id, letters in zip(ids, spell(pieces), strict=True)]


def padded(texts: Sequence[Rows], value: int, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Texts as one tensor, B N, or B N (1 + bytes) where rows have bytes, N and bytes multiples; and their lengths."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    width = 1 + rounded(max((len(row) for rows in texts for row in rows), default=1) - 1, multiple)
    found = np.zeros((len(texts), rounded(int(lengths.max(initial=0)), multiple), width), dtype=np.int64)
    found[:, :, 0] = value
    for n, rows in enumerate(texts):
        for place, row in enumerate(rows):
            found[n, place, : len(row)] = row
    tensor = torch.from_numpy(found)
    return (tensor[:, :, 0].contiguous() if width == 1 else tensor), torch.from_numpy(lengths)
