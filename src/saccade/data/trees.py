"""Dependency trees as distances between words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import SaccadeError


def tree_distances(heads: Sequence[Sequence[int]], length: int | None = None) -> Tensor:
    """Steps between words along dependency trees: B × N × N. `heads[b][n]` is the head of word n, −1 for the root.

    Wang et al. 2019: the distance of two words is the length of the path between them in the tree. Positions beyond a
    sentence's words are at distance 0 of everything; padding hides them. A tree has one root and no cycle.
    """
    size = max((len(row) for row in heads), default=0) if length is None else length
    above = torch.full((len(heads), size + 1), size)  # the head of each word; `size` is above every root
    for b, row in enumerate(heads):
        for n, head in enumerate(row):
            if not -1 <= head < len(row):
                raise SaccadeError(f"sentence {b}: word {n} has head {head}; heads are words of the sentence, -1 for the root")
            above[b, n] = size if head < 0 else head
    real = torch.arange(size) < torch.tensor([len(row) for row in heads]).unsqueeze(-1)
    at = torch.arange(size).expand(len(heads), size)
    ancestors = torch.zeros(len(heads), size, size + 1)  # which words are on the way from a word to the root, itself included
    for _ in range(size):  # the longest way there can be
        if (at == size).all():
            break
        ancestors.scatter_(2, at.unsqueeze(-1), 1.0)
        at = above.gather(1, at)
    if (cycles := (at != size).nonzero()).numel():
        b, n = cycles[0].tolist()
        raise SaccadeError(f"sentence {b}: the heads of word {n} form a cycle; each word must lead to the root")
    ancestors = ancestors[..., :size] * real.unsqueeze(-1)
    shared = ancestors @ ancestors.mT  # how many ancestors two words share: the depth of their nearest one
    pairs = real.unsqueeze(-1) & real.unsqueeze(-2)
    if (apart := (pairs & (shared == 0)).nonzero()).numel():
        b, n, m = apart[0].tolist()
        raise SaccadeError(f"sentence {b}: words {n} and {m} share no root; a dependency tree has one root")
    depth = ancestors.sum(-1)
    return ((depth.unsqueeze(-1) + depth.unsqueeze(-2) - 2 * shared) * pairs).long()
