"""Mixers: how positions exchange information, by attention or otherwise. B batch, N positions, H heads, D dim."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..core import Cache, Positions
from ..core.masks import Mask
from ..core.table import Table

table: Table[type[Mixer]] = Table(
    "mixers", "mixer", facts=("dim", "heads", "kv_heads", "mechanism", "dropout", "dim_memory", "head_width", "n")
)


class Mixer(nn.Module):
    """x (B N dim) → B N dim. `step` reads further positions, from a cache of the mixer's own kind, which it does not change."""

    needs_relation = False  # asks for `Positions.relation`
    any_mask = True  # knows other masks than causal and padding

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        raise NotImplementedError

    def start(self, x: Tensor) -> Cache:
        """The cache before the first position; x (B … dim) has the batch, type and device."""
        raise NotImplementedError

    def step(self, x: Tensor, cache: Any, mask: Mask | None, positions: Positions) -> tuple[Tensor, Cache]:
        raise NotImplementedError
