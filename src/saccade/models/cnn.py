"""A residual CNN for images, with attention to channels and positions. B batch, H × W pixels, R × C positions of N, D width."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..layers import feature_attention, norms, pooling
from ..settings import Choice, number, numbers, part
from .families import Sizes, add_family, named_sizes
from .protocols import ImageEncoder, maps_of


@dataclass(frozen=True)
class CnnConfig:
    """The settings of a residual CNN; each stage is twice as wide as the one before, and has half as many rows and columns."""

    # with the default depths, base is ResNet-18
    sizes: ClassVar[Sizes] = named_sizes(dim=(16, 24, 32, 64, 128))

    dim: int = number(64, 1, 4096, "channels of the first stage")
    depths: list[int] = numbers(
        [2, 2, 2, 2], 1, 100, "blocks of each stage, each of two convolutions"
    )
    stem_stride: int = number(
        1,
        1,
        8,
        "stride of the first convolution: 1 for images of 32 × 32, 2 or more for larger ones",
    )
    dropout: float = number(0.0, 0.0, 0.99, "dropout before the output")
    attention: Choice = part(
        feature_attention.table,
        feature_attention.NoFeatureAttention,
        "inside every block, before the sum",
    )
    stage_attention: Choice = part(
        feature_attention.table, feature_attention.NoFeatureAttention, "after every stage"
    )
    pool: Choice = part(
        pooling.pools, pooling.Mean, "how the vectors of all positions become one, for a label"
    )

    @property
    def depth(self) -> int:
        """All blocks; with `hidden`, by which it is known whether a model is large."""
        return sum(self.depths)

    @property
    def hidden(self) -> int:
        return int(18 * self.dim * 4 ** (len(self.depths) - 1))


class ResidualBlock(nn.Module):
    """relu(x + attention(norm(conv(relu(norm(conv(x))))))): 3 × 3 convolutions; x by a 1 × 1 convolution where its size changes."""

    def __init__(
        self, before: int, dim: int, stride: int, attention: feature_attention.FeatureAttention
    ) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, dim, 3, stride, 1, bias=False)
        self.first_norm = norms.BatchNorm(dim)
        self.second = nn.Conv2d(dim, dim, 3, 1, 1, bias=False)
        self.second_norm = norms.BatchNorm(dim)
        self.gate = attention
        same = before == dim and stride == 1
        self.shortcut: nn.Module = nn.Identity()
        if not same:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, dim, 1, stride, bias=False), norms.BatchNorm(dim)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.shortcut(x) + self.gate(self.second_norm(self.second(inner))))


class CNN(ImageEncoder):
    """Images (B 3 H W) → the last feature map, one vector per position (B N dim)."""

    leans = -1  # a convolution of width 3 that is padded at both sides, in steps of 2, begins at the first pixel

    def __init__(self, c: CnnConfig) -> None:
        super().__init__()
        if len(c.depths) > 8:
            raise SaccadeError(
                f"model.depths has {len(c.depths)} stages, each twice as wide as the one before; choose at most 8",
                code="too-many-stages",
            )
        self.strides = [c.stem_stride, *[2] * (len(c.depths) - 1)]
        first = nn.Conv2d(3, c.dim, 3, c.stem_stride, 1, bias=False)
        self.embedding = nn.Sequential(first, norms.BatchNorm(c.dim), nn.ReLU())
        layers: list[nn.Module] = []
        before = c.dim
        for n, count in enumerate(c.depths):
            self.dim = c.dim * 2**n
            for block in range(count):
                stride = 2 if n and not block else 1
                layers.append(ResidualBlock(before, self.dim, stride, c.attention(dim=self.dim)))
                before = self.dim
            layers.append(c.stage_attention(dim=self.dim))
        self.encoder = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def grid(self, height: int, width: int) -> tuple[int, int]:
        for stride in self.strides:
            height, width = -(-height // stride), -(-width // stride)
        return height, width

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.encoder(self.embedded(images)).flatten(2).transpose(1, 2)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        return maps_of(self.encoder, self.embedded(images))

    def embedded(self, images: Tensor) -> Tensor:
        # the order of numbers in memory that tensor cores read, and with which convolutions on a CPU take two thirds of the time
        return self.embedding(self.normalized(images).contiguous(memory_format=torch.channels_last))


about = "Residual CNN, with attention to channels (squeeze–excite) and positions (CBAM): one vector per position of its last feature map."
add_family("cnn", "He et al. 2016", CnnConfig, {ImageEncoder: CNN}, about)
