"""Random changes of training images, a whole batch at once and on its device. B batch, C channels, H height, W width."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import SaccadeError
from ..settings import Range, check, fill, rules_of

Chance = Annotated[float, Range(0.0, 1.0)]
SMALLEST, LARGEST = 0.02, 0.25  # share of an image that is erased


class Mixed(NamedTuple):
    """Images of which each is mixed with that of row `other`; its own label counts `share`, the other's 1 − share."""

    images: Tensor
    other: Tensor
    share: Tensor


@dataclass(frozen=True)
class Augment:
    """Changes images B C H W of floats from 0 to 1; all that is random comes from a generator, whose device may be another one.

    flip: mirrored left to right, every second image. crop: moved by up to so many pixels; what comes in mirrors the edge. warp: turned,
    sheared and scaled by up to this share (0.1: about 6 degrees). jitter: brightness, contrast and saturation changed by up to this
    share. erase: with this probability noise in a box of 2–25% of the image. mixup, cutmix: the probability that an image is averaged
    with another one of the batch, or gets a box of it; the share is uniform.
    """

    flip: bool = False
    crop: Annotated[int, Range(0, 64)] = 0
    warp: Chance = 0.0
    jitter: Chance = 0.0
    erase: Chance = 0.0
    mixup: Chance = 0.0
    cutmix: Chance = 0.0

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            check(getattr(self, name), *rules_of(hint), f"augment.{name}")
        if self.mixup + self.cutmix > 1:
            what = f"augment.mixup and augment.cutmix are {self.mixup:g} and {self.cutmix:g}, together more than 1"
            raise SaccadeError(
                f"{what}; an image is mixed in one way, so lower one of them", code="out-of-range"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From the keys of a recipe."""
        return fill(cls, dict(options), "augment")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Changed images of the same shape."""
        if images.ndim != 4 or not images.is_floating_point():
            what = f"{images.dtype} of shape {tuple(images.shape)}"
            raise SaccadeError(
                f"expected images B C H W as floats from 0 to 1, got {what}; divide bytes by 255",
                code="image-shape",
            )
        if self.flip:
            images = torch.where(draw(images, generator, 1) < 0.5, images.flip(-1), images)
        if self.crop:
            images = shift(images, generator, self.crop)
        if self.warp:
            images = warp(images, generator, self.warp)
        if self.jitter:
            images = jitter(images, generator, self.jitter)
        if self.erase:
            size = SMALLEST + (LARGEST - SMALLEST) * draw(images, generator, 1)
            hit = box(images, generator, size) & (draw(images, generator, 1) < self.erase)
            images = torch.where(hit, draw(images, generator, *images.shape[1:]), images)
        return images

    def mix(self, images: Tensor, generator: torch.Generator) -> Mixed:
        """Mixes each image with another one of the batch, or leaves it as it is with a share of 1."""
        other = torch.randperm(len(images), generator=generator, device=generator.device).to(
            images.device
        )
        which, share = draw(images, generator, 1), draw(images, generator, 1)
        cut = (
            box(images, generator, 1 - share).expand(images.shape)
            & (which >= self.mixup)
            & (which < self.mixup + self.cutmix)
        )
        averaged = which < self.mixup
        mixed = torch.where(
            averaged,
            share * images + (1 - share) * images[other],
            torch.where(cut, images[other], images),
        )
        kept = 1 - cut[:, :1].to(images.dtype).mean((2, 3), keepdim=True)
        return Mixed(mixed, other, torch.where(averaged, share, kept).flatten())


def draw(images: Tensor, generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform numbers, B × shape (with as many axes as images), of the images' device and type."""
    full = (len(images), *shape, *[1] * (3 - len(shape)))
    return torch.rand(full, generator=generator, device=generator.device).to(
        images.device, images.dtype
    )


def shift(images: Tensor, generator: torch.Generator, most: int) -> Tensor:
    """Each image moved by up to `most` pixels in both directions."""
    height, width = images.shape[2:]
    if most >= min(height, width):
        raise SaccadeError(
            f"augment.crop is {most}, but the images are {height} × {width}; expected less than that, so lower it",
            code="out-of-range",
        )
    padded = F.pad(images, [most] * 4, mode="reflect")
    rows, columns = (
        torch.arange(size, device=images.device)
        + (draw(images, generator, 1).flatten(1) * (2 * most + 1)).long()
        for size in (height, width)
    )
    each = torch.arange(len(images), device=images.device)
    moved = padded[each[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
    return moved.contiguous()  # colors first in memory: with colors last, backward of some strided convolutions damages memory on CPUs


def warp(images: Tensor, generator: torch.Generator, most: float) -> Tensor:
    """Each image turned, sheared and scaled a little about its middle."""
    angle, shear, wide, high = ((2 * draw(images, generator, 4) - 1) * most).flatten(1).unbind(1)
    cos, sin = angle.cos(), angle.sin()
    columns = (
        cos * (1 + wide),
        -sin + shear,
        torch.zeros_like(sin),
        sin,
        cos * (1 + high),
        torch.zeros_like(sin),
    )
    grid = F.affine_grid(
        torch.stack(columns, 1).view(-1, 2, 3), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Images rotated counterclockwise about their middle: exactly by quarter turns, else read between pixels; what comes in mirrors the edge."""
    if degrees % 90 == 0:
        return images.rot90(round(degrees / 90), (2, 3))
    height, width = images.shape[2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    at = images.new_tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = F.affine_grid(at.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def jitter(images: Tensor, generator: torch.Generator, most: float) -> Tensor:
    """Each image brighter or darker, of more or less contrast and color."""
    bright, contrast, color = (1 + (2 * draw(images, generator, 3) - 1) * most).split(1, dim=1)
    images = images * bright
    images = torch.lerp(images.mean((1, 2, 3), keepdim=True), images, contrast)
    return torch.lerp(images.mean(1, keepdim=True), images, color).clamp(0, 1)


def box(images: Tensor, generator: torch.Generator, area: Tensor) -> Tensor:
    """Whether each pixel, B 1 H W, is in a box of about that share of its image, which lies inside it."""
    height, width = images.shape[2:]
    stretch = torch.exp((2 * draw(images, generator, 1) - 1) * math.log(2))
    inside = []
    for size, side, axis in ((height, area.sqrt() * stretch, 2), (width, area.sqrt() / stretch, 3)):
        length = (side.clamp(max=1) * size).round()
        start = (draw(images, generator, 1) * (size - length + 1)).floor()
        at = torch.arange(size, device=images.device).view(
            [-1 if n == axis else 1 for n in range(4)]
        )
        inside.append((at >= start) & (at < start + length))
    return inside[0] & inside[1]
