"""What a task is: it reads examples, learns vocabularies, builds a model, makes batches, and measures. One file a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core.table import Table
from ..data.batches import Plans, padding_share, plan, rounded
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError, did_you_mean
from ..layers.pooling import Pool
from ..models.kinds import Encoder
from ..recipe import Recipe
from ..training.work import Work

table: Table[type[Task]] = Table("tasks", "task")


class Builder(Protocol):
    """Makes what a recipe's `model` names: a whole model, or the parts that a task puts together."""

    @property
    def name(self) -> str:
        """The family's name."""

    @property
    def dropout(self) -> float: ...

    def whole(self, source_vocab: int, target_vocab: int) -> nn.Module:
        """From one text to another, or from a text to its continuation."""

    def body(self, vocab: int) -> Encoder:
        """A vector a token: forward(tokens, lengths) → B N dim."""

    def pool(self, dim: int, vocab: int) -> Pool:
        """One vector for a text: forward(tokens, x, lengths) → B dim."""


class Task:
    """A task that has learned its vocabularies.

    `measures` names the figures of an evaluation and whether more is better; `command` is how a trained model is used.
    """

    measures: ClassVar[dict[str, bool]] = {"loss": False}
    command: ClassVar[str] = 'translate {model} "your sentence"'

    @classmethod
    def usage(cls, recipe: Recipe) -> str:
        """The command that uses a model trained by this recipe, `{model}` standing for its folder."""
        return cls.command

    @classmethod
    def read(cls, recipe: Recipe, where: str) -> list[Any]:
        """The examples of a file or an embedded corpus."""
        raise NotImplementedError

    @classmethod
    def divide(cls, examples: list[Any], share: float) -> tuple[list[Any], list[Any]]:
        """Examples to train on, and `share` of them to be kept back, each in its own order: any, but the same whatever the seed, so
        that trainings with other seeds have one vocabulary and are judged on one set."""
        count = round(share * len(examples)) or 1
        if len(examples) < 2:
            raise SaccadeError("there is one training example and no data.dev; give more examples, or a dev set")
        chosen = set(np.argsort(np.random.PCG64([0, 1]).random_raw(len(examples)), kind="stable")[:count].tolist())
        return [one for n, one in enumerate(examples) if n not in chosen], [examples[n] for n in sorted(chosen)]

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Any], given: Vocabulary | None = None) -> Self:
        """The task with vocabularies learned from the training examples, or with the one that a first model brings along."""
        raise NotImplementedError

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        """The task from what `tokens` gave."""
        raise NotImplementedError

    def tokens(self) -> dict[str, Any]:
        """All that was learned from the examples, as JSON knows it."""
        raise NotImplementedError

    def texts(self, examples: Sequence[Any]) -> dict[str, tuple[Vocabulary, list[str]]]:
        """What is read and put out: its name, its vocabulary, and its lines in some examples."""
        raise NotImplementedError

    def build(self, builder: Builder) -> nn.Module:
        """A fresh model for this task."""
        raise NotImplementedError

    def prepare(self, model: nn.Module, train: Sequence[Any]) -> None:
        """Fills what a model takes from the training examples without learning it; usually nothing."""

    def work(self, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device) -> Any:
        """What the training loop asks for."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, examples: Sequence[Any]) -> dict[str, Any]:
        """Figures for people; what more a task can be asked for are options of its own."""
        raise NotImplementedError


class Examples(Protocol):
    """A task whose examples are sequences of their own (not cut from a stream): what `ExampleWork` needs of it."""

    def numbers(self, examples: Sequence[Any]) -> list[Any]:
        """Each example as token numbers; the last member is its line."""

    def size(self, example: Any) -> tuple[int, int]:
        """How many tokens a numbered example has to be read, and to be put out."""

    def batch(self, numbers: Sequence[Any], device: torch.device, multiple: int = 1) -> Any:
        """Lengths are rounded up to a multiple."""

    def loss(self, model: nn.Module, batch: Any, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor: ...

    def figures(self, model: nn.Module, numbers: Sequence[Any], budget: int) -> dict[str, float]:
        """Figures on numbered examples; `loss` among them."""


class ExampleWork(Work):
    """What the training loop asks for, of any task with examples: batches of similar lengths, the loss, figures on the dev set."""

    def __init__(self, task: Examples, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device) -> None:
        self.task, self.device = task, device
        self.tokens, self.smoothing, self.seed = recipe.training.tokens, recipe.training.smoothing, recipe.seed
        self.multiple, self.agreement = recipe.training.round_to, recipe.training.agreement
        self.examples = task.numbers(train)
        try:
            self.dev = task.numbers(dev)
        except WrongExample as error:
            raise SaccadeError(f"{recipe.data.dev or recipe.data.train}, {error}") from None
        self.lengths = [task.size(example) for example in self.examples]
        for sizes, example in zip(self.lengths, self.examples, strict=True):
            if sum(rounded(size, self.multiple) for size in sizes) > self.tokens:
                read, put_out = sizes
                tokens = f"{read} + {put_out}" if put_out else str(read)
                to = f", rounded up to multiples of {self.multiple}" if self.multiple > 1 else ""
                raise SaccadeError(
                    f"line {example[-1]} of the training data has {tokens} tokens{to}, more than a batch may hold "
                    f"(training.tokens={self.tokens}); raise training.tokens or take the line out"
                )
        self.plans = Plans(self.lengths, self.tokens, self.multiple)

    def epoch(self, epoch: int) -> Sequence[list[int]]:
        return self.plans(self.seed, epoch)

    def padding(self) -> float:
        """Which part of an epoch's batches is padding."""
        return padding_share(self.lengths, self.epoch(0), self.multiple)

    def batch(self, indices: list[int]) -> Any:
        return self.task.batch([self.examples[n] for n in indices], self.device, self.multiple)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.task.loss(model, batch, self.smoothing, self.agreement)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self.task.figures(model, self.dev, self.tokens)


def in_batches(task: Examples, numbers: Sequence[Any], budget: int) -> Iterator[tuple[list[int], list[Any]]]:
    """Numbered examples of similar lengths together: their indices, and they themselves."""
    sizes = [task.size(example) for example in numbers]
    longest = max((a + b for a, b in sizes), default=1)
    for indices in plan(sizes, max(budget, longest), 0, 0):
        yield indices, [numbers[n] for n in indices]


def learned_vocabulary(recipe: Recipe, lines: Iterable[str], given: Vocabulary | None = None) -> Vocabulary:
    """The given vocabulary, or one by the recipe's settings."""
    how = recipe.vocabulary
    if given is not None:
        return given
    return Vocabulary.train(lines, how.kind, how.size, how.split, how.lowercase, how.min_count)


class WrongExample(SaccadeError):
    """An example that does not fit, as with a label that the training data never had; who knows the file puts its name before."""


class Labels:
    """The classes of a classifier or the tags of a tagger, in alphabetical order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._numbers = {name: n for n, name in enumerate(self.names)}

    @classmethod
    def of(cls, names: Iterable[str], what: str) -> Labels:
        found = sorted(set(names))
        if len(found) < 2:
            only = f"only '{found[0]}'" if found else "none"
            raise SaccadeError(f"the training data has {only} as {what}; there must be at least two to tell apart")
        return cls(found)

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, line: int, what: str) -> int:
        """The number of a label; one that the training data never had is named with its line."""
        if name not in self._numbers:
            hint = did_you_mean(name, self.names) if len(self.names) < 100 else ""
            raise WrongExample(f"line {line}: the {what} '{name}' was never seen in training{hint}")
        return self._numbers[name]


def to_tokens(**vocabularies: Vocabulary) -> dict[str, Any]:
    """Vocabularies under their names, as JSON knows them."""
    return {name: json.loads(vocabulary.to_json()) for name, vocabulary in vocabularies.items()}


def from_tokens(tokens: dict[str, Any], *names: str) -> Vocabulary:
    """The first of these vocabularies that is there."""
    found = next(tokens[name] for name in names if name in tokens or name == names[-1])
    return Vocabulary.from_json(json.dumps(found))


class LabelTask(Task):
    """What tasks with labels share: one vocabulary for what is read, and the labels."""

    measures: ClassVar[dict[str, bool]] = {"loss": False, "accuracy": True}

    def __init__(self, text: Vocabulary, labels: Labels) -> None:
        self.text, self.labels = text, labels
        self.reads_bytes = False

    @property
    def reads(self) -> Vocabulary:
        """The vocabulary of what is read."""
        return self.text

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), Labels(tokens["labels"]))

    def tokens(self) -> dict[str, Any]:
        return {**to_tokens(text=self.text), "labels": self.labels.names}
