"""Examples with pictures: captions, questions with answers, labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SaccadeError

if TYPE_CHECKING:  # what only names or counts pictures loads no torch
    from torch import Tensor

MAX_DECODED_BYTES = 16 * 2**30  # of decoded pictures in memory


class Picture:
    """A picture that is decoded or drawn when it is asked for; `name` is for errors."""

    __slots__ = ()

    @property
    def name(self) -> str:
        raise NotImplementedError

    def pixels(self, size: tuple[int, int] | None = None) -> "Tensor":
        """uint8 3 H W; with `size` (height, width) the middle of that shape, resized to it."""
        raise NotImplementedError


class Named(NamedTuple):
    """An object that a caption names: the numbers of these words in the caption, the noun last, and the box x0 y0 x1 y1 in pixels
    around the object; x1 and y1 are the first ones outside."""

    words: tuple[int, ...]
    box: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Captioned:
    """A picture, its captions, and where it shows what the first caption names, if that is known."""

    image: Picture
    captions: tuple[str, ...]
    line: int = 0
    places: tuple[Named, ...] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a picture, and its answer, if that is known."""

    image: Picture
    question: str
    answer: str | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Pictured:
    """A picture and its label, if that is known."""

    image: Picture
    label: str | None = None
    line: int = 0


def stack(
    images: Sequence[Picture], size: tuple[int, int], wrong: dict[int, str] | None = None
) -> "Tensor":
    """All pictures decoded at one size, uint8 N 3 H W; each is decoded once, however often it is among them. One that cannot be decoded
    is an error, or black where `wrong` gets the numbers of such and why."""
    import torch

    height, width = size
    needed = 3 * height * width * len(images)
    if needed > MAX_DECODED_BYTES:
        what = f"{len(images):,} pictures of {height} × {width} need {needed / 2**30:.1f} GiB, at most {MAX_DECODED_BYTES >> 30} GiB are kept"
        raise SaccadeError(f"{what}; use a smaller size or fewer pictures", code="too-large")
    found = torch.empty((len(images), 3, height, width), dtype=torch.uint8)
    first: dict[Picture, int] = {}
    for n, image in enumerate(images):
        known = first.setdefault(image, n)
        try:
            found[n] = found[known] if known < n else image.pixels(size)
        except SaccadeError as error:
            if wrong is None:
                raise
            found[n], wrong[n] = 0, str(error)
        if wrong is not None and known in wrong:
            wrong[n] = wrong[known]
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Kept(Picture):
    """A picture whose pixels at one size are kept."""

    picture: Picture
    kept: "Tensor"

    @property
    def name(self) -> str:
        return self.picture.name

    def pixels(self, size: tuple[int, int] | None = None) -> "Tensor":
        return self.kept if size == tuple(self.kept.shape[1:]) else self.picture.pixels(size)


def decode_each(
    images: Sequence[Picture], size: tuple[int, int], wrong: dict[int, str]
) -> list[Picture]:
    """The pictures that can be decoded, with their pixels at that size; `wrong` gets the numbers of the others, and why."""
    good = list[Picture]()
    for n, image in enumerate(images):
        try:
            good.append(Kept(image, image.pixels(size)))
        except SaccadeError as error:
            wrong[n] = str(error)
    return good
