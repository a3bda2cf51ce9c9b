"""Words: how a token becomes a vector, from its number alone or from its bytes as well. B batch, N places, C bytes of a word, D width.

A reader with `reads_bytes` takes B N (1+C): column 0 the token's number, the rest its bytes as `spell` writes them. Bytes are the
symbols, so that no inventory of characters is needed and a word never seen can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.fixed import written_down
from ..core.table import Table
from ..errors import SaccadeError
from .recurrent import Bidirectional, Lstm

words: Table[type[Embedding] | type[Characters]] = Table("words", "word reader")
UNK = 1  # the number of the unknown token in every vocabulary
BEGIN, END, FIRST_BYTE = 1, 2, 3  # 0 is padding; byte b is the symbol b + 3
SYMBOLS = FIRST_BYTE + 256
WIDTHS = (2, 3, 4, 5)  # of the filters over bytes


def spell(words: Sequence[str], most: int = 24) -> list[list[int]]:
    """Each word as begin, its UTF-8 bytes + 3, end, filled up with 0; a word of more than `most` bytes keeps its first and last halves."""
    if most < 2:
        raise SaccadeError(f"words spelled with at most {most} bytes; give at least 2")
    spelled = []
    for word in words:
        found = word.encode("utf-8", "surrogatepass")
        kept = found if len(found) <= most else found[: most - most // 2] + found[-(most // 2) :]
        spelled.append([BEGIN, *(byte + FIRST_BYTE for byte in kept), END])
    longest = max(map(len, spelled), default=0)
    return [row + [0] * (longest - len(row)) for row in spelled]


def numbers(tokens: Tensor) -> Tensor:
    """The tokens' numbers, B N, whether or not their bytes stand beside them."""
    return tokens[..., 0] if tokens.dim() == 3 else tokens


@words.add("embedding")
class Embedding(nn.Embedding):
    """One learned vector a token."""

    reads_bytes = False

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__(vocab, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.dim() > 2:
            raise SaccadeError(
                f"tokens of shape {tuple(tokens.shape)}; this model reads token numbers alone: give batch × places, or choose "
                "model.words=characters-cnn"
            )
        return super().forward(tokens)


class Characters(nn.Module):
    """W [vector of the word; feature of its bytes] + b. In training the word is UNK with probability `word_dropout`: its bytes must do."""

    reads_bytes = True

    def __init__(self, vocab: int, dim: int, width: int, byte_dim: int, word_dropout: float) -> None:
        super().__init__()
        if min(width, byte_dim) < 1 or not 0 <= word_dropout < 1:
            raise SaccadeError(
                f"bytes {byte_dim} wide, their features {width} wide, word dropout {word_dropout}; widths are at least 1, and the "
                "share of words dropped lies from 0 to less than 1"
            )
        self.table = nn.Embedding(vocab, dim)
        self.bytes = nn.Embedding(SYMBOLS, byte_dim, padding_idx=0)
        self.join = nn.Linear(dim + width, dim)
        self.word_dropout = word_dropout

    @property
    def weight(self) -> Tensor:
        """The words' own vectors, V D: what a tied head shares."""
        return self.table.weight

    def feature(self, bytes: Tensor) -> Tensor:
        """W words spelled in C bytes → W × width"""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.dim() != 3 or tokens.shape[-1] < 2:
            raise SaccadeError(
                f"tokens of shape {tuple(tokens.shape)}; this model reads bytes too: give batch × places × (1 + bytes), the bytes as "
                "saccade.layers.words.spell writes them"
            )
        number, bytes = tokens[..., 0], tokens[..., 1:]
        if self.training and self.word_dropout:
            number = number.masked_fill(torch.rand(number.shape, device=number.device) < self.word_dropout, UNK)
        return self.join(torch.cat([self.table(number), self.features(bytes)], -1))

    def features(self, bytes: Tensor) -> Tensor:
        """B N C → B N × width; a word that stands in a batch many times is read once, but in a graph, whose sizes are known."""
        spelled = bytes.flatten(0, 1)
        if written_down():
            return self.feature(spelled).unflatten(0, bytes.shape[:2])
        different, back = spelled.unique(dim=0, return_inverse=True)
        return F.embedding(back, self.feature(different)).unflatten(0, bytes.shape[:2])


@words.add("characters-cnn", paper="Kim et al. 2016; Ma & Hovy 2016")
class CharacterCnn(Characters):
    """The word's vector and, of each filter over 2 to 5 bytes, the largest answer in the word: max_n relu(w · bytes_(n…n+k) + b)."""

    def __init__(self, vocab: int, dim: int, byte_dim: int = 32, filters: int = 32, word_dropout: float = 0.0) -> None:
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


@words.add("characters-rnn", paper="Ling et al. 2015")
class CharacterRnn(Characters):
    """The word's vector and the two last states of a bidirectional LSTM over its bytes."""

    def __init__(self, vocab: int, dim: int, byte_dim: int = 32, hidden: int = 64, word_dropout: float = 0.0) -> None:
        super().__init__(vocab, dim, 2 * hidden, byte_dim, word_dropout)
        self.reader = Bidirectional(Lstm, byte_dim, hidden)

    def feature(self, bytes: Tensor) -> Tensor:
        return self.reader(self.bytes(bytes), (bytes != 0).sum(-1))[1]
