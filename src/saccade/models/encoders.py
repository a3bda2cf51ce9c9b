"""Encoders without attention of their own: a bag of words, a window of words, a recurrence from both ends, which may look at an image.
B batch, N positions, D width of a token, H hidden width."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, normalizers, scores
from ..layers import embeddings, pooling, token_inputs
from ..layers import image_inputs as images
from ..layers.dropouts import LockedDropout
from ..layers.multihead_attention import Reader
from ..layers.recurrent import Bidirectional, Lstm, cells
from ..settings import Choice, number, part
from .families import Sizes, add_family, named_sizes
from .protocols import Encoder, ImageEncoder, LookingEncoder


@dataclass(frozen=True)
class BagConfig:
    """The settings of a bag of words."""

    sizes: ClassVar[Sizes] = named_sizes(dim=(32, 64, 128, 300, 512))

    dim: int = number(128, 1, 65_536, "width of a token's vector")
    dropout: float = number(0.1, 0.0, 0.99, "dropout of the embedded words, and before the output")
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    pool: Choice = part(
        pooling.pools, pooling.Attention, "how a text's vectors become one, for a label"
    )


@dataclass(frozen=True)
class WindowConfig:
    """The settings of a window of words."""

    sizes: ClassVar[Sizes] = named_sizes(
        dim=(32, 64, 128, 200, 300), hidden=(64, 128, 256, 400, 600)
    )

    dim: int = number(128, 1, 65_536, "width of a token's vector")
    hidden: int = number(
        256, 1, 65_536, "width of the layer that reads a window, and of what comes out"
    )
    window: int = number(2, 0, 1000, "tokens to each side; 0: a token alone")
    dropout: float = number(0.1, 0.0, 0.99, "dropout of the embedded words, and before the output")
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    pool: Choice = part(
        pooling.pools, pooling.Attention, "how a text's vectors become one, for a label"
    )


@dataclass(frozen=True)
class RnnConfig:
    """The settings of a recurrent encoder."""

    sizes: ClassVar[Sizes] = named_sizes(
        dim=(64, 128, 128, 300, 300),
        hidden=(64, 128, 200, 300, 512),
        depth=(1, 2, 2, 2, 3),
        dropout=(0.3, 0.4, 0.4, 0.33, 0.33),
    )

    dim: int = number(128, 1, 65_536, "width of a token's vector")
    hidden: int = number(200, 1, 65_536, "width of each direction's state")
    depth: int = number(2, 1, 1000, "layers")
    dropout: float = number(0.33, 0.0, 0.99, "dropout between layers, one mask for all positions")
    cell: Choice = part(cells, Lstm)
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    pool: Choice = part(
        pooling.pools, pooling.Attention, "how a text's vectors become one, for a label"
    )
    score: Choice = part(scores.table, scores.Additive, "of the attention to an image")
    normalize: Choice = part(normalizers.table, normalizers.Softmax, "of the attention to an image")
    grid_embedding: Choice = part(
        images.table, images.SinusoidalGrid, "rows and columns of an image that is attended to"
    )


class Bag(Encoder):
    """Bag of words: each token's own vector. Only the pool combines them."""

    def __init__(self, vocab: int, c: BagConfig) -> None:
        super().__init__()
        self.dim = c.dim
        self.embedding = token_inputs.WordInput(
            c.embedding(vocab=vocab, dim=c.dim), nn.Dropout(c.dropout)
        )

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.embedding(tokens)


class WindowMLP(Encoder):
    """h_n = ReLU(W [x_(n−w); …; x_n; …; x_(n+w)] + b): a fully connected layer over a window; zeros stand beyond both ends of a text."""

    def __init__(self, vocab: int, c: WindowConfig) -> None:
        super().__init__()
        self.dim, self.window = c.hidden, c.window
        self.embedding = token_inputs.WordInput(
            c.embedding(vocab=vocab, dim=c.dim), nn.Dropout(c.dropout)
        )
        self.encoder = nn.Linear((2 * c.window + 1) * c.dim, c.hidden)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.embedding(tokens)
        inside = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
        padded = F.pad(x * inside.unsqueeze(-1), (0, 0, self.window, self.window))
        around = padded.unfold(1, 2 * self.window + 1, 1)  # B N D 2w+1
        return self.encoder(around.mT.flatten(2)).relu()


class RnnEncoder(Encoder):
    """Recurrences from both ends, B N 2H, with one dropout mask for all positions of a text (Gal & Ghahramani 2016)."""

    def __init__(self, vocab: int, c: RnnConfig) -> None:
        super().__init__()
        self.dim = 2 * c.hidden
        self.embedding = token_inputs.WordInput(
            c.embedding(vocab=vocab, dim=c.dim), LockedDropout(c.dropout)
        )
        self.encoder = Bidirectional(
            c.cell.make,  # type: ignore[arg-type]
            c.dim,
            c.hidden,
            c.depth,
            drop=LockedDropout(c.dropout),
        )

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens), lengths)[0]


class LookingRnn(LookingEncoder):
    """Each state of an `RnnEncoder` looks at an image once: tanh(W [state; context])."""

    def __init__(self, image: ImageEncoder, vocab: int, c: RnnConfig) -> None:
        super().__init__()
        text = RnnEncoder(vocab, c)
        self.dim, self.image, self.embedding = text.dim, image, text.embedding
        self.encoder = text.encoder
        grid = c.grid_embedding(dim=self.dim, rows=8, columns=8)
        self.bridge = images.Bridge(image.dim, self.dim, nn.LayerNorm(self.dim), grid, c.dropout)
        facts = {"dim": self.dim, "dim_q": self.dim, "dim_k": self.dim, "heads": 1}
        self.look = Reader(self.dim, self.dim, Mechanism(c.score(**facts), c.normalize(**facts)))
        self.look.in_order = False  # the pool combines all positions
        self.join = nn.Linear(2 * self.dim, self.dim)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        images: Tensor | None = None,
        which: Tensor | None = None,
    ) -> Tensor:
        states = self.encoder(self.embedding(tokens), lengths)[0]
        contexts = self.look(states, self.look.prepare(self.memory(images, which)))
        return torch.tanh(self.join(torch.cat([states, contexts], -1)))


add_family("bag", "Harris 1954", BagConfig, {Encoder: Bag}, "Bag of words: one vector per token.")
about = "Fully connected layer over a window of words: one vector per token."
add_family("window-mlp", "Collobert et al. 2011", WindowConfig, {Encoder: WindowMLP}, about)
about = "RNN encoder alone, from both ends: one vector per token."
add_family(
    "rnn-encoder",
    "Graves & Schmidhuber 2005",
    RnnConfig,
    {Encoder: RnnEncoder, LookingEncoder: LookingRnn},
    about,
)
