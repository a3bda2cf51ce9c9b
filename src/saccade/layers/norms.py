"""Norms of the last dimension. B batch, N positions."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.extras import asked
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


@table.add("none")
class NoNorm(nn.Module):
    """x as it is: a control, to see what norms are for."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


@table.add("batch", paper="Ioffe & Szegedy 2015")
class TokenBatchNorm(nn.BatchNorm1d):
    """(x − μ) / √(σ² + ε) · gain + bias, with μ and σ² of each number over all tokens of the batch; in use, their running means.

    Padding does not count, as far as the model knows of it (`real_tokens`): in an encoder by the lengths, in a decoder by what the loss
    counts. In training a token's output depends on all others of its batch, later ones of its own text too: the causal mask does not hide
    them from μ and σ². In use, also in decoding, nothing does: each token is normed by itself, with the running means.
    """

    real: Tensor | None = None  # B N: what counts in the next pass; None: everything

    def __init__(self, dim: int, eps: Annotated[float, Range(0.0, 1.0)] = 1e-5) -> None:
        super().__init__(dim, eps)

    def forward(self, input: Tensor) -> Tensor:
        real = self.real if self.real is not None and self.real.shape == input.shape[:-1] else None
        tokens = input.reshape(-1, input.shape[-1]) if real is None else input[real]
        if not self.training or len(tokens) < 2:  # one token has no variance
            return self.normed(input, self.running_mean, self.running_var)
        if real is None:
            return super().forward(tokens).view_as(input)
        with torch.no_grad():
            super().forward(tokens)  # moves the running means
        return self.normed(input, tokens.mean(0), tokens.var(0, correction=0))

    def normed(self, x: Tensor, mean: Tensor | None, variance: Tensor | None) -> Tensor:
        assert mean is not None
        assert variance is not None
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias


def batch_norms(part: nn.Module) -> list[TokenBatchNorm]:
    """The norms of a part that must know which tokens are real."""
    return [one for one in part.modules() if isinstance(one, TokenBatchNorm)]


def real_tokens(norms: list[TokenBatchNorm], lengths: Tensor, size: int) -> None:
    """Marks for norms which of `size` positions of texts of these lengths are tokens."""
    for one in norms:
        one.real = torch.arange(size, device=lengths.device) < lengths.unsqueeze(1) if one.training else None


def counted_tokens(norms: list[TokenBatchNorm], target: Tensor) -> None:
    """Marks for norms which positions of a text (B N) the loss counts, where one is computed of it."""
    for one in norms:
        left = asked(target.unsqueeze(-1)) if one.training else None
        one.real = None if left is None or left.target is None else left.target.ne(left.ignore)


class BatchNorm(nn.BatchNorm2d):
    """Batch norm of feature maps; one number per channel has no variance, and is normed as in use."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() == input.shape[1]:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(input)
