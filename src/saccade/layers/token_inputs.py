"""The input of a model: embedded tokens, with positions worked into them where the mechanism knows none. B batch, N positions, D width."""

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from ..core.initialization import normal_parameter
from ..core.positions import check_within, sinusoid
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Choice, Positive, Range
from .dropouts import Dropout, drop_words
from .embeddings import Embedding, spelling_ids

table: Table[type[nn.Module]] = Table("position-embeddings", "position embedding", facts=("dim",))
joins: Table[type[nn.Module]] = Table("joins", "join of positions", facts=("dim",))


@joins.add("add", paper="Vaswani et al. 2017")
class Add(nn.Module):
    """x + p"""

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return tokens + positions


@joins.add("concatenate")
class Concatenate(nn.Module):
    """W [x; p]"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * dim, dim)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.project(torch.cat([tokens, positions.expand_as(tokens)], -1))


ADD = Choice(Add)


class PositionEmbedding(nn.Module):
    """x (B N dim) with one vector per position (`at`: N or B N) joined to it."""

    def __init__(self, dim: int, join: Annotated[Choice, joins] = ADD) -> None:
        super().__init__()
        self.dim, self.join = dim, join(dim=dim)

    def vectors_at(self, at: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return self.join(x, self.vectors_at(at).to(x.dtype))


@table.add("none")
class NoPositionEmbedding(nn.Module):
    """Nothing: for mechanisms that know positions themselves."""

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x


@table.add("sinusoidal", paper="Vaswani et al. 2017")
class Sinusoidal(PositionEmbedding):
    """p_t = [sin(t ω_0), cos(t ω_0), sin(t ω_1), …], ω_k = 10000^(−2k/d); nothing to learn, any length."""

    def vectors_at(self, at: Tensor) -> Tensor:
        return sinusoid(at, self.dim)


@table.add("learned", paper="Gehring et al. 2017", example={"max_len": 32})
class Learned(PositionEmbedding):
    """A learned table of `max_len` vectors; an error beyond it."""

    def __init__(
        self, dim: int, max_len: Positive = 512, join: Annotated[Choice, joins] = ADD
    ) -> None:
        super().__init__(dim, join)
        # as wide as sinusoids, beside tokens of width 1
        self.vectors = normal_parameter(max_len, dim, std=math.sqrt(0.5))

    def vectors_at(self, at: Tensor) -> Tensor:
        check_within(at, len(self.vectors))
        return self.vectors[at]


SINUSOIDAL = Choice(Sinusoidal)


@table.add("depth", paper="Wang et al. 2019", example={"max_len": 4})
class Depth(PositionEmbedding):
    """W p_d for a word at depth d of its parse tree, beside `plain` positions; or a learned table of `max_len` depths, deeper ones as its last.

    p_d is sinusoidal, as plain positions are: the matrix W (at first random) keeps depths and positions apart.
    """

    needs_relation = True

    def __init__(
        self,
        dim: int,
        max_len: Annotated[int | None, Range(1, 10**6)] = None,
        plain: Annotated[Choice, table] = SINUSOIDAL,
        join: Annotated[Choice, joins] = ADD,
    ) -> None:
        super().__init__(dim, join)
        if plain.make is Depth:
            raise SaccadeError(
                "plain positions beside 'depth' are 'depth' again; choose sinusoidal, learned or none",
                code="parts-do-not-combine",
            )
        self.plain = plain(dim=dim)
        self.vectors = (
            None if max_len is None else normal_parameter(max_len, dim, std=math.sqrt(0.5))
        )
        self.project = nn.Linear(dim, dim, bias=False) if max_len is None else None

    def vectors_at(self, at: Tensor) -> Tensor:
        """`at`: depths."""
        if self.vectors is not None:
            return self.vectors[at.clamp_max(len(self.vectors) - 1)]
        assert self.project is not None
        return self.project(sinusoid(at, self.dim, dtype=self.project.weight.dtype))

    def forward(self, x: Tensor, at: Tensor, depth: Tensor | None = None) -> Tensor:
        """`depth` (B N): of each token in its sentence's tree."""
        if depth is None:
            raise SaccadeError(
                "the depth of words needs parse trees; pass depth=tree_depths(heads)",
                code="depth-missing",
            )
        return super().forward(self.plain(x, at), depth)


class PositionedInput(nn.Module):
    """Token vectors, scaled, with positions: what a Transformer reads. Tokens B N → B N dim."""

    def __init__(
        self, tokens: Embedding, position: nn.Module, dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens, self.position, self.dropout = tokens, position, Dropout(dropout)
        tokens.initialize(1 / math.sqrt(dim))
        self.scale = math.sqrt(dim) if tokens.scale is None else tokens.scale
        self.reads_bytes = tokens.reads_bytes

    @property
    def needs_relation(self) -> bool:
        """Whether its positions come from a parse tree."""
        return getattr(self.position, "needs_relation", False)

    def forward(self, tokens: Tensor, at: Tensor, depth: Tensor | None = None) -> Tensor:
        """`at`: the positions of the tokens, N or B N; `depth` (B N): in a parse tree, for positions that ask for it."""
        return self.join(self.tokens(tokens) * self.scale, at, depth)

    def join(self, x: Tensor, at: Tensor, depth: Tensor | None = None) -> Tensor:
        """Vectors x (B N dim) with their positions joined to them."""
        return self.dropout(
            self.position(x, at, depth) if self.needs_relation else self.position(x, at)
        )


class WordInput(nn.Module):
    """Token vectors without position, for recurrent models and bags. Tokens B N (or B) → B N dim (or B dim)."""

    def __init__(
        self, tokens: Embedding, dropout: nn.Module, word_dropout: float = 0.0, std: float = 0.2
    ) -> None:
        """In training, whole words of the vocabulary are dropped wherever they occur, with probability `word_dropout`."""
        super().__init__()
        self.tokens, self.dropout, self.word_dropout = tokens, dropout, word_dropout
        tokens.initialize(std)  # wide enough to keep words apart from the start
        self.scale = 1.0 if tokens.scale is None else tokens.scale
        self.reads_bytes = tokens.reads_bytes

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        x = x if self.scale == 1.0 else x * self.scale
        if self.training and self.word_dropout:
            x = drop_words(x, spelling_ids(tokens), self.tokens.vocab, self.word_dropout)
        return self.dropout(x)
