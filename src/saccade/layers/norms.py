"""Norms of the last dimension."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.options import Range
from ..core.table import Table

table: Table[type[nn.Module]] = Table("norms", "norm", facts=("dim",))


@table.add("layer", paper="Ba et al. 2016")
class LayerNorm(nn.Module):
    """(x − μ) / √(σ² + ε) · gain + bias, with μ and σ² the means over the d numbers.

    Some slides drop the 1/d of the mean and the square of σ; both are here.
    """

    def __init__(self, dim: int, eps: Annotated[float, Range(0.0, 1.0)] = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@table.add("rms", paper="Zhang & Sennrich 2019")
class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · gain"""

    def __init__(self, dim: int, eps: Annotated[float, Range(0.0, 1.0)] = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class BatchNorm(nn.BatchNorm2d):
    """Batch norm of feature maps; one number per channel has no variance, and is normed as in use."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() == input.shape[1]:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(input)
