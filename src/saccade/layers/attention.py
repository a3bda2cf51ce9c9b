"""Attention layers. B batch, N places, M memory places, H heads, D width of a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import Keys, KeyValues, Mechanism, Places, Site
from ..core.masks import Mask
from ..errors import SaccadeError


class MultiHeadAttention(Site):
    """Project to q, k, v; attend in each head; project back. Self-attention, or over `memory`; with `kv_heads` fewer heads of k and v.

    The number of parameters does not depend on the number of heads: each head is dim / heads wide.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        kv_heads: int | None = None,
        mechanism: Mechanism | None = None,
        dim_memory: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or dim % heads:
            raise SaccadeError(f"a width of {dim} does not divide into {heads} heads; choose heads that divide it")
        if kv_heads < 1 or heads % kv_heads:
            raise SaccadeError(f"{heads} heads cannot share {kv_heads} key/value heads evenly; choose a divisor of {heads}")
        if mechanism is not None and not isinstance(mechanism, Mechanism):
            raise SaccadeError(f"{mechanism!r} is no mechanism; hand in Mechanism(score, normalize, mask, position)")
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.mechanism = Mechanism() if mechanism is None else mechanism
        self.dropout = dropout
        dim_memory = dim if dim_memory is None else dim_memory
        self.q = nn.Linear(dim, dim, bias)
        self.k = nn.Linear(dim_memory, kv_heads * self.width, bias)
        self.v = nn.Linear(dim_memory, kv_heads * self.width, bias)
        self.out = nn.Linear(dim, dim, bias)
        for layer in (self.q, self.k, self.v, self.out):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Mask | None = None, places: Places | None = None) -> Tensor:
        """x: B N dim; memory: B M dim_memory, x itself when not given."""
        self.check(x, memory)
        key, value = self.ready(x if memory is None else memory, None if places is None else places.j)
        return self.read(x, key, value, mask, places)

    def step(self, x: Tensor, cache: KeyValues, mask: Mask | None = None) -> Tensor:
        """Self-attention of new places x (B N dim), which stand after those in the cache and are added to it."""
        at = torch.arange(cache.length, cache.length + x.shape[1], device=x.device)
        key, value = cache.append(*self.ready(x, at))
        return self.read(x, key, value, mask)

    def ready(self, memory: Tensor, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys (turned and projected by the mechanism) and values of a memory, to be read any number of times."""
        k, v = self.split(self.k(memory), self.kv_heads), self.split(self.v(memory), self.kv_heads)
        if self.kv_heads != self.heads and next(self.mechanism.score.parameters(), None) is not None:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)  # each query head has a score of its own
        return self.mechanism.keys(k, at).tensor, self.mechanism.values(v, at)

    def check(self, x: Tensor, memory: Tensor | None) -> None:
        """Raises when the shapes are not those of this layer."""
        for name, given, width in (("x", x, self.q.in_features), ("memory", x if memory is None else memory, self.k.in_features)):
            if given.dim() != 3 or given.shape[-1] != width:
                raise SaccadeError(f"{name} of shape {tuple(given.shape)}; this layer takes batch × places × {width}")
        if memory is not None and memory.shape[0] != x.shape[0]:
            raise SaccadeError(f"x is a batch of {x.shape[0]}, memory a batch of {memory.shape[0]}; give one memory a row of x")

    def read(self, x: Tensor, key: Tensor, value: Tensor, mask: Mask | None = None, places: Places | None = None) -> Tensor:
        """Attend from x to ready keys and values."""
        q = self.split(self.q(x), self.heads)
        heads = self.look(q, Keys(key), value, mask, places, self.dropout if self.training else 0.0)
        return self.out(heads.transpose(1, 2).flatten(2))

    def split(self, x: Tensor, heads: int) -> Tensor:
        """B N (H D) → B H N D"""
        return x.unflatten(-1, (heads, self.width)).transpose(1, 2)


class Reader(Site):
    """One head without projections of its own: a decoder's state looks into a memory, as in Bahdanau's and Luong's models.

    A score that compares equal widths alone gets a projection of the query to the memory's width when they differ.
    """

    def __init__(self, dim_query: int, dim_memory: int, mechanism: Mechanism) -> None:
        super().__init__()
        self.mechanism = mechanism
        same = dim_query == dim_memory or mechanism.score.unequal_widths
        self.project: nn.Module = nn.Identity() if same else nn.Linear(dim_query, dim_memory, bias=False)

    def ready(self, memory: Tensor) -> Tensor:
        """The memory's keys, B 1 M A: computed once a sentence, not once a step."""
        return self.mechanism.keys(memory.unsqueeze(1)).tensor

    def forward(self, query: Tensor, key: Tensor, memory: Tensor, mask: Mask | None = None) -> Tensor:
        """query: B N dim_query, memory: B M dim_memory → contexts B N dim_memory."""
        q = self.project(query).unsqueeze(1)
        return self.look(q, Keys(key), self.mechanism.values(memory.unsqueeze(1)), mask).squeeze(1)
