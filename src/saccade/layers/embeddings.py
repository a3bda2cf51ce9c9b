"""Embeddings: from tokens to vectors, and back to logits where a head is tied. B batch, N positions, C bytes of a word, D width, V vocabulary.

One with `reads_bytes` takes B N (1+C): column 0 the token's id, the rest its bytes as `spell` writes them. Bytes are the symbols, so
that no inventory of characters is needed and a word never seen can still be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.masks import may_read
from ..core.options import Range, Share, Width
from ..core.table import Table
from ..errors import SaccadeError
from .recurrent import Bidirectional, Lstm

table: Table[type[Embedding]] = Table("embeddings", "embedding", facts=("vocab", "dim"))
UNK = 1  # the id of the unknown token in the vocabularies that are trained here
BEGIN, END, FIRST_BYTE = 1, 2, 3  # 0 is padding; byte b is the symbol b + 3
SYMBOLS = FIRST_BYTE + 256
WIDTHS = (2, 3, 4, 5)  # of the filters over bytes
SCALE = Annotated[float | None, Range(1e-6, 1e6)]


def spell(words: Sequence[str], most: int = 24) -> list[list[int]]:
    """Each word as begin, its UTF-8 bytes + 3, end, filled up with 0; a word of more than `most` bytes keeps its first and last halves."""
    if most < 2:
        raise SaccadeError(f"most must be at least 2 bytes, got {most}")
    spelled = []
    for word in words:
        found = word.encode("utf-8", "surrogatepass")
        kept = found if len(found) <= most else found[: most - most // 2] + found[-(most // 2) :]
        spelled.append([BEGIN, *(byte + FIRST_BYTE for byte in kept), END])
    longest = max(map(len, spelled), default=0)
    return [row + [0] * (longest - len(row)) for row in spelled]


def ids_of(tokens: Tensor) -> Tensor:
    """The tokens' ids, B N, whether or not their bytes are with them."""
    return tokens[..., 0] if tokens.dim() == 3 else tokens


class Embedding(nn.Module):
    """Tokens → vectors B N dim, and `logits` for a head that is tied to it."""

    reads_bytes = False
    scale: float | None = None  # the factor on the vectors; None leaves it to the model (√dim in a Transformer)
    vocab: int
    dim: int

    def initialize(self, std: float) -> None:
        """Draws the vectors of tokens with this standard deviation."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """… dim → … V, by the tokens' own vectors."""
        raise NotImplementedError

    def check(self, tokens: Tensor) -> None:
        if tokens.dim() > 2:
            shape = f"batch × positions, got shape {tuple(tokens.shape)}"
            raise SaccadeError(f"this model reads token ids alone, {shape}; or choose model.embedding=characters-cnn")


@table.add("tokens")
class Tokens(nn.Embedding, Embedding):
    """One learned vector per token; `frozen` vectors stay as they were drawn."""

    def __init__(self, vocab: int, dim: int, scale: SCALE = None, frozen: bool = False) -> None:
        nn.Embedding.__init__(self, vocab, dim)
        self.weight.requires_grad_(not frozen)
        self.vocab, self.dim, self.scale = vocab, dim, scale

    def initialize(self, std: float) -> None:
        nn.init.normal_(self.weight, std=std)

    def forward(self, tokens: Tensor) -> Tensor:
        self.check(tokens)
        return nn.Embedding.forward(self, tokens)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


@table.add("factorized", paper="Lan et al. 2020 (ALBERT)", example={"rank": 3})
class Factorized(Embedding):
    """P e: a vector e of `rank` numbers per token, and one matrix P to the model's width."""

    def __init__(self, vocab: int, dim: int, rank: Width = 128, scale: SCALE = None) -> None:
        super().__init__()
        self.vocab, self.dim, self.scale = vocab, dim, scale
        self.table, self.project = nn.Embedding(vocab, rank), nn.Linear(rank, dim, bias=False)

    def initialize(self, std: float) -> None:
        nn.init.normal_(self.table.weight)
        nn.init.normal_(self.project.weight, std=std / math.sqrt(self.project.in_features))

    def forward(self, tokens: Tensor) -> Tensor:
        self.check(tokens)
        return self.project(self.table(tokens))

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x @ self.project.weight, self.table.weight)


class Characters(Embedding):
    """W [vector of the word; feature of its bytes] + b. In training the word is UNK with probability `word_dropout`: its bytes must do."""

    reads_bytes = True
    scale = 1.0  # what comes from a projection is wide enough

    def __init__(self, vocab: int, dim: int, width: int, byte_dim: int, word_dropout: float) -> None:
        super().__init__()
        if min(width, byte_dim) < 1 or not 0 <= word_dropout < 1:
            got = f"{byte_dim}, {width} and {word_dropout}"
            raise SaccadeError(f"widths must be at least 1 and word_dropout in [0, 1), got {got}")
        self.table, self.vocab, self.dim = nn.Embedding(vocab, dim), vocab, dim
        self.bytes = nn.Embedding(SYMBOLS, byte_dim, padding_idx=0)
        self.join = nn.Linear(dim + width, dim)
        self.word_dropout = word_dropout

    def initialize(self, std: float) -> None:
        nn.init.normal_(self.table.weight, std=std)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.table.weight)

    def feature(self, bytes: Tensor) -> Tensor:
        """W words spelled in C bytes → W × width"""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.dim() != 3 or tokens.shape[-1] < 2:
            shape = f"batch × positions × (1 + bytes) as `spell` writes them, got shape {tuple(tokens.shape)}"
            raise SaccadeError(f"this model reads bytes too, {shape}")
        ids, bytes = tokens[..., 0], tokens[..., 1:]
        if self.training and self.word_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.word_dropout, UNK)
        return self.join(torch.cat([self.table(ids), self.features(bytes)], -1))

    def features(self, bytes: Tensor) -> Tensor:
        """B N C → B N × width; a word that occurs many times in a batch is read once, where sizes may depend on numbers."""
        spelled = bytes.flatten(0, 1)
        if not may_read():
            return self.feature(spelled).unflatten(0, bytes.shape[:2])
        different, back = spelled.unique(dim=0, return_inverse=True)
        return F.embedding(back, self.feature(different)).unflatten(0, bytes.shape[:2])


@table.add("characters-cnn", paper="Kim et al. 2016; Ma & Hovy 2016", example={"byte_dim": 4, "filters": 3})
class CharacterCnn(Characters):
    """The word's vector and, of each filter over 2 to 5 bytes, the largest answer in the word: max_n relu(w · bytes_(n…n+k) + b)."""

    def __init__(self, vocab: int, dim: int, byte_dim: Width = 32, filters: Width = 32, word_dropout: Share = 0.0) -> None:
        super().__init__(vocab, dim, len(WIDTHS) * filters, byte_dim, word_dropout)
        self.filters = nn.ModuleList(nn.Conv1d(byte_dim, filters, width) for width in WIDTHS)

    def feature(self, bytes: Tensor) -> Tensor:
        here = (bytes != 0).unsqueeze(1)  # W 1 C
        x = self.bytes(bytes).transpose(1, 2) * here
        found = []
        for width, filters in zip(WIDTHS, self.filters, strict=True):
            # A window may begin at any byte of the word and ends in zeros: how much padding there is does not show.
            answers = filters(F.pad(x, (0, width - 1))).masked_fill(~here, float("-inf"))
            found.append(answers.amax(-1).relu())
        return torch.cat(found, -1)


@table.add("characters-rnn", paper="Ling et al. 2015", example={"byte_dim": 4, "hidden": 5})
class CharacterRnn(Characters):
    """The word's vector and the two last states of a bidirectional LSTM over its bytes."""

    def __init__(self, vocab: int, dim: int, byte_dim: Width = 32, hidden: Width = 64, word_dropout: Share = 0.0) -> None:
        super().__init__(vocab, dim, 2 * hidden, byte_dim, word_dropout)
        self.reader = Bidirectional(Lstm, byte_dim, hidden)

    def feature(self, bytes: Tensor) -> Tensor:
        return self.reader(self.bytes(bytes), (bytes != 0).sum(-1))[1]
