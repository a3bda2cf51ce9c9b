"""Mixers: how positions exchange information, by attention or otherwise. B batch, N positions, H heads, D dim."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Cache, Positions
from ..core.masks import Full, Mask, may_read
from ..core.options import Range, Share
from ..core.table import Table
from ..errors import SaccadeError
from .feedforward import initialize

table: Table[type[Mixer]] = Table(
    "mixers",
    "mixer",
    facts=("dim", "heads", "kv_heads", "mechanism", "dropout", "dim_memory", "head_width", "n", "make_mechanism"),
)


class Mixer(nn.Module):
    """x (B N dim) → B N dim. `step` reads further positions, from a cache of the mixer's own kind, which it does not change."""

    needs_relation = False  # asks for `Positions.relation`
    causal = True  # can hide the future, and read position by position

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        raise NotImplementedError

    def start(self, x: Tensor) -> Cache:
        """The cache before the first position; x (B … dim) has the batch, type and device."""
        raise NotImplementedError

    def step(self, x: Tensor, cache: Any, mask: Mask | None, positions: Positions) -> tuple[Tensor, Cache]:
        raise NotImplementedError


def check_length(positions: Positions, max_len: int) -> None:
    """A clear error for a position beyond what a mixer has learned; positions in a line are known by their number."""
    if positions.in_line:
        count = positions.j.shape[-1]
    else:
        count = int(torch.maximum(positions.i.max(), positions.j.max())) + 1 if may_read() else 0
    if count > max_len:
        wrong = f"expected at most {max_len} positions (mixer.max_len), got {count}"
        raise SaccadeError(f"{wrong}; shorten the text, or train with a larger model.mixer.max_len")


class LastInputs(Cache):
    """The inputs that a causal convolution still reaches back to: B W dim."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def reorder(self, rows: Tensor) -> LastInputs:
        return LastInputs(self.inputs.index_select(0, rows))


@table.add("light-convolution", paper="Wu et al. 2019", example={"width": 3})
class LightConvolution(Mixer):
    """W₂ · conv(glu(W₁ x)): y_n = Σ_k softmax(w_h)_k x_(n+k), one kernel per head, the same at every position."""

    def __init__(self, dim: int, heads: int = 8, width: Annotated[int, Range(1, 4096)] = 7, kernel_dropout: Share = 0.0) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise SaccadeError(f"dim must be a multiple of heads, got dim={dim} and heads={heads}; choose heads that divide it")
        self.heads, self.width, self.kernel_dropout = heads, width, kernel_dropout
        self.inner, self.outer = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.kernel = nn.Parameter(torch.empty(heads, width))
        initialize(self.inner, self.outer)
        nn.init.xavier_uniform_(self.kernel)

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        parts = (False, Full()) if mask is None else mask.causal_and_keys()
        if parts is None:
            raise SaccadeError(
                f"a convolution knows causal and padding masks alone, got {mask!r}; use mixer=attention for others"
            )
        causal, keys = parts
        inputs = F.glu(self.inner(x))
        if type(keys) is not Full:  # padding is zeros, as what lies beyond the ends
            real = keys.dense(x.shape[0], 1, 1, x.shape[1], x.device)[:, 0, 0].unsqueeze(-1)
            inputs = inputs * real.to(x.dtype)
        left = self.width - 1 if causal else self.width // 2
        return self.outer(self.convolve(F.pad(inputs, (0, 0, left, self.width - 1 - left))))

    def convolve(self, inputs: Tensor) -> Tensor:
        """B (N + W − 1) dim → B N dim"""
        shares = self.kernel.softmax(-1, dtype=torch.promote_types(self.kernel.dtype, torch.float32))
        kernel = F.dropout(shares, self.kernel_dropout, self.training).to(inputs.dtype)
        per_channel = kernel.repeat_interleave(inputs.shape[-1] // self.heads, 0).unsqueeze(1)  # dim 1 W
        return F.conv1d(inputs.transpose(1, 2), per_channel, groups=inputs.shape[-1]).transpose(1, 2)

    def start(self, x: Tensor) -> LastInputs:
        return LastInputs(x.new_zeros(x.shape[0], self.width - 1, self.inner.in_features))

    def step(self, x: Tensor, cache: LastInputs, mask: Mask | None, positions: Positions) -> tuple[Tensor, LastInputs]:
        inputs = torch.cat([cache.inputs, F.glu(self.inner(x))], 1)
        return self.outer(self.convolve(inputs)), LastInputs(inputs[:, inputs.shape[1] - (self.width - 1) :])
