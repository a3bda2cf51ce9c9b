"""Decoding step by step, and a given output token by token, as small objects. Nothing here runs a model."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from .answers import Result


@dataclass(frozen=True)
class Candidate:
    """A token that could come next, how likely it is, and whether the search took it."""

    token: str
    probability: float
    taken: bool


@dataclass(frozen=True)
class Step:
    """What could follow a beginning: the beginning as text, its log-probability, and the likeliest tokens."""

    number: int  # of the step, from 1
    prefix: str
    log_prob: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Steps(Result):
    """A translation and every step that led to it; a beam has several beginnings in each."""

    text: str
    log_prob: float
    steps: tuple[Step, ...]
    source: str

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ScoredToken:
    """A token of a given output: its probability after what comes before it, its rank among all tokens (1 for the likeliest), the
    likeliest token, and the source word that the model looks at most."""

    token: str
    log_prob: float
    rank: int
    likeliest: str
    likeliest_probability: float
    source: str | None = None

    @property
    def probability(self) -> float:
        return math.exp(self.log_prob)


@dataclass(frozen=True, eq=False, repr=False)
class Scored(Result):
    """How likely a model finds a given translation, token by token, its end counted; and its alignment with the source."""

    source: str
    target: str
    tokens: tuple[ScoredToken, ...]
    links: tuple[tuple[int, int], ...] = field(default=())

    @property
    def log_prob(self) -> float:
        return math.fsum(one.log_prob for one in self.tokens)

    @property
    def perplexity(self) -> float:
        """Of a token of this output."""
        return math.exp(min(-self.log_prob / max(len(self.tokens), 1), 700.0))

    def __str__(self) -> str:
        return f"log p = {self.log_prob:.4f}"

    def facts(self) -> dict[str, Any]:
        found = asdict(self)
        for one, token in zip(found["tokens"], self.tokens, strict=True):
            one["probability"] = token.probability
        return {**found, "log_prob": self.log_prob, "perplexity": self.perplexity}
