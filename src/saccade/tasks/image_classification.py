"""Image classification: one label per picture. B batch, H × W pixels, N positions of the encoder's grid, C classes."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ..data.augment import rotate
from ..data.batches import on
from ..data.corpora import PICTURED
from ..data.image_examples import Picture, Pictured
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.classifiers import ImageClassifier
from ..models.protocols import ImageEncoder
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Seen as SeenPicture
from .image_batches import (
    IMAGES,
    PictureTask,
    Seen,
    Size,
    check_decoded,
    decoded,
    on_device,
    size_of,
    sizes_from,
)
from .label_task import UNLABELED, LabelTask, check_names
from .task import device_of, table


@table.add("image-classification", paper="Dosovitskiy et al. 2021")
class ImageClassification(PictureTask, LabelTask):
    """One label for a picture: a pool makes one vector of those of all positions."""

    needs, data, has_text = ImageEncoder, PICTURED, False
    settings = (
        *IMAGES,
        "training.batch_size",
        "data.rotate_test",
        "training.smoothing",
        "training.agreement",
    )
    label, unit, outcome = "label", "picture", "label"
    text_of = staticmethod(lambda example: example.image.name)
    labels_of = staticmethod(lambda example: None if example.label is None else (example.label,))
    command: ClassVar[str] = "classify {model} picture.png"
    method: ClassVar[str] = 'm.classify("picture.png")'

    def __init__(self, labels: Sequence[str], image_size: Size, rotate_test: int = 0) -> None:
        self.labels, self.image_size, self.rotate_test = (
            check_names(labels),
            image_size,
            rotate_test,
        )
        self.known = {name: n for n, name in enumerate(self.labels)}

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Pictured], given: Vocabulary | None = None
    ) -> Self:
        labels = cls.learn_labels(train)
        if len(labels) > max(20, len(train) // 2):
            what = f"the training data has {len(labels):,} labels for {len(train):,} pictures, nearly one each"
            raise SaccadeError(f"{what}; check that a folder holds the pictures of one label")
        return cls(labels, size_of(recipe, train), recipe.data.rotate_test or 0)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(tokens["labels"], sizes_from(tokens), recipe.data.rotate_test or 0)

    def tokens(self) -> dict[str, Any]:
        return {"labels": self.labels, "image_size": list(self.image_size)}

    def texts(self, examples: Sequence[Pictured]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {}

    def build(self, builder: Builder) -> nn.Module:
        body: ImageEncoder = builder.make(ImageEncoder)
        return ImageClassifier(body, builder.pool(body.dim, 1), len(self.labels), builder.dropout)

    def numbers(self, examples: Sequence[Pictured]) -> list[Seen]:
        wrong = dict[int, str]()
        pixels = decoded([one.image for one in examples], self.image_size, wrong)
        return [
            Seen(x, [], [], self.label_numbers(one, 1), one.line, one, wrong.get(n, ""))
            for n, (x, one) in enumerate(zip(pixels, examples, strict=True))
        ]

    def size(self, example: Seen) -> tuple[int, int]:
        """A picture counts as one token."""
        return 1, 0

    def batch(self, numbers: Sequence[Seen], device: torch.device, multiple: int = 1) -> Batch:
        check_decoded(numbers)
        images = on_device([one.pixels for one in numbers], device)
        [target] = on(device, torch.tensor([one.labels[0] for one in numbers]))
        return Batch((images,), target, UNLABELED, len(numbers), [one.line for one in numbers])

    def evaluate(
        self, model: nn.Module, examples: Sequence[Pictured], confusion: bool | None = None
    ) -> dict[str, Any]:
        """Accuracy, that of always giving the commonest label, and precision, recall and F1 of each label; with `data.rotate_test` also the
        mean accuracy on the rotated pictures."""
        self.check_labeled(examples, more=" to compare with, or use `classify`")
        numbers = self.numbers(examples)
        metrics, guessed, wanted = self.judge(model, numbers)
        metrics |= self.rotated(model, numbers)
        commonest = 100 * float(torch.bincount(wanted).max()) / len(wanted)
        return {
            "pictures": len(wanted),
            **metrics,
            "commonest_label": commonest,
            **self.by_class(guessed, wanted, confusion),
        }

    def rotated(self, model: nn.Module, numbers: Sequence[Seen]) -> dict[str, float]:
        """The mean accuracy over all angles of `data.rotate_test`, if that is given."""
        found = []
        for degrees in range(self.rotate_test, 360, self.rotate_test) if self.rotate_test else ():
            pixels = (
                rotate(one.pixels.unsqueeze(0).float(), degrees)[0].round().byte()
                for one in numbers
            )
            turned = [one._replace(pixels=each) for one, each in zip(numbers, pixels, strict=True)]
            found.append(self.judge(model, turned)[0]["accuracy"])
        return {"rotated_accuracy": sum(found) / len(found)} if found else {}

    @torch.no_grad()
    def classify(
        self, model: nn.Module, images: Sequence[Picture], wrong: dict[int, str] | None = None
    ) -> list[SeenPicture]:
        """Each picture's label; `wrong` gets the numbers of those that cannot be decoded and why, instead of an error."""
        numbers = self.numbers([Pictured(image, None, n) for n, image in enumerate(images, 1)])
        if wrong is not None:
            wrong |= {n: one.wrong for n, one in enumerate(numbers) if one.wrong}
            images = [image for n, image in enumerate(images) if n not in wrong]
            numbers = [one for one in numbers if not one.wrong]
        check_decoded(numbers)
        if not numbers:
            return []
        found = []
        for image, example, [row] in zip(images, numbers, self.logits(model, numbers), strict=True):
            grid = model.body.grid(*self.image_size)  # type: ignore[union-attr, operator]
            weights = model.weights(
                *self.batch([example], device_of(model)).inputs
            )[  # type: ignore[operator]
                0, -math.prod(grid) :
            ]
            probabilities = dict(zip(self.labels, row.softmax(-1).tolist(), strict=True))
            label = max(probabilities, key=probabilities.__getitem__)
            found.append(
                SeenPicture(
                    label, probabilities, image.name, weights.view(grid).double().cpu().numpy()
                )
            )
        return found
