"""Funnel-Transformer: an encoder that shortens its text as it goes. B batch, N positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Positions
from ..core.masks import Mask, padding
from ..errors import SaccadeError
from ..settings import Range, overrides
from .block import Block
from .convolution_mixers import direction_and_real
from .multihead_attention import MultiHeadAttention
from .stack import Stack, table


@table.add("funnel", paper="Dai et al. 2020", example={"parts": 2})
class FunnelStack(Stack):
    """`parts` equal parts; each but the first begins with attention from every second position, q = W pool(x), to all of x.

    pool is the mean of two neighbors; of two vectors of which one is padding, the other. The decoder of a pair is a plain stack that
    reads the shortened text. An encoder alone has one part more, in which the text has its length again: each vector is repeated, and
    the output of the first part is added. A pooled vector has the position of the first of its two.
    """

    uses = ("pair", "encoder")
    any_mask = False

    def __init__(
        self,
        block: Callable[[int], Block],
        depth: int,
        norm: Callable[[], nn.Module],
        role: str = "alone",
        parts: Annotated[int, Range(2, 16)] = 2,
    ) -> None:
        if parts > depth:
            raise SaccadeError(
                f"stack.parts is {parts}, and there are {depth} blocks; choose at most one part per block",
                code="stack-parts-out-of-range",
            )
        super().__init__(block, depth, norm)
        self.parts, self.role = parts, role
        each, more = divmod(depth, parts + (role == "alone"))
        self.sizes = [each + (n < more) for n in range(parts + (role == "alone"))]
        first = [sum(self.sizes[:n]) for n in range(1, parts)] if role != "decoder" else []
        self.heads = int(getattr(self.block(0).mixer, "heads", 1))
        for one in (self.block(n) for n in first):
            mixer = one.mixer
            if (
                not one.takes_keys
                or not isinstance(mixer, MultiHeadAttention)
                or overrides(mixer, "mix", MultiHeadAttention)
            ):
                raise SaccadeError(
                    "stack=funnel pools the queries of attention; choose mixer=attention and block=standard",
                    code="parts-do-not-combine",
                )
            if mixer.mechanism.mask.compares_positions or mixer.mechanism.mask.computed:
                raise SaccadeError(
                    "stack=funnel has queries at every second position, which model.mask cannot count; leave it out",
                    code="parts-do-not-combine",
                )

    def shortened(self, lengths: Tensor) -> Tensor:
        for _ in range(self.parts - 1 if self.role == "encoder" else 0):
            lengths = (lengths + 1) // 2
        return lengths

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        if self.role == "decoder":
            return super().forward(x, mask, memory, memory_mask, positions)
        size = x.shape[1]
        at = Positions.line(size, size, x.device) if positions is None else positions
        causal, real = direction_and_real(mask, x, "a funnel", "stack=plain")
        if causal:
            raise SaccadeError(
                "a funnel pools later positions with earlier ones, and the mask is causal; use stack=plain",
                code="mask-not-supported",
            )
        lengths = (
            torch.full((x.shape[0],), size, device=x.device)
            if real is None
            else real.expand(x.shape[0], -1).sum(-1)
        )
        whole, first, n = (mask, at), x, 0
        for part, blocks in enumerate(self.sizes):
            if part == self.parts:
                x = x.repeat_interleave(2 ** (part - 1), 1)[:, :size] + first
                mask, at = whole
            for k in range(blocks):
                if k == 0 and 0 < part < self.parts:
                    x, at, lengths = self.pooled(self.block(n), x, at, lengths)
                    mask = padding(lengths).prepare(
                        x.shape[0], self.heads, x.shape[1], x.shape[1], x.device
                    )
                else:
                    x = self.block(n)(x, mask, None, None, at)
                n += 1
            first = x if part == 0 else first
        return self.norm(x)

    def pooled(
        self, block: Block, x: Tensor, at: Positions, lengths: Tensor
    ) -> tuple[Tensor, Positions, Tensor]:
        """Half as many positions, their own positions, and how many of them are real."""
        shorter = pool(x, lengths)
        to_all = Positions(
            at.i[..., ::2], at.j, None if at.relation is None else at.relation[:, ::2]
        )
        mask = padding(lengths).prepare(
            x.shape[0], self.heads, shorter.shape[1], x.shape[1], x.device
        )
        relation = None if to_all.relation is None else to_all.relation[:, :, ::2]
        made = block(shorter, mask, None, None, to_all, keys=x)
        return made, Positions(to_all.i, at.j[..., ::2], relation), (lengths + 1) // 2


def pool(x: Tensor, lengths: Tensor) -> Tensor:
    """The mean of positions 0 and 1, 2 and 3 …, of the real ones (the first `lengths` of each row): B N dim → B ⌈N/2⌉ dim."""
    real = (
        (torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(-1))
        .unsqueeze(-1)
        .to(x.dtype)
    )
    sums, counts = (
        F.pad(one, (0, 0, 0, x.shape[1] % 2)).unflatten(1, (-1, 2)).sum(2)
        for one in (x * real, real)
    )
    return sums / counts.clamp_min(1)
