"""The options of predictions: their types, meaning and checks, the search that some of them ask for, and how long an output may become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..decoding import MakeSearch, searcher
from ..errors import SaccadeError, did_you_mean

MAX_OUTPUT_TOKENS = 100_000


@dataclass(frozen=True)
class OutputLengths:
    """The most target tokens per source token, and the most tokens of a target, that the training data has; 0 where none was read."""

    ratio: float = 0.0
    longest: int = 0

    def __post_init__(self) -> None:
        # as no training writes them
        if not (0 <= self.ratio <= MAX_OUTPUT_TOKENS and 0 <= self.longest <= MAX_OUTPUT_TOKENS):
            raise TypeError(f"lengths beyond {MAX_OUTPUT_TOKENS:,}")

    @classmethod
    def measure(cls, sizes: Sequence[tuple[int, int]]) -> OutputLengths:
        """Of the sizes of sources and targets."""
        ratio = max((target / source for source, target in sizes), default=0.0)
        return cls(
            round(min(ratio, MAX_OUTPUT_TOKENS), 4),
            min(max((target for _, target in sizes), default=0), MAX_OUTPUT_TOKENS),
        )

    def limit(self, source: int) -> int:
        """For a source of so many tokens: as long as in the training data, and twice the source and ten at least."""
        return max(2 * source + 10, min(math.ceil(self.ratio * source) + 10, self.longest))


def check_length(most: int) -> None:
    if not 1 <= most <= MAX_OUTPUT_TOKENS:
        raise SaccadeError(
            f"a max_length of {most} tokens; give 1 to {MAX_OUTPUT_TOKENS:,}", code="out-of-range"
        )


@dataclass(frozen=True)
class Option:
    """An option of a prediction: the type of its value, what it does, its range, and what else is to be checked."""

    kind: type
    text: str
    least: float | None = None
    most: float | None = None
    check: Callable[[Any], object] | None = None

    def check_value(self, name: str, value: Any) -> None:
        """Raises where a value has the wrong type or is out of range."""
        if self.check is not None:
            self.check(value)
            return
        known: tuple[type, ...] = (int, float) if self.kind is float else (self.kind,)
        if not isinstance(value, known) or (isinstance(value, bool) and self.kind is not bool):
            raise SaccadeError(
                f"{name} is {value!r}; give {self.text}", code="wrong-predict-option"
            )
        low, high = self.least, self.most
        found: Any = value
        if (low is not None and found < low) or (high is not None and found > high):
            raise SaccadeError(
                f"the {name} is {value}, expected {low:,} to {high:,}; choose such a value",
                code="predict-option-range",
            )


def drawn(name: str) -> Callable[[Any], object]:
    """The check of one option of sampling."""
    return lambda value: searcher(sample={name: value})


SAMPLING = {
    "temperature": Option(
        float,
        "above 1 is bolder, below it is safer, 0 takes the likeliest",
        0,
        100,
        drawn("temperature"),
    ),
    "top_k": Option(int, "sample from the k likeliest tokens", 1, 1_000_000, drawn("top_k")),
    "top_p": Option(
        float,
        "sample from the smallest set of tokens with this probability",
        1e-6,
        1,
        drawn("top_p"),
    ),
    "seed": Option(int, "the seed of sampling", 0, 2**63 - 1, drawn("seed")),
    "sample": Option(
        dict, "the options of sampling as one mapping", check=lambda value: sampling(value, {})
    ),
}
RANKING = {
    "beam": Option(int, "the beam width; 1 is greedy", 1, 1000, searcher),
    "length_penalty": Option(
        float,
        "outputs of a beam are ranked by log-probability / length^this",
        -10,
        10,
        partial(searcher, 2),
    ),
    "length_rule": Option(
        str,
        "what length counts as: power, or gnmt for (5 + length) / 6",
        check=lambda rule: searcher(2, length_rule=rule),
    ),
    "coverage_penalty": Option(
        float,
        "rank outputs lower that left out a part of the source (Wu et al. 2016)",
        check=lambda beta: searcher(2, coverage_penalty=beta),
    ),
}
LENGTH = {"max_length": Option(int, "cut an output after so many tokens", 1, check=check_length)}
SEARCH = {**RANKING, **SAMPLING, **LENGTH}


def sampling(sample: Mapping[str, Any] | None, how: Mapping[str, Any]) -> dict[str, Any] | None:
    """How to sample: `sample`, a mapping of options, or options by themselves; None where none was given."""
    names = [name for name in SAMPLING if name != "sample"]
    given = {name: value for name, value in how.items() if value is not None}
    wrong = next((name for name in (*how, *(sample or ())) if name not in names), None)
    if wrong is not None:
        raise SaccadeError(
            f"sampling has no option '{wrong}'{did_you_mean(wrong, names)}",
            code="unknown-sampling-option",
        )
    if sample is not None and given:
        raise SaccadeError(
            f"{next(iter(given))} and sample were both given; leave sample out and write its options by themselves",
            code="sample-twice",
        )
    return (given or None) if sample is None else dict(sample)


def make_search(options: Mapping[str, Any]) -> MakeSearch:
    """The search that the options of a prediction ask for: greedy, a beam or samples. Other options are ignored."""
    sample = options.get("sample")
    how = {name: options.get(name) for name in SAMPLING if name != "sample"}
    ranking = {name: options[name] for name in RANKING if options.get(name) is not None}
    chosen = sampling(sample, how)
    if chosen is not None and ranking.get("beam", 1) > 1:
        raise SaccadeError(
            "a beam and sampling were both asked for; leave out beam, or temperature, top_k and top_p",
            "a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p",
            code="beam-and-sampling",
        )
    if sample is None and chosen and set(chosen) == {"seed"}:
        raise SaccadeError(
            "a seed is for sampling; give temperature, top_k or top_p with it, or leave it out",
            code="seed-alone",
        )
    return searcher(sample=chosen, **ranking)
