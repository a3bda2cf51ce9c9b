"""The mask of windows over a grid. b numbers images, and within each its windows, row by row; i and j are places of one window."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SaccadeError
from .masks import Mask, table


@table.add("shifted-windows", paper="Liu et al. 2021 (Swin)", per_batch=True)
class ShiftedWindows(Mask):
    """Windows of `size` × `size` over a grid that was rolled by `shift` places: a place sees those of its window that were its neighbors."""

    compares_positions = False

    def __init__(self, rows: int, columns: int, size: int, shift: int, device: torch.device | str = "cpu") -> None:
        if rows % size or columns % size or not 0 <= shift < size:
            got = f"got {size} and {shift} over {rows} × {columns}"
            raise SaccadeError(f"windows must divide the grid, and the shift be smaller than a window, {got}; pad the grid first")

        def parts(count: int) -> Tensor:
            """Of one side: 0 before the last window, 1 in it, 2 where it holds what was rolled there from the other end."""
            at = torch.arange(count, device=device)
            return (at >= count - size).long() + (at >= count - shift).long()

        regions = 3 * parts(rows).unsqueeze(1) + parts(columns)
        self.values = regions.view(rows // size, size, columns // size, size).transpose(1, 2).reshape(-1, size * size)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        window = b % len(self.values)
        return self.values[window, i] == self.values[window, j]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        count, places = self.values.shape
        if batch % count or queries != places or keys != places:
            got = f"got a batch of {batch} with {queries} queries and {keys} keys"
            raise SaccadeError(
                f"the mask is for {count} windows of {places} places per image, {got}; divide the grid into windows first"
            )
