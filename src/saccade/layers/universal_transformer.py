"""Universal Transformer: the same blocks again and again, each position as often as it needs. B batch, N positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from ..core import Positions
from ..core.auxiliary_losses import add_loss
from ..core.initialization import normal_parameter
from ..core.masks import Mask
from ..core.positions import sinusoid
from ..settings import Range
from .block import Block, BlockCache
from .stack import Stack, table

Count = Annotated[int, Range(1, 1000)]
Passes = Annotated[int, Range(0, 1000)]
HALTING = ("sum", "interpolate")
STEP_SIGNALS = ("sinusoid", "learned")


@table.add("universal", paper="Dehghani et al. 2019; Graves 2016 (halting)")
class UniversalStack(Stack):
    """`depth` steps of one block: x_t = block(x_(t−1) + position + time t); the output is Σ_t p_t x_t, p_t by adaptive halting.

    p_t = σ(w · (x_(t−1) + signals) + b) until their sum would pass 1 − `epsilon`, or at the last step: there p_t is what is missing to
    1. A position that has halted keeps its vector, which others still read. That is the paper's text, after Graves 2016. With `halting:
    interpolate`, the code that Dehghani et al. published, the output is s_t = p_t x_t + (1 − p_t) s_(t−1) from s_0 = 0, a position that
    never halts has no rest at the last step, and others read a position that has halted as the block changes it further.

    `ponder` times the mean of steps + last p joins the loss, and `ponder: null` switches halting off: the output is x_depth.

    `blocks` is how many different blocks a step consists of. `before` and `after` are further passes through the same blocks without a
    signal or halting. `step_signal` is a sinusoid or a learned vector of each step; `position_signal: false` leaves the positions out.
    """

    def __init__(
        self,
        block: Callable[[int], Block],
        depth: int,
        norm: Callable[[], nn.Module],
        dim: int,
        blocks: Count = 1,
        ponder: Annotated[float | None, Range(0.0, 100.0)] = 0.01,
        halting: Annotated[str, HALTING] = "sum",
        epsilon: Annotated[float, Range(1e-6, 0.99)] = 0.01,
        before: Passes = 0,
        after: Passes = 0,
        step_signal: Annotated[str, STEP_SIGNALS] = "sinusoid",
        position_signal: bool = True,
    ) -> None:
        self.blocks, self.steps, self.before, self.after = blocks, depth, before, after
        super().__init__(block, (before + depth + after) * blocks, norm)
        self.dim, self.ponder, self.position_signal = dim, ponder, position_signal
        self.interpolates, self.enough = halting == "interpolate", 1 - epsilon
        self.halt = None if ponder is None else nn.Linear(dim, 1)
        self.times = normal_parameter(depth, dim, std=1.0) if step_signal == "learned" else None
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
        real = (
            None
            if parts is None
            else parts[1].dense(x.shape[0], 1, 1, x.shape[1], x.device)[:, 0, 0]
        )
        return self.run(
            x, at, lambda n, y: self.block(n)(y, mask, memory, memory_mask, positions), real
        )

    def step(
        self,
        x: Tensor,
        caches: list[BlockCache],
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: Positions,
    ) -> tuple[Tensor, list[BlockCache]]:
        after: list[BlockCache] = []

        def apply(n: int, y: Tensor) -> Tensor:
            y, cache = self.block(n).step(y, caches[n], mask, memory_mask, positions)
            after.append(cache)
            return y

        return self.run(x, positions.i, apply), after

    def signal(self, at: Tensor, x: Tensor) -> Callable[[int], Tensor]:
        """What is added to x at the positions `at` before step t = 0, 1 …: N dim, or one for all positions."""
        waves = partial(sinusoid, dim=self.dim, dtype=torch.promote_types(x.dtype, torch.float32))
        where = waves(at) if self.position_signal else None

        def of_step(t: int) -> Tensor:
            time = (
                waves(torch.full_like(at[..., :1], t + 1)) if self.times is None else self.times[t]
            )
            return (time if where is None else where + time).to(x.dtype)

        return of_step

    def run(
        self,
        x: Tensor,
        at: Tensor,
        apply: Callable[[int, Tensor], Tensor],
        real: Tensor | None = None,
    ) -> Tensor:
        """`apply` block n to B N dim; `real` (B or 1, N): which positions are no padding."""

        def through(turn: int, y: Tensor) -> Tensor:
            for n in range(turn * self.blocks, (turn + 1) * self.blocks):
                y = apply(n, y)
            return y

        for turn in range(self.before):
            x = through(turn, x)
        step: Callable[[int, Tensor], Tensor] = lambda t, y: through(self.before + t, y)
        signal = self.signal(at, x)
        if self.halt is None:
            for t in range(self.steps):
                x = step(t, x + signal(t))
        else:
            x = self.until_halted(x, signal, step, real, self.halt)
        for turn in range(self.before + self.steps, self.before + self.steps + self.after):
            x = through(turn, x)
        return self.norm(x)

    def until_halted(
        self,
        x: Tensor,
        signal: Callable[[int], Tensor],
        step: Callable[[int, Tensor], Tensor],
        real: Tensor | None,
        halt: nn.Linear,
    ) -> Tensor:
        """The mix of what the steps made, each position until it halts."""
        running = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        total = torch.zeros(
            x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device
        )
        output, cost = torch.zeros_like(x), torch.zeros_like(total)
        for t in range(self.steps):
            y = x + signal(t)
            share = torch.sigmoid(halt(y).squeeze(-1).to(total.dtype))
            after = step(t, y)
            x = after if self.interpolates else torch.where(running.unsqueeze(-1), after, x)
            last = t + 1 == self.steps and not self.interpolates
            ends = running if last else running & (total + share > self.enough)
            weight = torch.where(ends, 1 - total, share) * running
            part = weight.unsqueeze(-1).to(x.dtype)
            output = (output * (1 - part) if self.interpolates else output) + part * x
            cost = cost + running + weight * ends
            total, running = total + weight, running & ~ends
        if self.training and self.ponder:
            counted = torch.ones_like(cost) if real is None else real.to(cost.dtype).expand_as(cost)
            output = add_loss(
                output, "ponder", self.ponder * (cost * counted).sum() / counted.sum()
            )
        return output
