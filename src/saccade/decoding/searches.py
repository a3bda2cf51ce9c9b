"""Searches choose the next tokens. R batch rows, S sentences, W beam width, V vocabulary."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import SaccadeError


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Like `x.topk(count)`, but faster for long rows on a CPU."""
    rows, size = x.shape
    part = 64
    parts = size // part
    if x.is_cuda or rows < 8 or parts < 4 * count:
        return x.topk(count, -1) if count > 1 else x.max(-1, keepdim=True)
    # They are in the parts with the largest maxima, or in the remainder.
    inside, rest = x[:, : parts * part].unflatten(1, (parts, part)), x[:, parts * part :]
    best = inside.amax(-1)
    where = best.argmax(-1, keepdim=True) if count == 1 else best.topk(count, -1).indices
    places = (where.unsqueeze(-1) * part + torch.arange(part)).flatten(1)
    if rest.shape[1]:
        places = torch.cat([places, torch.arange(parts * part, size).expand(rows, -1)], 1)
    chosen = x.gather(1, places)
    values, index = chosen.max(-1, keepdim=True) if count == 1 else chosen.topk(count, -1)
    return values, places.gather(1, index)


@dataclass(frozen=True)
class Hypothesis:
    """An output: tokens without the final <eos>, log-probability including it, and ranking score."""

    tokens: list[int]
    log_prob: float
    score: float
    finished: bool


@dataclass(eq=False)
class Search:
    """Base class of searches: the state of decoding one batch."""

    bos: int  # the first token, or the last one of a prompt
    eos: int
    never: tuple[int, ...] = ()  # tokens that are not generated
    tokens: Tensor = field(init=False)  # the last token of each row that is still active
    active: bool = field(init=False)
    wants_weights: ClassVar[bool] = (
        False  # whether `look` is to be called with each step's weights on the source
    )
    # Sentence → token of the last step; empty for beams.
    latest: dict[int, int] = field(init=False, default_factory=dict)
    # `begin` takes the limits and the device, `advance` log-probabilities (R V).
    # Both return the state rows to continue with; None keeps all.
    begin: ClassVar[Callable[..., Tensor | None]]
    advance: ClassVar[Callable[..., Tensor | None]]
    results: ClassVar[Callable[..., list[list[Hypothesis]]]]

    def look(self, weights: Tensor) -> None:
        """Receives the source weights of this step, R N; 1 at padding."""

    def without_never(self, log_probs: Tensor) -> Tensor:
        if self.never:
            log_probs[:, list(self.never)] = float("-inf")
        return log_probs


@dataclass(eq=False)
class Sample(Search):
    """Sampling with `temperature` (0 is greedy), `top_k` and `top_p` (nucleus sampling)."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.temperature < float("inf")):
            raise SaccadeError(
                f"temperature is {self.temperature}; give a number of 0 or more (0 takes the likeliest token)",
                code="temperature-out-of-range",
            )
        if self.top_k is not None and self.top_k < 1:
            raise SaccadeError(
                f"top_k is {self.top_k}; give at least 1, or leave it out",
                code="top-k-out-of-range",
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SaccadeError(
                f"top_p is {self.top_p}; give a number above 0 and at most 1, or leave it out",
                code="top-p-out-of-range",
            )
        if not 0 <= self.seed < 2**63:
            raise SaccadeError(
                f"the seed is {self.seed}; give a whole number from 0 to 2^63 − 1",
                code="seed-out-of-range",
            )

    def begin(self, limits: list[int], device: torch.device) -> Tensor | None:
        self.generator = torch.Generator(device=device).manual_seed(self.seed)
        self.limits, self.sentences = limits, list(range(len(limits)))
        self.outputs: list[list[int]] = [[] for _ in limits]
        self.log_probs, self.finished = [0.0] * len(limits), [False] * len(limits)
        self.tokens = torch.full((len(limits),), self.bos, device=device)
        return self._keep([n for n, limit in enumerate(limits) if limit > 0])

    def pick(self, log_probs: Tensor) -> Tensor:
        if self.temperature == 0:
            return largest(log_probs, 1)[1].squeeze(-1)
        # Shifted by the maximum, so no temperature produces NaN or −∞ everywhere.
        scores = (log_probs - log_probs.amax(-1, keepdim=True)) / min(
            max(self.temperature, 1e-30), 1e30
        )
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            lowest = scores.topk(self.top_k, -1).values[:, -1:]
            scores = scores.masked_fill(scores < lowest, float("-inf"))
        if self.top_p is not None and self.top_p < 1:
            ranked, order = scores.sort(-1, descending=True)
            probs = ranked.softmax(-1)
            beyond = probs.cumsum(-1) - probs >= self.top_p  # the set is full before this token
            beyond[:, 0] = False
            scores = scores.masked_fill(beyond.gather(-1, order.argsort(-1)), float("-inf"))
        return torch.multinomial(scores.softmax(-1), 1, generator=self.generator).squeeze(-1)

    def advance(self, log_probs: Tensor) -> Tensor | None:
        self.tokens = self.pick(self.without_never(log_probs))
        chosen = log_probs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)
        tokens, log_prob, rows = self.tokens.tolist(), chosen.tolist(), []
        self.latest = {
            sentence: token
            for sentence, token in zip(self.sentences, tokens, strict=True)
            if token != self.eos
        }
        for row, sentence in enumerate(self.sentences):
            self.log_probs[sentence] += log_prob[row]
            self.finished[sentence] = tokens[row] == self.eos
            if self.finished[sentence]:
                continue
            self.outputs[sentence].append(tokens[row])
            if len(self.outputs[sentence]) < self.limits[sentence]:
                rows.append(row)
        return self._keep(rows)

    def _keep(self, rows: list[int]) -> Tensor | None:
        self.active = bool(rows)
        if len(rows) == len(self.sentences):
            return None
        at = torch.tensor(rows, device=self.tokens.device, dtype=torch.long)
        self.tokens, self.sentences = self.tokens[at], [self.sentences[row] for row in rows]
        return at

    def results(self) -> list[list[Hypothesis]]:
        return [
            [Hypothesis(o, p, p, f)]
            for o, p, f in zip(self.outputs, self.log_probs, self.finished, strict=True)
        ]


LENGTH_RULES: dict[str, Callable[[int], float]] = {
    "power": float,
    "gnmt": lambda length: (5 + length) / 6,
}


@dataclass(eq=False)
class Beam(Search):
    """Keeps the `width` best beginnings of each sentence until so many have ended and none that is left is better; ranks by
    log-probability / length^penalty.

    By the rule `gnmt` (Wu et al. 2016) it is divided by ((5 + length) / 6)^penalty instead. A `coverage_penalty` β adds
    β Σ log min(Σ weights, 1) over the source's positions, the weights being those of all steps: it ranks outputs that left out a
    part of the source lower.
    """

    width: int = 4
    length_penalty: float = 1.0
    length_rule: str = "power"
    coverage_penalty: float = 0.0
    coverage: Tensor | None = field(init=False, default=None)  # weights of each row so far, R N

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 1000:
            raise SaccadeError(
                f"a beam of {self.width}; give a whole number from 1 to 1000",
                code="beam-out-of-range",
            )
        if not -10 <= self.length_penalty <= 10:
            raise SaccadeError(
                f"a length penalty of {self.length_penalty}; give a number from -10 to 10 (0 for none)",
                code="length-penalty-out-of-range",
            )
        if self.length_rule not in LENGTH_RULES:
            raise SaccadeError(
                f"the length rule is '{self.length_rule}'; give one of: {', '.join(LENGTH_RULES)}",
                code="unknown-length-rule",
            )
        if not 0 <= self.coverage_penalty <= 100:
            raise SaccadeError(
                f"a coverage penalty of {self.coverage_penalty}; give a number from 0 to 100 (0 for none)",
                code="coverage-penalty-out-of-range",
            )

    @property
    def wants_weights(self) -> bool:  # type: ignore[override]
        return self.coverage_penalty > 0

    def look(self, weights: Tensor) -> None:
        self.coverage = weights if self.coverage is None else self.coverage + weights

    def begin(self, limits: list[int], device: torch.device) -> Tensor | None:
        self.limits, self.device, self.coverage = limits, device, None
        self.ended: list[list[Hypothesis]] = [[] for _ in limits]
        self.sentences = [n for n, limit in enumerate(limits) if limit > 0]
        count, self.active = len(self.sentences), bool(self.sentences)
        self.scores = torch.full((count, self.width), float("-inf"), device=device)
        self.scores[:, 0] = 0.0  # one beginning at first; the others come from it
        self.prefixes = torch.zeros(count, self.width, 0, dtype=torch.long, device=device)
        self.tokens = torch.full((count * self.width,), self.bos, device=device)
        return torch.tensor(self.sentences, device=device, dtype=torch.long).repeat_interleave(
            self.width
        )

    def advance(self, log_probs: Tensor) -> Tensor | None:
        count, width, vocab = len(self.sentences), self.width, log_probs.shape[-1]
        some = min(2 * width, vocab)
        top, tokens = largest(self.without_never(log_probs), some)
        total = self.scores.unsqueeze(-1) + top.view(count, width, some)
        best, index = total.flatten(1).topk(min(2 * width, width * some), -1)
        parents, tokens = index // some, tokens.view(count, -1).gather(1, index)
        # Finished outputs among the `width` best of this step.
        ends = (tokens[:, :width] == self.eos) & best[:, :width].isfinite()
        for row, rank in ends.nonzero().tolist():
            parent = int(parents[row, rank])
            prefix = self.prefixes[row, parent].tolist()
            self._take(
                self.sentences[row], prefix, float(best[row, rank]), True, row * width + parent
            )
        # The best unfinished continuations, padded with −∞ to `width`.
        self.scores, order = best.masked_fill(tokens == self.eos, float("-inf")).topk(width, -1)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        before = self.prefixes.gather(
            1, parents.unsqueeze(-1).expand(-1, -1, self.prefixes.shape[-1])
        )
        self.prefixes = torch.cat([before, tokens.unsqueeze(-1)], -1)
        rows = torch.arange(count, device=self.device).unsqueeze(1) * width + parents
        # Finished sentences leave the batch.
        length, staying = self.prefixes.shape[-1], []
        best_left = self.scores[:, 0].tolist()
        dead = [math.isinf(score) for score in best_left]
        for row, sentence in enumerate(self.sentences):
            if length >= self.limits[sentence] and not self.ended[sentence]:
                for beam in range(self.width):  # nothing ended in time: what there is, cut off
                    if bool(self.scores[row, beam].isfinite()):
                        prefix = self.prefixes[row, beam].tolist()
                        self._take(
                            sentence,
                            prefix,
                            float(self.scores[row, beam]),
                            False,
                            int(rows[row, beam]),
                        )
            if (
                length < self.limits[sentence]
                and not dead[row]
                and not self.settled(sentence, best_left[row], length)
            ):
                staying.append(row)
        if len(staying) < len(self.sentences):
            at = torch.tensor(staying, device=self.device, dtype=torch.long)
            self.sentences = [self.sentences[row] for row in staying]
            self.scores, self.prefixes, rows = self.scores[at], self.prefixes[at], rows[at]
            tokens = tokens[at]
        self.active, self.tokens = bool(self.sentences), tokens.flatten()
        if self.coverage is not None:
            self.coverage = self.coverage[rows.flatten()]
        return rows.flatten()

    def settled(self, sentence: int, best_left: float, length: int) -> bool:
        """Whether enough outputs are finished and no unfinished one would score higher."""
        ended = self.ended[sentence]
        return len(ended) >= self.width and max(
            one.score for one in ended
        ) >= best_left / self.divisor(length + 1)

    def divisor(self, length: int) -> float:
        return float(LENGTH_RULES[self.length_rule](length) ** self.length_penalty)

    def _take(
        self, sentence: int, tokens: list[int], log_prob: float, finished: bool, row: int
    ) -> None:
        """A finished or truncated output of one row."""
        score = log_prob / self.divisor(max(len(tokens) + finished, 1))
        if self.coverage is not None:
            score += self.coverage_penalty * float(self.coverage[row].clamp(1e-9, 1.0).log().sum())
        self.ended[sentence].append(Hypothesis(tokens, log_prob, score, finished))

    def results(self) -> list[list[Hypothesis]]:
        return [
            sorted(ended, key=lambda h: -h.score)[: self.width] or [Hypothesis([], 0.0, 0.0, False)]
            for ended in self.ended
        ]


# (bos, eos, tokens that are never generated) → search.
MakeSearch = Callable[[int, int, tuple[int, ...]], Search]


def searcher(
    beam: int = 1,
    length_penalty: float = 1.0,
    sample: Mapping[str, Any] | None = None,
    length_rule: str = "power",
    coverage_penalty: float = 0.0,
) -> MakeSearch:
    """Returns a factory of searches, one search per batch.

    A beam of 1 is greedy search. Any of temperature, top_k, top_p and seed selects sampling.

    >>> from saccade.decoding import searcher
    >>> searcher(beam=4)(1, 2, ()).width
    4
    """
    how = {
        "width": beam,
        "length_penalty": length_penalty,
        "length_rule": length_rule,
        "coverage_penalty": coverage_penalty,
    }
    Beam(0, 0, **how)  # type: ignore[arg-type]  # a wrong value shows before any work is done
    if (length_rule != "power" or coverage_penalty) and (beam == 1 or sample is not None):
        raise SaccadeError(
            "a length rule and a coverage penalty rank the outputs of a beam, and there is none; give a beam above 1",
            code="beam-missing",
        )
    if sample is not None:
        Sample(0, 0, **sample)
        # Each batch has its own seed.
        seeds = itertools.count(int(sample.get("seed", 0)))
        return lambda bos, eos, never: Sample(bos, eos, never, **{**sample, "seed": next(seeds)})
    return partial(Sample, temperature=0.0) if beam == 1 else partial(Beam, **how)  # type: ignore[arg-type]
