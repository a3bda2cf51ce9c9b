"""Windows: which positions of a source a decoder's step looks at. B batch, T steps, K source positions, S length of a source."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from ..registry import Table
from ..settings import Range

table: Table[type[Window]] = Table("windows", "window", facts=("dim",))
Reach = Annotated[int, Range(1, 10**6)]


class Window(nn.Module):
    """From the states that ask (B T dim), the sources' lengths (B) and how many steps came before: where each step looks."""

    everywhere = False  # no window at all

    def forward(
        self, query: Tensor, lengths: Tensor, keys: int, first: int
    ) -> tuple[Tensor, Tensor | None]:
        """What may be looked at, B 1 T K, and what weights are multiplied by, if by anything."""
        raise NotImplementedError


@table.add("everywhere")
class Everywhere(Window):
    """The whole source, at every step."""

    everywhere = True


@table.add("monotonic", paper="Luong et al. 2015 (local-m)", example={"reach": 2})
class Monotonic(Window):
    """Step t looks at t − reach … t + reach; behind the end of a source at its last positions."""

    def __init__(self, reach: Reach = 10) -> None:
        super().__init__()
        self.reach = reach

    def forward(
        self, query: Tensor, lengths: Tensor, keys: int, first: int
    ) -> tuple[Tensor, Tensor | None]:
        steps = torch.arange(first, first + query.shape[1], device=query.device)
        center = torch.minimum(steps, lengths.unsqueeze(1) - 1)
        return (self.away(center, keys).abs() <= self.reach).unsqueeze(1), None

    def away(self, center: Tensor, keys: int) -> Tensor:
        """How far each position is from the center of each step: B T K."""
        return torch.arange(keys, device=center.device) - center.unsqueeze(-1)


@table.add("predicted", paper="Luong et al. 2015 (local-p)", example={"reach": 2})
class Predicted(Monotonic):
    """p = S · σ(vᵀ tanh(W h)); looks at p − reach … p + reach, weights times exp(−(s − p)² / 2σ²), σ = reach / 2."""

    def __init__(self, dim: int, reach: Reach = 10) -> None:
        super().__init__(reach)
        self.w, self.v = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 1, bias=False)

    def forward(
        self, query: Tensor, lengths: Tensor, keys: int, first: int
    ) -> tuple[Tensor, Tensor | None]:
        center = lengths.unsqueeze(1) * self.v(torch.tanh(self.w(query))).squeeze(-1).sigmoid()
        away = self.away(center, keys).unsqueeze(1)
        return away.abs() <= self.reach, torch.exp(-2 * (away / self.reach).square())
