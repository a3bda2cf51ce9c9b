"""Models on top of encoders. B batch, N positions, W requested positions, C classes, V vocabulary."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from ..core.masks import Mask, matrix
from ..layers.embeddings import spelling_ids
from ..layers.output_heads import TransformHead
from ..layers.pooling import Pool
from ..layers.recurrent import rows
from .protocols import AttendingEncoder, Encoder, ImageEncoder, LookingEncoder

E = TypeVar("E", bound=Encoder)


def with_token(body: E, pool: Pool) -> E:
    """The encoder with a class token, if the pool needs one."""
    if pool.reads_token:
        body.add_token()
    return body


class Classifier(nn.Module):
    """One label per text: logits = W pool(body(tokens)) + b."""

    def __init__(self, body: Encoder, pool: Pool, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body, self.pool = with_token(body, pool), pool
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """B C"""
        pooled = self.pool(spelling_ids(tokens), self.body(tokens, lengths), lengths)
        return self.head(self.dropout(pooled))

    def weights(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """How much each position counts for the label: B N, 0 at padding."""
        return self.pool.weights(spelling_ids(tokens), self.body(tokens, lengths), lengths)


class ImageClassifier(nn.Module):
    """One label per image: logits = W pool(body(images)) + b."""

    def __init__(self, body: ImageEncoder, pool: Pool, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body, self.pool = with_token(body, pool), pool
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        """B C"""
        return self.head(self.dropout(self.pool(*self.positions(images))))

    def weights(self, images: Tensor) -> Tensor:
        """How much each position counts for the label: B N, or B 1+N with a class token."""
        return self.pool.weights(*self.positions(images))

    def positions(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of a pool: token ids (none here), vectors and lengths."""
        x = self.body(images)
        lengths = torch.full((len(x),), x.shape[1], device=x.device)
        return lengths.new_zeros(x.shape[:2]), x, lengths


class Answerer(nn.Module):
    """One answer per question about an image: logits = W pool(body(question, image)) + b."""

    def __init__(
        self, body: LookingEncoder, pool: Pool, answers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.body, self.pool = with_token(body, pool), pool
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, answers)

    def forward(
        self, tokens: Tensor, lengths: Tensor, images: Tensor, which: Tensor | None = None
    ) -> Tensor:
        """B C; `which` (B): the image of each question."""
        pooled = self.pool(spelling_ids(tokens), self.body(tokens, lengths, images, which), lengths)
        return self.head(self.dropout(pooled))


class Tagger(nn.Module):
    """One label per word, predicted at its first token: logits_w = W body(tokens)_at(w) + b."""

    def __init__(self, body: Encoder, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        at: Tensor,
        relation: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> Tensor:
        """`at` (B W): the position of each word's first token → B W C. `relation` (B N N) and `depth` (B N): for an encoder of trees."""
        x = (
            self.body(tokens, lengths)
            if relation is None
            else self.body(tokens, lengths, relation=relation, depth=depth)
        )
        return self.head(self.dropout(rows(x, at)))


class NodeTagger(nn.Module):
    """One label per node of a graph: logits_i = W body(nodes, edges)_i + b."""

    def __init__(self, body: AttendingEncoder, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(body.dim, classes)

    def forward(self, tokens: Tensor, lengths: Tensor, relation: Tensor) -> Tensor:
        """`relation` (B N N): the kind of edge between each two nodes, 0 where there is none → B N C."""
        edges = matrix(relation.gt(0).unsqueeze(1))
        return self.head(self.dropout(self.body(tokens, lengths, edges, relation=relation)))


def hidden_head(body: Encoder, vocab: int) -> TransformHead:
    """The head of a masked language model, tied to the body's embedding."""
    tokens = body.embedding.tokens
    return TransformHead(body.dim, vocab, tokens, tokens.dim)


class MaskedModel(nn.Module):
    """Masked language model (Devlin et al. 2019)."""

    def __init__(self, body: Encoder, vocab: int) -> None:
        super().__init__()
        self.body, self.head = body, hidden_head(body, vocab)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        at: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Logits at every position, B N V, or at the requested ones (B W): B W V."""
        if mask is None and positions is None:
            x = self.body(tokens, lengths)
        else:
            assert isinstance(self.body, AttendingEncoder), (
                "only an encoder that attends takes a mask"
            )
            x = self.body(tokens, lengths, mask, positions)
        return self.head(x if at is None else rows(x, at))
