"""Universal Transformer: the same blocks again and again, each position as often as it needs. B batch, N positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn

from ..core import Positions
from ..core.extras import leave
from ..core.masks import Mask
from ..core.options import Range
from ..core.positions import sinusoid
from ..errors import SaccadeError
from .block import Block, BlockCache
from .stack import Stack, table

ENOUGH = 0.99  # a position halts when its probabilities sum to more than this
Count = Annotated[int, Range(1, 1000)]


@table.add("universal", paper="Dehghani et al. 2019; Graves 2016 (halting)")
class UniversalStack(Stack):
    """`depth` steps of one block: x_t = block(x_(t−1) + position + time t); the output is Σ_t p_t x_t, p_t by adaptive halting.

    p_t = σ(w · (x_(t−1) + signals) + b) until their sum would pass 0.99, or at the last step: there p_t is what is missing to 1. A
    position that has halted keeps its vector, which others still read. `ponder` times the mean of steps + last p joins the loss, and
    `ponder: null` switches halting off: the output is x_depth. `blocks` is how many different blocks a step consists of (in the decoder
    of a pair, `decoder_blocks`). The count of Narang et al. 2021 (84 M) fits 3 and 4, which the paper does not name.
    """

    def __init__(
        self,
        block: Callable[[int], Block],
        depth: int,
        norm: Callable[[], nn.Module],
        dim: int,
        role: str = "alone",
        blocks: Count = 1,
        decoder_blocks: Annotated[int | None, Range(1, 1000)] = None,
        ponder: Annotated[float | None, Range(0.0, 100.0)] = 0.01,
    ) -> None:
        if decoder_blocks is not None and role == "alone":
            raise SaccadeError("stack.decoder_blocks is for a model with an encoder and a decoder; set stack.blocks")
        self.blocks = blocks if decoder_blocks is None or role != "decoder" else decoder_blocks
        super().__init__(block, depth * self.blocks, norm)
        self.steps, self.dim, self.ponder = depth, dim, ponder
        self.halt = None if ponder is None else nn.Linear(dim, 1)
        if self.halt is not None:
            nn.init.zeros_(self.halt.weight)
            nn.init.constant_(self.halt.bias, -1.0)  # p = 0.27: a few steps from the start

    def different(self) -> int:
        return self.blocks

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions.i
        parts = None if mask is None else mask.causal_and_keys()
        real = None if parts is None else parts[1].dense(x.shape[0], 1, 1, x.shape[1], x.device)[:, 0, 0]
        return self.run(x, at, lambda n, y: self.block(n)(y, mask, memory, memory_mask, positions), real)

    def step(
        self, x: Tensor, caches: list[BlockCache], mask: Mask | None, memory_mask: Mask | None, positions: Positions
    ) -> tuple[Tensor, list[BlockCache]]:
        after: list[BlockCache] = []

        def apply(n: int, y: Tensor) -> Tensor:
            y, cache = self.block(n).step(y, caches[n], mask, memory_mask, positions)
            after.append(cache)
            return y

        return self.run(x, positions.i, apply), after

    def run(self, x: Tensor, at: Tensor, apply: Callable[[int, Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        """`apply` block n to B N dim; `real` (B or 1, N): which positions are no padding."""
        where = sinusoid(at, self.dim)
        running = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        total = torch.zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        output, cost = torch.zeros_like(x), torch.zeros_like(total)
        for t in range(self.steps):
            y = x + (where + sinusoid(torch.full_like(at[..., :1], t + 1), self.dim)).to(x.dtype)
            share = None if self.halt is None else torch.sigmoid(self.halt(y).squeeze(-1).to(total.dtype))
            for n in range(self.blocks):
                y = apply(t * self.blocks + n, y)
            if share is None:
                x = y
                continue
            x = torch.where(running.unsqueeze(-1), y, x)
            ends = running & (total + share > ENOUGH) if t + 1 < self.steps else running
            weight = torch.where(ends, 1 - total, share) * running
            output = output + weight.unsqueeze(-1).to(x.dtype) * x
            cost = cost + running + weight * ends
            total, running = total + weight, running & ~ends
        if self.halt is None:
            return self.norm(x)
        if self.training and self.ponder:
            counted = torch.ones_like(cost) if real is None else real.to(cost.dtype).expand_as(cost)
            output = leave(output, "ponder", self.ponder * (cost * counted).sum() / counted.sum())
        return self.norm(output)
