"""Graph networks with layers along edges, without residuals. B batch, N nodes, W words, M = B N, E edges, C classes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..layers import feedforward, graph_mixers
from ..layers.graph_mixers import Links, glorot
from ..settings import Choice, number, one_of, part
from .families import Sizes, add_family, named_sizes
from .protocols import GraphLabeler


@dataclass(frozen=True)
class GraphConfig:
    """The settings of a graph network; the defaults are those of GAT on citation graphs."""

    sizes: ClassVar[Sizes] = named_sizes(hidden=(16, 32, 64, 128, 256), depth=(2, 2, 2, 2, 3))

    layer: Choice = part(
        graph_mixers.layers, graph_mixers.AttendLinks, "how a node reads its neighbors"
    )
    hidden: int = number(
        64, 1, 65_536, "numbers of a node between two layers, those of all heads together"
    )
    depth: int = number(2, 1, 100, "layers; the last one gives the labels")
    dropout: float = number(0.6, 0.0, 0.99, "dropout of what each layer reads, words too")
    activation: Choice = part(feedforward.activations, feedforward.Elu, "between two layers")
    decay: str = one_of(("all", "first"), "layers that training.weight_decay acts on")


class ReadWords(nn.Module):
    """The first layer's X W, where row i of X has 1 / n at each of node i's n words: the mean of their vectors."""

    def __init__(self, vocab: int, width: int, dropout: float, pad: int = 0) -> None:
        super().__init__()
        self.weight, self.dropout, self.pad = nn.Parameter(torch.empty(vocab, width)), dropout, pad

    def forward(self, tokens: Tensor) -> Tensor:
        """M W → M width; dropout is that of single words."""
        here = (tokens != self.pad).to(self.weight.dtype)
        shares = F.dropout(
            here / here.sum(1, keepdim=True).clamp_min(1), self.dropout, self.training
        )
        return F.embedding_bag(tokens, self.weight, mode="sum", per_sample_weights=shares)


class ReadVectors(nn.Module):
    """X W of a later layer."""

    def __init__(self, dim: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight, self.dropout = nn.Parameter(torch.empty(dim, width)), dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) @ self.weight


class GraphNetwork(GraphLabeler):
    """x ← f(layer(dropout(x) W, edges)), depth times; the last layer gives the logits."""

    def __init__(self, vocab: int, classes: int, c: GraphConfig) -> None:
        super().__init__()
        self.activation, self.decay = c.activation(), c.decay
        layers, readers, dim = list[nn.Module](), list[nn.Module](), vocab
        for n in range(c.depth):
            last = n == c.depth - 1
            layer = c.layer(width=classes if last else c.hidden, last=last)
            reader = (ReadVectors if n else ReadWords)(dim, layer.heads * layer.width, c.dropout)
            glorot(reader.weight, layer.width)
            for module in (reader, layer):
                vars(module)["decays"] = n == 0 or c.decay == "all"
            layers.append(layer)
            readers.append(reader)
            dim = c.hidden
        self.layers, self.readers = nn.ModuleList(layers), nn.ModuleList(readers)

    def extra_repr(self) -> str:
        return f"decay={self.decay}"

    def forward(self, tokens: Tensor, lengths: Tensor, edges: Tensor) -> Tensor:
        """tokens B N W; edges B E 2, each graph's own numbers of nodes, −1 where there is none → B N C."""
        batch, size = tokens.shape[:2]
        links = join_edges(edges, size)
        x = tokens.flatten(0, 1)
        for n, (reader, layer) in enumerate(zip(self.readers, self.layers, strict=True)):
            h = reader(self.activation(x) if n else x)
            x = layer(h.unflatten(1, (layer.heads, -1)), links)
        return x.unflatten(0, (batch, size))


def join_edges(edges: Tensor, size: int) -> Links:
    """The edges of graphs of `size` nodes each (B E 2, the node that reads and the node that is read), −1 left out, as those of one graph."""
    first = torch.arange(len(edges), device=edges.device).mul(size).view(-1, 1, 1)
    target, source = (edges + first)[edges[..., 0] >= 0].unbind(1)
    return Links(len(edges) * size, source, target)


about = "Graph network alone: GAT, GCN or neither, by its layers; nodes are bags of words."
add_family(
    "graph-network",
    "Kipf & Welling 2017; Veličković et al. 2018",
    GraphConfig,
    {GraphLabeler: GraphNetwork},
    about,
)
