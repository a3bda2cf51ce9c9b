"""What tasks with pictures share: their size, decoding once, batches on the device, and random changes in training. B batch, H × W pixels."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.augment import Augment
from ..data.pictures import Picture, stack
from ..errors import SaccadeError
from ..recipe import Recipe
from ..training.losses import Batch, each_loss
from .task import ExampleTask, ExampleWork

Size = tuple[int, int]  # height and width in pixels


class Seen(NamedTuple):
    """An example in numbers: its pixels (bytes, 3 H W), the tokens that are read and generated besides, its labels, and where it is from."""

    pixels: Tensor
    read: list[int]
    target: list[int]
    labels: list[int]
    line: int
    example: Any


def size_of(recipe: Recipe, examples: Sequence[Any]) -> Size:
    """The height and width of all pictures of a model: `data.image_size`, or those of the first one."""
    if recipe.data.image_size:
        return recipe.data.image_size, recipe.data.image_size
    _, height, width = examples[0].image.pixels().shape
    return height, width


def sizes_from(tokens: dict[str, Any]) -> Size:
    """The size that a model folder names."""
    height, width = tokens.get("image_size", (32, 32))
    if not (type(height) is type(width) is int and 0 < height <= 4096 and 0 < width <= 4096):
        raise SaccadeError(f"the model folder has pictures of {height!r} × {width!r} pixels; copy it again")
    return height, width


def decoded(images: Sequence[Picture], size: Size) -> Sequence[Tensor]:
    """The pixels of pictures, each decoded once."""
    return stack(images, size).unbind(0)


def on_device(pixels: Sequence[Tensor], device: torch.device) -> Tensor:
    """B 3 H W, floats from 0 to 1."""
    together = torch.stack(list(pixels))
    if device.type == "cuda":
        together = together.pin_memory().to(device, non_blocking=True)
    return together.float().div_(255)


@dataclass(frozen=True)
class MixedBatch(Batch):
    """Pictures that are mixed in pairs: the other's label, and how much each one's own counts."""

    other: Tensor
    share: Tensor


class PictureTask(ExampleTask):
    """A task whose examples have a picture; where a model takes it among its inputs is `at`."""

    at = 0
    image_size: Size

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.images,)

    def work(self, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], device: torch.device) -> ExampleWork:
        return PictureWork(self, recipe, train, dev, device)


class PictureWork(ExampleWork):
    """Training with pictures that are changed at random, the same way for the same batch of the same seed."""

    task: PictureTask

    def __init__(self, task: PictureTask, recipe: Recipe, *given: Any) -> None:
        super().__init__(task, recipe, *given)
        self.augment = Augment.of(recipe.data.augment)
        self.changes, self.mixes = self.augment != Augment(), self.augment.mixup + self.augment.cutmix > 0

    def batch(self, plan: list[int]) -> Batch:
        batch = super().batch(plan)
        if not self.changes:
            return batch
        name = hashlib.sha256(repr((self.seed, plan)).encode()).digest()
        chance = torch.Generator().manual_seed(int.from_bytes(name[:7], "big"))
        images = self.augment(batch.inputs[self.task.at], chance)
        if not self.mixes:
            return replace(batch, inputs=self.with_images(batch, images))
        if batch.target.dim() > 1:
            raise SaccadeError("data.augment.mixup and cutmix mix labels, and this task has texts; leave them out")
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

    def with_images(self, batch: Batch, images: Tensor) -> tuple[Any, ...]:
        at = self.task.at
        return (*batch.inputs[:at], images, *batch.inputs[at + 1 :])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Of mixed pictures the loss of both labels, each by its share."""
        if not isinstance(batch, MixedBatch):
            return super().loss(model, batch)
        logits = model(*batch.inputs)
        one, two = (each_loss(logits, target, batch.ignore, self.smoothing) for target in (batch.target, batch.other))
        return (batch.share * one + (1 - batch.share) * two).sum()
