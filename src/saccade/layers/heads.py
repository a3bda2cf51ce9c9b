"""Heads: from one vector per position to logits over the vocabulary. V vocabulary, D width, K components."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.options import Range
from ..core.table import Table
from ..errors import SaccadeError
from .embeddings import Embedding
from .norms import LayerNorm

table: Table[type[LinearHead]] = Table("heads", "head", facts=("dim", "vocab", "tied", "bias"))


@table.add("linear", paper="Press & Wolf 2017")
class LinearHead(nn.Module):
    """W x (+ b); tied to the embedding, W holds its vectors."""

    def __init__(self, dim: int, vocab: int, tied: Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        if tied is not None and tied.vocab != vocab:
            raise SaccadeError(f"the head needs {vocab} tokens, the embedding it is tied to has {tied.vocab}; use one vocabulary")
        self._tied = (tied,)  # in a tuple, so that it is not a part of the head: its parameters have one owner
        if tied is None:
            self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab, dim), std=dim**-0.5))
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        [tied] = self._tied
        if tied is None:
            return F.linear(x, self.weight, self.bias)
        logits = tied.logits(x)
        return logits if self.bias is None else logits + self.bias


@table.add("mixture", paper="Yang et al. 2018", example={"count": 2})
class MixtureOfSoftmaxes(LinearHead):
    """log Σ_k π_k softmax(W tanh(A_k x)): log-probabilities of a rank above D, which a softmax of them leaves as they are."""

    def __init__(
        self, dim: int, vocab: int, tied: Embedding | None = None, bias: bool = False, count: Annotated[int, Range(2, 256)] = 4
    ) -> None:
        super().__init__(dim, vocab, tied, bias)
        self.count = count
        self.prior, self.latent = nn.Linear(dim, count, bias=False), nn.Linear(dim, count * dim)

    def forward(self, x: Tensor) -> Tensor:
        latent = torch.tanh(self.latent(x)).unflatten(-1, (self.count, -1))  # … K D
        wide = torch.promote_types(latent.dtype, torch.float32)
        each = super().forward(latent).log_softmax(-1, dtype=wide)  # … K V
        return (each + self.prior(x).log_softmax(-1, dtype=wide).unsqueeze(-1)).logsumexp(-2)


class TransformHead(LinearHead):
    """W norm(gelu(A x + a)) + b, as BERT has it, tied to the embedding of width `inner`."""

    def __init__(self, dim: int, vocab: int, tied: Embedding, inner: int) -> None:
        super().__init__(inner, vocab, tied, bias=True)
        self.transform, self.norm = nn.Linear(dim, inner), LayerNorm(inner)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(F.gelu(self.transform(x))))
