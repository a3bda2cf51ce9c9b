"""Blocks of attention and MLP, and stacks of them. B batch, N places, M memory places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torch import Tensor, nn

from ..core import KeyValues, Places
from ..core.masks import Mask
from .attention import MultiHeadAttention
from .residuals import Residual

Ready = tuple[Tensor, Tensor]  # keys and values of a memory


class Block(nn.Module):
    """Self-attention, attention to a memory where there is one (`cross`), MLP; a residual around each."""

    own_shard = True  # where a model is divided over processes, one block at a time is gathered

    def __init__(
        self,
        attention: MultiHeadAttention,
        mlp: nn.Module,
        residual: Callable[[], Residual],
        cross: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.mlp = attention, cross, mlp
        self.around_attention, self.around_mlp = residual(), residual()
        self.around_cross = None if cross is None else residual()
        if cross is not None:
            cross.cross = True

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        places: Places | None = None,
    ) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, mask=mask, places=places))
        return self.after_attention(x, None if memory is None else self.ready(memory), memory_mask)

    def step(self, x: Tensor, cache: KeyValues, mask: Mask | None, ready: Ready | None, memory_mask: Mask | None) -> Tensor:
        """New places x (B N dim) after those in the cache, which grows by them."""
        x = self.around_attention(x, lambda y: self.attention.step(y, cache, mask))
        return self.after_attention(x, ready, memory_mask)

    def ready(self, memory: Tensor) -> Ready:
        """The memory's keys and values, computed once a sentence."""
        assert self.cross is not None, "this block reads no memory"
        return self.cross.ready(memory)

    def after_attention(self, x: Tensor, ready: Ready | None, memory_mask: Mask | None) -> Tensor:
        if self.cross is not None and self.around_cross is not None and ready is not None:
            cross = self.cross
            x = self.around_cross(x, lambda y: cross.read(y, *ready, memory_mask))
        return self.around_mlp(x, self.mlp)


class Stack(nn.Module):
    """Blocks one after another, and a norm at the end where the residuals leave it to the stack. Block n is named `n`."""

    def __init__(self, blocks: Iterable[Block], norm: nn.Module) -> None:
        super().__init__()
        self.depth = 0
        for block in blocks:
            self.add_module(str(self.depth), block)
            self.depth += 1
        self.norm = norm

    def __iter__(self) -> Iterator[Block]:
        return (self[n] for n in range(self.depth))

    def __getitem__(self, n: int) -> Block:
        block = self._modules[str(n)]
        assert isinstance(block, Block)
        return block

    def __len__(self) -> int:
        return self.depth

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        places: Places | None = None,
    ) -> Tensor:
        """`places`: where the rows of x stand, when that is not 0, 1, 2 …"""
        for block in self:
            x = block(x, mask, memory, memory_mask, places)
        return self.norm(x)

    def start(self, memory: Tensor | None = None) -> tuple[list[KeyValues], list[Ready | None]]:
        """Empty caches and the memory's keys and values, one a block."""
        return [KeyValues() for _ in self], [None if memory is None else block.ready(memory) for block in self]

    def step(
        self,
        x: Tensor,
        caches: list[KeyValues],
        ready: list[Ready | None],
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        for block, cache, kv in zip(self, caches, ready, strict=True):
            x = block.step(x, cache, mask, kv, memory_mask)
        return self.norm(x)
