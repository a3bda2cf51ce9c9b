"""What tasks with pictures share: their size, decoding once, batches on the device, and random changes in training. B batch, H × W pixels."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..data.archives import pictures_in
from ..data.augment import Augment
from ..data.batches import on
from ..data.image_examples import Picture, Pictured, stack
from ..errors import SaccadeError
from ..recipe import Recipe
from ..settings import AUTO, fixed
from ..training.losses import Batch, MixedBatch
from ..views.document import Document, Site
from .attention_sites import visible_pixels
from .task import ExampleTask, ExampleWork

DAMAGED = "with an image that cannot be read"
LARGEST = 1024  # height and width of what a model reads, as in the range of `data.image_size`
ROOM = 0.1  # of a GPU's free memory, which the pictures of a training may take
FEW = 20  # of the first pictures, one must be readable
Size = tuple[int, int]  # height and width in pixels


class Seen(NamedTuple):
    """An example in numbers: its pixels (bytes, 3 H W), the tokens that are read and generated besides, its labels, and where it is from."""

    pixels: Tensor
    read: list[int]
    target: list[int]
    labels: list[int]
    line: int
    example: Any
    wrong: str = ""  # why the picture cannot be decoded


def size_of(recipe: Recipe, examples: Sequence[Any]) -> Size:
    """The height and width of all pictures of a model: `data.image_size`, or those of the first one, at most `LARGEST`."""
    if (size := recipe.data.image_size) != AUTO:
        return fixed(size), fixed(size)
    for n, one in enumerate(examples):
        try:
            _, height, width = one.image.pixels().shape
            scale = min(1.0, LARGEST / max(height, width))
            return max(1, round(height * scale)), max(1, round(width * scale))
        except SaccadeError:
            if n == min(len(examples), FEW) - 1:
                raise
    raise SaccadeError("there are no pictures to train on; give at least one", code="no-images")


def sizes_from(tokens: dict[str, Any]) -> Size:
    """The size that a model folder names."""
    height, width = tokens.get("image_size", (32, 32))
    if not (type(height) is type(width) is int and 0 < height <= LARGEST and 0 < width <= LARGEST):
        raise SaccadeError(
            f"the model folder has pictures of {height!r} × {width!r} pixels; copy it again",
            code="folder-damaged",
        )
    return height, width


def decoded(
    images: Sequence[Picture], size: Size, wrong: dict[int, str] | None = None
) -> Sequence[Tensor]:
    """The pixels of pictures, each decoded once; `wrong` as for `stack`."""
    return stack(images, size, wrong).unbind(0)


def check_decoded(numbers: Sequence[Any]) -> None:
    """Raises the sentence about the first picture that cannot be decoded."""
    bad = next((one.wrong for one in numbers if one.wrong), None)
    if bad is not None:
        raise SaccadeError(bad, code="image-shape")


def on_device(pixels: Sequence[Tensor], device: torch.device) -> Tensor:
    """B 3 H W, floats from 0 to 1."""
    together = torch.stack(list(pixels))
    if device.type == "cuda" and not together.is_cuda:
        [together] = on(device, together)
    return together.float().div_(255)


def kept_there(examples: list[Any], device: torch.device) -> list[Any]:
    """The examples with their pixels on a GPU where all of them fit, so that no batch is copied there; else as they are."""
    if device.type != "cuda" or not torch.cuda.is_available() or not examples:
        return examples
    size, (free, _) = len(examples) * examples[0].pixels.numel(), torch.cuda.mem_get_info(device)
    if size > ROOM * free:
        return examples
    together = torch.stack([one.pixels for one in examples]).to(device)
    return [
        one._replace(pixels=pixels)
        for one, pixels in zip(examples, together.unbind(0), strict=True)
    ]


def divide_pictures(
    divide: Callable[[list[Any], float], tuple[list[Any], list[Any]]],
    examples: list[Any],
    share: float,
) -> tuple[list[Any], list[Any]]:
    """Pictures are held out with all their questions: another question about a known picture would say less."""
    kept, _ = divide(list(dict.fromkeys(one.image for one in examples)), share)
    known = set(kept)
    return [one for one in examples if one.image in known], [
        one for one in examples if one.image not in known
    ]


IMAGES = ("data.images", "data.image_size", "data.augment")  # the settings of all such tasks


def pictures_of(given: Any, call: str) -> tuple[list[Picture], bool]:
    """Pictures by themselves or by their paths, a folder being all in it; and whether one was asked for by itself."""
    if isinstance(given, Picture):
        return [given], True
    if isinstance(given, str | Path):
        return pictures_in(given), not os.path.isdir(os.path.expanduser(given))
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise SaccadeError(
            f"expected the path of an image file, got {type(given).__name__}; write {call}",
            code="wrong-input",
        )
    return [picture for one in given for picture in pictures_of(one, call)[0]], False


def pictured_of(values: Any, line: int) -> Pictured:
    """A picture from the path of its file, or from (path, label)."""
    parts = values if isinstance(values, list | tuple) else [values]
    if isinstance(values, Pictured):
        return values
    if not 1 <= len(parts) <= 2 or not isinstance(parts[0], str | os.PathLike):
        what = f"example {line} is {str(values)[:60]!r}"
        raise SaccadeError(
            f"{what}; expected (image file, label), or an image file alone", code="wrong-example"
        )
    label = str(parts[1]) if len(parts) > 1 else None
    return Pictured(pictures_in(os.fspath(parts[0]))[0], label, line)


def one_picture(given: Any) -> Picture:
    """The picture to look at, or that of a file."""
    [image, *more], alone = pictures_of(given, 'm.look("picture.png")')
    if more or not alone:
        raise SaccadeError(
            f"'{given}' is a folder of pictures; look at one at a time", code="several-pictures"
        )
    return image


class PictureTask(ExampleTask):
    """A task whose examples have a picture; where a model takes it among its inputs is `at`."""

    at = 0
    settings = (*ExampleTask.settings, *IMAGES)
    fields: ClassVar[tuple[str, ...]] = ("image",)
    looks: ClassVar[tuple[str, ...]] = ("image",)
    attending: ClassVar[str] = "bahdanau"
    outcome: ClassVar[str]
    image_size: Size

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.images,)

    def inputs(self, given: Any) -> tuple[list[Any], bool]:
        """Pictures, by themselves or by their paths; a folder is all in it."""
        return pictures_of(given, self.method)

    def read_inputs(self, recipe: Recipe, where: str) -> Iterator[Any]:
        return (one.image for one in self.read(recipe, where))

    def seen_document(
        self,
        image: Picture,
        outcome: list[str],
        sites: list[Site],
        source: tuple[str, str] = ("picture", ""),
    ) -> Document:
        """A document over a picture; `source` is what was read, such as a question, and its text."""
        called, text = source
        pixels, name = visible_pixels(image, self.image_size), os.path.basename(image.name)
        read = text.split() if text else [image.name]
        both = called, self.outcome
        return Document(text or name, read, outcome, sites, called=both, picture=pixels)

    def misfit(self, example: Any, recipe: Recipe) -> tuple[str, str] | None:
        """A picture that cannot be decoded is left out of a training."""
        return (DAMAGED, example.wrong) if example.wrong else super().misfit(example, recipe)


class PictureWork(ExampleWork):
    """Training with pictures that are changed at random, the same way for the same batch of the same seed."""

    task: PictureTask

    def __init__(self, task: PictureTask, recipe: Recipe, *given: Any) -> None:
        super().__init__(task, recipe, *given)
        check_decoded(self.dev)
        self.examples = kept_there(self.examples, self.device)
        self.one_shape = not task.has_text
        self.augment = Augment.of(recipe.data.augment)
        self.changes = self.augment != Augment()
        self.mixes = self.augment.mixup + self.augment.cutmix > 0

    def batch(self, plan: list[int]) -> Batch:
        batch = super().batch(plan)
        if not self.changes:
            return batch
        chance = self.chance(plan)
        images = self.augment(batch.inputs[self.task.at], chance)
        if not self.mixes:
            return replace(batch, inputs=self.with_images(batch, images))
        if batch.target.dim() > 1:
            raise SaccadeError(
                "data.augment.mixup and cutmix mix labels, and this task has none; leave them out",
                code="mixing-not-supported",
            )
        mixed = self.augment.mix(images, chance)
        share = mixed.share.to(images.device)
        return MixedBatch(
            self.with_images(batch, mixed.images),
            batch.target,
            batch.ignore,
            batch.tokens,
            batch.lines,
            batch.target[mixed.other],
            share,
        )

    def chance(self, plan: list[int]) -> torch.Generator:
        """Random numbers that belong to this batch of this seed."""
        name = hashlib.sha256(repr((self.seed, plan)).encode()).digest()
        return torch.Generator(self.device).manual_seed(int.from_bytes(name[:7], "big"))

    def with_images(self, batch: Batch, images: Tensor) -> tuple[Any, ...]:
        at = self.task.at
        return (*batch.inputs[:at], images, *batch.inputs[at + 1 :])


PictureTask.worker = PictureWork
