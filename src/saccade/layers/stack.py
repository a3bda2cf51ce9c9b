"""Stacks: how blocks follow one another. B batch, N positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..core import Positions
from ..core.masks import Mask
from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range
from .block import Block, BlockCache
from .fast import fused_stack
from .norms import batch_norms

table: Table[type[Stack]] = Table(
    "stacks", "stack", facts=("block", "depth", "norm", "dim", "role")
)
USES = {
    "encoder": "an encoder without a decoder",
    "causal": "a model in which nobody sees the future",
    "images": "a model that attends to an image",
}


def check_use(make: Any, use: str) -> None:
    """Raises where a stack cannot be an "encoder" alone, "causal", or read "images"."""
    if use not in getattr(make, "uses", (use,)):
        fit = [entry.name for entry in table if use in entry.make.uses]
        raise SaccadeError(
            f"model.stack={table.name_of(make)} is not for {USES[use]}; choose one of: {', '.join(fit)}",
            code="stack-not-supported",
        )


@table.add("plain", paper="Vaswani et al. 2017")
class Stack(nn.Module):
    """`depth` blocks one after another, and a norm at the end where the residuals leave it to the stack. Block n is named `n`."""

    # an encoder and a decoder, an encoder alone, a decoder alone, what attends to an image
    uses: tuple[str, ...] = ("pair", "encoder", "causal", "images")
    any_mask = True  # knows other masks than causal and padding

    def __init__(
        self, block: Callable[[int], Block], depth: int, norm: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        self.depth = depth
        for n in range(self.different()):
            self.add_module(str(n), block(n))
        self.norm: nn.Module = norm() if self.block(0).final_norm else nn.Identity()
        self.batch_norms = batch_norms(self)

    def shortened(self, lengths: Tensor) -> Tensor:
        """The lengths of what `forward` makes of texts of these lengths."""
        return lengths

    def memory_at(self, n: int, memory: Tensor | None) -> Tensor | None:
        """What block n reads of what the encoder's stack made."""
        return memory

    def different(self) -> int:
        """How many blocks have parameters of their own."""
        return self.depth

    def block(self, n: int) -> Block:
        """The block at depth n."""
        found = self._modules[str(n % self.different())]
        assert isinstance(found, Block)
        return found

    def __iter__(self) -> Iterator[Block]:
        return (self.block(n) for n in range(self.depth))

    def __len__(self) -> int:
        return self.depth

    @property
    def needs_relation(self) -> bool:
        return any(block.mixer.needs_relation for block in self)

    @property
    def in_few_kernels(self) -> bool:
        """Whether its training on a GPU runs in as few kernels as if it were compiled."""
        return type(self).forward is Stack.forward and fused_stack.is_whole(self)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        if fused_stack.usable(self, x):
            return fused_stack.run(self, x, mask, memory, memory_mask, positions)
        for n, block in enumerate(self):
            x = block(x, mask, self.memory_at(n, memory), memory_mask, positions)
        return self.norm(x)

    def start(self, x: Tensor, memory: Tensor | None = None) -> list[BlockCache]:
        """One cache per depth; x (B … dim) has the batch, type and device."""
        return [block.start(x, self.memory_at(n, memory)) for n, block in enumerate(self)]

    def step(
        self,
        x: Tensor,
        caches: list[BlockCache],
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: Positions,
    ) -> tuple[Tensor, list[BlockCache]]:
        """Further positions x (B N dim), and the caches with them."""
        after = []
        for block, cache in zip(self, caches, strict=True):
            x, cache = block.step(x, cache, mask, memory_mask, positions)
            after.append(cache)
        return self.norm(x), after


@table.add("shared", paper="Lan et al. 2020 (ALBERT)")
class SharedStack(Stack):
    """One block used `depth` times, or `groups` blocks in turn: the parameters of few layers, the depth of many.

    In an encoder–decoder, `only: encoder` or `only: decoder` shares the blocks of that one; the other has its own at every depth.
    """

    def __init__(
        self,
        block: Callable[[int], Block],
        depth: int,
        norm: Callable[[], nn.Module],
        role: str = "alone",
        groups: Annotated[int, Range(1, 1000)] = 1,
        only: str | None = None,
    ) -> None:
        if only not in (None, "encoder", "decoder"):
            raise SaccadeError(
                f"expected stack.only to be encoder or decoder, got '{only}'; leave it out to share the blocks of both",
                code="unknown-choice",
            )
        if only is not None and role == "alone":
            raise SaccadeError(
                f"stack.only={only} is for an encoder–decoder, got a model of one stack; leave it out",
                code="setting-without-effect",
            )
        self.groups = min(groups, depth) if only in (None, role) else depth
        super().__init__(block, depth, norm)

    def different(self) -> int:
        return self.groups


@table.add("transparent", paper="Bapna et al. 2018")
class TransparentStack(Stack):
    """Each decoder block reads its own mix of all encoder layers: Σ_l softmax(w)_l h_l, the embedded tokens (l = 0) among them.

    The encoder's norm is applied to each h_l. The memory is B M dim (depth + 1).
    """

    uses = ("pair",)

    def __init__(
        self,
        block: Callable[[int], Block],
        depth: int,
        norm: Callable[[], nn.Module],
        role: str = "encoder",
    ) -> None:
        super().__init__(block, depth, norm)
        self.mixes = nn.Parameter(torch.zeros(depth, depth + 1)) if role == "decoder" else None

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        if self.mixes is not None:
            return super().forward(x, mask, memory, memory_mask, positions)
        layers = [x]
        for block in self:
            layers.append(block(layers[-1], mask, None, None, positions))
        return torch.stack([self.norm(layer) for layer in layers], -1)

    def memory_at(self, n: int, memory: Tensor | None) -> Tensor | None:
        if self.mixes is None or memory is None:
            return memory
        return memory @ self.mixes[n].softmax(
            -1, dtype=torch.promote_types(self.mixes.dtype, torch.float32)
        ).to(memory.dtype)
