"""Word alignments from attention, and the alignment error rate (S4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Link = tuple[int, int]


def word_weights(weights: NDArray[np.floating], rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.floating]:
    """Piece weights (T N) → word weights: a source word takes the sum of its pieces' weights, a target word the mean of its pieces' rows.

    `rows` and `columns` tell the word of each target and source piece.
    """
    result = np.zeros((max(rows, default=-1) + 1, max(columns, default=-1) + 1))
    counts = np.zeros(len(result))
    for t, row in enumerate(rows):
        np.add.at(result[row], np.asarray(columns, dtype=int), weights[t, : len(columns)])
        counts[row] += 1
    return result / np.maximum(counts, 1)[:, None]


def links(weights: NDArray[np.floating], nothing: Sequence[float] | None = None) -> list[Link]:
    """(source word, target word) for each target word: the source word with the largest weight.

    `nothing[t]` is the weight that target word t gave to no word (the end of the source): when it is the largest, t is not linked.
    """
    found = []
    for t, row in enumerate(weights):
        if row.size and (best := int(row.argmax())) >= 0 and row[best] > 0 and (nothing is None or row[best] >= nothing[t]):
            found.append((best, t))
    return found


def alignment_error_rate(
    predicted: Iterable[Collection[Link]], sure: Iterable[Collection[Link]], possible: Iterable[Collection[Link]]
) -> float:
    """1 − (|A∩S| + |A∩P|) / (|A| + |S|) over all sentences (Och & Ney 2003); sure links are possible too."""
    right = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        guessed, must = set(a), set(s)
        may = must | set(p)
        right += len(guessed & must) + len(guessed & may)
        total += len(guessed) + len(must)
    return 1.0 - right / total if total else 0.0
