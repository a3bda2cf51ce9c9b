"""Recurrent layers: tanh-RNN, GRU, LSTM, over whole sequences and step by step. B batch, N positions, H hidden width, L layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..registry import Table

MAX_CHUNK_POSITIONS = 16_384  # positions at a time: with 32,768 cuDNN's LSTM never ends (seen with torch 2.11 on an H200)
cells: Table[type[Cell]] = Table("cells", "cell")
Carried = tuple[Tensor, ...]  # what a recurrence carries: (h,) or (h, c), each B L H


class Cell:
    """One step of a recurrence from projected inputs and states, and PyTorch's layer of the same arithmetic."""

    layer: Callable[..., nn.RNNBase]
    run: Callable[..., Any]  # what the layer calls, with weights passed to it
    carries = 1
    carry_gate: int | None = (
        None  # which block of the gates' bias says how much of the last state is kept
    )

    @staticmethod
    def advance(x: Tensor, h: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """x = W x + b and h = W h + b, all gates side by side; `carried` is what the last step left, B H each."""
        raise NotImplementedError


@cells.add("tanh", paper="Elman 1990")
class Tanh(Cell):
    """h' = tanh(W x + U h + b)"""

    layer = nn.RNN
    run = staticmethod(torch.rnn_tanh)

    @staticmethod
    def advance(x: Tensor, h: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.tanh(x + h),)


@cells.add("gru", paper="Cho et al. 2014")
class Gru(Cell):
    """r, z = σ(…); n = tanh(W x + r ∘ (U h)); h' = n + z ∘ (h − n)"""

    layer = nn.GRU
    run = staticmethod(torch.gru)
    carry_gate = 1

    @staticmethod
    def advance(x: Tensor, h: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        width = carried[0].shape[-1]
        reset, update = (x[..., : 2 * width] + h[..., : 2 * width]).sigmoid().chunk(2, -1)
        new = torch.tanh(torch.addcmul(x[..., 2 * width :], reset, h[..., 2 * width :]))
        return (torch.lerp(new, carried[0], update),)


@cells.add("lstm", paper="Hochreiter & Schmidhuber 1997")
class Lstm(Cell):
    """i, f, o = σ(…), g = tanh(…); c' = f ∘ c + i ∘ g; h' = o ∘ tanh(c')"""

    layer = nn.LSTM
    run = staticmethod(torch.lstm)
    carries = 2
    carry_gate = 1

    @staticmethod
    def advance(x: Tensor, h: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        enter, forget, new, leave = (x + h).chunk(4, -1)
        c = forget.sigmoid() * carried[1] + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * c.tanh(), c


class Recurrence(nn.Module):
    """A recurrence of `depth` layers: `forward` over a whole sequence, `step` by step with inputs projected beforehand."""

    def __init__(
        self,
        cell: type[Cell],
        dim: int,
        hidden: int,
        depth: int = 1,
        dropout: float = 0.0,
        output: int | None = None,
    ) -> None:
        """An LSTM's states may be projected to a width `output` (Sak et al. 2014)."""
        super().__init__()
        self.cell, self.hidden, self.depth, self.output = cell, hidden, depth, output
        projected = {} if output is None else {"proj_size": output}
        self.layers = cell.layer(
            dim, hidden, depth, batch_first=True, dropout=dropout if depth > 1 else 0.0, **projected
        )
        self.dropout = nn.Dropout(dropout if depth > 1 else 0.0)

    def empty(self, batch: int, like: Tensor) -> Carried:
        widths = (self.output or self.hidden, self.hidden)
        return tuple(
            like.new_zeros(batch, self.depth, width) for width in widths[: self.cell.carries]
        )

    def read(self, x: Tensor, carried: Carried | None = None) -> tuple[Tensor, Carried]:
        """A whole sequence (B N dim), or one step (B dim)."""
        if x.dim() == 3:
            return self(x, carried)
        return self.step(self.project(x), self.empty(len(x), x) if carried is None else carried)

    def read_back(self, x: Tensor, lengths: Tensor) -> Tensor:
        """From the end of each row to its beginning: B N dim → B N H."""
        mirror = mirrored(lengths, x.shape[1])
        return rows(self(rows(x, mirror))[0], mirror)

    def favor_input(self, by: float = 1.5) -> None:
        """Starts the gates so that a state depends on its own input most; by the state's bias, as the input's is a part of `project`."""
        if self.cell.carry_gate is not None:
            gate = slice(
                self.cell.carry_gate * self.hidden, (self.cell.carry_gate + 1) * self.hidden
            )
            with torch.no_grad():
                self.parameter("bias_hh_l0")[gate] -= by

    def forward(self, x: Tensor, carried: Carried | None = None) -> tuple[Tensor, Carried]:
        """B N dim → B N H and what is carried on."""
        outputs, states = list[Tensor](), self.empty(x.shape[0], x) if carried is None else carried
        for piece in x.split(MAX_CHUNK_POSITIONS, 1):
            output, states = self.read_piece(piece, states)
            outputs.append(output)
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)), states

    def read_piece(self, x: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        with warnings.catch_warnings() if self.output else nullcontext():
            if self.output:
                # that oneDNN has none, on a CPU
                warnings.filterwarnings("ignore", "LSTM with projections")
            output, last = self.layers(x, self.first(carried))
        return output, self.last(last)

    def first(self, carried: Carried) -> Any:
        """What is carried as PyTorch's layer takes it: L B H, a pair of these for an LSTM."""
        first = tuple(part.transpose(0, 1).contiguous() for part in carried)
        return first if self.cell.carries > 1 else first[0]

    def last(self, last: Any) -> Carried:
        """The inverse of `first`."""
        return tuple(part.transpose(0, 1) for part in (last if self.cell.carries > 1 else (last,)))

    def project(self, x: Tensor, start: int = 0, gates: int | None = None) -> Tensor:
        """What x, in the input's columns from `start` on, gives the gates of the first layer, for all steps at once; the bias is column 0's.
        With `gates`, the first so many numbers alone."""
        weight, bias = self.parameter("weight_ih_l0")[:gates], self.parameter("bias_ih_l0")[:gates]
        return F.linear(x, weight[:, start : start + x.shape[-1]], bias if start == 0 else None)

    def parameter(self, name: str) -> Tensor:
        found = getattr(self.layers, name)
        assert isinstance(found, Tensor)
        return found

    def step(self, projected: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        """One step from projected inputs (B gates): the top layer's state, B H, and what is carried on."""
        new: list[tuple[Tensor, ...]] = []
        for n in range(self.depth):
            before = tuple(part[:, n] for part in carried)
            inner = F.linear(
                before[0], self.parameter(f"weight_hh_l{n}"), self.parameter(f"bias_hh_l{n}")
            )
            after = self.cell.advance(projected, inner, before)
            if self.output is not None:
                after = (F.linear(after[0], self.parameter(f"weight_hr_l{n}")), *after[1:])
            new.append(after)
            if n + 1 < self.depth:
                below = self.dropout(new[-1][0])
                projected = F.linear(
                    below,
                    self.parameter(f"weight_ih_l{n + 1}"),
                    self.parameter(f"bias_ih_l{n + 1}"),
                )
        if self.depth == 1:
            return new[0][0], tuple(part.unsqueeze(1) for part in new[0])
        return new[-1][0], tuple(torch.stack(parts, 1) for parts in zip(*new, strict=True))


class Bidirectional(nn.Module):
    """Two recurrences per layer, one from each end; padding never reaches a state. B N dim → B N 2H and the two last states, B 2H."""

    def __init__(
        self,
        cell: type[Cell],
        dim: int,
        hidden: int,
        depth: int = 1,
        dropout: float = 0.0,
        drop: nn.Module | None = None,
    ) -> None:
        """`drop` is between layers, instead of a plain dropout."""
        super().__init__()
        self.width = 2 * hidden
        widths = [dim] + [2 * hidden] * (depth - 1)
        self.forwards = nn.ModuleList(Recurrence(cell, width, hidden) for width in widths)
        self.backwards = nn.ModuleList(Recurrence(cell, width, hidden) for width in widths)
        self.dropout = nn.Dropout(dropout) if drop is None else drop

    def favor_own_word(self, by: float = 1.5) -> None:
        """A position's state depends on its own word most, and alignments come out right more often."""
        for layer in (*self.forwards, *self.backwards):
            assert isinstance(layer, Recurrence)
            layer.favor_input(by)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        end = x
        for n, (there, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            assert isinstance(back, Recurrence)
            x = self.dropout(x) if n else x
            right, left = there(x)[0], back.read_back(x, lengths)
            x = torch.cat([right, left], -1)
            end = torch.cat([last_of(right, lengths), left[:, 0]], -1)
        return x, end


class Unidirectional(nn.Module):
    """Layers that read from left to right: B N dim → B N H and the last state, B H."""

    def __init__(
        self, cell: type[Cell], dim: int, hidden: int, depth: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = hidden
        self.forwards = nn.ModuleList(
            Recurrence(cell, width, hidden) for width in [dim] + [hidden] * (depth - 1)
        )
        self.dropout = nn.Dropout(dropout)

    def favor_own_word(self, by: float = 1.5) -> None:
        """As in `Bidirectional`."""
        for layer in self.forwards:
            assert isinstance(layer, Recurrence)
            layer.favor_input(by)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        for n, layer in enumerate(self.forwards):
            x, _ = layer(self.dropout(x) if n else x)
        return x, last_of(x, lengths)


def last_of(x: Tensor, lengths: Tensor) -> Tensor:
    """Each row's last position before its padding: B N H → B H."""
    last = (lengths - 1).clamp_min(0).view(-1, 1, 1)
    return x.gather(1, last.expand(-1, -1, x.shape[-1])).squeeze(1)


def mirrored(lengths: Tensor, size: int) -> Tensor:
    """For each row the positions in reverse up to its length, and those behind it as they are: B N."""
    at = torch.arange(size, device=lengths.device)
    reverse = lengths.unsqueeze(1) - 1 - at
    return torch.where(reverse >= 0, reverse, at)


def rows(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b, n]]"""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
