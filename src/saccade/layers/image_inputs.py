"""Images as an input: patches, and where they are. B batch, H × W pixels, R × C positions, N = R·C, D width."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.initialization import normal_parameter
from ..core.positions import sinusoid
from ..errors import SaccadeError
from ..registry import Table
from . import norms
from .dropouts import Dropout

table: Table[type[nn.Module]] = Table(
    "grid-embeddings", "grid embedding", facts=("dim", "rows", "columns")
)


@table.add("none")
class NoGridEmbedding(nn.Module):
    """Nothing: for mechanisms that know positions themselves, or none."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@table.add("learned", paper="Dosovitskiy et al. 2021 (ViT)")
class LearnedGrid(nn.Module):
    """x + p with one learned vector per position; interpolated (bicubic) for a grid of another size."""

    def __init__(self, dim: int, rows: int, columns: int) -> None:
        super().__init__()
        self.size = (rows, columns)
        self.vectors = normal_parameter(rows * columns, dim, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x: B D R C"""
        vectors = self.vectors.T.unflatten(1, self.size)
        if x.shape[2:] != self.size:
            vectors = F.interpolate(
                vectors.unsqueeze(0), x.shape[2:], mode="bicubic", align_corners=False
            )[0]
        return x + vectors.to(x.dtype)


@table.add("sinusoidal", paper="He et al. 2022 (MAE)")
class SinusoidalGrid(nn.Module):
    """x + [s(row); s(column)], each half of the width a sinusoid: nothing to learn, any size."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 4:
            raise SaccadeError(
                f"sinusoids of rows and columns need a width that 4 divides, got {dim}; change model.dim",
                code="width-not-divisible",
            )

    def forward(self, x: Tensor) -> Tensor:
        """x: B D R C"""
        half, (rows, columns) = x.shape[1] // 2, x.shape[2:]
        down, across = (
            sinusoid(torch.arange(count, device=x.device), half, dtype=x.dtype).T
            for count in (rows, columns)
        )
        return x + torch.cat(
            [down.unsqueeze(2).expand(-1, -1, columns), across.unsqueeze(1).expand(-1, rows, -1)]
        )


class Patches(nn.Module):
    """B 3 H W → B D R C: one vector per patch, a linear map of its pixels; zeros at the right and below where patches do not divide it."""

    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        self.patch, self.project = patch, nn.Conv2d(3, dim, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        return self.project(F.pad(images, (0, -width % self.patch, 0, -height % self.patch)))


class ConvolutionStem(nn.Module):
    """The same by 3 × 3 convolutions that halve the image, each twice as wide as the one before, and one at the end (Xiao et al. 2021)."""

    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        halvings = patch.bit_length() - 1
        if patch != 2**halvings or dim % patch:
            wrong = f"model.stem=convolution halves images and doubles widths, got model.patch={patch} and model.dim={dim}"
            raise SaccadeError(
                f"{wrong}; choose a patch of 1, 2, 4, 8 … that divides the width, or model.stem=patches",
                code="patch-out-of-range",
            )
        widths = [3, *(dim >> n for n in reversed(range(max(halvings, 1))))]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(
                before, after, 3, stride=2 if halvings else 1, padding=1, bias=False
            )
            layers += [convolution, norms.BatchNorm(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.project = nn.Conv2d(dim, dim, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.project(self.layers(images))


STEMS: dict[str, type[nn.Module]] = {"patches": Patches, "convolution": ConvolutionStem}


class Bridge(nn.Module):
    """dropout(grid(norm(W x))): the vectors of an image encoder, B N E, as wide as the model that attends to them, with where they are."""

    def __init__(
        self, before: int, dim: int, norm: nn.Module, grid: nn.Module, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.project, self.norm, self.grid = nn.Linear(before, dim), norm, grid
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        """`size`: rows and columns of the N positions."""
        x = self.norm(self.project(x)).transpose(1, 2).unflatten(2, size)
        return self.dropout(self.grid(x).flatten(2).transpose(1, 2))


class ImageInput(nn.Module):
    """Images B 3 H W → B N dim: patches and where they are; with a class token in front of them, a learned vector, B 1+N dim."""

    token: nn.Parameter | None

    def __init__(self, stem: nn.Module, grid: nn.Module, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem, self.grid, self.dropout, self.dim = stem, grid, Dropout(dropout), dim
        self.register_parameter("token", None)

    def add_token(self) -> None:
        self.token = normal_parameter(self.dim, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        x = self.grid(self.stem(images)).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.to(x.dtype).expand(len(x), 1, -1), x], 1)
        return self.dropout(x)
