"""Encoders without attention of their own: a bag of words, a recurrence from both ends. B batch, N positions, H hidden width."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ..core.options import Choice, number, part
from ..layers import embeddings, inputs, pooling
from ..layers.dropouts import LockedDropout
from ..layers.recurrent import Bidirectional, Lstm, cells
from .families import Sizes, add_family, named_sizes
from .kinds import Encoder


@dataclass(frozen=True)
class BagConfig:
    """The settings of a bag of words."""

    sizes: ClassVar[Sizes] = named_sizes(dim=(32, 64, 128, 300, 512))

    dim: int = number(128, 1, 65_536, "width of a token's vector")
    dropout: float = number(0.1, 0.0, 0.99, "dropout of the embedded words, and before the output")
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    pool: Choice = part(pooling.pools, pooling.Attention, "how a text's vectors become one, for a label")


@dataclass(frozen=True)
class RnnConfig:
    """The settings of a recurrent encoder."""

    sizes: ClassVar[Sizes] = named_sizes(
        dim=(64, 128, 128, 300, 300), hidden=(64, 128, 200, 300, 512), depth=(1, 2, 2, 2, 3), dropout=(0.3, 0.4, 0.4, 0.33, 0.33)
    )

    dim: int = number(128, 1, 65_536, "width of a token's vector")
    hidden: int = number(200, 1, 65_536, "width of each direction's state")
    depth: int = number(2, 1, 1000, "layers")
    dropout: float = number(0.33, 0.0, 0.99, "dropout between layers, one mask for all positions")
    cell: Choice = part(cells, Lstm)
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    pool: Choice = part(pooling.pools, pooling.Attention, "how a text's vectors become one, for a label")


class Bag(Encoder):
    """Each token's vector and nothing of its neighbors: what a pool makes of them is all there is."""

    def __init__(self, vocab: int, c: BagConfig) -> None:
        super().__init__()
        self.dim = c.dim
        self.embedding = inputs.WordInput(c.embedding(vocab=vocab, dim=c.dim), nn.Dropout(c.dropout))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.embedding(tokens)


class RnnEncoder(Encoder):
    """Recurrences from both ends, B N 2H, with one dropout mask for all positions of a text (Gal & Ghahramani 2016)."""

    def __init__(self, vocab: int, c: RnnConfig) -> None:
        super().__init__()
        self.dim = 2 * c.hidden
        self.embedding = inputs.WordInput(c.embedding(vocab=vocab, dim=c.dim), LockedDropout(c.dropout))
        self.encoder = Bidirectional(c.cell.make, c.dim, c.hidden, c.depth, drop=LockedDropout(c.dropout))  # type: ignore[arg-type]

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens), lengths)[0]


add_family("bag", "Harris 1954", BagConfig, {Encoder: Bag}, "Bag of words: one vector per token.")
about = "RNN encoder alone, from both ends: one vector per token."
add_family("rnn-encoder", "Graves & Schmidhuber 2005", RnnConfig, {Encoder: RnnEncoder}, about)
