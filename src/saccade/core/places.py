"""Places: where queries and keys stand. i of the queries, j of the keys, and the distance between them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
