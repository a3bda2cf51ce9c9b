"""What can be done with a model of pictures, one image file at a time or many."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from torch import nn

from .data.archives import pictures_in
from .data.pictures import Picture, Pictured
from .errors import SaccadeError
from .tasks.autoencoding import Autoencoding

R = TypeVar("R")


class UsablePictures:
    """A model that is used on image files: a path gives one result, a list of paths or a folder gives a list."""

    model: nn.Module
    task: Any
    require: Callable[..., Any]

    def reconstruct(self, images: Any, noise: float | None = None) -> Any:
        """What an autoencoder makes of an image file, beside the image itself; of a list of paths or a folder, a list. `noise` is added to
        what is read: by default as much as in training."""
        task = self.require(Autoencoding, "make pictures")
        return self.with_images(images, partial(task.reconstruct, self.model, noise=noise))

    def with_images(self, given: Any, work: Callable[[list[Picture]], list[R]]) -> R | list[R]:
        """The result of `work` for one image file, or its results for a list of them or for a folder."""
        alone = isinstance(given, str | os.PathLike)
        if isinstance(given, bytes) or not (alone or isinstance(given, Iterable)):
            raise SaccadeError(f"expected the path of an image file, got {type(given).__name__}; write {self.task.method}")
        paths = [given] if alone else list(given)
        wrong = next((one for one in paths if not isinstance(one, str | os.PathLike)), None)
        if wrong is not None:
            raise SaccadeError(f"expected the path of an image file, got {type(wrong).__name__}; write {self.task.method}")
        found = work([image for one in paths for image in pictures_in(os.fspath(one))])
        return found[0] if alone and not os.path.isdir(given) else found


def pictured_of(one: Any, n: int) -> Pictured:
    """A picture from the path of its file, or from (path, label)."""
    values = one if isinstance(one, list | tuple) else [one]
    if not 1 <= len(values) <= 2 or not isinstance(values[0], str | os.PathLike):
        raise SaccadeError(f"example {n} is {str(one)[:60]!r}; expected (image file, label), or an image file alone")
    return Pictured(pictures_in(os.fspath(values[0]))[0], str(values[1]) if len(values) > 1 else None, n)
