"""Self-attention by hand, every step in words and numbers, by any parts of the core: the lectures' worked example, and the reader's own
sentence. N inputs, H heads, D width of a head; x are the inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...core import masks, normalizers, scores
from ...core.attention import build_call
from ...core.backends import eager
from ...core.mechanism import Mechanism
from ...errors import SaccadeError
from ...settings import Choice, choose
from ...views.worked_steps import Worked

MAX_TOKENS = 30
DIM = 4
MAX_MASK_OPTION = 1000  # option of a mask
MAX_ROW_NUMBERS = 16  # numbers per row of a part's own parameters that one can follow
LECTURE_NAMES = ["input 1", "input 2", "input 3"]
LECTURE_INPUTS = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
LECTURE_MATRICES = {
    "q": [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
    "k": [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
    "v": [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
}
# a single 1 in each column of W_q and W_k, so that scores stay small enough for a softmax with shades
WORD_MATRICES = {
    "q": [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]],
    "k": [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "v": [[0, 1, 0], [2, 0, 2], [0, 2, 0], [0, 1, 1]],
}
# as wide as an input together, so that heads can divide them; W_o mixes what the heads found
HEAD_MATRICES = {
    "q": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    "k": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
    "v": [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]],
    "o": [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 1]],
}
# "This is a cat" of the lectures, one-hot; one column of W_q, W_k and W_v for each number of a query, key or value
ONE_HOT = {"This": [0, 0, 1, 0], "is": [1, 0, 0, 0], "a": [0, 1, 0, 0], "cat": [0, 0, 0, 1]}
COLUMN_MATRICES = {
    "q": [[1, 0, 1, 0], [0, 1, 0, 1], [2, 1, 0, 1], [1, 2, 1, 0]],
    "k": [[1, 1, 0, 2], [0, 1, 1, 0], [0, 2, 1, 1], [2, 0, 1, 1]],
    "v": [[2, 1, 0, 1], [1, 0, 3, 0], [3, 1, 1, 2], [4, 2, 0, 1]],
    "o": HEAD_MATRICES["o"],
}


@dataclass(frozen=True)
class Parts:
    """The parts of a self-attention: parts of the core by name, the number of heads, whether W = I (`plain`)."""

    score: Choice
    normalize: Choice
    mask: Choice | None = None
    heads: int = 1
    plain: bool = False
    scaled: bool = False
    dim: int | None = None  # of a head; else the inputs are divided among the heads

    @property
    def width(self) -> int:
        """Of a head."""
        return self.dim or (DIM // self.heads if self.heads > 1 or self.plain else 3)

    def mechanism(self) -> Mechanism:
        """The live parts in float64; parameters are drawn by a fixed seed and rounded, so that what is printed is what is used."""
        facts = {"dim_q": self.width, "dim_k": self.width, "heads": self.heads}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            score, normalize = self.score(**facts), self.normalize(**facts)
            if too_wide(score) and not self.score.options:
                entry = next(one for one in scores.table if one.make is self.score.make)
                score = Choice(self.score.make, entry.example)(**facts)  # its small example
        if (wide := too_wide(score)) is not None:
            what = f"the score's '{wide[0]}' has {wide[1]} numbers per row"
            raise SaccadeError(
                f"{what}, and at most {MAX_ROW_NUMBERS} can be followed; choose a smaller option, such as {{name: …, rank: 3}}",
                code="too-large",
            )
        mask = None if self.mask is None else self.mask(heads=self.heads)
        made = Mechanism(score, normalize, mask).double().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                # not one that starts at a value of its own
                if (parameter != parameter.flatten()[0]).any():
                    parameter.copy_(parameter.mul(100).round() / 100 + 0.0)
        return made


def too_wide(score: nn.Module) -> tuple[str, int] | None:
    """The first parameter with rows that are too long to follow, and their length."""
    for name, one in [*score.named_parameters(), *score.named_buffers()]:
        if one.dim() and max(one.shape[-2:]) > MAX_ROW_NUMBERS:
            return name, max(one.shape[-2:])
    return None


def choose_parts(
    score: Any = None,
    normalize: Any = None,
    mask: Any = None,
    heads: int = 1,
    plain: bool = False,
    scaled: bool = False,
    dim: int | None = None,
) -> Parts:
    """Parts by their names, or {name: …, option: …}; by default the lectures': dot product, softmax, no mask."""
    if scaled and score is not None:
        raise SaccadeError(
            "both a score and scaled were given, which is the score scaled-dot; leave one of them out",
            code="given-twice",
        )
    if isinstance(heads, bool) or not isinstance(heads, int) or heads not in (1, 2, 4):
        raise SaccadeError(
            f"expected 1, 2 or 4 heads, among which an input's {DIM} numbers are divided, got {heads}",
            code="heads-do-not-divide",
        )
    if dim is not None and plain:
        raise SaccadeError(
            f"both dim and plain were given, and without matrices a query has an input's {DIM} numbers; leave one of them out",
            code="given-twice",
        )
    if dim is not None and (
        isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim * heads <= DIM
    ):
        raise SaccadeError(
            f"expected a dim of 1 to {DIM // heads}, the width of one of {heads} heads, got {dim}",
            code="out-of-range",
        )
    chosen = choose(scores.table, score or ("scaled-dot" if scaled else "dot"), "score")
    hidden = None if mask is None else choose(masks.table, mask, "mask")
    for name, value in hidden.options.items() if hidden else ():
        if isinstance(value, int) and value > MAX_MASK_OPTION:  # built for so many positions
            raise SaccadeError(
                f"mask.{name} is {value:,}; at most {MAX_MASK_OPTION} is of use for {MAX_TOKENS} words",
                code="out-of-range",
            )
    weigh = choose(normalizers.table, normalize or "softmax", "normalize")
    return Parts(chosen, weigh, hidden, heads, plain, scaled, dim)


@dataclass(frozen=True)
class AttentionNumbers:
    """All numbers of one self-attention, in float64; `query` and `key` are what the score makes of q and k: H N D and H N N."""

    mechanism: Mechanism
    x: Tensor
    learned: dict[str, Tensor]  # W_q W_k W_v and, of several heads, W_o
    q: Tensor
    k: Tensor
    v: Tensor
    query: Tensor
    key: Tensor
    scores: Tensor
    allowed: Tensor | None
    weights: Tensor
    found: Tensor  # per head: H N D
    outputs: Tensor  # N …


@torch.no_grad()
def compute(x: Tensor, learned: dict[str, Tensor], parts: Parts) -> AttentionNumbers:
    """outputs = normalize(score(x W_q, x W_k), mask) x W_v, by the parts themselves."""
    mechanism, heads = parts.mechanism(), parts.heads
    q, k, v = (
        (x @ learned[name] if name in learned else x).unflatten(-1, (heads, -1)).transpose(0, 1)
        for name in ("W_q", "W_k", "W_v")
    )
    call = build_call(q[None], k[None], v[None], mechanism, None, None, 0.0)
    found, allowed = eager.scores(call), call.allowed()
    weights = call.normalize(found, allowed)
    values = eager.weighted_sum(call, weights)[0]
    side = values.transpose(0, 1).flatten(1)
    allowed = None if allowed is None else allowed.expand_as(found)[0]
    outputs = side @ learned["W_o"] if "W_o" in learned else side
    compared = (call.query[0], call.key[0], found[0], allowed)
    return AttentionNumbers(mechanism, x, learned, q, k, v, *compared, weights[0], values, outputs)


def learned_of(parts: Parts, own_words: bool) -> dict[str, Tensor]:
    """The matrices that a model would learn, none where W = I."""
    if parts.plain:
        return {}
    given = HEAD_MATRICES if parts.heads > 1 else WORD_MATRICES if own_words else LECTURE_MATRICES
    if parts.dim is not None:
        wide = parts.heads * parts.dim
        given = {name: [row[:wide] for row in COLUMN_MATRICES[name]] for name in "qkv"}
        given |= {"o": COLUMN_MATRICES["o"][:wide]} if parts.heads > 1 else {}
    return {f"W_{name}": torch.tensor(rows, dtype=torch.float64) for name, rows in given.items()}


def inputs(tokens: Sequence[str] | None, one_hot: bool = False) -> tuple[list[str], Tensor]:
    """Tokens and their vectors: the lectures' three inputs or their one-hot sentence, or the reader's own words."""
    if tokens is None and one_hot:
        return list(ONE_HOT), torch.tensor(list(ONE_HOT.values()), dtype=torch.float64)
    if tokens is None:
        return LECTURE_NAMES, torch.tensor(LECTURE_INPUTS, dtype=torch.float64)
    check_words(tokens)
    return list(tokens), torch.tensor(draw_vectors(tokens), dtype=torch.float64)


def check_words(tokens: Sequence[str]) -> None:
    if not tokens:
        raise SaccadeError("the sentence is empty; give at least one word", code="empty-text")
    if len(tokens) > MAX_TOKENS:
        raise SaccadeError(
            f"the sentence has {len(tokens)} words, but {MAX_TOKENS} are the most one can follow; shorten it",
            code="text-too-long",
        )


def draw_vectors(tokens: Sequence[str]) -> list[tuple[int, ...]]:
    """A vector of 0, 1 and 2 for each different word; one whose vector is taken draws again, in the end from larger numbers."""
    taken: dict[str, tuple[int, ...]] = {}
    for token in dict.fromkeys(tokens):
        attempt, vector = 0, (0,) * DIM
        while not any(vector) or vector in taken.values():
            numbers = (0, 0, 1, 1, 2) if attempt < 30 else range(3 + attempt // 30)
            drawn = draw_bytes("word", token, DIM, 0, attempt)
            vector = tuple(numbers[value % len(numbers)] for value in drawn)
            attempt += 1
        taken[token] = vector
    return [taken[token] for token in tokens]


def draw_bytes(what: str, token: str, count: int, *more: int) -> bytes:
    """Bytes that depend on the word alone, on every machine and with every version of numpy."""
    text = repr((what, token, count, *more)).encode("utf-8", "surrogatepass")
    return hashlib.shake_256(text).digest(count)


def explain(
    tokens: Sequence[str] | None = None, parts: Parts | None = None, query: int | None = None
) -> Worked:
    """Self-attention of the lectures' inputs or of the given words, step by step; with `query` (from 1), of that query in detail."""
    from .worked_outputs import explain_numbers

    parts = parts or choose_parts()
    named, x = inputs(tokens, parts.dim is not None)
    if query is not None and not 1 <= query <= len(named):
        raise SaccadeError(
            f"expected a query from 1 to {len(named)}, the number of inputs, got {query}",
            code="out-of-range",
        )
    found = compute(x, learned_of(parts, tokens is not None), parts)
    return explain_numbers(named, found, parts, query)


def worked_example(scaled: bool = False) -> Worked:
    """The worked example of the lectures: three inputs of four numbers, projected to three."""
    return explain(None, choose_parts(scaled=scaled))


def worked_sentence(tokens: Sequence[str], scaled: bool = False) -> Worked:
    """The same calculation for the reader's own words, with small whole numbers that depend on the words alone."""
    return explain(tokens, choose_parts(scaled=scaled))
