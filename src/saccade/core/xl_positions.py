"""Transformer-XL's positions: sinusoids of distances, scored against the query. B batch, H heads, Q queries, K keys, D width of a head."""

import math

import torch
from torch import Tensor, nn

from .initialization import normal_parameter
from .positions import Position, Positions, sinusoid, table


@table.add("xl", paper="Dai et al. 2019 (Transformer-XL); Yang et al. 2019 (XLNet)")
class TransformerXL(Position):
    """(q_i + u)·k_j + (q_i + v)·W r_(i−j): r a sinusoid of the distance, H·D wide; u, v and W are each head's and each layer's own.

    With r_t = [sin ωt, cos ωt, …] and Wᵀ(q + v) = [a, b, …], a·sin ω(i−j) + b·cos ω(i−j) is (b sin ωi − a cos ωi) sin ωj +
    (a sin ωi + b cos ωi) cos ωj: Wᵀ(q + v), turned by the query's own angle, against r_j. No distance is looked up, at any positions.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, heads * dim
        self.u, self.v = (normal_parameter(heads, 1, dim, std=0.02) for _ in range(2))
        self.weight = nn.Parameter(torch.randn(heads, dim, self.width) / math.sqrt(self.width))

    def encode_query(self, q: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return q + self.u.to(q.dtype)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        # A score may exceed 65,504.
        q = q.float() if q.dtype is torch.float16 else q
        # B H Q R/2
        a, b = (
            (scale * (q + self.v.to(q.dtype)) @ self.weight.to(q.dtype))
            .unflatten(-1, (-1, 2))
            .unbind(-1)
        )
        sin, cos = self.waves("i", positions, q.dtype).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([b * sin - a * cos, a * sin + b * cos], -1).flatten(-2)
        return turned @ self.waves("j", positions, q.dtype).transpose(-2, -1)

    def waves(self, which: str, positions: Positions, dtype: torch.dtype) -> Tensor:
        """r at the positions of queries or keys: N R, or B 1 N R."""
        at: Tensor = getattr(positions, which)
        found = positions.once(
            ("xl", which, self.width, dtype), lambda: sinusoid(at, self.width, dtype=dtype)
        )
        return found if at.dim() == 1 else found.unsqueeze(-3)
