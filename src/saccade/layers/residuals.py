"""Residual connections: how a part's output joins what went in. A residual owns its norm."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..core.table import Table

table: Table[type[Residual]] = Table("residuals", "residual")


class Residual(nn.Module):
    """What all residual connections share."""

    ends_normed = True  # False: a stack of these wants a norm after its last block

    def __init__(self, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.dropout = norm, nn.Dropout(dropout)

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError


@table.add("post-norm", paper="Vaswani et al. 2017", system="B2")
class PostNorm(Residual):
    """norm(x + part(x))"""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(part(x)))


@table.add("pre-norm", paper="Xiong et al. 2020", system="B2")
class PreNorm(Residual):
    """x + part(norm(x))"""

    ends_normed = False

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(part(self.norm(x)))
