"""Evolved Transformer: blocks that a search found. B batch, N positions, M memory positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Cache, Positions, Ready
from ..core.masks import Mask
from ..settings import Choice
from .block import Block, reordered, table
from .convolution_mixers import FullConvolution, SeparableConvolution
from .feedforward import MLP, Swish, initialize
from .mixers import Mixer
from .multihead_attention import MultiHeadAttention
from .residuals import Residual

Apply = Callable[[int, Tensor], Tensor]  # mixer or reader n of a cell, to B N dim


class Cell(nn.Module):
    """The parts of a block; `forward` is its formula, given how to apply a mixer and how to read the memory."""

    mixers: Any  # lists of modules, of which the type checker knows too little
    readers: Any
    around: Any

    def put(self, residual: Callable[[], Residual], *parts: Iterable[nn.Module]) -> None:
        """One residual around each group of parts."""
        self.around = nn.ModuleList(residual() for _ in parts)
        for around, group in zip(self.around, parts, strict=True):
            for part in group:
                around.initialize(part)

    def forward(self, x: Tensor, mix: Apply, read: Apply) -> Tensor:
        raise NotImplementedError


class EncoderCell(Cell):
    """GLU; relu(W x) + relu(conv 3×1), normed, into a separable conv 9×1; attention; MLP. Branches of half the width fill up with 0."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float,
        residual: Callable[[], Residual],
        make_mixer: Callable[..., Mixer],
    ) -> None:
        super().__init__()
        self.dim, self.hidden, self.dropout = dim, hidden, nn.Dropout(dropout)
        self.gated, self.left = nn.Linear(dim, 2 * dim), nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden)
        half = max(dim // 2, 1)
        self.mixers = nn.ModuleList(
            [
                FullConvolution(dim, min(half, hidden), 3),
                SeparableConvolution(hidden, half, 9),
                make_mixer(),
            ]
        )
        self.readers = nn.ModuleList()
        self.feedforward = MLP(dim, hidden, dropout)
        initialize(self.gated, self.left)
        convolutions = [self.left, *self.mixers[:2]]
        self.put(residual, [self.gated], convolutions, [self.mixers[2]], [self.feedforward])

    def forward(self, x: Tensor, mix: Apply, read: Apply) -> Tensor:
        def branches(y: Tensor) -> Tensor:
            left, right = self.dropout(self.left(y).relu()), self.dropout(mix(0, y).relu())
            return widen(
                self.dropout(mix(1, self.norm(left + widen(right, self.hidden)))), self.dim
            )

        gate, convolve, attend, last = self.around
        x = gate(x, lambda y: F.glu(self.gated(y)))
        x = convolve(x, branches)
        x = attend(x, lambda y: mix(2, y))
        found: Tensor = last(x, self.feedforward)
        return found


class DecoderCell(Cell):
    """Attention with twice the heads + to the memory; relu(sep conv 11×1) + sep conv 7×1, normed, into sep conv 7×1; attention; to the
    memory; MLP with swish."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float,
        residual: Callable[[], Residual],
        make_mixer: Callable[..., Mixer],
        make_cross: Callable[[], MultiHeadAttention],
    ) -> None:
        super().__init__()
        self.dim, self.dropout, self.norm = dim, nn.Dropout(dropout), nn.LayerNorm(2 * dim)
        wide = SeparableConvolution(dim, 2 * dim, 11)
        narrow = SeparableConvolution(dim, max(dim // 2, 1), 7)
        self.mixers = nn.ModuleList(
            [make_mixer(2), wide, narrow, SeparableConvolution(2 * dim, dim, 7), make_mixer()]
        )
        self.readers = nn.ModuleList([make_cross(), make_cross()])
        self.feedforward = MLP(dim, hidden, dropout, Choice(Swish))
        first = [self.mixers[0], self.readers[0]]
        self.put(
            residual,
            first,
            self.mixers[1:4],
            [self.mixers[4]],
            [self.readers[1]],
            [self.feedforward],
        )

    def forward(self, x: Tensor, mix: Apply, read: Apply) -> Tensor:
        def branches(y: Tensor) -> Tensor:
            left, right = self.dropout(mix(1, y).relu()), self.dropout(mix(2, y))
            return mix(3, self.norm(left + widen(right, 2 * self.dim)))

        both, convolve, attend, look, last = self.around
        x = both(x, lambda y: mix(0, y) + read(0, y))
        x = convolve(x, branches)
        x = attend(x, lambda y: mix(4, y))
        x = look(x, lambda y: read(1, y))
        found: Tensor = last(x, self.feedforward)
        return found


def widen(x: Tensor, size: int) -> Tensor:
    """Zeros behind the channels, up to `size` of them."""
    return F.pad(x, (0, size - x.shape[-1]))


class CellCache(Cache):
    """The caches of a cell's mixers, and the memory's keys and values of its readers."""

    def __init__(self, mixers: list[Cache], memories: list[Ready]) -> None:
        self.mixers, self.memories = mixers, memories

    def reorder(self, rows: Tensor) -> CellCache:
        return CellCache(
            [one.reorder(rows) for one in self.mixers],
            [reordered(one, rows) for one in self.memories],
        )


@table.add("evolved", paper="So et al. 2019")
class EvolvedBlock(Block):
    """GLU, branches of convolutions, attention and an MLP; a decoder's has two self-attentions and reads its memory twice.

    A block is worth two: a model has half the `depth`. With `head_width` the first attention of a decoder, which has twice the heads, is
    twice as wide as the others: with depth 6 that makes 216.4 M parameters, where Narang et al. 2021 print 217; without it its heads are
    half as wide.
    """

    takes_keys = False
    any_mask = False

    def __init__(
        self,
        make_mixer: Callable[..., Mixer],
        make_cross: Callable[[], MultiHeadAttention],
        residual: Callable[[], Residual],
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        role: str = "alone",
    ) -> None:
        nn.Module.__init__(self)
        own = (dim, hidden, dropout, residual, make_mixer)
        self.cell: Cell = DecoderCell(*own, make_cross) if role == "decoder" else EncoderCell(*own)
        for reader in self.cell.readers:
            reader.cross = True

    @property
    def mixer(self) -> Mixer:  # type: ignore[override]
        found: Mixer = self.cell.mixers[-1]
        return found

    @property
    def final_norm(self) -> bool:
        return bool(self.cell.around[0].final_norm)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        positions: Positions | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        assert keys is None, "an evolved block takes no keys of another length"
        ready = self.memories(memory)
        return self.cell(
            x,
            lambda n, y: self.cell.mixers[n].mix(y, mask, positions),
            lambda n, y: self.cell.readers[n].read(y, ready[n], memory_mask),
        )

    def memories(self, memory: Tensor | None) -> list[Ready]:
        return [] if memory is None else [reader.prepare(memory) for reader in self.cell.readers]

    def start(self, x: Tensor, memory: Tensor | None = None) -> CellCache:  # type: ignore[override]
        return CellCache([mixer.start(x) for mixer in self.cell.mixers], self.memories(memory))

    def step(  # type: ignore[override]
        self,
        x: Tensor,
        cache: CellCache,
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: Positions,
    ) -> tuple[Tensor, CellCache]:
        after = list(cache.mixers)
        first = positions.j.shape[-1] - x.shape[1]

        def mix(n: int, y: Tensor) -> Tensor:
            y, after[n] = self.cell.mixers[n].step(y, cache.mixers[n], mask, positions)
            return y

        def read(n: int, y: Tensor) -> Tensor:
            return self.cell.readers[n].read(y, cache.memories[n], memory_mask, first=first)

        return self.cell(x, mix, read), CellCache(after, cache.memories)
