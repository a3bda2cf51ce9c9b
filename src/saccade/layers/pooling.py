"""Pools: from one vector per position to one per text. B batch, N positions, D width, V vocabulary.

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

from ..core import Mechanism, Site, masks, normalizers, scores, weights
from ..core.tracing import can_sync
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Choice

pools: Table[type[Pool]] = Table("pools", "pool", facts=("dim", "vocab"))
ADDITIVE, SOFTMAX = Choice(scores.Additive), Choice(normalizers.Softmax)


def real_positions(x: Tensor, lengths: Tensor) -> Tensor:
    """True at the positions of a text, False at padding: B N."""
    return torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)


def share_of_sum(amounts: Tensor, here: Tensor) -> Tensor:
    """Amounts at real positions divided by their sum; where all are 0, every position alike."""
    amounts = amounts * here
    amounts = torch.where(amounts.sum(1, keepdim=True) > 0, amounts, here.to(amounts.dtype))
    return amounts / amounts.sum(1, keepdim=True).clamp_min(torch.finfo(amounts.dtype).tiny)


class Pool(nn.Module):
    """What all pools share: weights over the positions, and the sum."""

    reads_token = False  # the first position must be a class token

    def prepare(self, texts: Iterable[Sequence[int]]) -> None:
        """Reads the training texts (token ids) once; only a pool that counts has something to learn there."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """tokens B N, x B N D, lengths B → B N, 0 at padding."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """Σ_n weights_n · x_n: B D"""
        return torch.einsum("bn,bnd->bd", self.weights(tokens, x, lengths).to(x.dtype), x)


@pools.add("mean")
class Mean(Pool):
    """1 / length at every position: nothing is more important than anything else."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return share_of_sum(torch.ones_like(x[..., 0]), real_positions(x, lengths))


@pools.add("deep-sets", paper="Zaheer et al. 2017")
class DeepSets(Pool):
    """ρ(Σ_n φ(x_n)) with φ and ρ two layers each: any function of a set, whatever its order; ρ has no biases, so that nothing stays 0."""

    def __init__(self, dim: int) -> None:
        super().__init__()

        def make(bias: bool) -> nn.Sequential:
            return nn.Sequential(nn.Linear(dim, dim, bias), nn.ReLU(), nn.Linear(dim, dim, bias))

        self.each, self.whole = make(True), make(False)

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """1 at every position: a sum, not a mean."""
        return real_positions(x, lengths).to(x.dtype)

    def forward(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return self.whole(super().forward(tokens, self.each(x), lengths))


@pools.add("last", paper="Sutskever et al. 2014")
class Last(Pool):
    """1 at the last real position, which has read all others where the encoder is causal."""

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return (torch.arange(x.shape[1], device=x.device) == lengths.unsqueeze(1) - 1).to(x.dtype)


@pools.add("token", paper="Dosovitskiy et al. 2021 (ViT)")
class ClassToken(Pool):
    """1 at the class token: a learned vector in front of the patches that attends to all of them and belongs to none."""

    reads_token = True

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return (real_positions(x, lengths) & (torch.arange(x.shape[1], device=x.device) == 0)).to(
            x.dtype
        )


@pools.add("tf-idf", paper="Spärck Jones 1972")
class TfIdf(Pool):
    """tf·idf over its sum: tf = count in the text / length, idf = log(N / n_j), N texts of which n_j hold token j."""

    idf: Tensor

    def __init__(self, vocab: int) -> None:
        super().__init__()
        # below every idf: no texts have been read yet
        self.register_buffer("idf", torch.full((vocab,), -1.0))

    def prepare(self, texts: Iterable[Sequence[int]]) -> None:
        """Counts in how many texts each token occurs; a token in none gets the largest idf of those that were seen."""
        held: Counter[int] = Counter()
        count = 0
        for text in texts:
            held.update(set(text))
            count += 1
        if not held:
            got = f"got {count} texts without any"
            raise SaccadeError(
                f"tf-idf needs texts with tokens, {got}; pass the training texts as token ids",
                code="no-tokens",
            )
        wrong = [token for token in held if not 0 <= token < len(self.idf)]
        if wrong:
            rule = f"expected ids below {len(self.idf)}, got {wrong[0]}"
            raise SaccadeError(
                f"{rule}; encode the texts with the model's vocabulary", code="index-out-of-range"
            )
        self.idf.fill_(math.log(count / min(held.values())))
        for token, texts_with_it in held.items():
            self.idf[token] = math.log(count / texts_with_it)

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        if can_sync() and x.device.type == "cpu" and bool(self.idf[0] < 0):
            raise SaccadeError(
                "tf-idf has read no texts; call `pool.prepare(texts)` with the training texts first",
                code="pool-not-prepared",
            )
        return share_of_sum(self.idf[tokens], real_positions(x, lengths))


@pools.add("static")
class Static(Pool):
    """softmax over the text of one learned number per token, `score`: a word weighs the same whatever its neighbors are."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.score = nn.Parameter(torch.zeros(vocab))

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return normalizers.Softmax()(self.score[tokens], real_positions(x, lengths))


@pools.add("attention", paper="Yang et al. 2016")
class Attention(Pool, Site):
    """One learned query attends to all positions; additive score and softmax as in the paper, or any other two.

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

    def queries(self, x: Tensor) -> Tensor:
        """The query for each text, B 1 1 D."""
        return self.query.to(x.dtype).expand(len(x), 1, 1, -1)

    def weights(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        return weights(self.queries(x), x.unsqueeze(1), self.mechanism, masks.padding(lengths))[
            :, 0, 0
        ]

    def forward(self, tokens: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        ready = self.mechanism.prepare(x.unsqueeze(1), x.unsqueeze(1))
        return self.look(self.queries(x), ready, masks.padding(lengths))[:, 0, 0]
