"""Swin: attention within windows that shift from block to block, and patches merged between stages. B batch, N positions, R × C of them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, normalizers, scores
from ..errors import SaccadeError
from ..layers import feedforward, norms, pooling, residuals
from ..layers import image_inputs as images
from ..layers.block import Block
from ..layers.grid_windows import GridBias, WindowAttention, Windows
from ..settings import Choice, number, numbers, one_of, part, setting
from .families import Sizes, add_family, named_sizes
from .protocols import ImageEncoder
from .vit import GELU


@dataclass(frozen=True)
class SwinConfig:
    """The settings of a Swin Transformer; each stage is twice as wide as the one before, with twice as many heads."""

    # base and big are Swin-T and Swin-B
    sizes: ClassVar[Sizes] = named_sizes(dim=(24, 32, 64, 96, 128), heads=(2, 2, 4, 3, 4))

    dim: int = number(96, 1, 4096, "width of a patch's vector in the first stage")
    heads: int = number(3, 1, 4096, "heads in the first stage; they must divide `dim`")
    depths: list[int] = numbers([2, 2, 6, 2], 1, 100, "blocks of each stage")
    patch: int = number(4, 1, 256, "height and width of a patch in pixels")
    stem: str = one_of(
        (*images.STEMS,),
        "how pixels become the vector of a patch: a linear map, or some convolutions",
    )
    window_size: int = number(7, 2, 256, "height and width of a window in patches")
    ratio: int = number(4, 1, 64, "width inside the feed-forward part, in widths of its stage")
    dropout: float = number(0.0, 0.0, 0.99, "dropout between layers")
    attention_dropout: float = number(0.0, 0.0, 0.99, "dropout of attention weights")
    drop_path: float = number(
        0.0, 0.0, 0.99, "how often the last block is left out in training; earlier ones less often"
    )
    relative_bias: bool = setting(
        True, "a learned bias for each step between two positions of a window"
    )
    score: Choice = part(scores.table, scores.ScaledDot)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)
    feedforward: Choice = part(feedforward.table, GELU)
    residual: Choice = part(residuals.table, residuals.PreNorm)
    norm: Choice = part(norms.table, norms.LayerNorm)
    pool: Choice = part(
        pooling.pools, pooling.Mean, "how the vectors of all positions become one, for a label"
    )

    @property
    def depth(self) -> int:
        """All blocks; with `hidden`, by which it is known whether a model is large."""
        return sum(self.depths)

    @property
    def hidden(self) -> int:
        return int(self.ratio * self.dim * 2 ** (len(self.depths) - 1))


class Merge(nn.Module):
    """Each 2 × 2 positions become one of twice the width: W norm([x₀₀; x₁₀; x₀₁; x₁₁])."""

    def __init__(self, dim: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.reduce = norm, nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """B N dim → B N/4 2dim, with zeros below and at the right where there is an odd number of positions."""
        x = F.pad(x.unflatten(1, (rows, columns)), (0, 0, 0, columns % 2, 0, rows % 2))
        four = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(four, -1).flatten(1, 2)))


class Stage(nn.Module):
    """Blocks over one grid, every other one with shifted windows; `merge` takes their output to the next stage, if there is one."""

    def __init__(self, c: SwinConfig, n: int) -> None:
        super().__init__()
        self.dim, self.heads, self.window = c.dim * 2**n, c.heads * 2**n, c.window_size
        first = sum(c.depths[:n])
        self.blocks = nn.ModuleList(
            self.block(c, depth, first + depth) for depth in range(c.depths[n])
        )
        self.merge = Merge(self.dim, c.norm(dim=4 * self.dim)) if n + 1 < len(c.depths) else None

    def block(self, c: SwinConfig, depth: int, n: int) -> Block:
        width = self.dim // self.heads
        facts = {"dim": width, "dim_q": width, "dim_k": width, "heads": self.heads}
        position = GridBias(self.heads, self.window) if c.relative_bias else None
        mechanism = Mechanism(c.score(**facts), c.normalize(**facts), position=position)
        at = {"n": n, "depth": sum(c.depths), "role": "alone"}
        inner = c.feedforward(dim=self.dim, hidden=c.ratio * self.dim, dropout=c.dropout, **at)
        mixer = WindowAttention(
            self.dim, self.heads, mechanism, c.attention_dropout, shifted=depth % 2 == 1
        )
        return Block(
            mixer,
            inner,
            lambda: c.residual(
                norm=lambda: c.norm(dim=self.dim), dropout=c.dropout, dim=self.dim, **at
            ),
        )

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        at = Windows.over(rows, columns, self.window, x.device)
        shifted = at.mask(len(x), self.heads, x.device)
        for block in self.blocks:
            x = block(x, shifted, positions=at)
        return x


class Stages(nn.Module):
    """All stages, and a norm at the end where the residuals leave it to them."""

    def __init__(self, c: SwinConfig) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stage(c, n) for n in range(len(c.depths)))
        blocks = [block for block in self.modules() if isinstance(block, Block)]
        self.norm: nn.Module = (
            c.norm(dim=self.stages[-1].dim) if blocks[0].final_norm else nn.Identity()
        )
        if c.drop_path:
            residuals.drop_paths(blocks, c.drop_path)

    def forward(self, x: Tensor, rows: int, columns: int) -> list[Tensor]:
        """The output of each stage, B N dim; the norm is that of the last one."""
        found = []
        for stage in self.stages:
            x = stage(x, rows, columns)
            found.append(x)
            if stage.merge is not None:
                x = stage.merge(x, rows, columns)  # type: ignore[operator]
                rows, columns = -(-rows // 2), -(-columns // 2)
        return [*found[:-1], self.norm(x)]


class PatchNorm(nn.Module):
    """Patches with a norm over the width of each: B 3 H W → B D R C."""

    def __init__(self, stem: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.stem, self.norm = stem, norm

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.stem(images).movedim(1, -1)).movedim(-1, 1)


class Swin(ImageEncoder):
    """Images (B 3 H W) → one vector per position of the last stage (B N dim)."""

    def __init__(self, c: SwinConfig) -> None:
        super().__init__()
        if c.dim % c.heads:
            wrong = f"model.dim={c.dim} is not a multiple of model.heads={c.heads}"
            raise SaccadeError(
                f"{wrong}; choose heads of the first stage that divide it",
                code="heads-do-not-divide",
            )
        if len(c.depths) > 8:
            raise SaccadeError(
                f"model.depths has {len(c.depths)} stages, each twice as wide as the one before; choose at most 8",
                code="too-many-stages",
            )
        self.dim, self.patch, self.count = c.dim * 2 ** (len(c.depths) - 1), c.patch, len(c.depths)
        patches = PatchNorm(images.STEMS[c.stem](c.dim, c.patch), c.norm(dim=c.dim))
        self.embedding = images.ImageInput(patches, images.NoGridEmbedding(), c.dim, c.dropout)
        self.encoder = Stages(c)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        each = self.patch * 2 ** (self.count - 1)
        return -(-height // each), -(-width // each)

    def stages(self, images: Tensor) -> list[Tensor]:
        """The vectors of each stage, B N dim."""
        rows, columns = (-(-size // self.patch) for size in images.shape[2:])
        found: list[Tensor] = self.encoder(self.embedding(self.normalized(images)), rows, columns)
        return found

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.stages(images)[-1]

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        sides = [self.patch * 2**n for n in range(self.count)]
        grids = [[-(-size // side) for size in images.shape[2:]] for side in sides]
        return [x.mT.unflatten(2, grid) for x, grid in zip(self.stages(images), grids, strict=True)]


about = "Attention within shifted windows of an image, patches merged between stages: one vector per position of the last."
add_family("swin", "Liu et al. 2021", SwinConfig, {ImageEncoder: Swin}, about)
