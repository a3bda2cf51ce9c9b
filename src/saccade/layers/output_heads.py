"""Heads: from one vector per position to logits over the vocabulary. V vocabulary, D width, K components."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.auxiliary_losses import requested_losses, requested_targets
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range, overrides
from .embeddings import CLUSTERS, GROWTH, Adaptive, Embedding, clusters_of
from .fast.cross_entropy import needs_chunks, negative_losses
from .norms import LayerNorm

table: Table[type[LinearHead]] = Table("heads", "head", facts=("dim", "vocab", "tied", "bias"))


def normalized(logits: Tensor) -> Tensor:
    """Their log-softmax, in 32 bits or more."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@table.add("linear", paper="Press & Wolf 2017")
class LinearHead(nn.Module):
    """W x (+ b); tied to the embedding, W holds its vectors. With `scaled`, x is divided by √dim, as T5 does for a tied W."""

    def __init__(
        self,
        dim: int,
        vocab: int,
        tied: Embedding | None = None,
        bias: bool = False,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.scale, self.vocab = dim**-0.5 if scaled else 1.0, vocab
        if tied is not None and tied.vocab != vocab:
            raise SaccadeError(
                f"the head needs {vocab} tokens, the embedding it is tied to has {tied.vocab}; use one vocabulary",
                code="vocabulary-differs",
            )
        # In a tuple, so it is not registered as a submodule.
        self._tied = (tied,)
        if tied is None:
            self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab, dim), std=dim**-0.5))
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or −loss of each target if the loss needs these alone and all logits would be large."""
        [tied] = self._tied
        x = x if self.scale == 1.0 else x * self.scale
        asks = requested_losses(x)
        if (
            asks is not None
            and asks.target is not None
            and self.is_plain
            and needs_chunks(asks.target.numel(), self.vocab)
        ):
            product = (x, self.weight) if tied is None else tied.product(x)
            if product is not None:
                return negative_losses(
                    *product, self.bias, asks.target, asks.ignore, asks.smoothing
                )
        if tied is None:
            return F.linear(x, self.weight, self.bias)
        logits = tied.logits(x)
        return logits if self.bias is None else logits + self.bias

    @property
    def is_plain(self) -> bool:
        """Whether `forward` returns plain logits, without overrides or hooks."""
        known = not overrides(self, "forward", LinearHead) or type(self) is TransformHead
        return known and not self._forward_hooks


@table.add("mixture", paper="Yang et al. 2018", example={"count": 2})
class MixtureOfSoftmaxes(LinearHead):
    """log Σ_k π_k softmax(W tanh(A_k x)): log-probabilities of a rank above D, which a softmax of them leaves as they are."""

    def __init__(
        self,
        dim: int,
        vocab: int,
        tied: Embedding | None = None,
        bias: bool = False,
        count: Annotated[int, Range(2, 256)] = 4,
    ) -> None:
        super().__init__(dim, vocab, tied, bias)
        self.count = count
        self.prior, self.latent = nn.Linear(dim, count, bias=False), nn.Linear(dim, count * dim)

    def forward(self, x: Tensor) -> Tensor:
        latent = torch.tanh(self.latent(x)).unflatten(-1, (self.count, -1))  # … K D
        each = normalized(super().forward(latent))  # … K V
        return (each + normalized(self.prior(x)).unsqueeze(-1)).logsumexp(-2)


@table.add("adaptive", paper="Grave et al. 2017; Baevski & Auli 2019")
class AdaptiveSoftmax(LinearHead):
    """log p(cluster) + log p(token | cluster): one softmax over frequent tokens and the clusters of rare ones, one within each cluster.

    In training without label smoothing, only the clusters that targets are in are computed (`requested_targets`), each for those targets alone.
    `clusters`, `growth` and `factor` are those of the embedding `adaptive` (3, 2.5 and 4, or 1 for no projection), from which a
    tied head takes all three; tied to another embedding, the head has its own clusters of the embedding's full width.
    """

    def __init__(
        self,
        dim: int,
        vocab: int,
        tied: Embedding | None = None,
        bias: bool = False,
        clusters: Annotated[int | None, Range(2, 16)] = None,
        growth: Annotated[float | list[float] | None, Range(1.0, 100.0)] = None,
        factor: Annotated[int | list[int] | None, Range(1, 64)] = None,
    ) -> None:
        options = {"clusters": clusters, "growth": growth, "factor": factor}
        given = {name: value for name, value in options.items() if value is not None}
        fixed = [
            name
            for name in given
            if isinstance(tied, Adaptive) or (tied is not None and name == "factor")
        ]
        if fixed:
            wrong = (
                f"expected a head with the embedding's {fixed[0]}, to which it is tied, got its own"
            )
            raise SaccadeError(
                f"{wrong}; leave head.{fixed[0]} out, or set model.tied=false", code="tied-setting"
            )
        own = Adaptive(vocab, dim, **given) if tied is None else None  # type: ignore[arg-type]
        super().__init__(dim, vocab, tied or own, bias)
        self.own = own
        if own is not None:
            own.initialize(dim**-0.5)
        like = tied or own
        ids = (
            like.clusters
            if isinstance(like, Adaptive)
            else clusters_of(vocab, clusters or CLUSTERS, growth or GROWTH)
        )
        (_, self.first), *self.rest = ids
        self.cluster = nn.Linear(dim, len(self.rest), bias=bias)
        nn.init.normal_(self.cluster.weight, std=dim**-0.5)

    def within(self, x: Tensor, first: int, end: int) -> Tensor:
        """The logits of the tokens of a cluster."""
        [tied] = self._tied
        assert tied is not None
        logits = tied.logits(x, slice(first, end))
        return logits if self.bias is None else logits + self.bias[first:end]

    def top(self, x: Tensor) -> Tensor:
        """log p of the frequent tokens, and then of the clusters."""
        return normalized(torch.cat([self.within(x, 0, self.first), self.cluster(x)], -1))

    def forward(self, x: Tensor) -> Tensor:
        target = requested_targets(x)
        if target is not None:
            return self.of_targets(x.flatten(0, -2), target.flatten()).view(target.shape)
        top = self.top(x)
        found = [top[..., : self.first]]
        for n, (first, end) in enumerate(self.rest, self.first):
            found.append(top[..., n : n + 1] + normalized(self.within(x, first, end)))
        return torch.cat(found, -1)

    def of_targets(self, x: Tensor, target: Tensor) -> Tensor:
        """log p of one token per row (R): R dim → R."""
        column = target.clamp(0, self.first - 1)
        for n, (first, _) in enumerate(self.rest, self.first):
            column = torch.where(target >= first, n, column)
        found = self.top(x).gather(1, column.unsqueeze(1)).squeeze(1)
        for first, end in self.rest:
            # Also without rows, so each parameter gets a gradient in every update.
            rows = ((target >= first) & (target < end)).nonzero().squeeze(1)
            inner = normalized(self.within(x[rows], first, end))
            found = found.index_add(
                0, rows, inner.gather(1, (target[rows] - first).unsqueeze(1)).squeeze(1)
            )
        return found


class TransformHead(LinearHead):
    """W norm(gelu(A x + a)) + b, as BERT has it, tied to the embedding of width `inner`."""

    def __init__(self, dim: int, vocab: int, tied: Embedding, inner: int) -> None:
        super().__init__(inner, vocab, tied, bias=True)
        self.transform, self.norm = nn.Linear(dim, inner), LayerNorm(inner)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(F.gelu(self.transform(x))))
