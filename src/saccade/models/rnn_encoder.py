"""Bodies without attention of their own: a bag of words, a recurrence from both ends. B batch, N places, H hidden width."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..layers import pooling, words
from ..layers.dropouts import LockedDropout
from ..layers.embeddings import WordEmbedding
from ..layers.recurrent import Bidirectional, Cell, Lstm, cells
from .families import Choice, Family, part, table
from .kinds import Encoder


@dataclass(frozen=True)
class BagShape:
    """The numbers of a bag of words."""

    dim: int = 128
    dropout: float = 0.1


@dataclass(frozen=True)
class BagParts:
    """How a text's vectors become one."""

    pool: Choice = part(pooling.pools, Choice(pooling.Attention))


@dataclass(frozen=True)
class Shape:
    """The numbers of a recurrent encoder; `hidden` is the width of each direction's state."""

    dim: int = 128
    hidden: int = 200
    depth: int = 2
    dropout: float = 0.33


@dataclass(frozen=True)
class Parts:
    """The built parts of a recurrent encoder."""

    cell: type[Cell] = part(cells, Lstm)
    words: Choice = part(words.words, Choice(words.Embedding))
    pool: Choice = part(pooling.pools, Choice(pooling.Attention))


class Bag(Encoder):
    """Each token's vector and nothing of its neighbors: what a pool makes of them is all there is."""

    def __init__(self, vocab: int, shape: BagShape, parts: BagParts) -> None:
        super().__init__()
        self.dim = shape.dim
        self.embedding = WordEmbedding(vocab, shape.dim, nn.Dropout(shape.dropout))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.embedding(tokens)


class RnnEncoder(Encoder):
    """Recurrences from both ends, B N 2H, with one dropout mask for all places of a text (Gal & Ghahramani 2016)."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.dim = 2 * shape.hidden
        self.embedding = WordEmbedding(vocab, shape.dim, LockedDropout(shape.dropout), words=parts.words)
        between = LockedDropout(shape.dropout)
        self.encoder = Bidirectional(parts.cell, shape.dim, shape.hidden, shape.depth, drop=between)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens), lengths)[0]


table.add("bag", paper="Harris 1954", system="A1")(
    Family(lambda vocab, _, shape, parts: Bag(vocab, shape, parts), BagShape, BagParts, "Bag of words: a vector a token.", Bag)
)
table.add("rnn-encoder", paper="Graves & Schmidhuber 2005", system="S1")(
    Family(
        lambda vocab, _, shape, parts: RnnEncoder(vocab, shape, parts),
        Shape,
        Parts,
        "RNN encoder alone, from both ends: a vector a token.",
        RnnEncoder,
    )
)
