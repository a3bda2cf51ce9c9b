"""Graph layers: nodes read their neighbors. A mask says who is whose neighbor, `Positions.relation` of what kind each edge is.

B batch, N nodes, H heads, D dim. A node reads itself where the mask has 1 on the diagonal.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, Positions, Site
from ..core.draws import drawn
from ..core.graphs import GraphScore
from ..core.masks import Mask, Prepared
from ..core.options import Range
from ..core.scores import Score
from ..errors import SaccadeError
from .feedforward import initialize
from .mixers import Mixer, table

AGGREGATES = ("sum", "mean", "max")


def neighbors(x: Tensor, mask: Mask | None) -> Tensor:
    """The adjacency matrix A that a mask is for nodes x (B N D): booleans, B|1 N N; everybody's neighbor is everybody without a mask."""
    batch, size = x.shape[:2]
    if mask is None:
        return torch.ones(1, size, size, dtype=torch.bool, device=x.device)
    ready = mask if isinstance(mask, Prepared) else mask.prepare(batch, 1, size, size, x.device)
    return ready.allowed()[:, 0].expand(-1, size, -1)


@table.add("graph-convolution", paper="Kipf & Welling 2017 (GCN)")
class GraphConvolution(Mixer):
    """D^(−½) A D^(−½) X W + b: each node adds up its neighbors, weighed by the degrees of both."""

    causal = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, dim)
        initialize(self.project)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        edges = neighbors(x, mask).to(x.dtype)
        degree = edges.sum(-1).clamp_min(1).rsqrt()
        mixed = degree.unsqueeze(-1) * (edges @ (degree.unsqueeze(-1) * F.linear(x, self.project.weight)))
        return mixed + self.project.bias


@table.add("graph-attention", paper="Veličković et al. 2018 (GAT)")
class GraphAttention(Site, Mixer):
    """h = W x; node i becomes Σ_j softmax_j(LeakyReLU(a₁·h_i + a₂·h_j)) h_j + b over its neighbors j, in each head."""

    causal = False

    def __init__(
        self, dim: int, heads: int = 8, make_mechanism: Callable[[Score | None], Mechanism] | None = None, dropout: float = 0.0
    ) -> None:
        """`make_mechanism` makes the mechanism of the settings with this layer's score."""
        super().__init__()
        if heads < 1 or dim % heads:
            raise SaccadeError(f"dim must be a multiple of heads, got dim={dim} and heads={heads}; choose heads that divide it")
        self.heads, self.width, self.dropout = heads, dim // heads, dropout
        score = GraphScore(self.width, self.width, heads)
        self.mechanism = Mechanism(score) if make_mechanism is None else make_mechanism(score)
        self.project, self.bias = nn.Linear(dim, dim, bias=False), nn.Parameter(torch.zeros(dim))
        initialize(self.project)

    @property
    def needs_relation(self) -> bool:  # type: ignore[override]
        return self.mechanism.position.needs_relation

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        h = self.project(x).unflatten(-1, (self.heads, self.width)).transpose(1, 2)
        ready = self.mechanism.prepare(h, h, positions, self.heads)
        found = self.look(h, ready, mask, positions, self.dropout if self.training else 0.0)
        return found.transpose(1, 2).flatten(2) + self.bias


@table.add("message-passing", paper="Gilmer et al. 2017")
class MessagePassing(Mixer):
    """W [x_i ; Σ_j ReLU(W₁ x_i + W₂ x_j + e_ij)] over neighbors j, or their mean or max; e_ij a vector for each of `kinds` of edges.

    Without kinds (0) an edge has no vector. Every pair of nodes has a message, N × N × dim numbers: for small graphs.
    """

    causal = False

    def __init__(
        self, dim: int, aggregate: Annotated[str, AGGREGATES] = "sum", kinds: Annotated[int, Range(0, 65536)] = 0
    ) -> None:
        super().__init__()
        if aggregate not in AGGREGATES:
            raise SaccadeError(f"expected an aggregate of {', '.join(AGGREGATES)}, got {aggregate!r}; choose one of these")
        self.aggregate, self.needs_relation = aggregate, kinds > 0
        self.own, self.other, self.update = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False), nn.Linear(2 * dim, dim)
        self.edges = drawn(kinds + 1, dim, std=0.02) if kinds else None
        initialize(self.own, self.other, self.update)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        there = neighbors(x, mask).unsqueeze(-1)  # B N N 1
        messages = self.own(x).unsqueeze(2) + self.other(x).unsqueeze(1)  # B N N D
        if self.edges is not None:
            if positions is None or positions.relation is None:
                raise SaccadeError("messages along kinds of edges need these; pass `Positions.line(N, N, relation=kinds)`")
            messages = messages + self.edges.to(x.dtype)[positions.relation.clamp(0, len(self.edges) - 1)]
        messages = F.relu(messages) * there
        if self.aggregate == "max":  # 0 where nobody is a neighbor is never above a message
            found = messages.amax(2)
        else:
            found = messages.sum(2) / (there.sum(2).clamp_min(1) if self.aggregate == "mean" else 1)
        return self.update(torch.cat([x, found], -1))
