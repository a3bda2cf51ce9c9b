"""What tasks with labels share: texts as rows of numbers, labels, their loss and accuracy. B batch, N tokens, C classes."""

from collections.abc import Callable, Sequence
from operator import eq
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..data.archives import file_of
from ..data.batches import Rows
from ..data.lines import readable
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError, did_you_mean
from ..layers.embeddings import spell
from ..models.builder import Builder
from ..models.protocols import Encoder
from ..recipe import Recipe
from ..training.losses import token_loss
from .task import (
    Each,
    ExampleTask,
    ExampleWork,
    WrongExample,
    device_of,
    from_tokens,
    learn_vocabulary,
    percent_of,
    with_separator,
)

UNLABELED = -100
LONGEST_NAME = 1_000_000  # characters of a label, as of a line
FEW, MOST_CONFUSED = 10, 200  # labels of a confusion matrix that nobody asked for, and of any


class Numbered(NamedTuple):
    """An example in numbers: its rows of tokens (of a graph, the parts of it), labels and line. Of a tagged sentence also the position of
    each word's first token, and the tokens' distances and depths in its tree; of a question the pixels (bytes, 3 H W) of its picture, which
    other questions may share, and why they cannot be decoded."""

    rows: Any
    labels: list[int]
    line: int
    at: Sequence[int] = ()
    tree: tuple[Tensor, Tensor] | None = None
    pixels: Tensor | None = None
    wrong: str = ""


def check_names(labels: Any) -> list[str]:
    """The labels of a model folder, if they are different names; others raise as values of a wrong type do."""
    if not isinstance(labels, list | tuple) or not all(
        isinstance(name, str) and name.strip() for name in labels
    ):
        raise TypeError("labels must be a list of names")
    if len(set(labels)) < len(labels) or max(map(len, labels), default=0) > LONGEST_NAME:
        raise TypeError("labels must be different, and short")
    return [readable(name, "label") for name in labels]


def make_rows(ids: Sequence[int], pieces: Sequence[str], reads_bytes: bool) -> Rows:
    """One row per token; `pieces` are their texts."""
    return (
        [[id, *letters] for id, letters in zip(ids, spell(pieces), strict=True)]
        if reads_bytes
        else [[id] for id in ids]
    )


class LabelTask(ExampleTask):
    """A task that gives a text or its words labels; a `label` belongs to a `unit`."""

    needs = Encoder
    measures: ClassVar[dict[str, bool]] = {"loss": False, "accuracy": True}
    options: ClassVar[dict[str, Callable[[Any], object]]] = {"confusion": bool}
    worker: ClassVar[type[ExampleWork]] = ExampleWork
    label: ClassVar[str]
    unit: ClassVar[str]
    few_labels: ClassVar[str] = ""  # what to do where nearly every example has its own
    text_of: Callable[[Any], str]
    labels_of: Callable[[Any], Sequence[str] | None]

    def __init__(self, text: Vocabulary, labels: Sequence[str]) -> None:
        self.text, self.reads, self.labels = text, text, check_names(labels)
        self.known = {name: n for n, name in enumerate(self.labels)}
        self.reads_bytes = self.needs_relation = False

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Any], given: Vocabulary | None = None) -> Self:
        return cls(
            learn_vocabulary(recipe, map(cls.text_of, train), given), cls.learn_labels(train)
        )

    @classmethod
    def learn_labels(cls, train: Sequence[Any]) -> list[str]:
        """All labels of the training data; each example must have one, and there must be two."""
        cls.check_labeled(train, " of the training data")
        labels = sorted({name for one in train for name in cls.labels_of(one) or ()})
        if len(labels) < 2:
            only = f"only '{labels[0]}'" if labels else "none"
            raise SaccadeError(
                f"the training data has {only} as {cls.label}; give at least two", code="one-label"
            )
        if cls.few_labels and len(labels) > max(20, len(train) // 2):
            what = f"the training data has {len(labels):,} {cls.label}s for {len(train):,} {cls.unit}s, nearly one each"
            raise SaccadeError(f"{what}; {cls.few_labels}", code="label-per-example")
        return labels

    @classmethod
    def check_labeled(cls, examples: Sequence[Any], where: str = "", more: str = "") -> None:
        bare = next((one for one in examples if cls.labels_of(one) is None), None)
        if bare is not None:
            raise WrongExample(
                f"{file_of(bare) or f'line {bare.line}'}{where} has no {cls.label}; give every {cls.unit} one{more}",
                code="label-missing",
            )

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), tokens["labels"])

    def tokens(self) -> dict[str, Any]:
        return {"text": self.text.to_json(), "labels": self.labels}

    def texts(self, examples: Sequence[Any]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {"text": (self.text, [self.text_of(one) for one in examples])}

    def encoder(self, builder: Builder) -> Encoder:
        """A fresh encoder; the task remembers what it reads besides token numbers."""
        body, _ = with_separator(builder.make(self.needs, len(self.text)), self.text)
        self.reads_bytes, self.needs_relation = body.embedding.reads_bytes, body.needs_relation
        return body

    def work(
        self, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device
    ) -> ExampleWork:
        self.check_labeled(dev, " of the dev data")
        known = set(self.known)
        strange = [not known.issuperset(self.labels_of(one) or ()) for one in dev]
        if recipe.data.strict or 2 * sum(strange) > len(dev):  # reported as the mistake it is
            strange = [False] * len(dev)
        known_ones = [one for one, odd in zip(dev, strange, strict=True) if not odd]
        work = self.worker(self, recipe, train, known_ones, device)
        for one in (one for one, odd in zip(dev, strange, strict=True) if odd):
            kind = f"with a {self.label} that no training example has"
            work.skipped.add(recipe.data.dev or recipe.data.train, kind, file_of(one) or one.line)
        return work

    def prepare(self, model: nn.Module, train: Sequence[Any]) -> None:
        """TF-IDF weights count in how many training texts a token occurs."""
        if self.reads is not None and hasattr(model, "pool"):
            lines = self.reads.encode_ids([self.text_of(one) for one in train])
            model.pool.prepare([*ids, self.reads.eos] for ids in lines)  # type: ignore[union-attr, operator]

    def likeliest(self, logits: Tensor) -> tuple[str, dict[str, float]]:
        """The likeliest label, and the probability of each."""
        probabilities = dict(zip(self.labels, logits.softmax(-1).tolist(), strict=True))
        return max(probabilities, key=probabilities.__getitem__), probabilities

    def size(self, example: Any) -> tuple[int, int]:
        return len(example.rows), 0

    def label_numbers(self, example: Any, count: int) -> list[int]:
        """The numbers of an example's `count` labels, if it has them; one that the training data never had is named with its line."""
        names, known = self.labels_of(example), self.known
        new = next((name for name in names or () if name not in known), None)
        if new is not None:
            hint = did_you_mean(new, self.labels) if len(self.labels) < 100 else ""
            raise WrongExample(
                f"{file_of(example) or f'line {example.line}'}: the {self.label} '{new}' was never seen in training{hint}",
                code="unknown-label",
            )
        return [UNLABELED] * count if names is None else [known[name] for name in names]

    @torch.no_grad()
    def logits(self, model: nn.Module, numbers: Sequence[Any], budget: int = 8192) -> list[Tensor]:
        """Of each example's labels, in the examples' order, on the CPU: one row (C) per label."""
        model.eval()
        found = [torch.zeros(0, len(self.labels))] * len(numbers)
        for indices, batch in self.batches(numbers, device_of(model), budget):
            logits = model(*batch.inputs).float().cpu().view(len(indices), -1, len(self.labels))
            for n, row in zip(indices, logits, strict=True):
                found[n] = row[: len(numbers[n].labels)]
        return found

    def metrics(
        self, model: nn.Module, numbers: Sequence[Any], budget: int = 8192
    ) -> dict[str, float]:
        return self.judge(model, numbers, budget)[0]

    def judge(
        self, model: nn.Module, numbers: Sequence[Any], budget: int = 8192
    ) -> tuple[dict[str, float], Tensor, Tensor]:
        """The metrics, the labels that the model gives, and the right ones."""
        logits = torch.cat(self.logits(model, numbers, budget))
        wanted = torch.tensor([n for one in numbers for n in one.labels])
        logits, wanted = logits[wanted != UNLABELED], wanted[wanted != UNLABELED]
        guessed = logits.argmax(-1)
        loss = float(token_loss(logits, wanted, UNLABELED)) / max(len(wanted), 1)
        return {"loss": loss, "accuracy": percent(guessed == wanted)}, guessed, wanted

    def evaluate(
        self, model: nn.Module, examples: Sequence[Any], confusion: bool | None = None
    ) -> dict[str, Any]:
        """Accuracy, that of always giving the commonest label, and precision, recall and F1 of each label."""
        self.check_labeled(examples, more=" to compare with, or use `classify`")
        metrics, guessed, wanted = self.judge(model, self.numbers(examples))
        commonest = 100 * float(torch.bincount(wanted).max()) / len(wanted)
        found = {f"{self.unit}s": len(wanted), **metrics, "commonest_label": commonest}
        return {**found, **self.by_class(guessed, wanted, confusion)}

    def per_example(self, model: nn.Module, examples: Sequence[Any], **options: Any) -> Each:
        """Right labels of all labels."""
        numbers = self.numbers(examples)
        guessed = [rows.argmax(-1).tolist() for rows in self.logits(model, numbers)]
        names = [" ".join(self.labels[id] for id in ids) for ids in guessed]
        rows = [
            (self.text_of(one), " ".join(self.labels_of(one) or ()), name)
            for one, name in zip(examples, names, strict=True)
        ]
        labeled = [sum(label != UNLABELED for label in one.labels) for one in numbers]
        right = [
            [sum(map(eq, ids, one.labels)), count]
            for ids, one, count in zip(guessed, numbers, labeled, strict=True)
        ]
        return Each(rows, {"accuracy": (np.array(right, dtype=np.float64), percent_of)})

    def by_class(
        self, guessed: Tensor, wanted: Tensor, confusion: bool | None = None
    ) -> dict[str, Any]:
        """Precision, recall and F1 of each label that occurs or was given, the commonest first; their plain means are called macro.

        A confusion matrix (rows: the right label, columns: the model's) is made when asked for, or of few labels."""
        there, given = (
            torch.bincount(each, minlength=len(self.labels)) for each in (wanted, guessed)
        )
        hits = 100 * torch.bincount(wanted[guessed == wanted], minlength=len(self.labels)).double()
        order = [
            n for n in there.argsort(descending=True, stable=True).tolist() if there[n] or given[n]
        ]
        found: dict[str, Any] = {}
        parts = {
            "precision": hits / given.clamp(1),
            "recall": hits / there.clamp(1),
            "f1": 2 * hits / (there + given).clamp(1),
        }
        for name, each in parts.items():
            found[f"macro_{name}"] = float(each[order].mean())
        named = {n: {name: float(each[n]) for name, each in parts.items()} for n in order}
        found["classes"] = [
            {"label": self.labels[n], **named[n], "support": int(there[n])} for n in order
        ]
        if confusion and len(order) > MOST_CONFUSED:
            raise SaccadeError(
                f"a confusion matrix of {len(order):,} labels cannot be read; leave it out above {MOST_CONFUSED}",
                code="too-many-labels",
            )
        if confusion or (confusion is None and len(order) <= FEW):
            at = {n: row for row, n in enumerate(order)}
            counts = np.zeros((len(order), len(order)), dtype=int)
            np.add.at(
                counts, tuple([at[n] for n in each.tolist()] for each in (wanted, guessed)), 1
            )
            found["confusion"] = {
                "labels": [self.labels[n] for n in order],
                "counts": counts.tolist(),
            }
        return found


def percent(right: Tensor) -> float:
    return 100 * int(right.sum()) / max(len(right), 1)
