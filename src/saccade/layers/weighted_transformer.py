"""Weighted Transformer: attention whose heads have feed-forward parts of their own. B batch, N positions, H heads, D width of a head."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from .block import Block, table
from .mixers import Mixer
from .multihead_attention import MultiHeadAttention
from .residuals import Residual


class Branches(nn.Module):
    """Σ_h α_h MLP_h(κ_h W_h head_h), Σ α = Σ κ = 1, instead of an attention's last matrix. B N (H D) → B N dim.

    The MLPs are `count`: one per head, or a single one for all heads."""

    def __init__(
        self, heads: int, width: int, dim: int, hidden: int, dropout: float, count: int
    ) -> None:
        super().__init__()
        self.project = nn.Parameter(torch.empty(heads, width, dim))
        self.inner = nn.Parameter(torch.empty(count, dim, hidden))
        self.outer = nn.Parameter(torch.empty(count, hidden, dim))
        self.inner_bias = nn.Parameter(torch.zeros(count, 1, hidden))
        self.outer_bias = nn.Parameter(torch.zeros(count, 1, dim))
        # before their softmax
        self.kappa, self.alpha = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.zeros(heads))
        self.dropout = nn.Dropout(dropout)
        inner = dim + hidden * count
        for weight, sizes in (
            (self.project, heads * width + dim),
            (self.inner, inner),
            (self.outer, inner),
        ):
            nn.init.uniform_(weight, -math.sqrt(6 / sizes), math.sqrt(6 / sizes))

    def forward(self, heads: Tensor) -> Tensor:
        count, width, _ = self.project.shape
        each = heads.reshape(-1, count, width).transpose(0, 1)  # H (B N) D
        projected = (each @ self.project) * self.kappa.softmax(0).view(-1, 1, 1)
        inner, outer = (
            weight[0] if len(weight) == 1 else weight for weight in (self.inner, self.outer)
        )
        made = self.dropout((projected @ inner + self.inner_bias).relu()) @ outer + self.outer_bias
        return (made * self.alpha.softmax(0).view(-1, 1, 1)).sum(0).view(*heads.shape[:-1], -1)


@table.add("weighted", paper="Ahmed et al. 2017")
class WeightedBlock(Block):
    """Branched attention, Σ_h α_h MLP_h(κ_h W_h head_h) with learned weights Σ α = Σ κ = 1, instead of attention and MLP.

    The heads' MLPs divide `hidden` among them. With `shared` there is one MLP as wide as `hidden`, which is applied to each head, as in
    the code of Narang et al. 2021: as many parameters, and as many times the operations as there are heads. Attention to a memory is
    branched, too, with MLPs of its own.
    """

    def __init__(
        self,
        mixer: Mixer,
        residual: Callable[[], Residual],
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        cross: MultiHeadAttention | None = None,
        shared: bool = False,
    ) -> None:
        for attention in (mixer, cross):
            if attention is not None:
                if not isinstance(attention, MultiHeadAttention):
                    got = f"got {type(attention).__name__}"
                    raise SaccadeError(
                        f"block=weighted gives the heads of attention MLPs, {got}; leave mixer out",
                        code="parts-do-not-combine",
                    )
                heads = attention.heads
                if not shared and hidden % heads:
                    wrong = (
                        f"hidden must be a multiple of heads, got hidden={hidden} and heads={heads}"
                    )
                    raise SaccadeError(
                        f"{wrong}; block=weighted gives each head an equal part",
                        code="heads-do-not-divide",
                    )
                inner, count = (hidden, 1) if shared else (hidden // heads, heads)
                attention.out = Branches(heads, attention.width, dim, inner, dropout, count)
        super().__init__(mixer, None, residual, cross)
