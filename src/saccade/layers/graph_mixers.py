"""Graph layers: nodes read their neighbors. A node reads itself where it is its own neighbor.

As mixers of a Transformer's blocks: a mask says who is whose neighbor, `Positions.relation` of what kind each edge is. Their work grows with
N². As layers of a graph network: lists of edges; their work grows with E. B batch, N nodes, M those of all graphs, E directed edges, H heads,
D dim.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, Positions, Site
from ..core.graph_attention import SLOPE, GraphScore
from ..core.initialization import normal_parameter
from ..core.masks import Mask, Prepared
from ..core.scores import Score
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range, Share
from .feedforward import initialize
from .mixers import Mixer, table

AGGREGATES = ("sum", "mean", "max")
layers: Table[type[nn.Module]] = Table("graph-layers", "graph layer", facts=("width", "last"))


def neighbors(x: Tensor, mask: Mask | None) -> Tensor:
    """The adjacency matrix of nodes x (B N D) from a mask: booleans, B|1 N N. Without a mask the graph is complete."""
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
        mixed = degree.unsqueeze(-1) * (
            edges @ (degree.unsqueeze(-1) * F.linear(x, self.project.weight))
        )
        return mixed + self.project.bias


@table.add("graph-attention", paper="Veličković et al. 2018 (GAT)")
class GraphAttention(Site, Mixer):
    """h = W x; node i becomes Σ_j softmax_j(LeakyReLU(a₁·h_i + a₂·h_j)) h_j + b over its neighbors j, in each head."""

    causal = False

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        make_mechanism: Callable[[Score | None], Mechanism] | None = None,
        dropout: float = 0.0,
    ) -> None:
        """`make_mechanism` makes the mechanism of the settings with this layer's score."""
        super().__init__()
        if heads < 1 or dim % heads:
            raise SaccadeError(
                f"dim must be a multiple of heads, got dim={dim} and heads={heads}; choose heads that divide it",
                code="heads-do-not-divide",
            )
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
        self,
        dim: int,
        aggregate: Annotated[str, AGGREGATES] = "sum",
        kinds: Annotated[int, Range(0, 65536)] = 0,
    ) -> None:
        super().__init__()
        if aggregate not in AGGREGATES:
            raise SaccadeError(
                f"expected an aggregate of {', '.join(AGGREGATES)}, got {aggregate!r}; choose one of these",
                code="unknown-choice",
            )
        self.aggregate, self.needs_relation = aggregate, kinds > 0
        self.own, self.other = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.update = nn.Linear(2 * dim, dim)
        self.edges = normal_parameter(kinds + 1, dim, std=0.02) if kinds else None
        initialize(self.own, self.other, self.update)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        there = neighbors(x, mask).unsqueeze(-1)  # B N N 1
        messages = self.own(x).unsqueeze(2) + self.other(x).unsqueeze(1)  # B N N D
        if self.edges is not None:
            if positions is None or positions.relation is None:
                raise SaccadeError(
                    "messages along kinds of edges need these; pass `Positions.line(N, N, relation=kinds)`",
                    code="relation-missing",
                )
            messages = (
                messages + self.edges.to(x.dtype)[positions.relation.clamp(0, len(self.edges) - 1)]
            )
        messages = F.relu(messages) * there
        if self.aggregate == "max":  # messages are never below the 0 of non-neighbors
            found = messages.amax(2)
        else:
            found = messages.sum(2) / (there.sum(2).clamp_min(1) if self.aggregate == "mean" else 1)
        return self.update(torch.cat([x, found], -1))


class Links(NamedTuple):
    """The edges of all graphs of a batch, whose M nodes are counted through: node `target` reads node `source`."""

    nodes: int
    source: Tensor  # E
    target: Tensor  # E

    def total(self, messages: Tensor) -> Tensor:
        """The sum of the messages (E …) that arrive at each node, M …"""
        return messages.new_zeros(self.nodes, *messages.shape[1:]).index_add(
            0, self.target, messages
        )


def glorot(weight: Tensor, outputs: int) -> None:
    """Draws a matrix, … inputs × all heads, within ±√(6 / (inputs + outputs)), `outputs` those of one head (Glorot & Bengio 2010)."""
    bound = (6 / (weight.shape[-2] + outputs)) ** 0.5
    nn.init.uniform_(weight, -bound, bound)


@layers.add("convolution", paper="Kipf & Welling 2017 (GCN)")
class ConvolveLinks(nn.Module):
    """D^(−½) A D^(−½) h, of h = X W: each node adds up its neighbors, weighed by the degrees of both."""

    heads = 1

    def __init__(self, width: int, last: bool = False) -> None:
        super().__init__()
        self.width = width

    def forward(self, h: Tensor, links: Links) -> Tensor:
        """What is read of each node, M heads D → M width"""
        degree = links.total(h.new_ones(len(links.source))).clamp_min(1).rsqrt()
        weights = degree[links.source] * degree[links.target]
        return links.total(weights.unsqueeze(-1) * h.index_select(0, links.source).flatten(1))


@layers.add("attention", paper="Veličković et al. 2018 (GAT)")
class AttendLinks(nn.Module):
    """Σ_j softmax_j(LeakyReLU(a₁·h_i + a₂·h_j)) h_j + b over neighbors j, of h = X W; heads side by side, or their mean in the `last` layer."""

    def __init__(
        self,
        width: int,
        last: bool = False,
        heads: Annotated[int, Range(1, 1024)] = 8,
        last_heads: Annotated[int, Range(1, 1024)] = 1,
        dropout: Share = 0.6,
    ) -> None:
        """`dropout` is that of the attention weights."""
        super().__init__()
        if not last and width % heads:
            raise SaccadeError(
                f"the width must be a multiple of heads, got {width} and {heads}; choose heads that divide it",
                code="heads-do-not-divide",
            )
        self.heads, self.last, self.dropout = (last_heads if last else heads), last, dropout
        self.width = width if last else width // heads
        self.a_own, self.a_other = (
            nn.Parameter(torch.empty(self.heads, self.width, 1)) for _ in range(2)
        )
        self.bias = nn.Parameter(torch.zeros(width))
        glorot(self.a_own, 1)
        glorot(self.a_other, 1)

    def forward(self, h: Tensor, links: Links) -> Tensor:
        """What is read of each node, M heads D → M width"""
        own, other = ((h * a[..., 0]).sum(-1) for a in (self.a_own, self.a_other))  # M H
        # E H
        scores = F.leaky_relu(
            own.index_select(0, links.target) + other.index_select(0, links.source), SLOPE
        )
        weights = F.dropout(self.softmax(scores, links), self.dropout, self.training)
        found = links.total(weights.unsqueeze(-1) * h.index_select(0, links.source))
        return (found.mean(1) if self.last else found.flatten(1)) + self.bias

    @staticmethod
    def softmax(scores: Tensor, links: Links) -> Tensor:
        """Over the edges that arrive at the same node, E H."""
        at = links.target.unsqueeze(-1).expand_as(scores)
        highest = (
            scores.detach()
            .new_zeros(links.nodes, scores.shape[1])
            .scatter_reduce(0, at, scores.detach(), "amax", include_self=False)
        )
        raised = (scores - highest.index_select(0, links.target)).exp()
        return raised / links.total(raised).index_select(0, links.target)


@layers.add("none")
class IgnoreLinks(nn.Module):
    """h itself: a network of such layers reads each node alone."""

    heads = 1

    def __init__(self, width: int, last: bool = False) -> None:
        super().__init__()
        self.width = width

    def forward(self, h: Tensor, links: Links) -> Tensor:
        return h.flatten(1)
