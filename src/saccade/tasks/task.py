"""What a task is: it reads examples, learns vocabularies, builds a model, makes batches, predicts, shows its attention and measures.

One file per task, and nothing elsewhere asks which task it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core import auxiliary_losses
from ..data.archives import file_of
from ..data.bad_lines import Skipped
from ..data.batches import Plans, padding_share, rounded
from ..data.corpora import Kind, inputs, read
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError, did_you_mean, with_article
from ..models.builder import Builder
from ..models.protocols import Encoder
from ..recipe import Recipe, tasks
from ..settings import AUTO, fixed, resolve
from ..training.losses import Batch
from ..training.work import Work
from ..views.document import Document
from .search_options import Option

table = tasks
GENERATING = ("training.doubly_stochastic", "training.dev_bleu")  # settings of tasks with outputs
HELD_OUT, FEWEST_DEV = 0.05, 50  # where no share is given
ROUNDED = 8  # lengths on a GPU: few shapes of batches, each captured once


class Each(NamedTuple):
    """What a model did with each example of a data set."""

    rows: list[tuple[str, str, str]]  # for people: the input, the reference, the model's output
    # metric → what it is computed from, examples × statistics, and the metric of their sum
    sums: dict[str, tuple[NDArray[np.float64], Callable[[Any], float]]]


class Task:
    """A task that has learned its vocabularies."""

    needs: type[Any]  # the kind of model it is built on
    reads: Vocabulary | None = None  # of its input, where that is text
    # the metrics of an evaluation, and whether higher is better
    measures: ClassVar[dict[str, bool]] = {"loss": False}
    # what `evaluate` can be asked for, with a check of each value
    options: ClassVar[dict[str, Callable[[Any], object]]] = {}
    data: ClassVar[Kind]  # what its examples are
    has_text: ClassVar[bool] = True  # whether it reads or writes text, and so has a vocabulary
    # of those settings that only some tasks have
    settings: ClassVar[tuple[str, ...]] = ("training.smoothing", "training.tokens")
    command: ClassVar[str] = 'translate {model} "your sentence"'  # how a trained model is used
    method: ClassVar[str] = 'm.translate("your sentence")'  # and how in Python
    # What a trained model does. `predict` does the first; a command and a method of `System` have each of these names.
    verbs: ClassVar[tuple[str, ...]] = ()
    # Which of them a service answers at /v1/<verb>, and which fields of an answer it sends.
    routes: tuple[str, ...] = ()
    answers: ClassVar[tuple[str, ...]] = ()
    # The options of `predict`; a service and the command line take them from here.
    predict_options: ClassVar[dict[str, Option]] = {}
    # The fields of an input, then what else `attention` needs: "text" or "image", a "question", a "target" to generate.
    fields: ClassVar[tuple[str, ...]] = ("text",)
    looks: ClassVar[tuple[str, ...]] = ("text",)
    attending: ClassVar[str] = "transformer"  # families whose attention can be shown
    by_token: ClassVar[bool] = False  # whether texts become texts token by token
    single_examples: ClassVar[bool] = False  # whether a batch can be made of any examples
    # Arguments of `predict` that leave out what only a view of the answer needs.
    without_view: ClassVar[dict[str, Any]] = {}
    # The classes of its examples, and how plain values for one are written.
    example_types: ClassVar[tuple[type[Any], ...]] = ()
    example_form: ClassVar[str] = "a text"
    # from a recipe, training examples, and the vocabulary that a first model brings
    learn: ClassVar[Callable[..., Task]]
    restore: ClassVar[Callable[..., Task]]  # from a recipe and what `tokens` gave
    tokens: Callable[[], dict[str, Any]]  # all that was learned from the examples, as JSON values
    # of examples: the name, vocabulary and lines of each side
    texts: Callable[..., dict[str, tuple[Vocabulary, list[str]]]]
    build: Callable[[Builder], nn.Module]  # a fresh model
    # what the training loop asks for
    work: Callable[[Recipe, Sequence[Any], Sequence[Any], torch.device], Work]
    # metrics of a model on examples, for people; may take the `options`
    evaluate: Callable[..., dict[str, Any]]
    # Answers of a model to inputs as they come, each with the number of its input; takes the `predict_options`.
    predict: Callable[..., Iterator[tuple[int, Any]]]
    # What a model looked at while it read an input, or generated a `target`: of all attention, or `only` one of a name.
    attention: Callable[..., Document]

    @classmethod
    def read(cls, recipe: Recipe, where: str, skipped: Skipped | None = None) -> list[Any]:
        """The examples of files, a dataset or a generated corpus; the first bad line is an error, unless `skipped` counts them."""
        return read(
            cls.data, where, recipe.data.options_of(where), *cls.reading(recipe), skipped=skipped
        )

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        """What the reader of its data is asked for besides."""
        return ()

    @classmethod
    def usage(cls, recipe: Recipe) -> str:
        """The command that uses a model trained by this recipe; `{model}` is its folder."""
        return cls.command

    @classmethod
    def call(cls, recipe: Recipe) -> str:
        """The same in Python, for a model `m`."""
        return cls.method

    @classmethod
    def divide(cls, examples: list[Any], share: float) -> tuple[list[Any], list[Any]]:
        """Split the examples into training examples and a held-out `share`, the same for every seed, since models of several seeds are compared.
        A share of 0 means 5 %, but at least 50 examples or a third of them: fewer are too noisy to choose a model."""
        share = share or max(HELD_OUT, min(FEWEST_DEV / max(len(examples), 1), 1 / 3))
        count = round(share * len(examples)) or 1
        if len(examples) < 2:
            raise SaccadeError(
                "there is one training example and no data.dev; give more examples, or a dev set",
                code="one-example",
            )
        draws = np.random.PCG64([0, 1]).random_raw(len(examples))
        chosen = set(np.argsort(draws, kind="stable")[:count].tolist())
        return [one for n, one in enumerate(examples) if n not in chosen], [
            examples[n] for n in sorted(chosen)
        ]

    @classmethod
    def sketch(cls, recipe: Recipe, builder: Builder) -> nn.Module:
        """A model for a task that has learned nothing yet, from which the settings it uses are known."""
        tiny = Vocabulary.train(["a"], "words").to_json()
        return cls.restore(
            recipe, {"text": tiny, "joint": tiny, "labels": ["a", "b"], "several": False}
        ).build(builder)

    @classmethod
    def needs_of(cls, values: Mapping[str, Any]) -> type[Any]:
        """The kind of model that a recipe of the task needs."""
        return cls.needs

    @classmethod
    def vocabularies(cls, tokens: dict[str, Any]) -> tuple[Vocabulary, ...]:
        """The vocabularies that `learn` takes over from a first model's `tokens`: what that model reads."""
        return (from_tokens(tokens, "text", "joint", "source"),)

    @classmethod
    def example(cls, values: Any, line: int) -> Any:
        """An example as it is, or from plain values such as (source, target)."""
        if isinstance(values, cls.example_types):
            return values
        parts = [values] if isinstance(values, str) else values
        count = cls.example_form.count(",") + 1
        if not isinstance(parts, list | tuple) or len(parts) != count or None in parts:
            raise SaccadeError(
                f"example {line} is {str(values)[:60]!r}; expected {cls.example_form}",
                code="wrong-example",
            )
        return cls.from_values(parts, line)

    @classmethod
    def from_values(cls, parts: Sequence[Any], line: int) -> Any:
        """An example from as many plain values as it has."""
        return cls.example_types[0](*parts, line=line)

    def inputs(self, given: Any) -> tuple[list[Any], bool]:
        """What `predict` reads, as a list, and whether one input was given by itself: here texts."""
        if isinstance(given, str):
            return [given], True
        texts = items(given, self.method)
        wrong = next((n for n, one in enumerate(texts, 1) if not isinstance(one, str)), None)
        if wrong is not None:
            raise SaccadeError(
                f"expected texts, got {type(texts[wrong - 1]).__name__} as number {wrong}; write {self.method}",
                code="wrong-input",
            )
        return texts, False

    def check_texts(self, texts: Sequence[str], first: int = 1) -> None:
        """Raises at a text that is too much for one input; `first` is the number of the first one."""

    def input_from(self, *values: Any) -> Any:
        """What `predict` reads, from the values of its `fields`."""
        return values if len(values) > 1 else values[0]

    def read_inputs(self, recipe: Recipe, where: str) -> Iterator[Any]:
        """The inputs of data, one by one, without labels or targets; see `corpora.inputs`."""
        return inputs(self.data, where, recipe.data.swap, recipe.data.options_of(where))

    @classmethod
    def check_predict(cls, options: Mapping[str, Any]) -> None:
        """Raises where `predict` has no such option, or not with that value."""
        for name, value in options.items():
            if name not in cls.predict_options:
                what = f"a prediction of {table.name_of(cls)} has no option '{name}'"
                hint = did_you_mean(name, cls.predict_options)
                raise SaccadeError(what + hint, code="unknown-predict-option")
            if value is not None:
                cls.predict_options[name].check_value(name, value)

    def seen_with(self, given: Any, answer: Any) -> tuple[Any, ...]:
        """What `attention` is asked for to show how an answer came about: the input, and the target where there is one."""
        parts = given if isinstance(given, tuple) else (given,)
        return (*parts, str(answer)) if "target" in self.looks else parts

    def reconstructions(self, model: nn.Module, examples: Sequence[Any]) -> list[Any]:
        """Pictures before and after, of a task that makes pictures of pictures."""
        return []

    def count_tokens(self, given: Any, target: str = "") -> int:
        """How many tokens a model reads of what `attention` is asked for: of the longer text."""
        texts = [one for one in (given, target) if isinstance(one, str) and one]
        return len(self.reads.encode_ids(texts[:1])[0]) if self.reads and texts else 0

    def refuse_target(self, target: Any) -> None:
        if target is not None:
            name = with_article(table.name_of(self))
            raise SaccadeError(
                f"{name} model generates no text; leave the target out", code="no-target"
            )

    def per_example(self, model: nn.Module, examples: Sequence[Any], **options: Any) -> Each:
        """What the metrics of `evaluate` with these options add up from, so that two models can be compared example by example."""
        return Each([], {})

    def samples(self, model: nn.Module, examples: Sequence[Any]) -> list[tuple[str, str, str]]:
        """The input, the reference and the model's output of a few examples."""
        return self.per_example(model, examples).rows

    def prepare(self, model: nn.Module, train: Sequence[Any]) -> None:
        """Fills what a model takes from the training examples without learning it; usually nothing."""


class ExampleTask(Task):
    """A task whose examples are sequences of their own, not cut from a stream."""

    settings = (*Task.settings, "data.max_length", "training.round_to", "training.agreement")
    single_examples = True
    numbers: Callable[[Sequence[Any]], list[Any]]  # each example as token numbers, with its `line`
    # how many tokens of a numbered example are read, and how many generated
    size: Callable[[Any], tuple[int, int]]
    # of numbered examples, on a device; lengths are rounded up to a multiple
    batch: Callable[..., Batch]
    worker: ClassVar[type[ExampleWork]]  # what its training is made of

    def budget(self, recipe: Recipe) -> int:
        """How much a batch holds: tokens, or pictures."""
        training = recipe.training
        return fixed(training.tokens if self.has_text else training.batch_size)

    def misfit(self, example: Any, recipe: Recipe) -> tuple[str, str] | None:
        """Why training cannot use a numbered example: the kind of reason for a count, and a sentence for this example; usually None."""
        most, tokens = recipe.data.max_length, self.budget(recipe)
        sizes, multiple = self.size(example), resolve(recipe.training.round_to, 1)
        has = f"line {example.line} of the training data has {{}} tokens"
        if most != AUTO and max(sizes) > most:
            what = f"{has.format(max(sizes))} on a side, more than data.max_length={most}"
            return f"longer than data.max_length={most}", f"{what}; raise it or remove the line"
        if sum(rounded(size, multiple) for size in sizes) > tokens:
            to = f", rounded up to multiples of {multiple}" if multiple > 1 else ""
            what = f"{has.format(' + '.join(str(size) for size in sizes if size))}{to}, more than a batch may hold"
            kind = f"of more tokens than a batch holds (training.tokens={tokens})"
            return (
                kind,
                f"{what} (training.tokens={tokens}); raise training.tokens or remove the line",
            )
        return None

    def batches(
        self, numbers: Sequence[Any], device: torch.device, budget: int
    ) -> Iterator[tuple[list[int], Batch]]:
        """Batches of numbered examples of similar lengths, with their indices."""
        sizes = [self.size(example) for example in numbers]
        for indices in Plans(sizes, max(budget, *map(sum, sizes), 1))(0, 0):
            yield indices, self.batch([numbers[n] for n in indices], device)

    @torch.no_grad()
    def metrics(
        self, model: nn.Module, numbers: Sequence[Any], budget: int = 8192
    ) -> dict[str, float]:
        total, tokens = sum_loss(
            model, (batch for _, batch in self.batches(numbers, device_of(model), budget))
        )
        return {"loss": total / max(tokens, 1)}

    def work(
        self, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device
    ) -> Work:
        return self.worker(self, recipe, train, dev, device)


class ExampleWork(Work):
    """The work of any task with examples: batches of similar lengths, metrics on the dev set."""

    def __init__(
        self,
        task: ExampleTask,
        recipe: Recipe,
        train: Sequence[Any],
        dev: Sequence[Any],
        device: torch.device,
    ) -> None:
        if recipe.training.round_to == AUTO:
            rounding = ROUNDED if device.type == "cuda" and task.has_text else 1
            recipe = replace(recipe, training=replace(recipe.training, round_to=rounding))
        self.task, self.device, self.measures = task, device, tuple(task.measures)
        self.tokens, self.seed = task.budget(recipe), recipe.seed
        self.smoothing, self.agreement = recipe.training.smoothing, recipe.training.agreement
        self.multiple = fixed(recipe.training.round_to)
        self.doubly_stochastic = recipe.training.doubly_stochastic
        if self.doubly_stochastic:
            self.notes = (
                "training.doubly_stochastic: attention to the source runs on the backend eager, which has its weights",
            )
        self.skipped = Skipped()
        self.examples = self.fitting(task.numbers(train), recipe)
        try:
            self.dev = task.numbers(dev)
        except WrongExample as error:
            where = recipe.data.dev or recipe.data.train
            raise SaccadeError(f"{where}, {error}", code=error.code) from None
        # held out of the training data, where such examples are skipped
        if not recipe.data.dev and not recipe.data.strict:
            self.dev = self.fitting(self.dev, recipe, least=0) or self.dev
        self.dev_share = len(self.dev) / max(len(self.examples), 1)
        self.lengths = [task.size(example) for example in self.examples]
        self.plans = Plans(self.lengths, self.tokens, self.multiple)

    def fitting(self, numbers: list[Any], recipe: Recipe, least: float = 0.5) -> list[Any]:
        """The examples that training can use, at least this share; the others are counted, or in a strict recipe refused."""
        reasons = [(example, self.task.misfit(example, recipe)) for example in numbers]
        wrong = [(example, reason) for example, reason in reasons if reason is not None]
        if wrong and recipe.data.strict:
            raise SaccadeError(wrong[0][1][1], code="wrong-example")
        needed = 1 if recipe.data.max_length != AUTO and least else least * len(numbers)
        if wrong and len(numbers) - len(wrong) < needed:
            raise SaccadeError(
                f"{len(wrong):,} of {len(numbers):,} examples cannot be used; {wrong[0][1][1]}",
                code="examples-unusable",
            )
        for example, (kind, _) in wrong:
            self.skipped.add(recipe.data.train, kind, file_of(example) or example.line)
        return [example for example, reason in reasons if reason is None]

    def epoch(self, epoch: int) -> Sequence[list[int]]:
        return self.plans(self.seed, epoch)

    def padding(self) -> float:
        return padding_share(self.lengths, self.epoch(0), self.multiple)

    def batch(self, plan: list[int]) -> Batch:
        return self.task.batch([self.examples[n] for n in plan], self.device, self.multiple)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self.task.metrics(model, self.dev, self.tokens)


ExampleTask.worker = ExampleWork


def items(given: Any, call: str) -> list[Any]:
    """A list of what was given, if it is several things."""
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise SaccadeError(
            f"expected a text or a list of texts, got {type(given).__name__}; write {call}",
            code="wrong-input",
        )
    return list(given)


def one_text(given: Any) -> str:
    """The text to look at, if it is one that has words."""
    if not isinstance(given, str):
        raise SaccadeError(
            f"expected one text, got {type(given).__name__}; look at one at a time: m.look(text)",
            code="wrong-input",
        )
    if not given.strip():
        raise SaccadeError("the text is empty; give a sentence", code="empty-text")
    return given


def percent_of(total: Sequence[float]) -> float:
    """Percent of the second number that the first one is."""
    return float(100 * total[0] / max(total[1], 1))


class WrongExample(SaccadeError):
    """An example that does not fit, such as a label that the training data never had; who knows the file puts its name in front."""


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def sum_loss(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int]:
    """The loss of a model without smoothing, summed over batches, and their tokens."""
    model.eval()
    total, tokens = 0.0, 0
    for batch in batches:
        with auxiliary_losses.collect(None if batch.whole else batch.target, ignore=batch.ignore):
            answer = model(*batch.inputs)
        total += float(batch.total(answer))
        tokens += batch.tokens
    return total, tokens


def without_trees(body: Encoder) -> Encoder:
    """The encoder, if it can read a text that has no parse tree."""
    if body.needs_relation:
        wrong = "model.position=syntax or model.position_embedding=depth, which needs the parse trees of tagging data"
        raise SaccadeError(
            f"the model has {wrong}; choose another position", code="relation-missing"
        )
    return body


def with_separator(body: Encoder, text: Vocabulary) -> tuple[Encoder, int | None]:
    """The encoder and the number of the token that separates segments, which it knows now, if it has segments."""

    def number(piece: str) -> int | None:
        ids = text.encode_ids([piece])[0]
        # with a vocabulary that has learned nothing
        sketched = torch.empty(0).device.type == "meta"
        return ids[0] if len(ids) == 1 and (sketched or ids[0] != text.unk) else None

    return body, body.separate(number)


def learn_vocabulary(
    recipe: Recipe, lines: Iterable[str], given: Vocabulary | None = None
) -> Vocabulary:
    """The given vocabulary, or one by the recipe's settings."""
    how = recipe.vocabulary
    return given or Vocabulary.train(
        lines, how.kind, fixed(how.size), how.split, how.lowercase, how.min_count
    )


def from_tokens(tokens: dict[str, Any], *names: str) -> Vocabulary:
    """The first of these vocabularies that is there."""
    return Vocabulary.from_json(
        next(tokens[name] for name in names if name in tokens or name == names[-1])
    )
