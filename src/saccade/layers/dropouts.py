"""Dropouts for recurrent models: one mask for all positions, whole vectors, words, weights between states. B batch, N positions, D width."""

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .recurrent import Carried, Cell, Recurrence

MAX_INDEXED_NUMBERS = 1 << 31  # numbers whose positions are counted in 32 bits


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014). In a compiled pass on a GPU, PyTorch's random numbers take longer than the sums they are part of:
    there each number's row and column and one drawn seed are mixed by integer products instead, which the pass back can repeat."""

    def forward(self, x: Tensor) -> Tensor:
        if not (
            self.training
            and 0 < self.p < 1
            and torch.compiler.is_compiling()
            and x.is_cuda
            and x.numel() < MAX_INDEXED_NUMBERS
        ):
            return super().forward(x)
        return scatter_zeros(
            x, self.p, torch.randint(2**31 - 1, (), device=x.device, dtype=torch.int32)
        )


def scatter_zeros(x: Tensor, share: float, seed: Tensor) -> Tensor:
    """x (… D) with a share of its numbers at 0 and the others larger, by a hash of each number's row and column."""
    row, at = (
        torch.arange(count, device=x.device, dtype=torch.int32)
        for count in (x.numel() // x.shape[-1], x.shape[-1])
    )
    # the seed goes in between: else two seeds would give the same zeros, moved
    key = mix(mix(row) ^ seed)
    bits = stir(key.unsqueeze(1) ^ at).view(x.shape)
    return torch.where(bits < int(share * (1 << 32)) - (1 << 31), 0.0, x * (1 / (1 - share)))


def stir(x: Tensor) -> Tensor:
    """32 bits of which the high ones depend on all (the constants of Wellons' lowbias32); shifts are those of numbers without a sign."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    return (x ^ ((x >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))


def mix(x: Tensor) -> Tensor:
    x = stir(x)
    return x ^ ((x >> 16) & 0xFFFF)


class LockedDropout(nn.Module):
    """One mask for all positions of a text, drawn anew for each text and update (Gal & Ghahramani 2016)."""

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


class VectorDropout(nn.Module):
    """Whole vectors are dropped in training; the others keep their size, since in use none is missing."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def kept(self, x: Tensor) -> Tensor | None:
        """0 where a vector of x (B N D) is dropped and else 1, B N 1; None where all are kept."""
        if not self.training or not self.share:
            return None
        return (torch.rand(*x.shape[:2], 1, device=x.device) >= self.share).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.share}"


def drop_words(x: Tensor, ids: Tensor, vocab: int, share: float) -> Tensor:
    """Vectors x (B N D) of the tokens `ids` with whole words of the vocabulary dropped, wherever they occur (Gal & Ghahramani 2016)."""
    kept = F.dropout(x.new_ones(vocab), share)
    return x * kept[ids].unsqueeze(-1)


class WeightDropped(Recurrence):
    """A recurrence of one layer whose weights from state to state are dropped, one draw per pass (DropConnect; Merity et al. 2018)."""

    def __init__(self, cell: type[Cell], dim: int, hidden: int, share: float) -> None:
        super().__init__(cell, dim, hidden)
        self.share = share

    def read_piece(self, x: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        if not self.training or not self.share:
            return super().read_piece(x, carried)
        weights = [
            self.parameter(name)
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        ]
        weights[1] = F.dropout(weights[1], self.share)
        # cuDNN wants all weights in one piece and makes one of these at every call
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="RNN module weights are not part of single contiguous chunk"
            )
            # has biases, layers, dropout between layers, training, bidirectional, batch first: PyTorch takes them by position alone
            output, *last = self.cell.run(
                x, self.first(carried), weights, True, 1, 0.0, True, False, True
            )
        return output, self.last(tuple(last) if self.cell.carries > 1 else last[0])

    def extra_repr(self) -> str:
        return f"share={self.share}"
