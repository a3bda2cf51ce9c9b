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

import torch

from .errors import SaccadeError, did_you_mean

T = TypeVar("T")
MOST_VALUES, DEEPEST = 100_000, 20  # of a recipe; a few lines of YAML with aliases can stand for billions


def number(default: Any, low: float, high: float, what: str) -> Any:
    """A field whose value must lie in a range, and what it is for."""
    return field(default=default, metadata={"range": (low, high), "what": what})


def one_of(names: tuple[str, ...], what: str) -> Any:
    """A field whose value must be one of some names, the first when it is not set."""
    return field(default=names[0], metadata={"names": names, "what": what})


def said(default: Any, what: str) -> Any:
    """A field of text, or true or false."""
    return field(default=default, metadata={"what": what})


def options(what: str) -> Any:
    """A field of settings."""
    return field(default_factory=dict, metadata={"what": what})


@dataclass(frozen=True)
class DataRecipe:
    """Where the examples come from; paths are seen from the folder in which the command is given."""

    train: str = said("", "files (`train.tsv`, `train.en,train.fr`, `train.conllu`, `book.txt` …), `phrasebook:train` or `hub:…`")
    dev: str = said("", "the same, to choose the best model by")
    test: str = said("", "the same, for `saccade compare`")
    held_out: float = number(0.05, 0.001, 0.5, "which part of `train` is kept back where there is no `dev`")
    swap: bool = said(False, "turn pairs round")
    column: str = one_of(("upos", "xpos"), "the CoNLL-U column that a tagger learns")
    documents: str = one_of(("file", "line", "blank"), "what separates the documents of plain text")
    phrasebook: dict[str, Any] = options("sizes and seed of the embedded set: `{train: 15000, dev: 300, test: 500}`")
    dates: dict[str, Any] = options("the same for `dates`")
    reviews: dict[str, Any] = options("the same for `reviews`")

    def options(self, corpus: str) -> dict[str, Any]:
        """What an embedded corpus is made with; nothing for files."""
        return dict(getattr(self, corpus.partition(":")[0], None) or {}) if ":" in corpus else {}


@dataclass(frozen=True)
class VocabularyRecipe:
    """How text is cut into tokens."""

    kind: str = one_of(("bpe", "words", "characters"), "pieces of words (byte-level, nothing is unknown), words, or characters")
    size: int = number(8000, 5, 1_000_000, "at most so many tokens, the most frequent")
    split: str = one_of(("space", "punctuation"), "where words end")
    lowercase: bool = said(False, "without capital letters")
    min_count: int = number(1, 1, 1_000_000, "tokens seen less often are left out")
    joint: bool = said(False, "one vocabulary for both sides of pairs")


@dataclass(frozen=True)
class LanguageRecipe:
    """What a language model learns on plain text."""

    objective: str = said(
        "causal", "`causal` (needs a decoder), `masked`, `permutation` (an encoder) or `denoising` (an encoder–decoder)"
    )
    block: int = number(256, 2, 1_000_000, "tokens that are read at once")
    carry: bool = said(False, "recurrent models: each update reads on where the last one stopped, with the state it left")
    share: float = number(0.15, 0.01, 0.9, "which part of the tokens is hidden, or asked for last (permutation)")
    span: float = number(3.0, 1.0, 100.0, "tokens that denoising cuts out at a time, on average")


@dataclass(frozen=True)
class TrainingRecipe:
    """How to train."""

    updates: int = number(2000, 1, 10**9, "steps of the optimizer, at most")
    tokens: int = number(4096, 8, 10**8, "tokens in a batch, padding counted")
    round_to: int = number(1, 1, 1024, "lengths are rounded up to a multiple of this: more padding, fewer shapes of batches")
    learning_rate: float = number(1e-3, 0.0, 100.0, "the peak learning rate")
    schedule: str = said("inverse-sqrt", "`inverse-sqrt`, `cosine` (to a hundredth at the end) or `constant`, after the warm-up")
    warmup: int = number(100, 0, 10**9, "updates in which the learning rate rises to its peak")
    weight_decay: float = number(0.01, 0.0, 10.0, "of AdamW")
    beta2: float = number(0.98, 0.0, 0.999999, "of AdamW")
    clip: float = number(1.0, 0.0, 1e9, "the largest norm of a gradient; 0 for no clipping")
    accumulate: int = number(1, 1, 10**6, "batches per update")
    smoothing: float = number(0.1, 0.0, 0.99, "label smoothing: so much probability is spread over all classes")
    agreement: float = number(
        0.0, 0.0, 1000.0, "R-Drop's α: each example is read twice with different dropout, and the two answers are drawn together"
    )
    precision: str = one_of(("float32", "bf16"), "`bf16` uses autocast")
    compile: bool = said(False, "`torch.compile`")
    graphs: bool = said(False, "on a GPU: updates are captured as CUDA graphs, one per shape of batch, and replayed")
    parallel: str = one_of(
        ("ddp", "fsdp"), "under torchrun: the whole model in each process (DDP), or divided among them (FSDP2)"
    )
    checkpoint: str = one_of(("whole", "sharded"), "how `last/` is written: by rank 0, or by each rank its part")
    evaluate_every: int = number(250, 1, 10**9, "updates between evaluations on the dev set")
    checkpoint_every: int = number(250, 1, 10**9, "updates between checkpoints")
    log_every: int = number(10, 1, 10**9, "updates between rows of the log")
    patience: int = number(0, 0, 10**9, "evaluations without improvement before stopping; 0 for never")
    average: int = number(0, 0, 1000, "the last evaluations (in `kept/`) whose mean is tried at the end; 0 for none")
    watch: str = said("loss", "the metric that decides which model is best: `loss`, `bleu`, `accuracy`, `perplexity`")
    dev_bleu: bool = said(False, "compute greedy BLEU on the dev set too")

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that autocast computes in; None without autocast."""
        return torch.bfloat16 if self.precision == "bf16" else None


@dataclass(frozen=True)
class Recipe:
    """A whole training: only what differs from these defaults is written in a recipe file."""

    task: str = said("translation", "`translation`, `text-to-text`, `language-modelling`, `tagging` or `classification`")
    start_from: str = said("", "a model folder whose vocabulary and encoder or decoder to begin with")
    seed: int = number(0, 0, 2**31 - 1, "of parameters, order and dropout")
    device: str = said("auto", "`auto`, `cpu` or `cuda`")
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
    if kinds == (int,) and isinstance(value, str | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            value = int(float(value)) if float(value).is_integer() else value  # 1e4 as well as 10000
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
