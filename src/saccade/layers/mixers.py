"""Mixers: how positions exchange information, by attention or otherwise. B batch, N positions, H heads, D dim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core import Cache, Positions
from ..core.masks import Mask
from ..core.tracing import can_sync
from ..errors import SaccadeError
from ..registry import Table

table: Table[type[Mixer]] = Table(
    "mixers",
    "mixer",
    facts=(
        "dim",
        "heads",
        "kv_heads",
        "mechanism",
        "dropout",
        "dim_memory",
        "head_width",
        "n",
        "make_mechanism",
    ),
)


class Mixer(nn.Module):
    """x (B N dim) → B N dim. `step` reads further positions, from a cache of the mixer's own kind, which it does not change."""

    needs_relation = False  # requires `Positions.relation`
    causal = True  # supports causal masks and step-by-step decoding
    any_mask = True  # supports masks other than causal and padding

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        raise NotImplementedError

    def start(self, x: Tensor) -> Cache:
        """The cache before the first position; x (B … dim) has the batch, type and device."""
        raise NotImplementedError

    def step(
        self, x: Tensor, cache: Any, mask: Mask | None, positions: Positions
    ) -> tuple[Tensor, Cache]:
        raise NotImplementedError


def check_length(positions: Positions, max_len: int) -> None:
    """Checks that a mixer has learned all positions."""
    if positions.in_line:
        first, count = positions.j.shape[-1] - positions.i.shape[-1], positions.j.shape[-1]
    elif can_sync():
        at = torch.cat([positions.i.flatten(), positions.j.flatten()])
        first, count = int(at.min()), int(at.max()) + 1
    else:
        return
    if count > max_len:
        wrong = f"expected at most {max_len} positions (mixer.max_len), got {count}"
        raise SaccadeError(
            f"{wrong}; shorten the text, or train with a larger model.mixer.max_len",
            code="position-out-of-range",
        )
    if first < 0:
        raise SaccadeError(
            f"position {first} is before the first that the mixer has learned; give as many keys as queries",
            code="position-out-of-range",
        )
