"""Pools: from a vector a place to one vector a text. B batch, N places, D width, V vocabulary.

    pooled = Σ_n weights_n · x_n        padding has weight 0

A pool may look at the tokens alone (tf-idf, static) or at the vectors (attention).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from ..core import Keys, Mechanism, Site, masks, normalizers, scores, weights
from ..core.table import Table
from ..errors import SaccadeError
from .choices import Choice

pools: Table[type[Pool]] = Table("pools", "pool")
ADDITIVE, SOFTMAX = Choice(scores.Additive), Choice(normalizers.Softmax)


def real(x: Tensor, lengths: Tensor) -> Tensor:
    """True at the places of a text, False at padding: B N."""
    return torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)


def over_sum(amounts: Tensor, here: Tensor) -> Tensor:
    """Amounts at real places divided by their sum; where all are 0, each place alike."""
    amounts = amounts * here
    amounts = torch.where(amounts.sum(1, keepdim=True) > 0, amounts, here.to(amounts.dtype))
    return amounts / amounts.sum(1, keepdim=True).clamp_min(torch.finfo(amounts.dtype).tiny)


class Pool(nn.Module):
    """What all pools share: weights over the places, and the sum."""

    def prepare(self, texts: Iterable[Sequence[int]]) -> None:
        """Reads the training texts (token numbers) once; only a pool that counts has something to learn there."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """tokens B N, x B N D, lengths B → B N, 0 at padding."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """Σ_n weights_n · x_n: B D"""
        return torch.einsum("bn,bnd->bd", self.weights(tokens, x, lengths).to(x.dtype), x)


@pools.add("mean", system="A1")
class Mean(Pool):
    """1 / length at every place: nothing is more important than anything else."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return over_sum(torch.ones_like(x[..., 0]), real(x, lengths))


@pools.add("last", paper="Sutskever et al. 2014", system="S1")
class Last(Pool):
    """1 at the last real place, which has read all others where the body is causal."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return (torch.arange(x.shape[1], device=x.device) == lengths.unsqueeze(1) - 1).to(x.dtype)


@pools.add("tf-idf", paper="Spärck Jones 1972", system="A1")
class TfIdf(Pool):
    """tf·idf over its sum: tf = count in the text / length, idf = log(N / n_j), N texts of which n_j hold token j.

    A token that stands c times shares its c/length · idf among its c places, so that each place weighs idf / length.
    """

    idf: Tensor

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.register_buffer("idf", torch.full((vocab,), -1.0))  # below every idf: no texts were read yet
        self.prepared = False

    def prepare(self, texts: Iterable[Sequence[int]]) -> None:
        """Counts in how many texts each token stands; a token in none gets the largest idf of those that were seen."""
        held: Counter[int] = Counter()
        count = 0
        for text in texts:
            held.update(set(text))
            count += 1
        if not held:
            raise SaccadeError(f"tf-idf from {count} texts without a token; hand in the training texts as token numbers")
        wrong = [token for token in held if not 0 <= token < len(self.idf)]
        if wrong:
            raise SaccadeError(f"token {wrong[0]} in a vocabulary of {len(self.idf)}; cut the texts with the model's vocabulary")
        self.idf.fill_(math.log(count / min(held.values())))
        for token, texts_with_it in held.items():
            self.idf[token] = math.log(count / texts_with_it)
        self.prepared = True

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        self.prepared = self.prepared or bool(
            self.idf[0] >= 0
        )  # asked of the tensor, which a file may have filled, until it is so
        if not self.prepared:
            raise SaccadeError("tf-idf has read no texts; call `pool.prepare(texts)` with the training texts first")
        return over_sum(self.idf[tokens], real(x, lengths))


@pools.add("static", system="A2")
class Static(Pool):
    """softmax over the text of one learned number a token, `score`: the same word weighs the same, whatever stands around it."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.score = nn.Parameter(torch.zeros(vocab))

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return normalizers.Softmax()(self.score[tokens], real(x, lengths))


@pools.add("attention", paper="Yang et al. 2016", system="A3")
class Attention(Pool, Site):
    """One learned query attends to all places; additive score and softmax as in the paper, or any other two.

    α_n = softmax(uᵀ tanh(W x_n + b)): the additive score's v is u, and its projected query is b.
    """

    def __init__(
        self,
        dim: int,
        score: Annotated[Choice, scores.table] = ADDITIVE,
        normalize: Annotated[Choice, normalizers.table] = SOFTMAX,
    ) -> None:
        super().__init__()
        facts = {"dim_q": dim, "dim_k": dim, "dim": dim, "heads": 1}
        self.mechanism = Mechanism(score(**facts), normalize(**facts))
        self.query = nn.Parameter(torch.randn(dim) / math.sqrt(dim))

    def asked(self, x: Tensor) -> tuple[Tensor, Keys]:
        """The query for each text, B 1 1 D, and the places' keys, B 1 N D."""
        q = self.query.to(x.dtype).expand(len(x), 1, 1, -1)
        return q, self.mechanism.keys(x.unsqueeze(1))

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return weights(*self.asked(x), self.mechanism, masks.padding(lengths))[:, 0, 0]

    def forward(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return self.look(*self.asked(x), x.unsqueeze(1), masks.padding(lengths))[:, 0, 0]
