"""Masks of windows over a grid. b counts the windows of all images row by row; i and j are positions in a window."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SaccadeError
from .masks import Mask, table


@table.add("shifted-windows", paper="Liu et al. 2021 (Swin)", per_batch=True)
class ShiftedWindows(Mask):
    """Windows over a grid that was rolled by `shift`: a position sees those of its window that were in one window's reach before."""

    compares_positions = False

    def __init__(
        self,
        grid: tuple[int, int],
        window: tuple[int, int],
        shift: tuple[int, int],
        device: torch.device | str = "cpu",
    ) -> None:
        """`grid`, `window` and `shift` are (rows, columns). Windows divide the grid."""
        if any(
            count % size or not 0 <= by < size
            for count, size, by in zip(grid, window, shift, strict=True)
        ):
            rule = "windows must divide the grid, and shifts be smaller than a window"
            raise SaccadeError(
                f"{rule}, got windows of {window} shifted by {shift} over {grid}; pad the grid first",
                code="windows-do-not-fit",
            )

        def parts(count: int, size: int, by: int) -> Tensor:
            """One side: 0 before the last window, 1 in it, 2 for positions rolled in from the other end."""
            at = torch.arange(count, device=device)
            return (at >= count - size).long() + (at >= count - by).long()

        down, across = (parts(*side) for side in zip(grid, window, shift, strict=True))
        regions = (
            (3 * down.unsqueeze(1) + across)
            .unflatten(1, (-1, window[1]))
            .unflatten(0, (-1, window[0]))
        )
        # The region of each position, per window.
        self.values: Tensor = regions.transpose(1, 2).flatten(2).flatten(0, 1)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        window = b % len(self.values)
        return self.values[window, i] == self.values[window, j]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        count, positions = self.values.shape
        if batch % count or keys != positions:
            got = f"got a batch of {batch} with {keys} keys"
            raise SaccadeError(
                f"the mask is for {count} windows of {positions} positions per image, {got}; divide the grid into windows first",
                code="windows-do-not-fit",
            )
