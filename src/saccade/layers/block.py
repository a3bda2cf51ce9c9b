"""Blocks of a mixer and a feed-forward part. B batch, N positions, M memory positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Cache, Positions, Ready
from ..core.masks import Mask
from ..registry import Table
from .feedforward import NoFeedForward
from .mixers import Mixer
from .multihead_attention import MultiHeadAttention
from .residuals import Residual

# `mixer`, `feedforward` and `cross` (None without a memory) are made for a block that asks for them. `make_mixer(times=1)` makes further
# ones, with `times` as many heads, and `make_cross()` further readers of the memory.
FACTS = (
    "mixer",
    "feedforward",
    "residual",
    "cross",
    "make_mixer",
    "make_cross",
    "norm",
    "dim",
    "hidden",
    "heads",
    "dropout",
    "n",
    "depth",
    "role",
)
table: Table[type[Block]] = Table("blocks", "block", facts=FACTS)


class BlockCache(Cache):
    """What a block carries: its mixer's cache, and the memory's keys and values where it reads one."""

    def __init__(self, mixer: Cache, memory: Ready | None) -> None:
        self.mixer, self.memory = mixer, memory

    def reorder(self, rows: Tensor) -> BlockCache:
        return BlockCache(
            self.mixer.reorder(rows), None if self.memory is None else reordered(self.memory, rows)
        )


def reordered(ready: Ready, rows: Tensor) -> Ready:
    """Row n of the new keys and values is row rows[n] of these."""
    return Ready(ready.key.index_select(0, rows), ready.value.index_select(0, rows))


@table.add("standard", paper="Vaswani et al. 2017")
class Block(nn.Module):
    """A mixer, attention to a memory where there is one (`cross`), a feed-forward part; a residual around each."""

    own_shard = True  # where a model is divided over processes, one block at a time is gathered
    any_mask = (
        True  # with a mixer that knows other masks than causal and padding, it knows them too
    )
    takes_keys = (
        True  # where its mixer is attention, it may look from x to a longer text: see `look_at`
    )

    def __init__(
        self,
        mixer: Mixer,
        feedforward: nn.Module | None,
        residual: Callable[[], Residual],
        cross: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        feedforward = None if isinstance(feedforward, NoFeedForward) else feedforward
        self.mixer, self.cross, self.feedforward = mixer, cross, feedforward
        self.around_mixer = residual()
        self.around_feedforward = None if feedforward is None else residual()
        self.around_cross = None if cross is None else residual()
        if cross is not None:
            cross.cross = True
        for around, inner in (
            (self.around_mixer, mixer),
            (self.around_feedforward, feedforward),
            (self.around_cross, cross),
        ):
            if around is not None and inner is not None:
                around.initialize(inner)

    @property
    def final_norm(self) -> bool:
        """Whether a stack of these wants a norm after its last block."""
        return self.around_mixer.final_norm

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        if keys is None:
            x = self.around_mixer(x, lambda y: self.mixer.mix(y, mask, positions))
        else:
            x = self.look_at(keys, x, mask, positions)
        return self.after_mixer(x, None if memory is None else self.prepare(memory), memory_mask)

    def look_at(
        self, keys: Tensor, x: Tensor, mask: Mask | None, positions: Positions | None
    ) -> Tensor:
        """Attention from x (B N dim) to keys (B M dim), with the residual around x; it norms the keys as it norms x."""
        attention, size = self.mixer, x.shape[1]
        assert isinstance(attention, MultiHeadAttention), (
            "only attention has keys apart from queries"
        )

        def look(both: Tensor) -> Tensor:
            mixed = attention.read(
                both[:, :size], attention.prepare(both[:, size:], positions), mask, positions
            )
            return F.pad(mixed, (0, 0, 0, both.shape[1] - size))

        return self.around_mixer(torch.cat([x, keys], 1), look)[:, :size]

    def prepare(self, memory: Tensor) -> Ready:
        """The memory's keys and values."""
        assert self.cross is not None, "this block reads no memory"
        return self.cross.prepare(memory)

    def after_mixer(
        self, x: Tensor, memory: Ready | None, memory_mask: Mask | None, first: int = 0
    ) -> Tensor:
        if self.cross is not None and self.around_cross is not None and memory is not None:
            cross = self.cross
            x = self.around_cross(x, lambda y: cross.read(y, memory, memory_mask, first=first))
        return (
            x if self.around_feedforward is None else self.around_feedforward(x, self.feedforward)
        )

    def start(self, x: Tensor, memory: Tensor | None = None) -> BlockCache:
        """The cache before the first position; x (B … dim) has the batch, type and device."""
        return BlockCache(self.mixer.start(x), None if memory is None else self.prepare(memory))

    def step(
        self,
        x: Tensor,
        cache: BlockCache,
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: Positions,
    ) -> tuple[Tensor, BlockCache]:
        """Further positions x (B N dim), which follow those in the cache."""
        after: list[Cache] = []

        def mix(y: Tensor) -> Tensor:
            mixed, cache_after = self.mixer.step(y, cache.mixer, mask, positions)
            after.append(cache_after)
            return mixed

        x = self.around_mixer(x, mix)
        first = positions.j.shape[-1] - x.shape[1]
        return self.after_mixer(x, cache.memory, memory_mask, first), BlockCache(
            after[0], cache.memory
        )
