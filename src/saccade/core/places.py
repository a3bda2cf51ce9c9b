"""Places: where queries and keys stand. i of the queries, j of the keys, and the distance between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SaccadeError
from .fixed import constant


@dataclass(frozen=True, eq=False)
class Places:
    """i: Q or B × Q; j: K or B × K; `tree`: B × Q × K distances along a parse tree, where there is one."""

    i: Tensor
    j: Tensor
    tree: Tensor | None = None
    usual: bool = False  # 0, 1, 2 … and the last query at the last key

    @staticmethod
    def in_line(queries: int, keys: int, device: torch.device | str = "cpu", tree: Tensor | None = None) -> Places:
        """0, 1, 2 … for the keys; the last query stands at the last key."""
        j = in_line(0, keys, device)
        return Places(j if queries == keys else in_line(keys - queries, keys, device), j, tree, usual=True)

    @property
    def distance(self) -> Tensor:
        """j − i: Q × K or B × Q × K."""
        return self.j.unsqueeze(-2) - self.i.unsqueeze(-1)


def in_line(start: int, end: int, device: torch.device | str) -> Tensor:
    """start, start + 1, … end − 1; not to be changed, others read it too."""
    return constant(("in line", start, end, str(device)), lambda: torch.arange(start, end, device=device))


def tree_distances(heads: Sequence[Sequence[int]], length: int | None = None) -> Tensor:
    """Steps between words along dependency trees: B × N × N. `heads[b][n]` is the head of word n, −1 for the root.

    Wang et al. 2019: the distance of two words is the length of the path between them in the tree. Places beyond a sentence's
    words stand at distance 0 of each other and of everything; padding hides them.
    """
    size = max((len(row) for row in heads), default=0) if length is None else length
    result = torch.zeros(len(heads), size, size, dtype=torch.long)
    for b, row in enumerate(heads):
        paths = [path_to_root(row, n, b) for n in range(len(row))]
        for n, path in enumerate(paths):
            steps = {word: at for at, word in enumerate(path)}
            for m, other in enumerate(paths):
                meet = next((at for at, word in enumerate(other) if word in steps), None)
                if meet is None:
                    raise SaccadeError(f"sentence {b}: words {n} and {m} share no root; a dependency tree has one root")
                result[b, n, m] = steps[other[meet]] + meet
    return result


def path_to_root(heads: Sequence[int], word: int, sentence: int) -> list[int]:
    path = [word]
    while (head := heads[path[-1]]) >= 0:
        if head >= len(heads) or head in path:
            raise SaccadeError(
                f"sentence {sentence}: word {path[-1]} has head {head}; heads lie within the sentence and make no circle"
            )
        path.append(head)
    return path
