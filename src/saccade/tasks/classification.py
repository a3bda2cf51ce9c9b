"""Classification: one label a text. B batch, N tokens, C classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..data.batches import on, pad_rows
from ..data.corpora import labeled
from ..data.labeled import Labeled
from ..data.vocabulary import EOS, PAD, Vocabulary
from ..errors import SaccadeError
from ..models.labels import Classifier
from ..recipe import Recipe
from ..training.losses import model_loss, token_loss
from .reading import rows_of
from .task import Builder, ExampleWork, Labels, LabelTask, WrongExample, in_batches, learned_vocabulary, table

Numbered = tuple[list[list[int]], int, int]
UNLABELED = -100


@dataclass(frozen=True)
class TextBatch:
    """Texts ending in <eos>, and the number of each one's label."""

    read: Tensor
    lengths: Tensor
    wanted: Tensor
    tokens: int
    lines: Sequence[int]


@dataclass(frozen=True)
class Classified:
    """A text's label, the probability of each, and how much each of its pieces counted."""

    label: str
    probabilities: dict[str, float]
    pieces: list[str]
    weights: list[float]


@table.add("classification", paper="Yang et al. 2016", system="T4")
class Classification(LabelTask):
    """One label for a text: its vectors are put together by a pool, whose weights say what counted."""

    outcome: ClassVar[str] = "label"
    command: ClassVar[str] = 'classify {model} "your text"'

    @classmethod
    def read(cls, recipe: Recipe, where: str) -> list[Labeled]:
        return labeled(where, recipe.data.options(where))

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Labeled], given: Vocabulary | None = None) -> Self:
        all_labeled(train, "of the training data has no label; give every text one")
        labels = Labels.of((one.label for one in train if one.label is not None), "label")
        if len(labels) > max(20, len(train) // 2):
            raise SaccadeError(
                f"the training data has {len(labels):,} labels for {len(train):,} texts, nearly one each; is the label in its place? "
                "(a .tsv line is text<TAB>label)"
            )
        return cls(learned_vocabulary(recipe, (one.text for one in train), given), labels)

    def texts(self, examples: Sequence[Labeled]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {"text": (self.text, [one.text for one in examples])}

    def build(self, builder: Builder) -> nn.Module:
        body = builder.body(len(self.text))
        self.reads_bytes = body.embedding.reads_bytes
        return Classifier(body, builder.pool(body.dim, len(self.text)), len(self.labels), builder.dropout)

    def prepare(self, model: nn.Module, train: Sequence[Labeled]) -> None:
        """TF-IDF weights count in how many training texts a token occurs."""
        assert isinstance(model, Classifier)
        model.pool.prepare([*ids, EOS] for ids in self.text.encode_ids([one.text for one in train]))

    def work(self, recipe: Recipe, train: Sequence[Labeled], dev: Sequence[Labeled], device: torch.device) -> ExampleWork:
        all_labeled(dev, "of the dev data has no label; give every text one")
        return ExampleWork(self, recipe, train, dev, device)

    def numbers(self, examples: Sequence[Labeled]) -> list[Numbered]:
        """Texts as rows of numbers (a token's own, and its bytes where the model reads them), label and line."""
        rows = rows_of(self.text, [one.text for one in examples], self.reads_bytes)
        return [
            (row, UNLABELED if one.label is None else self.labels.number(one.label, one.line, "label"), one.line)
            for row, one in zip(rows, examples, strict=True)
        ]

    def size(self, example: Numbered) -> tuple[int, int]:
        return len(example[0]), 0

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> TextBatch:
        read, lengths = pad_rows([rows for rows, _, _ in numbers], PAD, multiple)
        wanted = torch.tensor([label for _, label, _ in numbers])
        read, lengths, wanted = on(device, read, lengths, wanted)
        return TextBatch(read, lengths, wanted, len(numbers), [line for _, _, line in numbers])

    def loss(self, model: nn.Module, batch: TextBatch, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor:
        """The summed loss of a batch of texts."""
        return model_loss(model, (batch.read, batch.lengths), batch.wanted, UNLABELED, smoothing, agreement)

    @torch.no_grad()
    def logits(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> Tensor:
        """Of all examples, in their order, on the CPU: E C."""
        model.eval()
        device, found = next(model.parameters()).device, torch.zeros(len(numbers), len(self.labels))
        for indices, some in in_batches(self, numbers, budget):
            batch = self.batch(some, device)
            found[torch.tensor(indices)] = model(batch.read, batch.lengths).float().cpu()
        return found

    def figures(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> dict[str, float]:
        """Loss a text and the share of right labels, in percent."""
        return told(self.logits(model, numbers, budget), torch.tensor([label for _, label, _ in numbers]))

    def evaluate(self, model: nn.Module, examples: Sequence[Labeled]) -> dict[str, Any]:
        """Accuracy, the mean F1 of the labels that are there or were guessed, and what always giving the commonest would reach."""
        all_labeled(examples, "has no label to compare with; give every text one, or use `classify`")
        numbers = self.numbers(examples)
        logits, wanted = self.logits(model, numbers), torch.tensor([label for _, label, _ in numbers])
        guessed = logits.argmax(-1)
        there, given = (torch.bincount(each, minlength=len(self.labels)) for each in (wanted, guessed))
        hits = torch.bincount(wanted[guessed == wanted], minlength=len(self.labels))
        f1 = 2 * hits.double() / (there + given)  # 0 / 0 for a label that neither stands there nor was guessed: it has no F1
        return {
            "texts": len(numbers),
            **told(logits, wanted),
            "f1": 100 * float(f1.nanmean()),
            "commonest_label": 100 * float(there.max()) / len(numbers),
        }

    @torch.no_grad()
    def classify(self, model: nn.Module, texts: Sequence[str]) -> list[Classified]:
        """Each text's label, with the weight of each piece."""
        numbers = self.numbers([Labeled(text, None, n) for n, text in enumerate(texts, 1)])
        logits, device = self.logits(model, numbers), next(model.parameters()).device
        found = []
        for text, example, row in zip(texts, numbers, logits.softmax(-1).tolist(), strict=True):
            batch = self.batch([example], device)
            weights = model.weights(batch.read, batch.lengths)[0].float().cpu().tolist()  # type: ignore[operator]
            pieces = self.text.encode(text).pieces
            best = max(range(len(row)), key=row.__getitem__)
            chances = dict(zip(self.labels.names, row, strict=True))
            found.append(Classified(self.labels.names[best], chances, [*pieces, "<eos>"], weights[: len(pieces) + 1]))
        return found

    def look(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        """Reads a text; its tokens, and the label they got."""
        found = self.classify(model, [text])[0]
        return found.pieces, found.label


def told(logits: Tensor, wanted: Tensor) -> dict[str, float]:
    """Loss a text and the share of right labels, in percent; logits E C, labels E."""
    right, count = int((logits.argmax(-1) == wanted).sum()), max(len(wanted), 1)
    return {"loss": float(token_loss(logits, wanted, UNLABELED)) / count, "accuracy": 100 * right / count}


def all_labeled(examples: Sequence[Labeled], sentence: str) -> None:
    """Raises at the first text without a label."""
    bare = next((one for one in examples if one.label is None), None)
    if bare is not None:
        raise WrongExample(f"line {bare.line} {sentence}")
