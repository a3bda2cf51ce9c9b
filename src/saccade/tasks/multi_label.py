"""Multi-label classification: any number of labels per text. B batch, N tokens, C labels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.batches import on
from ..data.labeled import Labeled
from ..training.losses import Batch, wide
from ..views.answers import MakeDocument, Numbers, Result
from ..views.html_page import small_table
from .classification import Classification
from .label_task import UNLABELED, Numbered
from .search_options import Option
from .task import Each, percent_of, table

SEPARATORS = "|;,"  # the first of these that a label column has separates its labels
NO_LABEL = "(none)"
THRESHOLD = Option(float, "the probability from which a label is given", 0, 1)


def split_labels(column: str) -> tuple[str, ...]:
    """The labels of a column such as `sport|politics`; a separator alone means no label."""
    sign = next((one for one in SEPARATORS if one in column), SEPARATORS[0])
    return tuple(dict.fromkeys(name.strip() for name in column.split(sign) if name.strip()))


def micro_f1(counts: Any) -> float:
    """F1 in percent of the numbers of hits, of labels given, and of right labels."""
    hits, given, right = counts
    return float(200 * hits / max(given + right, 1))


@dataclass(frozen=True, eq=False, repr=False)
class MultiLabeled(Result):
    """A text's labels, the probability of each label by itself, and how much each piece of the text counted."""

    printed: ClassVar[str] = "label"
    label: str  # all labels, joined
    labels: list[str]
    probabilities: dict[str, float]
    pieces: list[str]
    weights: Numbers
    look: MakeDocument | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def _repr_html_(self) -> str:
        return small_table([(name, f"{p:.3f}") for name, p in self.probabilities.items()])


@dataclass(frozen=True)
class LabelsBatch(Batch):
    """Texts whose labels are wanted (B C of 0 and 1); the loss of a text is the mean binary cross-entropy of its labels."""

    whole: ClassVar[bool] = True

    def wanted(self) -> Tensor:
        return torch.ones(len(self.target), 1, dtype=torch.bool, device=self.target.device)

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        target = torch.cat([self.target] * repeats) * (1 - smoothing) + smoothing / 2
        loss = F.binary_cross_entropy_with_logits(wide(output), target, reduction="none")
        return loss.mean(1)

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return self.losses(output, smoothing, repeats).sum()


@table.add("multi-label", paper="Tsoumakas & Katakis 2007")
class MultiLabel(Classification):
    """Any number of labels for a text, each by a probability of its own; labels are separated by |, ; or , in the label column."""

    settings = tuple(name for name in Classification.settings if name != "training.agreement")
    labels_of = staticmethod(
        lambda example: None if example.label is None else split_labels(example.label)
    )
    measures: ClassVar[dict[str, bool]] = {"loss": False, "micro_f1": True, "exact": True}
    options: ClassVar[dict[str, Callable[[Any], object]]] = {
        "threshold": lambda value: THRESHOLD.check_value("threshold", value)
    }
    predict_options: ClassVar[dict[str, Option]] = {"threshold": THRESHOLD}
    answers = ("label", "labels", "probabilities")
    example_form = "(text, labels)"

    def label_numbers(self, example: Any, count: int) -> list[int]:
        """1 for each label that the example has, 0 for each other one."""
        names = self.labels_of(example)
        if names is None:
            return [UNLABELED] * len(self.labels)
        known = set(super().label_numbers(example, count))
        return [int(n in known) for n in range(len(self.labels))]

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        made = super().batch(numbers, device, multiple)
        [target] = on(device, torch.tensor([one.labels for one in numbers], dtype=torch.float))
        return LabelsBatch(made.inputs, target, UNLABELED, len(numbers), made.lines)

    def judge(
        self,
        model: nn.Module,
        numbers: Sequence[Any],
        budget: int = 8192,
        threshold: float | None = None,
    ) -> tuple[dict[str, float], Tensor, Tensor]:
        """The metrics, the labels that the model gives (B C), and the right ones."""
        logits = torch.cat(self.logits(model, numbers, budget))
        wanted = torch.tensor([one.labels for one in numbers], dtype=torch.float)
        given = logits.sigmoid() >= (0.5 if threshold is None else threshold)
        loss = F.binary_cross_entropy_with_logits(logits, wanted).item()
        return {"loss": loss, **self.scores(given, wanted.bool())}, given, wanted.bool()

    def scores(self, given: Tensor, wanted: Tensor) -> dict[str, float]:
        """F1 over all labels together, the mean of that of each label, and how many texts have exactly the right labels."""
        each = torch.stack([(given & wanted).sum(0), given.sum(0), wanted.sum(0)])
        there = (each[1] + each[2]) > 0
        macro = [micro_f1(counts) for counts in each[:, there].T.tolist()]
        exact = 100 * float((given == wanted).all(1).double().mean())
        found = {"micro_f1": micro_f1(each.sum(1).tolist())}
        return {**found, "macro_f1": sum(macro) / max(len(macro), 1), "exact": exact}

    def evaluate(
        self, model: nn.Module, examples: Sequence[Labeled], threshold: float | None = None
    ) -> dict[str, Any]:
        """Micro and macro F1 and exact matches; those of always giving the labels that more than half of the texts have, or the commonest one;
        precision, recall and F1 of each label."""
        self.check_labeled(examples, more=" to compare with, or use `classify`")
        metrics, given, wanted = self.judge(model, self.numbers(examples), threshold=threshold)
        shares = wanted.double().mean(0)
        usual = (shares > 0.5) | (shares == shares.max())
        control = self.scores(usual.expand_as(wanted), wanted)
        found: dict[str, Any] = {"texts": len(wanted), **metrics}
        found |= {f"{name}_majority": value for name, value in control.items()}
        hits, guessed, right = (one.sum(0).tolist() for one in (given & wanted, given, wanted))
        rows = [
            {
                "label": name,
                "precision": 100 * hit / max(count, 1),
                "recall": 100 * hit / max(there, 1),
                "f1": micro_f1((hit, count, there)),
                "support": there,
            }
            for name, hit, count, there in zip(self.labels, hits, guessed, right, strict=True)
        ]
        return {**found, "classes": sorted(rows, key=lambda row: -int(row["support"]))}

    def per_example(self, model: nn.Module, examples: Sequence[Labeled], **options: Any) -> Each:
        """Hits, labels given and right labels of each text; and whether all are right."""
        _, given, wanted = self.judge(model, self.numbers(examples), **options)
        rows = [
            (one.text, one.label or "", self.joined(row))
            for one, row in zip(examples, given, strict=True)
        ]
        counts = torch.stack([(given & wanted).sum(1), given.sum(1), wanted.sum(1)], 1)
        exact = torch.stack([(given == wanted).all(1).long(), torch.ones(len(given)).long()], 1)
        both = (("micro_f1", counts, micro_f1), ("exact", exact, percent_of))
        return Each(rows, {name: (x.numpy().astype(np.float64), of) for name, x, of in both})

    def joined(self, given: Tensor) -> str:
        names = [name for name, there in zip(self.labels, given.tolist(), strict=True) if there]
        return " | ".join(names) or NO_LABEL

    @torch.no_grad()
    def predict(  # type: ignore[override]
        self, model: nn.Module, texts: Sequence[str], threshold: float = 0.5
    ) -> Iterator[tuple[int, MultiLabeled]]:
        """The labels of each text whose probability is at least the threshold."""
        numbers = self.numbers([Labeled(text, None, n) for n, text in enumerate(texts, 1)])
        both = zip(self.weights(model, numbers), self.logits(model, numbers), strict=True)
        for n, (text, (weights, [row])) in enumerate(zip(texts, both, strict=True)):
            chances = dict(zip(self.labels, row.sigmoid().tolist(), strict=True))
            labels = [name for name, chance in chances.items() if chance >= threshold]
            pieces = [*self.text.label_text(text), self.text.token(self.text.eos)]
            label, looked = " | ".join(labels) or NO_LABEL, weights[: len(pieces)].numpy()
            yield n, MultiLabeled(label, labels, chances, pieces, looked)
