"""Recipes as dataclasses: every key with its default, its range, its meaning, and when it has an effect."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import SaccadeError
from .registry import Table
from .settings import AUTO, Auto, number, one_of, setting

NAMED = re.compile("[a-z][a-z0-9-]+:")  # one letter alone is a drive
# of a surrogate pair: no file's name, and nothing that can be printed
HALF = re.compile("[\ud800-\udfff]")
# of a recipe; a few lines of YAML with aliases can mean billions
MOST_VALUES, DEEPEST = (100_000, 20)
MESHES = "mesh-network"  # the family that reads meshes, whose vertices have no words
# filled by `saccade.tasks`; each task names the settings that it has
tasks: Table[type[Any]] = Table("tasks", "task")
TOKENIZERS = (
    *("auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200"),
    *("spm", "none"),
)
TOKENIZE = "sacrebleu's tokenizer for BLEU; `auto` is `13a`, and what fits the script where no spaces separate words"
OPTIONS = "what an embedded corpus is made with: sizes, a seed, and options of its own, such as `{train: 15000, to: de}`"
MAKING = "what makes pairs of plain text: its sections and their `headings`, or the `turns` of a dialogue, each with the next one"
METRICS = (
    "further metrics of texts, separated by commas: `code`, `rouge`, `attachment` (docs/tasks.md)"
)
# of training; one that is given on the command line replaces those of the recipe
LIMITS = ("updates", "epochs", "minutes")
UPDATES = "optimizer steps, at most; `auto`, or `epochs` or `minutes` alone: as many as these allow, or by the data and the device"
IMAGES = "folders or archives of the images that files name, separated by commas; else those beside each file (docs/data.md)"
ROTATE = "evaluate also on the pictures rotated by every multiple of so many degrees (90: quarter turns): `rotated_accuracy`"
AUGMENT = "random changes of training images: flip, crop, warp, jitter, erase, mixup, cutmix (docs/data.md), such as `{flip: true, crop: 4}`"
TOKENS = "tokens (nodes, vertices) per batch, padding counted; `auto`: by the amount of data"
ROUND_TO = "lengths are rounded up to a multiple of this: more padding, fewer shapes of batches; `auto`: 8 on a GPU, else 1"
COMPILE = "`torch.compile`; `auto`: on a GPU, for batches of one shape, in a run long enough to pay for it whose kernels are not joined already"
GRAPHS = "on a GPU: capture each update as a CUDA graph per batch shape and replay it; `auto`: where updates can be captured"
AGREEMENT = "R-Drop's α: each example is read twice with different dropout, and the two answers are drawn together"

DOUBLY_STOCHASTIC = "λ of Σ_i (1 − Σ_t α_ti)²: each position of a source is to be looked at once in all (Xu et al. 2015)"


HELD_OUT = "which share of `train` is held out; `auto`: 5%, but at least 50 examples or a third"
MAX_LENGTH = "skip training examples with more tokens on a side; `auto`: what a batch holds"
MAX_RATIO = "skip pairs with one side more than so many times as long; `null`: none"
IMAGE_SIZE = "height and width in pixels that images are resized to; `auto`: those of the first one, at most 1024"
SIZE = "at most so many tokens, the most frequent; `auto`: by the amount of text"
SHARE = "which share of the tokens is hidden"
WIDTH = "channels of the decoder's last stage; each stage before has twice as many"
NOISE = "standard deviation of the noise on what is read (pixels are 0 to 1); learned is the clean picture"
DROP = "share of the words that are missing in what is read; learned is the whole text"
SHUFFLE = (
    "positions that a word of what is read may be away from its own; learned is the text in order"
)
REWARD_SAMPLES = "outputs that are drawn of each example; a batch is larger by as much"


def is_named(where: str) -> bool:
    """Whether examples come from an embedded corpus or a dataset, such as `phrasebook:train`, not from a file."""
    return bool(NAMED.match(where))


def when(what: str, test: Callable[[Recipe], bool]) -> dict[str, Any]:
    """Says when a key has an effect: in words, and as a test of the recipe."""
    return {"when": (what, test)}


def for_objectives(*names: str) -> dict[str, Any]:
    what = f"language.objective={' or '.join(names)}"
    return when(what, lambda recipe: recipe.language.objective in names)


GENERATED = when("data such as phrasebook:train", lambda r: any(map(is_named, r.data.sources)))
FRESH = when("a recipe without start_from", lambda r: not r.start_from)
WITH_TEXT = when("a task with texts", lambda r: r.kind.has_text and r.model.get("family") != MESHES)
FRESH_WORDS = when(
    "vocabulary.kind=words, without start_from",
    lambda r: r.vocabulary.kind == "words" and not r.start_from,
)
NO_DEV = when("a recipe without data.dev", lambda r: not r.data.dev)
# a setting that only the tasks have which name it in `settings`
OWNED: dict[str, Any] = {"owned": True}
FROM_TEXT = when("files of plain text", lambda r: not is_named(r.data.train))
REWARDED = when("a training.reward", lambda r: r.training.reward is not None)
ADAM = when("training.optimizer=adamw or adam", lambda r: r.training.optimizer != "sgd")
OTHER_WATCH = when("another training.watch than bleu", lambda r: r.training.watch != "bleu")


@dataclass(frozen=True)
class DataRecipe:
    """Where the examples come from; paths are relative to the working directory."""

    train: str = setting(
        "",
        "files (`train.tsv`, `train.en,train.fr`, `train.conllu`, `book.txt` …), `phrasebook:train` or `hub:…`",
    )
    dev: str = setting("", "the same formats; selects the best checkpoint")
    test: str = setting("", "the same formats, for `saccade compare`")
    held_out: float | Auto = number(AUTO, 0.0, 0.5, HELD_OUT, **NO_DEV)
    strict: bool = setting(
        False, "stop at the first bad line or example instead of skipping and counting such"
    )
    max_length: int | Auto = number(AUTO, 1, 10**6, MAX_LENGTH, **OWNED)
    max_ratio: float | None = number(9.0, 0.0, 1000.0, MAX_RATIO, **OWNED)
    tokenize: str = one_of(TOKENIZERS, TOKENIZE, **OWNED)
    swap: bool = setting(False, "swap source and target", **OWNED)
    column: str = one_of(("upos", "xpos"), "the CoNLL-U column that a tagger learns", **OWNED)
    pairs: str = one_of(("given", "headings", "turns"), MAKING, **OWNED, **FROM_TEXT)
    metrics: str = setting("", METRICS, **OWNED)
    documents: str = one_of(
        ("file", "line", "blank"), "what separates the documents of plain text", **OWNED
    )
    options: dict[str, Any] = field(default_factory=dict, metadata={"what": OPTIONS, **GENERATED})
    images: str = setting("", IMAGES, **OWNED)
    image_size: int | Auto = number(AUTO, 1, 1024, IMAGE_SIZE, **OWNED)
    rotate_test: int | None = number(None, 1, 180, ROTATE, **OWNED)
    augment: dict[str, Any] = field(default_factory=dict, metadata={"what": AUGMENT, **OWNED})

    @property
    def sources(self) -> tuple[str, ...]:
        return self.train, self.dev, self.test

    def options_of(self, where: str) -> dict[str, Any]:
        """The options of an embedded corpus: `options` belong to that of this recipe."""
        own = next((one.partition(":")[0] for one in self.sources if is_named(one)), None)
        return dict(self.options) if own is not None and where.startswith(f"{own}:") else {}


@dataclass(frozen=True)
class VocabularyRecipe:
    """How text is split into tokens."""

    kind: str = one_of(
        ("bpe", "words", "characters"),
        "byte-level pieces (nothing is unknown), words, or characters",
        **FRESH,
    )
    size: int | Auto = number(8000, 1, 1_000_000, SIZE, **FRESH)
    split: str = one_of(("space", "punctuation"), "where words end", **FRESH_WORDS)
    lowercase: bool = setting(False, "lowercase the text", **FRESH)
    min_count: int = number(1, 1, 1_000_000, "tokens seen less often are left out", **FRESH)
    joint: bool = setting(False, "one vocabulary for both sides of pairs", **OWNED, **FRESH)


@dataclass(frozen=True)
class LanguageRecipe:
    """What a language model learns on plain text."""

    objective: str = setting(
        "causal",
        "`causal` (needs a decoder), `masked`, `permutation` (an encoder) or `denoising` (an encoder–decoder)",
    )
    block: int = number(256, 2, 1_000_000, "tokens that are read at once")
    carry: bool = setting(
        False,
        "recurrent models: each update continues where the last one stopped, with the state it left",
        **for_objectives("causal", "permutation"),
    )
    share: float = number(
        0.15, 0.01, 0.9, SHARE, **for_objectives("masked", "permutation", "denoising")
    )
    span: float = number(
        3.0, 1.0, 100.0, "mean length of the spans that are cut out", **for_objectives("denoising")
    )


@dataclass(frozen=True)
class AutoencodingRecipe:
    """What a picture or a text is squeezed into, and made from again."""

    latent: int = number(64, 1, 65_536, "numbers that stand for a picture or a text")
    width: int = number(32, 1, 4096, WIDTH, **OWNED)
    noise: float = number(0.0, 0.0, 10.0, NOISE, **OWNED)
    drop: float = number(0.0, 0.0, 0.9, DROP, **OWNED)
    shuffle: int = number(0, 0, 1000, SHUFFLE, **OWNED)


@dataclass(frozen=True)
class TrainingRecipe:
    """How to train."""

    updates: int | Auto = number(2000, 1, 10**9, UPDATES)
    epochs: int | None = number(None, 1, 10**6, "passes over the training data, at most")
    minutes: float | None = number(
        None, 0.0, 10**6, "training time in minutes, at most, over all resumes"
    )
    tokens: int | Auto = number(4096, 1, 10**8, TOKENS, **OWNED)
    batch_size: int | Auto = number(
        AUTO, 1, 10**6, "pictures per batch; `auto`: by the amount of data", **OWNED
    )
    round_to: int | Auto = number(AUTO, 1, 1024, ROUND_TO, **OWNED)
    learning_rate: float = number(1e-3, 0.0, 100.0, "peak learning rate")
    schedule: str = setting(
        "inverse-sqrt",
        "`inverse-sqrt`, `cosine` (to a hundredth at the end) or `constant`, after the warm-up",
    )
    warmup: int = number(100, 0, 10**9, "updates in which the learning rate rises to its peak")
    optimizer: str = one_of(
        ("adamw", "adam", "sgd"), "`adamw`, `adam`, or `sgd`: with Nesterov momentum of 0.9"
    )
    weight_decay: float = number(
        0.01, 0.0, 10.0, "weight decay; of `adam` and `sgd`, a part of the gradient (L2 penalty)"
    )
    beta2: float = number(0.98, 0.0, 0.999999, "of AdamW and Adam", **ADAM)
    clip: float | None = number(1.0, 0.0, 1e9, "maximum gradient norm; `null`: no clipping")
    accumulate: int = number(1, 1, 10**6, "batches per update")
    smoothing: float = number(0.1, 0.0, 0.99, "label smoothing", **OWNED)
    agreement: float = number(0.0, 0.0, 1000.0, AGREEMENT, **OWNED)
    doubly_stochastic: float = number(0.0, 0.0, 1000.0, DOUBLY_STOCHASTIC, **OWNED)
    reward: str | None = setting(
        None,
        "`gleu`: outputs are drawn and learn by their reward (GNMT's fine-tuning, after `start_from`)",
        names=("gleu",),
        **OWNED,
    )
    reward_samples: int = number(15, 2, 1000, REWARD_SAMPLES, **REWARDED)
    reward_likelihood: float = number(
        0.017, 0.0, 1000.0, "weight α of the references' likelihood beside the reward", **REWARDED
    )
    precision: str = one_of(("float32", "bf16"), "`bf16` uses autocast")
    compile: bool | Auto = setting(AUTO, COMPILE)
    graphs: bool | Auto = setting(AUTO, GRAPHS)
    parallel: str = one_of(
        ("ddp", "fsdp"),
        "under torchrun: the whole model in each process (DDP), or divided among them (FSDP2)",
    )
    checkpoint: str = one_of(
        ("whole", "sharded"),
        "how `last/` is written under torchrun: by rank 0, or by each rank its part",
    )
    evaluate_every: int | Auto = number(
        250, 1, 10**9, "updates between evaluations on the dev set; `auto`: about once per epoch"
    )
    checkpoint_every: int | Auto = number(
        250, 1, 10**9, "updates between checkpoints; `auto`: as `evaluate_every`"
    )
    log_every: int = number(10, 1, 10**9, "updates between rows of the log")
    patience: int | None = number(
        None, 1, 10**9, "evaluations without improvement before stopping; `null`: never"
    )
    average: int | None = number(
        None, 1, 1000, "average the parameters of the last N evaluations, kept if better"
    )
    threads: int | Auto = number(
        AUTO,
        1,
        1024,
        "threads of the processor; `auto`: the fastest number, measured on a batch before the run starts",
    )
    watch: str = setting(
        "loss",
        "metric that selects the best model: `loss`, `bleu`, `accuracy`, `perplexity`, `psnr`",
    )
    tensorboard: bool = setting(
        False, "write event files for TensorBoard into RUN/tensorboard (the extra `tensorboard`)"
    )
    dev_bleu: bool = setting(
        False, "compute greedy BLEU on the dev set too", **OWNED, **OTHER_WATCH
    )

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that autocast computes in; None without autocast."""
        return torch.bfloat16 if self.precision == "bf16" else None


@dataclass(frozen=True)
class Recipe:
    """A whole training run: only what differs from these defaults is written in a recipe file."""

    task: str = setting("translation", "what is learned", names=tasks)
    start_from: str = setting(
        "",
        "a model folder whose vocabulary and encoder or decoder to begin with, or a recipe that is trained first",
    )
    seed: int = number(0, 0, 2**31 - 1, "of parameters, order and dropout")
    device: str = setting("auto", "`auto`, `cpu`, `cuda` or `mps` (Macs; never chosen by `auto`)")
    data: DataRecipe = field(default_factory=DataRecipe)
    vocabulary: VocabularyRecipe = field(default_factory=VocabularyRecipe, metadata=WITH_TEXT)
    language: LanguageRecipe = field(default_factory=LanguageRecipe, metadata=OWNED)
    autoencoding: AutoencodingRecipe = field(default_factory=AutoencodingRecipe, metadata=OWNED)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingRecipe = field(default_factory=TrainingRecipe)

    @property
    def kind(self) -> type[Any]:
        """The class of the task."""
        return tasks[self.task]

    def to_dict(self) -> dict[str, Any]:
        """Complete: every default written out, and no key that has no effect."""
        found = dataclasses.asdict(self)
        for path, _ in without_effect(self):
            section, _, name = path.rpartition(".")
            del (found[section] if section else found)[name]
        return found


def without_effect(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """The keys (`data.column`, `language`) that have no effect in a recipe, and what they are for."""
    for f in dataclasses.fields(recipe):
        if missing := unmet(recipe, f.name, f.metadata):
            yield f.name, missing
        elif dataclasses.is_dataclass(section := getattr(recipe, f.name)):
            for inner in dataclasses.fields(section):
                if missing := unmet(recipe, path := f"{f.name}.{inner.name}", inner.metadata):
                    yield path, missing


def conditions(path: str, rules: Mapping[str, Any]) -> str:
    """What a key has an effect for: the tasks that have it, and what else it needs; empty where it always has one."""
    what: str = rules.get("when", ("",))[0]
    if "owned" in rules:
        names = [one.name for one in tasks if path in one.make.settings]
        others = [name for name in tasks.names() if name not in names]
        most = len(names) > len(others)
        owners = f"{'any task but ' if most else 'task='}{' or '.join(others if most else names)}"
        what = f"{owners}, and {what}" if what else owners
    return what


def unmet(recipe: Recipe, path: str, rules: Mapping[str, Any]) -> str:
    """The conditions of a key that has no effect in a recipe; empty where it has one."""
    has = "owned" not in rules or path in recipe.kind.settings
    return "" if has and rules.get("when", ("", bool))[1](recipe) else conditions(path, rules)


def plain(values: Any, what: str = "the recipe") -> Any:
    """A copy of nested values that JSON can express; dates, sets, endless loops and endless numbers are reported."""
    left = MOST_VALUES

    def copy(value: Any, path: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST:
            most = f"{MOST_VALUES:,} values or {DEEPEST} levels"
            raise SaccadeError(
                f"{what} has more than {most}; write only what differs from the defaults",
                code="too-large",
            )
        if isinstance(value, str) and not value.isascii() and HALF.search(value):
            raise SaccadeError(
                f"{path or what} holds half of a surrogate pair; save it as UTF-8 text",
                code="damaged-text",
            )
        if isinstance(value, Mapping):
            return {
                str(name): copy(one, f"{path}.{name}" if path else str(name), depth + 1)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [copy(one, path, depth + 1) for one in value]
        if isinstance(value, int) and value.bit_length() > 64:
            raise SaccadeError(
                f"{path or what} is a whole number of {value.bit_length()} bits; no setting is that large",
                code="out-of-range",
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise SaccadeError(
                f"{path or what} is {value}; it must be a finite number", code="not-finite"
            )
        if value is None or isinstance(value, str | int | float):
            return value
        raise SaccadeError(
            f"{path or what} is read as {type(value).__name__} ({value}); put quotes around it if it is text",
            code="wrong-type",
        )

    return copy(values, "", 0)
