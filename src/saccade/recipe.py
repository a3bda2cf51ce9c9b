"""Recipes as dataclasses, and how nested values become them: unknown keys, wrong types and values out of range are named."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .errors import SaccadeError, did_you_mean

T = TypeVar("T")
MOST_VALUES, DEEPEST = 100_000, 20  # of a recipe; a few lines of YAML with aliases can stand for billions


def number(default: Any, low: float, high: float) -> Any:
    """A field whose value must lie in a range."""
    return field(default=default, metadata={"range": (low, high)})


def one_of(default: str, *names: str) -> Any:
    """A field whose value must be one of some names."""
    return field(default=default, metadata={"names": names})


@dataclass(frozen=True)
class DataRecipe:
    """Where the examples come from: `phrasebook:train`, `train.tsv`, `train.jsonl`, `train.en,train.fr`, `train.conllu`, `train.txt` …

    Without a `dev` set, `held_out` of the training examples are kept back as one; `swap` turns pairs round. `column` is the CoNLL-U
    column that a tagger learns, `documents` what separates the documents of plain text; embedded corpora
    take options under their own names.
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    held_out: float = number(0.05, 0.001, 0.5)
    swap: bool = False
    column: str = one_of("upos", "upos", "xpos")
    documents: str = one_of("file", "file", "line", "blank")
    phrasebook: dict[str, Any] = field(default_factory=dict)
    dates: dict[str, Any] = field(default_factory=dict)
    reviews: dict[str, Any] = field(default_factory=dict)

    def options(self, corpus: str) -> dict[str, Any]:
        """What an embedded corpus is made with; nothing for files."""
        return dict(getattr(self, corpus.partition(":")[0], None) or {}) if ":" in corpus else {}


@dataclass(frozen=True)
class VocabularyRecipe:
    """How text is cut: `words`, `bpe` or `characters`; one vocabulary for both sides when `joint`."""

    kind: str = one_of("bpe", "words", "bpe", "characters")
    size: int = number(8000, 5, 1_000_000)
    split: str = one_of("space", "space", "punctuation")
    lowercase: bool = False
    min_count: int = number(1, 1, 1_000_000)
    joint: bool = False


@dataclass(frozen=True)
class LanguageRecipe:
    """What a language model learns on plain text: `objective` is a row of the objectives' table, `block` the tokens it reads at once.

    `share` of the tokens is hidden from a masked or denoising model (the last `share` of the order is asked of a permutation
    model), in spans of `span` tokens on average when denoising.
    """

    objective: str = "causal"
    block: int = number(256, 2, 1_000_000)
    share: float = number(0.15, 0.01, 0.9)
    span: float = number(3.0, 1.0, 100.0)


@dataclass(frozen=True)
class TrainingRecipe:
    """How to train; see `training.loop.Settings`."""

    updates: int = number(2000, 1, 10**9)
    tokens: int = number(4096, 8, 10**8)
    learning_rate: float = number(1e-3, 0.0, 100.0)
    schedule: str = "inverse-sqrt"
    warmup: int = number(100, 0, 10**9)
    weight_decay: float = number(0.01, 0.0, 10.0)
    beta2: float = number(0.98, 0.0, 0.999999)
    clip: float = number(1.0, 0.0, 1e9)
    accumulate: int = number(1, 1, 10**6)
    smoothing: float = number(0.1, 0.0, 0.99)
    precision: str = one_of("float32", "float32", "bf16")
    compile: bool = False
    evaluate_every: int = number(250, 1, 10**9)
    checkpoint_every: int = number(250, 1, 10**9)
    log_every: int = number(10, 1, 10**9)
    patience: int = number(0, 0, 10**9)
    average: int = number(0, 0, 1000)
    watch: str = "loss"
    dev_bleu: bool = False
    parallel: str = one_of("ddp", "ddp", "fsdp")
    checkpoint: str = one_of("whole", "whole", "sharded")


@dataclass(frozen=True)
class Recipe:
    """A whole training: only what differs from these defaults is written in a recipe file."""

    task: str = "translation"
    start_from: str = ""
    seed: int = number(0, 0, 2**31 - 1)
    device: str = "auto"
    data: DataRecipe = field(default_factory=DataRecipe)
    vocabulary: VocabularyRecipe = field(default_factory=VocabularyRecipe)
    language: LanguageRecipe = field(default_factory=LanguageRecipe)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingRecipe = field(default_factory=TrainingRecipe)

    def to_dict(self) -> dict[str, Any]:
        """Complete: every default written out (`config.recipe` has completed the model's parts and their options)."""
        return dataclasses.asdict(self)


def plain(values: Any, what: str = "the recipe") -> Any:
    """A copy of nested values in which all is what JSON knows; dates, sets, endless loops and endless numbers are named."""
    left = MOST_VALUES

    def copied(value: Any, path: str, deep: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or deep > DEEPEST:
            raise SaccadeError(
                f"{what} has more than {MOST_VALUES:,} values or {DEEPEST} levels; write only what differs from the defaults"
            )
        if isinstance(value, Mapping):
            return {str(name): copied(one, f"{path}.{name}" if path else str(name), deep + 1) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [copied(one, path, deep + 1) for one in value]
        if isinstance(value, int) and value.bit_length() > 64:
            raise SaccadeError(f"{path or what} is a whole number of {value.bit_length()} bits; no setting is that large")
        if isinstance(value, float) and not math.isfinite(value):
            raise SaccadeError(f"{path or what} is {value}; it must be a finite number")
        if value is None or isinstance(value, str | int | float):
            return value
        raise SaccadeError(f"{path or what} is read as {type(value).__name__} ({value}); put quotes around it if it is text")

    return copied(values, "", 0)


def fill(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from a dict: unknown keys, wrong types and values out of range are named with their whole path."""
    if not isinstance(values, dict):
        raise SaccadeError(f"{where or 'the recipe'} is {values!r}; write settings below it")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    found = {}
    for name, value in values.items():
        path = f"{where}.{name}" if where else str(name)
        if name not in fields:
            raise SaccadeError(f"no setting named '{path}'{did_you_mean(str(name), fields)}")
        found[name] = checked(value, hints[name], fields[name].metadata, path)
    return kind(**found)


def shown(bound: float) -> str:
    """A bound as people write it: 2,147,483,647 or 1e-06."""
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def checked(value: Any, kind: Any, rules: Mapping[str, Any], path: str) -> Any:
    """A value of the right type and within its range."""
    if dataclasses.is_dataclass(kind):
        return fill(kind, value, path)  # type: ignore[arg-type]
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (typing.get_origin(kind) or kind,)
    if float in kinds and isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            value = float(value)  # YAML reads 1e-3 as text
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        spoken = " or ".join("nothing" if k is type(None) else WORDS.get(k, k.__name__) for k in kinds)
        raise SaccadeError(f"{path} is {value!r}; it must be {spoken}")
    if isinstance(value, float) and not math.isfinite(value):
        raise SaccadeError(f"{path} is {value}; it must be a finite number")
    low, high = rules.get("range", (-math.inf, math.inf))
    if isinstance(value, int | float) and not low <= value <= high:
        raise SaccadeError(f"{path} is {value}; it must lie between {shown(low)} and {shown(high)}")
    names = rules.get("names")
    if names and value not in names:
        raise SaccadeError(f"{path} is '{value}'{did_you_mean(value, names)}")
    return value


WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "settings", list: "a list"}
