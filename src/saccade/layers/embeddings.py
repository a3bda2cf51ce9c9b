"""Embeddings: from tokens to vectors, and back to logits where a head is tied. B batch, N positions, C bytes of a word, D width, V vocabulary.

One with `reads_bytes` takes B N (1+C): column 0 the token's id, the rest its bytes as `spell` writes them. Bytes are the symbols, so
that no inventory of characters is needed and a word never seen can still be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.tracing import can_sync
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range, Share, Width
from .recurrent import Bidirectional, Lstm

table: Table[type[Embedding]] = Table("embeddings", "embedding", facts=("vocab", "dim"))
UNKNOWN_ID = 1  # of the unknown token in vocabularies of saccade
BEGIN, END, FIRST_BYTE = 1, 2, 3  # 0 is padding; byte b is the symbol b + 3
SYMBOLS = FIRST_BYTE + 256
WIDTHS = (2, 3, 4, 5)  # of the filters over bytes
SCALE = Annotated[float | None, Range(1e-6, 1e6)]
WHOLE_VOCABULARY = slice(None)  # tokens of the vocabulary
CLUSTERS, GROWTH = 3, 2.5


def spell(words: Sequence[str], most: int = 24) -> list[list[int]]:
    """Encodes words as begin, UTF-8 bytes + 3, end, padded with 0. Words over `most` bytes keep both ends."""
    if most < 2:
        raise SaccadeError(f"most must be at least 2 bytes, got {most}", code="size-out-of-range")
    spelled = []
    for word in words:
        found = word.encode("utf-8", "surrogatepass")
        kept = found if len(found) <= most else found[: most - most // 2] + found[-(most // 2) :]
        spelled.append([BEGIN, *(byte + FIRST_BYTE for byte in kept), END])
    longest = max(map(len, spelled), default=0)
    return [row + [0] * (longest - len(row)) for row in spelled]


def spelling_ids(tokens: Tensor) -> Tensor:
    """The token ids, B N, with or without bytes in the input."""
    return tokens[..., 0] if tokens.dim() == 3 else tokens


class Embedding(nn.Module):
    """Tokens → vectors B N dim, and `logits` for a head that is tied to it."""

    reads_bytes = False
    scale: float | None = (
        None  # the factor on the vectors; None leaves it to the model (√dim in a Transformer)
    )
    vocab: int
    dim: int

    def initialize(self, std: float) -> None:
        """Draws the vectors of tokens with this standard deviation."""
        raise NotImplementedError

    def logits(self, x: Tensor, within: slice = WHOLE_VOCABULARY) -> Tensor:
        """… dim → … V, by the tokens' own vectors, or the logits of the tokens `within` a range of ids alone."""
        raise NotImplementedError

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The factors … D and V D of the logits, or None if they are not a product."""
        return None

    def product(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """`factors`, unless a subclass overrides `logits` alone."""
        own = next(kind for kind in type(self).__mro__ if "logits" in vars(kind))
        return self.factors(x) if "factors" in vars(own) and "logits" not in vars(self) else None

    def check(self, tokens: Tensor) -> None:
        if tokens.dim() > 2:
            shape = f"batch × positions, got shape {tuple(tokens.shape)}"
            raise SaccadeError(
                f"this model reads token ids alone, {shape}; or choose model.embedding=characters-cnn",
                code="not-token-ids",
            )


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

    def logits(self, x: Tensor, within: slice = WHOLE_VOCABULARY) -> Tensor:
        return F.linear(x, self.weight[within])

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        return x, self.weight


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

    def logits(self, x: Tensor, within: slice = WHOLE_VOCABULARY) -> Tensor:
        return F.linear(x @ self.project.weight, self.table.weight[within])

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        return x @ self.project.weight, self.table.weight


def factor_per_cluster(
    given: float | list[float] | list[int], count: int, name: str
) -> list[float]:
    """A factor for each of `count` clusters after the first: the same for all of them, or as listed."""
    if not isinstance(given, list):
        return [given] * count
    if len(given) != count:
        raise SaccadeError(
            f"{name} lists {len(given)} numbers, and {count} clusters follow the first; list one for each of these",
            code="clusters-do-not-fit",
        )
    return list(given)


def clusters_of(vocab: int, count: int, growth: float | list[float]) -> list[tuple[int, int]]:
    """The first and the end id of each of `count` clusters, each about `growth` times as large as the one before; fewer of a tiny vocabulary.

    They divide the vocabulary's size as its first digit says it, and the last one takes the rest: a few more tokens, as models that fill
    in gaps have them for the gaps, move no other token to another cluster."""
    sizes = list(accumulate([1.0, *factor_per_cluster(growth, count - 1, "growth")], mul))
    unit = 10 ** (len(str(vocab)) - 1) if vocab >= 100 else 1
    whole = vocab // unit * unit
    ends = {max(1, round(whole * sum(sizes[: n + 1]) / sum(sizes))) for n in range(count - 1)}
    return list(pairwise([0, *sorted(end for end in ends if end < vocab), vocab]))


@table.add("adaptive", paper="Baevski & Auli 2019", example={"growth": 1.5})
class Adaptive(Embedding):
    """P_c e: wide vectors e for frequent tokens and narrow ones for rare tokens, with one matrix P_c per cluster c to the model's width.

    The ids are divided into `clusters`, each `growth` times as large as the one before and with vectors a `factor` of its width: dim,
    dim/4, dim/16. A list has one number for each cluster after the first: with `growth: [2.4, 3.5833]` and `factor: [3, 4]`, 32,128
    tokens are 2,500 of width dim, 6,000 of dim/3 and 23,628 of dim/12, as in the code of Narang et al. 2021.

    Ids must begin with the frequent tokens. Vocabularies of words and characters are in the order of their counts. That of BPE has its
    256 bytes first and then its merges as they were learned, roughly by count. A foreign tokenizer may have any order.
    """

    def __init__(
        self,
        vocab: int,
        dim: int,
        clusters: Annotated[int, Range(2, 16)] = CLUSTERS,
        growth: Annotated[float | list[float], Range(1.0, 100.0)] = GROWTH,
        factor: Annotated[int | list[int], Range(1, 64)] = 4,
        scale: SCALE = None,
    ) -> None:
        """With a `factor` of 1 all vectors are as wide as the model and need no projection."""
        super().__init__()
        self.vocab, self.dim, self.scale = vocab, dim, scale
        self.clusters = clusters_of(vocab, clusters, growth)
        shares = accumulate([1, *factor_per_cluster(factor, clusters - 1, "factor")], mul)
        widths = [
            max(1, int(dim // share)) for share, _ in zip(shares, self.clusters, strict=False)
        ]
        sizes = zip(self.clusters, widths, strict=True)
        self.tables = nn.ModuleList(
            nn.Embedding(end - first, width) for (first, end), width in sizes
        )
        self.projects = nn.ModuleList(
            nn.Identity() if w == dim else nn.Linear(w, dim, bias=False) for w in widths
        )

    def each(self) -> Iterator[tuple[int, int, Tensor, nn.Module]]:
        """The first and the end id of each cluster, its vectors and its projection."""
        for (first, end), vectors, project in zip(
            self.clusters, self.tables, self.projects, strict=True
        ):
            assert isinstance(vectors, nn.Embedding)
            yield first, end, vectors.weight, project

    def initialize(self, std: float) -> None:
        for _, _, vectors, project in self.each():
            if isinstance(project, nn.Linear):
                nn.init.normal_(project.weight, std=std / math.sqrt(project.in_features))
            nn.init.normal_(vectors, std=1.0 if isinstance(project, nn.Linear) else std)

    def forward(self, tokens: Tensor) -> Tensor:
        self.check(tokens)
        found: Tensor | None = None
        for first, end, vectors, project in self.each():
            x = project(F.embedding((tokens - first).clamp(0, end - first - 1), vectors))
            found = x if found is None else torch.where((tokens >= first).unsqueeze(-1), x, found)
        assert found is not None
        return found

    def logits(self, x: Tensor, within: slice = WHOLE_VOCABULARY) -> Tensor:
        start, stop, _ = within.indices(self.vocab)
        found = []
        for first, end, vectors, project in self.each():
            if first < stop and end > start:
                narrow = x @ project.weight if isinstance(project, nn.Linear) else x
                found.append(F.linear(narrow, vectors[max(start - first, 0) : stop - first]))
        return found[0] if len(found) == 1 else torch.cat(found, -1)


class Characters(Embedding):
    """W [vector of the word; feature of its bytes] + b. In training the word is UNK with probability `word_dropout`: its bytes must do."""

    reads_bytes = True
    scale = 1.0  # what comes from a projection is wide enough

    def __init__(
        self, vocab: int, dim: int, width: int, byte_dim: int, word_dropout: float
    ) -> None:
        super().__init__()
        if min(width, byte_dim) < 1 or not 0 <= word_dropout < 1:
            got = f"{byte_dim}, {width} and {word_dropout}"
            raise SaccadeError(
                f"widths must be at least 1 and word_dropout in [0, 1), got {got}",
                code="size-out-of-range",
            )
        self.table, self.vocab, self.dim = nn.Embedding(vocab, dim), vocab, dim
        self.bytes = nn.Embedding(SYMBOLS, byte_dim, padding_idx=0)
        self.join = nn.Linear(dim + width, dim)
        self.word_dropout = word_dropout

    def initialize(self, std: float) -> None:
        nn.init.normal_(self.table.weight, std=std)

    def logits(self, x: Tensor, within: slice = WHOLE_VOCABULARY) -> Tensor:
        return F.linear(x, self.table.weight[within])

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        return x, self.table.weight

    def feature(self, bytes: Tensor) -> Tensor:
        """W words spelled in C bytes → W × width"""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.dim() != 3 or tokens.shape[-1] < 2:
            shape = f"batch × positions × (1 + bytes) as `spell` writes them, got shape {tuple(tokens.shape)}"
            raise SaccadeError(f"this model reads bytes too, {shape}", code="bytes-missing")
        ids, bytes = tokens[..., 0], tokens[..., 1:]
        if self.training and self.word_dropout:
            ids = ids.masked_fill(
                torch.rand(ids.shape, device=ids.device) < self.word_dropout, UNKNOWN_ID
            )
        return self.join(torch.cat([self.table(ids), self.features(bytes)], -1))

    def features(self, bytes: Tensor) -> Tensor:
        """B N C → B N × width; a word that occurs many times in a batch is read once, where sizes may depend on numbers."""
        spelled = bytes.flatten(0, 1)
        if not can_sync():
            return self.feature(spelled).unflatten(0, bytes.shape[:2])
        different, back = spelled.unique(dim=0, return_inverse=True)
        return F.embedding(back, self.feature(different)).unflatten(0, bytes.shape[:2])


@table.add(
    "characters-cnn", paper="Kim et al. 2016; Ma & Hovy 2016", example={"byte_dim": 4, "filters": 3}
)
class CharacterCnn(Characters):
    """The word's vector and, of each filter over 2 to 5 bytes, the largest answer in the word: max_n relu(w · bytes_(n…n+k) + b)."""

    def __init__(
        self,
        vocab: int,
        dim: int,
        byte_dim: Width = 32,
        filters: Width = 32,
        word_dropout: Share = 0.0,
    ) -> None:
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

    def __init__(
        self,
        vocab: int,
        dim: int,
        byte_dim: Width = 32,
        hidden: Width = 64,
        word_dropout: Share = 0.0,
    ) -> None:
        super().__init__(vocab, dim, 2 * hidden, byte_dim, word_dropout)
        self.reader = Bidirectional(Lstm, byte_dim, hidden)

    def feature(self, bytes: Tensor) -> Tensor:
        return self.reader(self.bytes(bytes), (bytes != 0).sum(-1))[1]
