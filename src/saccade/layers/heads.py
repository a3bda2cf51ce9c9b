"""Heads: from a vector a place to logits over the vocabulary. V vocabulary, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .norms import LayerNorm


class Head(nn.Module):
    """Logits over the vocabulary, with the embedding's own vectors when tied."""

    def __init__(self, vectors: Tensor, tied: bool) -> None:
        """`vectors`: the embedding's, V D."""
        super().__init__()
        self.weight = vectors if tied else nn.Parameter(nn.init.normal_(torch.empty_like(vectors), std=vectors.shape[1] ** -0.5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class BiasedHead(Head):
    """W x + b: with a bias, which starts at 0."""

    def __init__(self, vectors: Tensor, tied: bool) -> None:
        super().__init__(vectors, tied)
        self.bias = nn.Parameter(torch.zeros(len(vectors)))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class TransformHead(BiasedHead):
    """norm(gelu(A x + a)) before the logits, as BERT has it; A leads from a body's width to the embedding's."""

    def __init__(self, dim: int, vectors: Tensor, tied: bool) -> None:
        super().__init__(vectors, tied)
        self.transform, self.norm = nn.Linear(dim, vectors.shape[1]), LayerNorm(vectors.shape[1])

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(F.gelu(self.transform(x))))
