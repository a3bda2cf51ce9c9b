"""Convolutions over positions, as whole passes and one position after another. B batch, N positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Cache


class LastInputs(Cache):
    """The inputs that a causal convolution still reaches back to: B (W − 1) C."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def reorder(self, rows: Tensor) -> "LastInputs":
        return LastInputs(self.inputs.index_select(0, rows))


class Convolution(nn.Module):
    """y_n = b + Σ_k W_k x_(n + (k − left) · dilation), with zeros beyond the ends; a causal one reads nothing after n.

    `std` is that of W; a `normed` one has W = g · v / |v| for each output (Salimans & Kingma 2016), which starts as W = v.
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        width: int = 1,
        dilation: int = 1,
        causal: bool = False,
        std: float | None = None,
        normed: bool = False,
    ) -> None:
        super().__init__()
        weight = torch.empty(dim_out, dim_in, width)
        self.weight = nn.Parameter(
            nn.init.xavier_uniform_(weight) if std is None else nn.init.normal_(weight, std=std)
        )
        self.bias = nn.Parameter(torch.zeros(dim_out))
        self.gain = nn.Parameter(weight.flatten(1).norm(dim=1)) if normed else None
        self.dilation, self.reach = dilation, (width - 1) * dilation
        self.left = self.reach if causal else width // 2 * dilation

    def kernel(self) -> Tensor:
        if self.gain is None:
            return self.weight
        return self.weight * (self.gain / self.weight.flatten(1).norm(dim=1)).view(-1, 1, 1)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """B N in → B N out; where `real` (B N 1) is 0, there is padding, which is zeros as what lies beyond the ends."""
        x = x if real is None else x * real
        return self.convolve(F.pad(x, (0, 0, self.left, self.reach - self.left)))

    def convolve(self, x: Tensor) -> Tensor:
        """B (N + reach) in → B N out, by one product of matrices: on a CPU faster than torch's dilated convolutions."""
        size = x.shape[1] - self.reach
        beside = torch.cat(
            [x[:, at : at + size] for at in range(0, self.reach + 1, self.dilation)], -1
        )
        return F.linear(beside, self.kernel().transpose(1, 2).flatten(1), self.bias)

    def start(self, x: Tensor) -> LastInputs:
        """The cache before the first position; x (B …) has the batch, type and device."""
        return LastInputs(x.new_zeros(x.shape[0], self.reach, self.weight.shape[1]))

    def step(self, x: Tensor, cache: LastInputs) -> tuple[Tensor, LastInputs]:
        """Further positions of a causal convolution."""
        inputs = torch.cat([cache.inputs, x], 1)
        return self.convolve(inputs), LastInputs(inputs[:, inputs.shape[1] - self.reach :])


def real_positions(lengths: Tensor, x: Tensor) -> Tensor:
    """B N 1 for x (B N …): 1 for tokens, 0 for padding."""
    return (
        (torch.arange(x.shape[1], device=x.device) < lengths.to(x.device).unsqueeze(1))
        .unsqueeze(-1)
        .to(x.dtype)
    )
