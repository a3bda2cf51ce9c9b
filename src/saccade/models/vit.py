"""Vision Transformer: the encoder of a Transformer over the patches of an image. B batch, N positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..core import Positions, masks
from ..layers import feedforward, pooling
from ..layers import image_inputs as images
from ..layers.residuals import drop_paths
from ..settings import Choice, number, one_of, part
from .assembly import Config, fitting, without_relation
from .families import Sizes, add_family, named_sizes
from .protocols import ImageEncoder

GELU = Choice(feedforward.MLP, {"activation": Choice(feedforward.Gelu)})


@dataclass(frozen=True)
class VitConfig(Config):
    """The settings of a Vision Transformer: those of a Transformer's encoder, and how an image becomes patches."""

    sizes: ClassVar[Sizes] = named_sizes(  # for images of 32 × 32; big is ViT-S
        dim=(64, 128, 192, 256, 384),
        hidden=(128, 256, 384, 512, 1536),
        depth=(4, 6, 8, 8, 12),
        heads=(2, 4, 4, 8, 6),
        dropout=(0.0, 0.0, 0.0, 0.0, 0.0),
    )

    dim: int = number(256, 1, 65_536, "width of a patch's vector")
    hidden: int = number(512, 1, 65_536, "width inside the feed-forward part")
    depth: int = number(8, 1, 1000, "blocks")
    dropout: float = number(0.0, 0.0, 0.99, "dropout between layers")
    image: int = number(
        32,
        1,
        4096,
        "height and width in pixels of the images whose positions have a learned vector each",
    )
    patch: int = number(4, 1, 256, "height and width of a patch in pixels")
    stem: str = one_of(
        (*images.STEMS,),
        "how pixels become the vector of a patch: a linear map, or some convolutions",
    )
    drop_path: float = number(
        0.0, 0.0, 0.99, "how often the last block is left out in training; earlier ones less often"
    )
    grid_embedding: Choice = part(images.table, images.LearnedGrid, "rows and columns at the input")
    feedforward: Choice = part(feedforward.table, GELU)
    pool: Choice = part(
        pooling.pools, pooling.Mean, "how the vectors of all positions become one, for a label"
    )

    @staticmethod
    def complete(values: Mapping[str, Any]) -> dict[str, Any]:
        """A mechanism's positions know an order of positions, and not their rows: the grid's embedding stays."""
        return dict(values)


class ViT(ImageEncoder):
    """Images (B 3 H W) → one vector per patch (B N dim), every patch seeing every other; with a class token, its vector first."""

    def __init__(self, c: VitConfig) -> None:
        super().__init__()
        self.dim, self.heads, self.patch = c.dim, c.heads, c.patch
        side = -(-c.image // c.patch)
        self.leans = 0 if c.stem == "patches" else -1
        grid = c.grid_embedding(dim=c.dim, rows=side, columns=side)
        self.embedding = images.ImageInput(
            images.STEMS[c.stem](c.dim, c.patch), grid, c.dim, c.dropout
        )
        self.encoder = without_relation(fitting(c, "encoder"))
        if c.drop_path:
            drop_paths(self.encoder, c.drop_path)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return -(-height // self.patch), -(-width // self.patch)

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self.embedding(self.normalized(images))
        everything = masks.full().prepare(len(x), self.heads, x.shape[1], x.shape[1], x.device)
        at = Positions.line(x.shape[1], x.shape[1], x.device)
        return self.encoder(x, everything, positions=at)

    def add_token(self) -> None:
        self.embedding.add_token()


about = "Transformer encoder over the patches of an image: one vector per patch."
add_family("vit", "Dosovitskiy et al. 2021", VitConfig, {ImageEncoder: ViT}, about)
