"""Dropouts for recurrent models: one mask for all places, whole words, and the weights between states. B batch, N places, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .recurrent import Cell, Memory, Recurrence


class LockedDropout(nn.Module):
    """One mask for all places of a text, drawn anew for each text and update (Gal & Ghahramani 2016)."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """B N D"""
        if not self.training or not self.share:
            return x
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.share)

    def extra_repr(self) -> str:
        return f"{self.share}"


def drop_words(x: Tensor, numbers: Tensor, vocab: int, share: float) -> Tensor:
    """Vectors x (B N D) of the tokens `numbers` with whole words of the vocabulary dropped, wherever they stand (Gal & Ghahramani 2016)."""
    kept = F.dropout(x.new_ones(vocab), share)
    return x * kept[numbers].unsqueeze(-1)


class WeightDropped(Recurrence):
    """A recurrence of one layer whose weights from state to state are dropped, one draw a pass (DropConnect; Merity et al. 2018)."""

    def __init__(self, cell: type[Cell], dim: int, hidden: int, share: float) -> None:
        super().__init__(cell, dim, hidden)
        self.share = share

    def forward(self, x: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        if not self.training or not self.share:
            return super().forward(x, memory)
        dropped = {"weight_hh_l0": F.dropout(self.parameter("weight_hh_l0"), self.share)}
        first = self.first(x, memory)
        output, last = torch.func.functional_call(self.layers, dropped, (x, first))
        # PyTorch's layer keeps a list of the weights it ran with; the dropped ones, part of a graph, could not be copied.
        self.layers._flat_weights = [self.parameter(name) for name in self.layers._flat_weights_names]
        return output, self.last(last)

    def extra_repr(self) -> str:
        return f"share={self.share}"
