"""Classification: one label per text. B batch, N tokens, C classes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..data.batches import on, pad_rows
from ..data.corpora import LABELED
from ..data.labeled import Labeled
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.classifiers import Classifier
from ..training.losses import Batch
from ..views.answers import Classified
from ..views.document import Document
from ..views.long_texts import Found
from .attention_sites import Read, attention_of_reading
from .label_task import UNLABELED, LabelTask, Numbered, make_rows
from .task import device_of, one_text, table, without_trees


@table.add("classification", paper="Yang et al. 2016")
class Classification(LabelTask):
    """One label for a text: a pool makes one vector of its tokens' vectors, and the pool's weights show what counted."""

    data = LABELED
    label, unit = "label", "text"
    text_of = staticmethod(lambda example: example.text)
    labels_of: Callable[[Any], Sequence[str] | None] = staticmethod(
        lambda example: None if example.label is None else (example.label,)
    )
    outcome: ClassVar[str] = "label"
    command: ClassVar[str] = 'classify {model} "your text"'
    method: ClassVar[str] = 'm.classify("your text")'
    verbs, routes = ("classify",), ("classify",)
    answers: ClassVar[tuple[str, ...]] = ("label", "probabilities")
    example_types, example_form = (Labeled,), "(text, label)"

    few_labels = (
        "check that a .tsv line is text<TAB>label, or train pairs of texts with task: translation"
    )

    def build(self, builder: Builder) -> nn.Module:
        body = without_trees(self.encoder(builder))
        return Classifier(
            body, builder.pool(body.dim, len(self.text)), len(self.labels), builder.dropout
        )

    def numbers(self, examples: Sequence[Labeled]) -> list[Numbered]:
        """Each text's tokens and <eos>, its label and line."""
        texts, eos = [one.text for one in examples], self.text.eos
        end = self.text.token(eos)
        if self.reads_bytes:
            rows = [
                make_rows([*one.ids, eos], [*one.pieces, end], True)
                for one in self.text.encode_batch(texts)
            ]
        else:  # twice as fast
            rows = [make_rows([*ids, eos], (), False) for ids in self.text.encode_ids(texts)]
        return [
            Numbered(row, self.label_numbers(one, 1), one.line)
            for row, one in zip(rows, examples, strict=True)
        ]

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        tokens, lengths = pad_rows([one.rows for one in numbers], self.text.pad, multiple)
        tokens, lengths, target = on(
            device, tokens, lengths, torch.tensor([one.labels[0] for one in numbers])
        )
        return Batch(
            (tokens, lengths), target, UNLABELED, len(numbers), [one.line for one in numbers]
        )

    @torch.no_grad()
    def predict(self, model: nn.Module, texts: Sequence[str]) -> Iterator[tuple[int, Classified]]:
        """The label of each text, with the weights of its pieces."""
        numbers = self.numbers([Labeled(text, None, n) for n, text in enumerate(texts, 1)])
        both = zip(self.weights(model, numbers), self.logits(model, numbers), strict=True)
        for n, (text, (weights, [row])) in enumerate(zip(texts, both, strict=True)):
            label, probabilities = self.likeliest(row)
            pieces = [*self.text.label_text(text), self.text.token(self.text.eos)]
            yield n, Classified(label, probabilities, pieces, weights[: len(pieces)].numpy())

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """What the label was pooled from, and all attention inside the encoder."""
        self.refuse_target(target)

        def read(text: str) -> Read:
            [(_, one)] = self.predict(model, [text])
            pool = torch.as_tensor(one.weights)[None, None]
            return (
                one.pieces,
                one.label,
                [Found("pool", [one.label], one.pieces, 1, lambda _: pool)],
            )

        return attention_of_reading(model, one_text(given), read, self.outcome, how.get("only"))

    @torch.no_grad()
    def weights(
        self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192
    ) -> list[Tensor]:
        """How much each position of each example counts for its label, in the examples' order."""
        model.eval()
        found = [torch.zeros(0)] * len(numbers)
        for indices, batch in self.batches(numbers, device_of(model), budget):
            weights = model.weights(*batch.inputs).double().cpu()  # type: ignore[operator]
            for n, row in zip(indices, weights, strict=True):
                found[n] = row
        return found

    def effects(self, model: nn.Module, text: str, label: str) -> list[tuple[str, float]]:
        """Each word, and by how much the label's probability falls when that word is left out (Li et al. 2016)."""
        words = text.split()
        if len(words) < 2:
            raise SaccadeError(
                f"'{text}' has {len(words)} word, and an effect is seen by leaving one out; give two or more",
                code="text-too-short",
            )
        without = [" ".join(words[:n] + words[n + 1 :]) for n in range(len(words))]
        chances = [one.probabilities for _, one in self.predict(model, [text, *without])]
        if label not in chances[0]:  # several labels, or none: the likeliest
            label = max(chances[0], key=lambda name: chances[0][name])
        whole, *less = (each[label] for each in chances)
        return [(word, whole - chance) for word, chance in zip(words, less, strict=True)]
