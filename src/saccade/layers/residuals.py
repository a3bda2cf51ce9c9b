"""Residual connections: how a part's output joins what went in. A residual makes its own norm, or none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..core.table import Table

table: Table[type[Residual]] = Table("residuals", "residual", facts=("norm", "dropout", "n", "depth", "role"))
MakeNorm = Callable[[], nn.Module]


class Residual(nn.Module):
    """What all residual connections share. Facts for a member: `norm` (makes one), `dropout`, its block's number `n` of `depth`, and the
    `role` of its stack: "encoder" or "decoder" of a pair, or "alone"."""

    final_norm = True  # a stack of these wants a norm after its last block

    def __init__(self, norm: MakeNorm, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.dropout = norm(), nn.Dropout(dropout)

    def initialize(self, part: nn.Module) -> None:
        """Called once with the part that this residual goes around, after the part has drawn its parameters."""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError


@table.add("post-norm", paper="Vaswani et al. 2017")
class PostNorm(Residual):
    """norm(x + part(x))"""

    final_norm = False

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(part(x)))


@table.add("pre-norm", paper="Xiong et al. 2020")
class PreNorm(Residual):
    """x + part(norm(x))"""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(part(self.norm(x)))


@table.add("rezero", paper="Bachlechner et al. 2020")
class ReZero(Residual):
    """x + α · part(x) with a learned α that starts at 0: each block begins as the identity. With `normed`, part(norm(x))."""

    def __init__(self, norm: MakeNorm, dropout: float = 0.0, normed: bool = False) -> None:
        super().__init__(norm if normed else nn.Identity, dropout)
        self.final_norm = normed
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.alpha.to(x.dtype) * self.dropout(part(self.norm(x)))
