"""A CNN whose features follow quarter turns and mirrorings of the image. B batch, H × W pixels, R × C positions of N, D fields."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from ..layers import groups, pooling
from ..settings import Choice, number, part
from .families import Sizes, add_family, named_sizes
from .protocols import ImageEncoder


@dataclass(frozen=True)
class GroupCnnConfig:
    """The settings of a group-equivariant CNN."""

    sizes: ClassVar[Sizes] = named_sizes(dim=(8, 12, 16, 24, 32), depth=(3, 3, 4, 4, 5))

    dim: int = number(16, 1, 1024, "fields of a feature map, each of one channel per orientation")
    depth: int = number(
        4, 1, 12, "convolutions; after each but the last, neighbors are averaged two by two"
    )
    dropout: float = number(0.0, 0.0, 0.99, "dropout before the output")
    convolution: Choice = part(
        groups.table, groups.QuarterTurns, "the group of moves that features follow"
    )
    pool: Choice = part(
        pooling.pools, pooling.Mean, "how the vectors of all positions become one, for a label"
    )

    @property
    def hidden(self) -> int:
        """Inputs of one output, by which it is known whether a model is large."""
        return 9 * self.dim


class GroupCNN(ImageEncoder):
    """Images (B 3 H W) → one vector per position (B N dim), the largest over all orientations: it moves with the image."""

    def __init__(self, c: GroupCnnConfig) -> None:
        super().__init__()
        self.dim, self.depth = c.dim, c.depth
        layers = [
            c.convolution(dim_in=c.dim if n else 3, dim_out=c.dim, lifts=not n)
            for n in range(c.depth)
        ]
        self.encoder = nn.ModuleList(layers)
        self.norms = nn.ModuleList(groups.FieldNorm(c.dim, len(layer.elements)) for layer in layers)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        for _ in range(self.depth - 1):
            height, width = -(-height // 2), -(-width // 2)
        return height, width

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self.normalized(images)
        for n, (convolution, norm) in enumerate(zip(self.encoder, self.norms, strict=True)):
            if n:
                x = F.avg_pool2d(x, 2, ceil_mode=True)
            x = F.relu(norm(convolution(x)))
        pooled: Tensor = self.encoder[-1].pool(x)  # type: ignore[operator]
        return pooled.flatten(2).transpose(1, 2)


about = "CNN with group convolutions (p4: quarter turns): a turned image gives the same vectors at turned positions, so the same label."
add_family("group-cnn", "Cohen & Welling 2016", GroupCnnConfig, {ImageEncoder: GroupCNN}, about)
