"""Attention within windows of a grid. B batch, R rows, C columns, N = R·C positions, W windows of S × S positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import Mechanism, Positions
from ..core.initialization import normal_parameter
from ..core.masks import Mask, Prepared
from ..core.positions import Position
from ..core.window_masks import ShiftedWindows
from .multihead_attention import MultiHeadAttention


class GridBias(Position):
    """b_h[Δrow, Δcolumn]: a learned bias per head and step between two positions of a window; `relation` numbers the steps."""

    needs_relation = bias_of_pairs = True

    def __init__(self, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.table = normal_parameter((2 * window - 1) ** 2, heads, std=0.02)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        assert positions.relation is not None, "windows number the steps between their positions"
        return self.table[positions.relation].movedim(-1, -3).to(q.dtype)


@dataclass(frozen=True, eq=False)
class Windows(Positions):
    """The positions of a window of a grid, and how the grid is divided: windows of `size`, in every other block shifted by `shift`."""

    grid: tuple[int, int] = (1, 1)  # rows and columns
    size: int = 1
    shift: int = 0

    @staticmethod
    def over(rows: int, columns: int, window: int, device: torch.device) -> Windows:
        """Windows as large as `window`, or as the shorter side of the grid, where it has but one and nothing is shifted."""
        size = min(window, rows, columns)
        at = torch.arange(size * size, device=device)
        row, column = at // size, at % size
        down, across = row.unsqueeze(1) - row, column.unsqueeze(1) - column
        relation = (down + window - 1) * (2 * window - 1) + across + window - 1
        shift = window // 2 if size < min(rows, columns) else 0
        return Windows(at, at, relation.unsqueeze(0), True, {}, (rows, columns), size, shift)

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of the least grid that windows divide."""
        rows, columns = self.grid
        return rows + -rows % self.size, columns + -columns % self.size

    def mask(self, batch: int, heads: int, device: torch.device) -> Prepared | None:
        """The mask of shifted windows, for all blocks of a stage; None where nothing is shifted."""
        if not self.shift:
            return None
        positions, shift = self.size**2, (self.shift, self.shift)
        made = ShiftedWindows(self.padded, (self.size, self.size), shift, device)
        return made.prepare(batch * len(made.values), heads, positions, positions, device)

    def divide(self, x: Tensor, shift: int) -> Tensor:
        """B N D → (B W) S² D, with zeros at the right and below where windows do not divide the grid."""
        (rows, columns), (more_rows, more_columns), size = self.grid, self.padded, self.size
        x = F.pad(x.unflatten(1, self.grid), (0, 0, 0, more_columns - columns, 0, more_rows - rows))
        x = x.roll((-shift, -shift), (1, 2)) if shift else x
        return (
            x.unflatten(2, (-1, size))
            .unflatten(1, (-1, size))
            .transpose(2, 3)
            .flatten(3, 4)
            .flatten(0, 2)
        )

    def join(self, x: Tensor, shift: int) -> Tensor:
        """(B W) S² D → B N D"""
        (rows, columns), size = self.padded, self.size
        x = x.view(-1, rows // size, columns // size, size, size, x.shape[-1]).transpose(2, 3)
        x = x.reshape(-1, rows, columns, x.shape[-1])
        x = x.roll((shift, shift), (1, 2)) if shift else x
        return x[:, : self.grid[0], : self.grid[1]].flatten(1, 2)

    def spread(self, weights: Tensor, shifted: bool) -> Tensor:
        """Weights within windows, (B W) H S² S², as weights between all positions of the grid, B H N N; what falls on padding is lost."""
        count = self.grid[0] * self.grid[1]
        numbers = torch.arange(1, count + 1, device=weights.device).view(1, -1, 1)  # 0 is padding
        at = self.divide(numbers, self.shift if shifted else 0).squeeze(-1)
        made = weights.new_zeros(len(weights) // len(at), weights.shape[1], count + 1, count + 1)
        made[:, :, at.unsqueeze(2), at.unsqueeze(1)] = weights.unflatten(
            0, (-1, len(at))
        ).transpose(1, 2)
        return made[..., 1:, 1:]


class WindowAttention(MultiHeadAttention):
    """Attention among the positions of each window; with `shifted`, of windows that lie across those of the block before."""

    causal = False

    def __init__(
        self,
        dim: int,
        heads: int,
        mechanism: Mechanism,
        dropout: float = 0.0,
        shifted: bool = False,
    ) -> None:
        super().__init__(dim, heads, mechanism=mechanism, dropout=dropout)
        self.shifted = shifted

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        """x: B N dim; `positions` are `Windows`, and `mask` is theirs."""
        assert isinstance(positions, Windows), "the grid is not known"
        shift = positions.shift if self.shifted else 0
        return positions.join(
            super().mix(positions.divide(x, shift), mask if shift else None, positions), shift
        )
