"""Questions about a picture, answered with one of the answers seen in training. B batch, N tokens, P pictures, C answers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import nn

from ..core import record
from ..core.record import source_weights
from ..data.archives import Filed
from ..data.batches import on, pad_rows, rounded
from ..data.corpora import ASKED, read
from ..data.image_examples import Asked, Picture
from ..data.lines import one_file
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.classifiers import Answerer
from ..models.protocols import LookingEncoder
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Answered
from ..views.document import Document, Site
from .attention_sites import sites_over
from .image_batches import (
    PictureTask,
    PictureWork,
    Size,
    check_decoded,
    decoded,
    divide_pictures,
    on_device,
    one_picture,
    size_of,
    sizes_from,
)
from .label_task import UNLABELED, LabelTask, Numbered, make_rows, percent
from .task import ExampleWork, device_of, from_tokens, items, learn_vocabulary, table

MOST_KINDS = 12  # of questions whose accuracy is reported; more would be noise


class SharedPlans:
    """Every question once, in batches with longest question × count ≤ budget that have all questions about a picture, so that it is read
    once for all of them; a function of (seed, epoch) alone.

    Pictures come in any order: with as many questions alike they would be alike themselves, and batch norms would learn wrong means.
    """

    def __init__(self, numbers: Sequence[Numbered], budget: int, multiple: int = 1) -> None:
        self.budget, self.groups = budget, list[list[int]]()
        about: dict[int, list[int]] = defaultdict(list)
        for n, one in enumerate(numbers):
            about[id(one.pixels)].append(n)
        self.lengths = [rounded(len(one.rows), multiple) for one in numbers]
        for questions in about.values():
            most = max(1, budget // max(self.lengths[n] for n in questions))
            self.groups += [
                questions[start : start + most] for start in range(0, len(questions), most)
            ]

    def __call__(self, seed: int, epoch: int) -> list[list[int]]:
        order = np.argsort(
            np.random.PCG64([seed, epoch]).random_raw(len(self.groups)), kind="stable"
        )
        batches: list[list[int]] = []
        longest = 0
        for group in (self.groups[n] for n in order.tolist()):
            here = max(self.lengths[n] for n in group)
            longest = max(longest, here)
            if batches and longest * (len(batches[-1]) + len(group)) <= self.budget:
                batches[-1].extend(group)
            else:
                batches.append(list(group))
                longest = here
        return batches


class QuestionWork(PictureWork):
    """Training in batches whose questions share pictures."""

    def __init__(self, task: PictureTask, recipe: Recipe, *given: Any) -> None:
        super().__init__(task, recipe, *given)
        if self.mixes:
            raise SaccadeError(
                "data.augment.mixup and cutmix mix two pictures, and a question is about one; leave them out",
                code="mixing-not-supported",
            )
        self.shared = SharedPlans(self.examples, self.tokens, self.multiple)

    def epoch(self, epoch: int) -> Sequence[list[int]]:
        return self.shared(self.seed, epoch)


class AboutPictures(PictureTask):
    """What tasks with questions about pictures share."""

    fields, looks = ("image", "question"), ("image", "text")
    verbs, routes = ("answer",), ("answer",)
    answers: ClassVar[tuple[str, ...]] = ("answer", "probabilities")
    example_types, example_form = (Asked,), "(image, question, answer)"
    outcome: ClassVar[str] = "answer"
    command: ClassVar[str] = 'answer {model} picture.png "your question"'
    method: ClassVar[str] = 'm.answer("picture.png", "your question")'
    closed = False
    # All attention of a question to its picture, given the picture, the question and the model's answer.
    sites_of_answer: Callable[[nn.Module, Picture, str, str], list[Site]]

    @classmethod
    def from_values(cls, parts: Sequence[Any], line: int) -> Asked:
        return Asked(*asked_of(parts[:2], line), str(parts[2]), line)

    @classmethod
    def divide(cls, examples: list[Asked], share: float) -> tuple[list[Asked], list[Asked]]:
        return divide_pictures(super().divide, examples, share)

    def inputs(self, given: Any) -> tuple[list[tuple[Picture, str]], bool]:
        """Pairs of a picture (or its file) and a question about it."""
        alone = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)
        each = [given] if alone else items(given, "m.answer([(image, question), …])")
        return [asked_of(one, n) for n, one in enumerate(each, 1)], alone

    def read_inputs(self, recipe: Recipe, where: str) -> Iterator[tuple[Picture, str]]:
        """Images are beside the file, wherever those of the training data are."""
        found = read(self.data, where, recipe.data.options_of(where))
        return ((one.image, one.question) for one in found)

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """All attention of a question to its picture while the model answers it: `given` is the picture, `target` the question."""
        image, question = one_picture(given), target
        if question is None or not question.strip():
            raise SaccadeError(
                "a model that answers questions looks for a question's words; give the question after the image",
                code="no-question",
            )
        [(_, found)] = self.predict(model, [(image, question)])
        sites = self.sites_of_answer(model, image, question, found.answer)
        outcome = [found.answer] if self.closed else found.answer.split()
        return self.seen_document(image, outcome, sites, ("question", question))


@table.add("questions", paper="Antol et al. 2015 (VQA)")
class Questions(AboutPictures, LabelTask):
    """An answer to a question about a picture: the question's words attend to the picture, and a pool makes one vector of them."""

    needs, data, worker, at = LookingEncoder, ASKED, QuestionWork, 2
    label, unit = "answer", "question"
    text_of = staticmethod(lambda example: example.question)
    labels_of = staticmethod(lambda example: None if example.answer is None else (example.answer,))
    closed = True  # one of the answers seen in training
    few_labels = "expected a closed set of answers, such as yes, no and colors"

    def __init__(
        self,
        text: Vocabulary,
        labels: Sequence[str],
        image_size: Size,
        blind: dict[str, int],
        commonest: int = 0,
    ) -> None:
        """`commonest`: the answer that training saw most; `blind`: the one of each question that has another."""
        super().__init__(text, labels)
        self.image_size, self.blind, self.commonest = image_size, blind, commonest

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Asked], given: Vocabulary | None = None) -> Self:
        labels = cls.learn_labels(train)
        known = {name: n for n, name in enumerate(labels)}
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for one in train:
            counts[one.question][known[str(one.answer)]] += 1
        commonest = most_of(sum(counts.values(), Counter[int]()))
        blind = {
            question: most
            for question, found in counts.items()
            if (most := most_of(found)) != commonest
        }
        vocabulary = learn_vocabulary(recipe, map(cls.text_of, train), given)
        return cls(vocabulary, labels, size_of(recipe, train), blind, commonest)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        blind, commonest = tokens.get("blind", {}), tokens.get("commonest", 0)
        if not all(
            type(n) is int and 0 <= n < len(tokens["labels"]) for n in (commonest, *blind.values())
        ):
            raise TypeError("answers must be numbers of labels")
        return cls(
            from_tokens(tokens, "text"), tokens["labels"], sizes_from(tokens), blind, commonest
        )

    def tokens(self) -> dict[str, Any]:
        learned = {
            "image_size": list(self.image_size),
            "blind": self.blind,
            "commonest": self.commonest,
        }
        return {**super().tokens(), **learned}

    def build(self, builder: Builder) -> nn.Module:
        body: LookingEncoder = builder.make(LookingEncoder, builder.image_encoder(), len(self.text))
        self.reads_bytes = body.embedding.reads_bytes
        return Answerer(
            body, builder.pool(body.dim, len(self.text)), len(self.labels), builder.dropout
        )

    def work(
        self, recipe: Recipe, train: Sequence[Asked], dev: Sequence[Asked], device: torch.device
    ) -> ExampleWork:
        return LabelTask.work(self, recipe, train, dev, device)

    def numbers(self, examples: Sequence[Asked]) -> list[Numbered]:
        """Each question's tokens and <eos>, its answer and line, and its picture, which is decoded once."""
        pictures = list(dict.fromkeys(one.image for one in examples))
        wrong = dict[int, str]()
        pixels = dict(zip(pictures, decoded(pictures, self.image_size, wrong), strict=True))
        why = {pictures[n]: reason for n, reason in wrong.items()}
        end = self.text.token(self.text.eos)
        encoded = self.text.encode_batch([one.question for one in examples])
        rows = [
            make_rows([*one.ids, self.text.eos], [*one.pieces, end], self.reads_bytes)
            for one in encoded
        ]
        together = zip(rows, examples, strict=True)
        return [
            Numbered(
                row,
                self.label_numbers(one, 1),
                one.line,
                pixels=pixels[one.image],
                wrong=why.get(one.image, ""),
            )
            for row, one in together
        ]

    def batches(
        self, numbers: Sequence[Numbered], device: torch.device, budget: int
    ) -> Iterator[tuple[list[int], Batch]]:
        for indices in SharedPlans(numbers, budget)(0, 0):
            yield indices, self.batch([numbers[n] for n in indices], device)

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        """Tokens (B N), lengths (B), pictures (P 3 H W), and the number of each question's picture (B)."""
        check_decoded(numbers)
        pictures = {id(one.pixels): one.pixels for one in numbers if one.pixels is not None}
        places = {name: n for n, name in enumerate(pictures)}
        which = torch.tensor([places[id(one.pixels)] for one in numbers])
        tokens, lengths = pad_rows([one.rows for one in numbers], self.text.pad, multiple)
        answers = torch.tensor([one.labels[0] for one in numbers])
        tokens, lengths, which, target = on(device, tokens, lengths, which, answers)
        inputs = tokens, lengths, on_device([*pictures.values()], device), which
        return Batch(inputs, target, UNLABELED, len(numbers), [one.line for one in numbers])

    def evaluate(
        self, model: nn.Module, examples: Sequence[Asked], confusion: bool | None = None
    ) -> dict[str, Any]:
        """Accuracy; that of answers without the picture, the commonest one to the same question in training; that of each kind of question,
        as its first two words say; and precision, recall and F1 of each answer."""
        self.check_labeled(examples, more=" to compare with, or use `answer`")
        metrics, guessed, wanted = self.judge(model, self.numbers(examples), 4096)
        blind = torch.tensor([self.blind.get(one.question, self.commonest) for one in examples])
        found = {"questions": len(wanted), **metrics, "blind_accuracy": percent(blind == wanted)}
        kinds: dict[str, list[int]] = defaultdict(list)
        for n, one in enumerate(examples):
            kinds["_".join(one.question.lower().split()[:2])].append(n)
        if len(kinds) <= MOST_KINDS:
            found |= {
                f"accuracy_{kind}": percent((guessed == wanted)[numbers])
                for kind, numbers in sorted(kinds.items())
            }
        return {**found, **self.by_class(guessed, wanted, confusion)}

    def sites_of_answer(
        self, model: nn.Module, image: Picture, question: str, answer: str
    ) -> list[Site]:
        batch = self.batch(self.numbers([Asked(image, question)]), device_of(model))
        rows = self.pieces_of(question)
        return sites_over(model, model.body.image, batch.inputs, self.at, rows, rows)  # type: ignore[arg-type, union-attr]

    def pieces_of(self, question: str) -> list[str]:
        return [*self.text.label_text(question), self.text.token(self.text.eos)]

    @torch.no_grad()
    def predict(
        self, model: nn.Module, asked: Sequence[tuple[Picture, str]]
    ) -> Iterator[tuple[int, Answered]]:
        """The answers to questions about pictures; questions about one picture are read together."""
        model.eval()
        examples = [Asked(image, question, None, n) for n, (image, question) in enumerate(asked, 1)]
        numbers, grid = self.numbers(examples), model.body.image.grid(*self.image_size)  # type: ignore[union-attr, operator]
        for indices, batch in self.batches(numbers, device_of(model), 2048):
            with record(model, quiet=True) as seen:
                logits = model(*batch.inputs)
            weights = source_weights(seen).double().cpu().numpy()
            for n, chances, looks in zip(indices, logits.float().cpu(), weights, strict=True):
                one, (best, probabilities) = examples[n], self.likeliest(chances)
                pieces = self.pieces_of(one.question)
                where = looks[: len(pieces)].reshape(-1, *grid)
                name = one.image.name
                yield n, Answered(best, probabilities, one.question, name, pieces, where)


def most_of(counts: Counter[int]) -> int:
    """The commonest, of several the first of the alphabet."""
    return min(counts, key=lambda n: (-counts[n], n))


def asked_of(one: Any, n: int) -> tuple[Picture, str]:
    """A picture, or that of a file, and a question about it."""
    if not (
        isinstance(one, tuple | list)
        and len(one) == 2
        and isinstance(one[0], str | Path | Picture)
        and isinstance(one[1], str)
    ):
        raise SaccadeError(
            f"question {n} is {str(one)[:60]!r}; expected an image's path and a question, both as text",
            code="wrong-input",
        )
    if not one[1].strip():
        raise SaccadeError(
            f"question {n} is empty; ask something, such as 'what color is the shape?'",
            code="empty-question",
        )
    return one[0] if isinstance(one[0], Picture) else Filed(one_file(one[0], "an image file")), one[
        1
    ]
