"""What stands on a body: a label for a text, a label for a word, a hidden token. B batch, N places, W asked places, C classes, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from ..core.masks import Mask
from ..errors import SaccadeError
from ..layers.heads import TransformHead
from ..layers.pooling import Pool
from ..layers.recurrent import rows
from ..layers.words import numbers
from .kinds import Encoder


class Classifier(nn.Module):
    """One label a text: logits = W pool(body(tokens)) + b."""

    def __init__(self, body: Encoder, pool: Pool, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body, self.pool = body, pool
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """B C"""
        pooled = self.pool(numbers(tokens), self.body(tokens, lengths), lengths)
        return self.head(self.dropout(pooled))

    def weights(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """How much each place counts for the label: B N, 0 at padding."""
        return self.pool.weights(numbers(tokens), self.body(tokens, lengths), lengths)


class Tagger(nn.Module):
    """One label a word, read where the word begins: logits_w = W body(tokens)_at(w) + b."""

    def __init__(self, body: Encoder, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(self, tokens: Tensor, lengths: Tensor, at: Tensor, relation: Tensor | None = None) -> Tensor:
        """`at` (B W): the position of each word's first token, any position for padding → B W C. `relation` (B N N) is for a body that
        needs it."""
        x = self.body(tokens, lengths) if relation is None else self.body(tokens, lengths, relation=relation)
        return self.head(self.dropout(rows(x, at)))


def hidden_head(body: Encoder, vocab: int, tied: bool) -> TransformHead:
    """The head that names hidden tokens, of the vocabulary the body reads."""
    vectors = body.embedding.tokens.weight
    if len(vectors) != vocab:
        raise SaccadeError(f"a head for {vocab} tokens on a body that reads {len(vectors)}; give both one vocabulary")
    return TransformHead(body.dim, vectors, tied)


class MaskedModel(nn.Module):
    """The tokens that a text hides, from all others (Devlin et al. 2019)."""

    def __init__(self, body: Encoder, vocab: int, tied: bool = True) -> None:
        super().__init__()
        self.body = body
        self.head = hidden_head(body, vocab, tied)

    def forward(
        self, tokens: Tensor, lengths: Tensor, at: Tensor | None = None, mask: Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Logits at every place, B N V, or at the asked ones (B W) alone: B W V. `mask` and `positions` are for a body that attends
        (packed documents, say)."""
        x = self.body(tokens, lengths) if mask is None else self.body(tokens, lengths, mask, positions)
        return self.head(x if at is None else rows(x, at))
