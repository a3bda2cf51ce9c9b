"""What can be done with a model of pictures: caption, reconstruct, look; an autoencoder's vectors; and the search that was asked for."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..data.archives import pictures_in
from ..data.image_examples import Picture, Pictured
from ..decoding import MakeSearch, searcher
from ..errors import SaccadeError, did_you_mean
from ..recipe import Recipe
from ..tasks.autoencoding import Autoencoding
from ..tasks.captioning import Captioning
from ..tasks.image_batches import PictureTask
from ..tasks.image_classification import ImageClassification
from ..tasks.open_questions import ANSWERING
from ..tasks.output_lengths import check_length
from ..tasks.text_autoencoding import TextAutoencoding
from ..views.answers import Caption
from ..views.document import Document
from .attention_sites import show_caption, show_label, show_question, visible_pixels

SAMPLING = ("temperature", "top_k", "top_p", "seed")


class Seeing:
    """The part of a usable model that is for pictures; a path is always one picture or one folder, a list gives a list."""

    recipe: Recipe
    model: nn.Module
    task: Any
    require: Callable[..., Any]  # the task, if it is of a kind
    translate: Callable[..., Any]

    @property
    def name(self) -> str:
        return str(self.recipe.model["family"])

    @overload
    def caption(
        self, pictures: Picture, beam: int = 1, *, max_length: int | None = None, **how: Any
    ) -> Caption: ...
    @overload
    def caption(
        self, pictures: str | Path, beam: int = 1, *, max_length: int | None = None, **how: Any
    ) -> Caption | list[Caption]: ...
    @overload
    def caption(
        self,
        pictures: Iterable[str | Path | Picture],
        beam: int = 1,
        *,
        max_length: int | None = None,
        **how: Any,
    ) -> list[Caption]: ...
    def caption(
        self,
        pictures: Any,
        beam: int = 1,
        *,
        max_length: int | None = None,
        length_penalty: float = 1.0,
        **how: Any,
    ) -> Any:
        """The caption of a picture (an image file, or one of a data set), or those of a list or a folder: greedy, by a `beam`, or sampled
        (temperature, top_k, top_p, seed); one of `max_length` tokens is cut there. A beam's outputs are ranked by log-probability /
        length^`length_penalty`."""
        given, alone = pictures_of(pictures, self.require(Captioning, "describe a picture").method)
        found = list(
            self.captions(given, one_search(beam, sampling(None, how), length_penalty), max_length)
        )
        return found[0] if alone else found

    def captions(
        self, pictures: Sequence[Picture], search: MakeSearch, max_length: int | None = None
    ) -> Iterator[Caption]:
        """Captions as they come, in the order of the pictures."""
        task = self.require(Captioning, "describe a picture")
        if max_length is not None:
            check_length(max_length)
        for picture, one in zip(
            pictures, task.describe(self.model, pictures, search, max_length), strict=True
        ):
            yield replace(one, look=partial(self.look_at, picture, one.text))

    def reconstruct(self, images: Any, noise: float | None = None) -> Any:
        """What an autoencoder makes of an image file, beside the image itself; of a list of paths or a folder, a list. `noise` is added to
        what is read: by default as much as in training. An autoencoder of texts: the text that it makes of a text as it is."""
        if isinstance(self.task, TextAutoencoding):
            if noise is not None:
                raise SaccadeError(
                    f"a noise of {noise:g} is for pictures, and this model reads texts; leave it out"
                )
            return self.translate(images)
        task = self.require(Autoencoding, "make pictures")
        return self.with_images(images, partial(task.reconstruct, self.model, noise=noise))

    def encode(self, given: Any) -> NDArray[np.float32]:
        """The numbers into which an autoencoder squeezes a text or a picture: one vector, or of several a row each."""
        task: Autoencoding | TextAutoencoding = self.require(
            (Autoencoding, TextAutoencoding), "squeeze its input into a vector"
        )
        if isinstance(task, TextAutoencoding):
            alone = isinstance(given, str)
            texts = [given] if alone else list(given)
            if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
                raise SaccadeError(
                    'expected a text or a list of texts, none of them empty; write m.encode("your text")'
                )
            found = task.encode(self.model, texts)
        else:
            pictures, alone = pictures_of(given, task.method)
            found = task.encode(self.model, pictures)
        return (found[0] if alone else found).numpy()

    def from_latent(self, vectors: Any) -> list[Any]:
        """What an autoencoder makes of vectors such as `encode` gives, a row each: texts, or pictures as arrays of bytes."""
        task: Autoencoding | TextAutoencoding = self.require(
            (Autoencoding, TextAutoencoding), "decode a vector"
        )
        latent, wanted = (
            torch.as_tensor(np.asarray(vectors), dtype=torch.float32),
            self.recipe.autoencoding.latent,
        )
        if latent.dim() != 2 or latent.shape[1] != wanted:
            raise SaccadeError(
                f"the vectors have the shape {tuple(latent.shape)}; give rows of {wanted} numbers, as `encode` does"
            )
        return task.from_latent(self.model, latent)

    def with_images(self, given: Any, work: Callable[[list[Picture]], list[Any]]) -> Any:
        """The result of `work` for one picture, or its results for a list of them or for a folder."""
        pictures, alone = pictures_of(given, self.task.method)
        found = work(pictures)
        return found[0] if alone else found

    @torch.no_grad()
    def look_at(
        self, picture: str | Path | Picture, text: str | None = None, beam: int = 1
    ) -> Document:
        """What every attention to a picture looked at while the model described it (or generated a given caption), labeled it, or
        answered a question, the text."""
        task: PictureTask = self.require(PictureTask, "look at a picture")
        [image, *more], _ = pictures_of(picture, 'm.look("picture.png")')
        if more or (isinstance(picture, str | Path) and os.path.isdir(os.path.expanduser(picture))):
            raise SaccadeError(f"'{picture}' is a folder of pictures; look at one at a time")
        if isinstance(task, Captioning):
            source, outcome, sites = show_caption(
                task, self.model, image, self.caption(image, beam).text if text is None else text
            )
        elif isinstance(task, ANSWERING):
            if text is None or not text.strip():
                raise SaccadeError(
                    "a model that answers questions looks for a question's words; give the question after the image"
                )
            source, outcome, sites = show_question(task, self.model, image, text)
        elif isinstance(task, ImageClassification) and text is None:
            source, outcome, sites = show_label(task, self.model, image)
        else:
            raise SaccadeError(
                f"a model of {self.recipe.task} reads no text with its picture; leave the text out"
            )
        if not sites:
            attends = (
                "vit, swin, or cnn with model.stage_attention=cbam"
                if isinstance(task, ImageClassification)
                else "bahdanau"
            )
            raise SaccadeError(
                f"the family {self.name} has no attention to show; train one that attends, such as {attends}"
            )
        pixels, title, called = (
            visible_pixels(image, task.image_size),
            os.path.basename(image.name),
            "picture",
        )
        if isinstance(task, ANSWERING):
            title, called = text or "", "question"
        return Document(title, source, outcome, sites, self.name, (called, task.outcome), pixels)


def pictures_of(given: Any, call: str) -> tuple[list[Picture], bool]:
    """Pictures by themselves or by their paths, a folder being all in it; and whether one was asked for by itself."""
    if isinstance(given, Picture):
        return [given], True
    if isinstance(given, str | Path):
        return pictures_in(given), not os.path.isdir(os.path.expanduser(given))
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise SaccadeError(
            f"expected the path of an image file, got {type(given).__name__}; write {call}"
        )
    return [picture for one in given for picture in pictures_of(one, call)[0]], False


def pictured_of(one: Any, n: int) -> Pictured:
    """A picture from the path of its file, or from (path, label)."""
    values = one if isinstance(one, list | tuple) else [one]
    if not 1 <= len(values) <= 2 or not isinstance(values[0], str | os.PathLike):
        raise SaccadeError(
            f"example {n} is {str(one)[:60]!r}; expected (image file, label), or an image file alone"
        )
    return Pictured(
        pictures_in(os.fspath(values[0]))[0], str(values[1]) if len(values) > 1 else None, n
    )


def sampling(sample: Mapping[str, Any] | None, how: Mapping[str, Any]) -> dict[str, Any] | None:
    """How to sample: `sample`, a mapping of options, or options by themselves; None where none was given."""
    given = {name: value for name, value in how.items() if value is not None}
    wrong = next((name for name in (*how, *(sample or ())) if name not in SAMPLING), None)
    if wrong is not None:
        raise SaccadeError(f"sampling has no option '{wrong}'{did_you_mean(wrong, SAMPLING)}")
    if sample is not None and given:
        raise SaccadeError(
            f"{next(iter(given))} and sample were both given; leave sample out and write its options by themselves"
        )
    return (given or None) if sample is None else dict(sample)


def one_search(
    beam: int, sample: dict[str, Any] | None, *ranking: Any, seed_alone: bool = False
) -> MakeSearch:
    """The search that was asked for; `ranking` is how a beam ranks its outputs, `seed_alone` allows sampling by a seed and nothing else."""
    if sample is not None and beam > 1:
        raise SaccadeError(
            "a beam and sampling were both asked for; leave out beam, or temperature, top_k and top_p"
        )
    if sample and set(sample) == {"seed"} and not seed_alone:
        raise SaccadeError(
            "a seed is for sampling; give temperature, top_k or top_p with it, or leave it out"
        )
    penalty, *rule = ranking or (1.0,)
    return searcher(beam, penalty, sample, *rule)
