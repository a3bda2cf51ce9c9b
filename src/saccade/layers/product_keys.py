"""Product-key memory: a feed-forward part that reads a few of very many learned values. T tokens, H heads, S sub-keys, K read per head."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..settings import Range, Width
from .feedforward import MLP, initialize, table


@table.add(
    "product-key",
    paper="Lample et al. 2019",
    example={"subkeys": 3, "top": 2, "heads": 2, "width": 4},
)
class ProductKeyMemory(nn.Module):
    """Σ_heads Σ_top softmax(s) v: s = q₁·c_i + q₂·c'_j, with one of `subkeys`² learned values for each pair (i, j) of sub-keys.

    The halves q₁, q₂ of a query W x + b are normed each by itself (the paper norms queries over a batch), and only the `top` best
    sub-keys of either half are combined: the best pairs are among them. `blocks` lists which blocks of a stack, from 1, have the memory;
    all by default. The others have an MLP. In an encoder–decoder the memory is in the `encoder`, in the `decoder`, or in both.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        subkeys: Annotated[int, Range(1, 4096)] = 128,
        heads: Annotated[int, Range(1, 4096)] = 4,
        top: Annotated[int, Range(1, 4096)] = 32,
        width: Width = 256,
        blocks: list[int] | None = None,
        decoder: bool = False,
        encoder: bool = True,
        n: int = 0,
        depth: int = 1,
        role: str = "encoder",
    ) -> None:
        super().__init__()
        chosen = list(range(1, depth + 1)) if blocks is None else blocks
        if not chosen or any(not 1 <= one <= depth for one in chosen):
            raise SaccadeError(
                f"blocks must list whole numbers from 1 to {depth}, got {blocks!r}; 1 is the first block",
                code="unknown-block",
            )
        if top > subkeys:
            raise SaccadeError(
                f"top must be at most subkeys, got {top} of {subkeys}", code="experts-out-of-range"
            )
        if width % 2:
            raise SaccadeError(
                f"width must be even, for two halves of a query, got {width}", code="width-not-even"
            )
        if (decoder or not encoder) and role == "alone":
            which = "decoder=true" if decoder else "encoder=false"
            raise SaccadeError(
                f"{which} is for a model with an encoder and a decoder; leave it out",
                code="setting-without-effect",
            )
        if not (decoder or encoder):
            raise SaccadeError(
                "encoder=false and decoder=false leave no block with a memory; leave encoder out",
                code="no-memory-left",
            )
        here = n + 1 in chosen and {"encoder": encoder, "decoder": decoder}.get(role, True)
        self.dense = None if here else MLP(dim, hidden, dropout)
        if not here:
            return
        self.subkeys, self.top = subkeys, top
        self.query, self.dropout = nn.Linear(dim, heads * width), nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width // 2)
        self.keys = nn.Parameter(torch.empty(heads, 2, subkeys, width // 2))
        self.values = nn.Parameter(torch.empty(subkeys**2, dim))
        initialize(self.query)
        nn.init.uniform_(self.keys, -((2 / width) ** 0.5), (2 / width) ** 0.5)
        nn.init.normal_(self.values, std=dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.dense is not None:
            return self.dense(x)
        heads, _, _, half = self.keys.shape
        query = self.norm(self.query(x).view(-1, heads, 2, half))
        fits = torch.einsum("thpw,hpsw->thps", query, self.keys)
        best, at = fits.topk(self.top, -1)  # T H 2 K
        pairs = (best[:, :, 0].unsqueeze(-1) + best[:, :, 1].unsqueeze(-2)).flatten(-2)  # T H K²
        which = (self.subkeys * at[:, :, 0].unsqueeze(-1) + at[:, :, 1].unsqueeze(-2)).flatten(-2)
        scores, chosen = pairs.topk(self.top, -1)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(
            x.dtype
        )
        found = F.embedding_bag(  # T dim
            which.gather(-1, chosen).flatten(1),
            self.values.to(x.dtype),
            per_sample_weights=weights.flatten(1),
            mode="sum",
        )
        return self.dropout(found).view_as(x)
