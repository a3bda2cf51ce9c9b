"""Attention along the edges of a graph: the score of graph attention networks, and a bias for each kind of edge. B batch, H heads, N nodes.

The edges themselves are a mask: `masks.matrix(A)`, with 1 on the diagonal where a node reads itself too.
"""

import math
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..settings import Range
from . import positions, scores
from .initialization import normal_parameter
from .positions import Position, Positions
from .scores import Score, per_head

# Negative slope of the LeakyReLU, as in the paper.
SLOPE = 0.2


@scores.table.add("gat", paper="Veličković et al. 2018 (GAT)")
class GraphScore(Score):
    """LeakyReLU(a₁·q + a₂·k) with a slope of 0.2 below 0: graph attention's aᵀ[W x_i ; W x_j]; one a₁ and a₂ per head."""

    unequal_widths = True

    def __init__(self, dim_q: int, dim_k: int, heads: int = 1) -> None:
        super().__init__()
        self.a_q = nn.Parameter(torch.empty(heads, dim_q, 1))
        self.a_k = nn.Parameter(torch.empty(heads, dim_k, 1))
        for parameter, width in ((self.a_q, dim_q), (self.a_k, dim_k)):
            nn.init.normal_(parameter, std=1 / math.sqrt(width))

    def query(self, q: Tensor) -> Tensor:
        return per_head(q, self.a_q)

    def key(self, k: Tensor) -> Tensor:
        return per_head(k, self.a_k)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return F.leaky_relu(query + key.transpose(-2, -1), SLOPE)


@positions.table.add("edges", paper="Ying et al. 2021 (Graphormer)", example={"kinds": 3})
class EdgeBias(Position):
    """A learned bias per head for the kind of edge between two nodes, `Positions.relation`: 0 for none, above `kinds` as the last kind."""

    needs_relation = True

    def __init__(self, heads: int, kinds: Annotated[int, Range(1, 65536)] = 8) -> None:
        super().__init__()
        self.heads, self.kinds = heads, kinds
        self.table = normal_parameter(kinds + 1, heads, std=0.02)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        if positions.relation is None:
            raise SaccadeError(
                "edge positions need the kinds of edges; pass `Positions.line(N, N, relation=kinds)`",
                code="relation-missing",
            )
        return self.table[positions.relation.clamp(0, self.kinds)].movedim(-1, -3).to(q.dtype)
