"""Image classification: one label per picture. B batch, H × W pixels, N positions of the encoder's grid, C classes."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ..core import sites as attention_sites
from ..data.augment import rotate
from ..data.batches import on
from ..data.corpora import PICTURED
from ..data.image_examples import Picture, Pictured
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.attention_maps import grad_cam
from ..models.builder import Builder
from ..models.classifiers import ImageClassifier
from ..models.protocols import ImageEncoder
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Seen as SeenPicture
from ..views.document import Document, Site
from ..views.selection import is_flat
from .attention_sites import sites_inside
from .image_batches import (
    IMAGES,
    PictureTask,
    Seen,
    Size,
    check_decoded,
    decoded,
    on_device,
    one_picture,
    pictured_of,
    size_of,
    sizes_from,
)
from .label_task import UNLABELED, LabelTask, check_names
from .task import device_of, table

GRAD_CAM = "Grad-CAM"


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
    few_labels = "check that a folder holds the pictures of one label"
    text_of = staticmethod(lambda example: example.image.name)
    labels_of = staticmethod(lambda example: None if example.label is None else (example.label,))
    command: ClassVar[str] = "classify {model} picture.png"
    method: ClassVar[str] = 'm.classify("picture.png")'
    verbs, routes, answers = ("classify",), ("classify",), ("label", "probabilities")
    example = staticmethod(pictured_of)
    attending = "vit, swin, or cnn with model.stage_attention=cbam"

    def __init__(self, labels: Sequence[str], image_size: Size, rotate_test: int = 0) -> None:
        self.labels, self.image_size = check_names(labels), image_size
        self.rotate_test = rotate_test
        self.known = {name: n for n, name in enumerate(self.labels)}

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Pictured], given: Vocabulary | None = None
    ) -> Self:
        return cls(cls.learn_labels(train), size_of(recipe, train), recipe.data.rotate_test or 0)

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
        """The metrics of labels; with `data.rotate_test` also the mean accuracy on the rotated pictures."""
        found = super().evaluate(model, examples, confusion)
        return found | (self.rotated(model, self.numbers(examples)) if self.rotate_test else {})

    def rotated(self, model: nn.Module, numbers: Sequence[Seen]) -> dict[str, float]:
        """The mean accuracy over all angles of `data.rotate_test`, if that is given."""
        found = []
        for degrees in range(self.rotate_test, 360, self.rotate_test):
            pixels = (
                rotate(one.pixels.unsqueeze(0).float(), degrees)[0].round().byte()
                for one in numbers
            )
            turned = [one._replace(pixels=each) for one, each in zip(numbers, pixels, strict=True)]
            found.append(self.judge(model, turned)[0]["accuracy"])
        return {"rotated_accuracy": sum(found) / len(found)}

    @torch.no_grad()
    def predict(
        self, model: nn.Module, images: Sequence[Picture]
    ) -> Iterator[tuple[int, SeenPicture]]:
        """Each picture's label, and how much each position counted."""
        if not images:
            return
        numbers = self.numbers([Pictured(image, None, n) for n, image in enumerate(images, 1)])
        check_decoded(numbers)
        found = zip(images, numbers, self.logits(model, numbers), strict=True)
        for n, (image, example, [row]) in enumerate(found):
            grid = model.body.grid(*self.image_size)  # type: ignore[union-attr, operator]
            weights = model.weights(
                *self.batch([example], device_of(model)).inputs
            )[  # type: ignore[operator]
                0, -math.prod(grid) :
            ]
            label, probabilities = self.likeliest(row)
            where = weights.view(grid).double().cpu().numpy()
            yield n, SeenPicture(label, probabilities, image.name, where)

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """All layers together, each by itself, and what the label was pooled from; where no layer attends from positions to positions, first
        Grad-CAM of its label."""
        image = one_picture(given)
        if target is not None:
            raise SaccadeError(
                f"a model of {table.name_of(self)} reads no text with its picture; leave the text out",
                code="no-target",
            )
        [(_, seen)] = self.predict(model, [image])
        label, at = [seen.label], seen.weights.shape
        pixels = self.batch(self.numbers([Pictured(image)]), device_of(model)).inputs[0]
        sites = sites_inside(model.body, pixels, model.weights(pixels)[0], seen.label)  # type: ignore[arg-type, operator]
        offset = model.body.offset(*self.image_size, *at)  # type: ignore[union-attr, operator]
        if not attention_sites(model.body):  # type: ignore[arg-type]
            found = grad_cam(model, pixels, self.labels.index(seen.label))  # type: ignore[arg-type]
            if found.any():
                cam = Site.over_picture(GRAD_CAM, label, found.view(1, 1, -1), found.shape, offset)
                sites.insert(0, cam)
        pool = seen.weights.ravel()
        if not is_flat(pool.tolist()):
            sites.append(Site.over_picture("pool", label, [[pool]], at, offset))
        return self.seen_document(image, label, sites)
