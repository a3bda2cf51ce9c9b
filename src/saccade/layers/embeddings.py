"""From token numbers to vectors, and how position enters them: added, concatenated, or added to q, k and v of the first layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core.positions import check_places, sinusoid
from ..core.table import Table
from .choices import Choice
from .dropouts import drop_words
from .words import Characters, Embedding, numbers

table: Table[type[PlaceEmbedding]] = Table("place-embeddings", "place embedding")
entries: Table[type[Entry]] = Table("entries", "entry of position")
PLAIN = Choice(Embedding)


class PlaceEmbedding(nn.Module):
    """A vector for each place; this one is all zeros."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, places: Tensor) -> Tensor:
        """N (or B N) → N dim (or B N dim)"""
        return torch.zeros(*places.shape, self.dim, device=places.device)


@table.add("none", system="P6")
class NoPlaces(PlaceEmbedding):
    """Nothing: for mechanisms that know places themselves."""


@table.add("sinusoidal", paper="Vaswani et al. 2017", system="P1")
class Sinusoidal(PlaceEmbedding):
    """p_t = [sin(t ω_0), cos(t ω_0), sin(t ω_1), …], ω_k = 10000^(−2k/d); nothing to learn, any length."""

    def forward(self, places: Tensor) -> Tensor:
        return sinusoid(places, self.dim)


@table.add("learned", paper="Gehring et al. 2017", system="P2")
class Learned(PlaceEmbedding):
    """A learned table of `max_len` vectors; an error beyond it."""

    def __init__(self, dim: int, max_len: int = 512) -> None:
        super().__init__(dim)
        self.max_len = max_len
        self.vectors = nn.Parameter(torch.randn(max_len, dim) * math.sqrt(0.5))  # as wide as sinusoids, beside tokens of width 1

    def forward(self, places: Tensor) -> Tensor:
        check_places(places, self.max_len)
        return self.vectors[places]


class Entry(nn.Module):
    """How position vectors join token vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        raise NotImplementedError


@entries.add("add", paper="Vaswani et al. 2017", system="P5")
class Add(Entry):
    """x + p"""

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return tokens + places


@entries.add("concatenate", system="P5")
class Concatenate(Entry):
    """W [x; p]"""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.join = nn.Linear(2 * dim, dim)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return self.join(torch.cat([tokens, places.expand_as(tokens)], -1))


class TokenEmbedding(nn.Module):
    """Token vectors · √dim with position joined to them. B tokens × N → B N dim."""

    def __init__(
        self,
        vocab: int,
        dim: int,
        places: PlaceEmbedding,
        entry: Entry,
        dropout: float = 0.0,
        words: Choice = PLAIN,
    ) -> None:
        super().__init__()
        self.tokens: Embedding | Characters = words(vocab=vocab, dim=dim)
        nn.init.normal_(self.tokens.weight, std=1 / math.sqrt(dim))
        self.places, self.entry, self.dropout = places, entry, nn.Dropout(dropout)
        self.reads_bytes = self.tokens.reads_bytes
        self.scale = 1.0 if self.reads_bytes else math.sqrt(dim)  # what comes from a projection is wide enough

    def forward(self, tokens: Tensor, start: int = 0, places: Tensor | None = None) -> Tensor:
        """`start` is the place of the first token; `places` (N or B N) names the place of each, where they do not follow one another."""
        at = torch.arange(start, start + tokens.shape[1], device=tokens.device) if places is None else places
        return self.join(self.tokens(tokens) * self.scale, at)

    def join(self, x: Tensor, at: Tensor) -> Tensor:
        """Vectors x (B N dim) with their places (N or B N) joined to them."""
        return self.dropout(self.entry(x, self.places(at).to(x.dtype)))


class WordEmbedding(nn.Module):
    """Token vectors without position, for recurrent models and bags. B tokens × N (or B) → B N dim (or B dim)."""

    def __init__(self, vocab: int, dim: int, dropout: nn.Module, share: float = 0.0, words: Choice = PLAIN) -> None:
        """`share` of the words of the vocabulary are dropped in training, wherever they stand."""
        super().__init__()
        self.tokens: Embedding | Characters = words(vocab=vocab, dim=dim)
        nn.init.normal_(self.tokens.weight, std=0.2)  # wide enough to tell words apart from the start
        self.reads_bytes = self.tokens.reads_bytes
        self.vocab, self.dropout, self.share = vocab, dropout, share

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.training and self.share:
            x = drop_words(x, numbers(tokens), self.vocab, self.share)
        return self.dropout(x)


AnyEmbedding = TokenEmbedding | WordEmbedding
