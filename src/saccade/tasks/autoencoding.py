"""Autoencoding: a picture from a few numbers, or a clean picture from a noisy one. B batch, H × W pixels."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..data.corpora import SHOWN
from ..data.image_examples import Picture, Pictured
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.autoencoder import Autoencoder
from ..models.builder import Builder
from ..models.protocols import ImageEncoder
from ..recipe import Recipe
from ..training.losses import Batch, PixelBatch
from ..views.answers import Reconstructed
from ..views.document import Document
from .image_batches import (
    IMAGES,
    PictureTask,
    PictureWork,
    Seen,
    Size,
    check_decoded,
    decoded,
    on_device,
    pictured_of,
    size_of,
    sizes_from,
)
from .search_options import Option
from .task import Each, device_of, table

TOGETHER, NOT_ASKED = 256, -100
LEAST = 1e-10  # the smallest squared error that a PSNR is computed of: 100 dB


@table.add("autoencoding", paper="Hinton & Salakhutdinov 2006; Vincent et al. 2008")
class Autoencoding(PictureTask):
    """A picture again from `autoencoding.latent` numbers; with `autoencoding.noise` a clean one from a noisy one."""

    needs, data, has_text = ImageEncoder, SHOWN, False
    settings = (
        *IMAGES,
        "training.batch_size",
        "autoencoding",
        "autoencoding.width",
        "autoencoding.noise",
    )
    measures: ClassVar[dict[str, bool]] = {"loss": False, "psnr": True}
    command: ClassVar[str] = "reconstruct {model} picture.png --out before-after.png"
    method: ClassVar[str] = 'm.reconstruct("picture.png")'
    verbs, looks = ("reconstruct", "encode", "from_latent"), ()
    example = staticmethod(pictured_of)
    predict_options: ClassVar[dict[str, Option]] = {"noise": Option(float, "noise to add", 0, 10)}

    def __init__(self, recipe: Recipe, image_size: Size) -> None:
        self.how, self.image_size = recipe.autoencoding, image_size

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Pictured], given: Vocabulary | None = None
    ) -> Self:
        return cls(recipe, size_of(recipe, train))

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(recipe, sizes_from(tokens))

    def tokens(self) -> dict[str, Any]:
        return {"image_size": list(self.image_size)}

    def texts(self, examples: Sequence[Pictured]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {}

    def build(self, builder: Builder) -> nn.Module:
        body: ImageEncoder = builder.make(ImageEncoder)
        return builder.checked(
            lambda: Autoencoder(body, self.image_size, self.how.latent, self.how.width)
        )

    def numbers(self, examples: Sequence[Pictured]) -> list[Seen]:
        wrong = dict[int, str]()
        pixels = decoded([one.image for one in examples], self.image_size, wrong)
        found = enumerate(zip(pixels, examples, strict=True))
        return [Seen(x, [], [], [], one.line, one, wrong.get(n, "")) for n, (x, one) in found]

    def size(self, example: Seen) -> tuple[int, int]:
        """A picture counts as one token."""
        return 1, 0

    def batch(self, numbers: Sequence[Seen], device: torch.device, multiple: int = 1) -> Batch:
        """To judge with: the same picture always gets the same noise."""
        check_decoded(numbers)
        clean = on_device([one.pixels for one in numbers], device)
        noise = (
            torch.stack([self.noise_for(one.pixels) for one in numbers])
            if self.how.noise
            else torch.zeros(())
        )
        return self.asked(clean, noise.to(device), [one.line for one in numbers])

    def noise_for(self, pixels: Tensor) -> Tensor:
        digest = hashlib.sha256(pixels.cpu().numpy().tobytes()).digest()
        return torch.randn(
            pixels.shape, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        )

    def asked(self, clean: Tensor, noise: Tensor, lines: Sequence[int]) -> Batch:
        return PixelBatch((clean + self.how.noise * noise,), clean, NOT_ASKED, len(clean), lines)

    @torch.no_grad()
    def errors(
        self, model: nn.Module, numbers: Sequence[Seen], budget: int = TOGETHER
    ) -> tuple[Tensor, Tensor]:
        """The mean squared error of each picture, and that of what the model read."""
        model.eval()
        made, read = torch.zeros(len(numbers)), torch.zeros(len(numbers))
        for indices, batch in self.batches(numbers, device_of(model), min(budget, TOGETHER)):
            made[indices] = batch.losses(model(*batch.inputs)).float().cpu()
            read[indices] = batch.losses(batch.inputs[0]).float().cpu()
        return made, read

    def metrics(
        self, model: nn.Module, numbers: Sequence[Seen], budget: int = TOGETHER
    ) -> dict[str, float]:
        made, _ = self.errors(model, numbers, budget)
        return {"loss": float(made.mean()), "psnr": float(psnr(made).mean())}

    def evaluate(self, model: nn.Module, examples: Sequence[Pictured]) -> dict[str, Any]:
        """The mean squared error, and the mean of −10 log₁₀ of it in decibels (PSNR); that of the mean of these pictures instead of each
        (`psnr_mean`); with noise also that of the noisy pictures."""
        numbers = self.numbers(examples)
        made, read = self.errors(model, numbers)
        mean = torch.stack([one.pixels for one in numbers]).float().mean(0)
        constant = torch.stack([((one.pixels - mean) / 255).square().mean() for one in numbers])
        found = {
            "pictures": len(examples),
            "loss": float(made.mean()),
            "psnr": float(psnr(made).mean()),
        }
        found["psnr_mean"] = float(psnr(constant).mean())
        return {**found, **({"psnr_noisy": float(psnr(read).mean())} if self.how.noise else {})}

    def per_example(self, model: nn.Module, examples: Sequence[Pictured], **options: Any) -> Each:
        made, _ = self.errors(model, self.numbers(examples))
        ones = np.ones(len(made))
        sums = {
            name: (
                np.stack([each.double().numpy(), ones], 1),
                lambda total: float(total[0] / total[1]),
            )
            for name, each in (("loss", made), ("psnr", psnr(made)))
        }
        return Each([], sums)

    @torch.no_grad()
    def predict(
        self, model: nn.Module, images: Sequence[Picture], noise: float | None = None
    ) -> Iterator[tuple[int, Reconstructed]]:
        """Each picture, what was read of it, and what the model makes of that."""
        strength, device = self.how.noise if noise is None else noise, device_of(model)
        numbers = self.numbers([Pictured(image, None, n) for n, image in enumerate(images, 1)])
        for n, one in enumerate(numbers):
            check_decoded([one])
            clean = one.pixels.float() / 255
            read = clean + strength * self.noise_for(one.pixels)
            made = model.eval()(read.unsqueeze(0).to(device))[0].float().cpu()
            error = float((made - clean).square().mean())
            before, seen, after = (picture(each) for each in (clean, read, made))
            decibels, noisy = float(psnr(torch.tensor(error))), seen if strength else None
            yield n, Reconstructed(images[n].name, error, decibels, before, noisy, after)

    def reconstructions(self, model: nn.Module, examples: Sequence[Any]) -> list[Any]:
        return [one for _, one in self.predict(model, [each.image for each in examples])]

    def attention(self, *_: Any, **__: Any) -> Document:
        raise SaccadeError(
            "an autoencoding model gives no label or text to look for; use m.reconstruct",
            code="nothing-to-look-for",
        )

    @torch.no_grad()
    def encode(self, model: nn.Module, images: Sequence[Picture]) -> Tensor:
        """The latent of each picture as it is, without noise: B L."""
        assert isinstance(model, Autoencoder)
        numbers = self.numbers([Pictured(image, None, n) for n, image in enumerate(images, 1)])
        check_decoded(numbers)
        return (
            model.eval()
            .latent(on_device([one.pixels for one in numbers], device_of(model)))
            .float()
            .cpu()
        )

    @torch.no_grad()
    def from_latent(self, model: nn.Module, latent: Tensor) -> list[Any]:
        """The picture that the decoder makes of each latent, B L."""
        assert isinstance(model, Autoencoder)
        return [
            picture(one.float().cpu())
            for one in model.eval().from_latent(latent.to(device_of(model)))
        ]


class AutoencodingWork(PictureWork):
    """Training with pictures that are changed at random and, where asked, noise that is new each time."""

    task: Autoencoding

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.mixes:
            raise SaccadeError(
                "data.augment.mixup and cutmix mix labels, and this task has none; leave them out",
                code="mixing-not-supported",
            )

    def batch(self, plan: list[int]) -> Batch:
        chosen, chance = [self.examples[n] for n in plan], self.chance(plan)
        clean = self.augment(on_device([one.pixels for one in chosen], self.device), chance)
        noise = (
            torch.randn(clean.shape, generator=chance, device=clean.device)
            if self.task.how.noise
            else clean.new_zeros(())
        )
        return self.task.asked(clean, noise, [one.line for one in chosen])


Autoencoding.worker = AutoencodingWork


def psnr(errors: Tensor) -> Tensor:
    """−10 log₁₀ of mean squared errors of numbers from 0 to 1, in decibels."""
    return -10 / math.log(10) * errors.clamp(LEAST).log()


def picture(x: Tensor) -> Any:
    """3 H W of numbers as H × W × 3 bytes."""
    return (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
