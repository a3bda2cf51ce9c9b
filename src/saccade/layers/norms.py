"""Norms of the last dimension. B batch, N positions."""

import math
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.auxiliary_losses import requested_losses
from ..registry import Table
from ..settings import Range

table: Table[type[nn.Module]] = Table("norms", "norm", facts=("dim",))


@table.add("layer", paper="Ba et al. 2016")
class LayerNorm(nn.Module):
    """(x − μ) / √(σ² + ε) · gain + bias, with μ and σ² the means over the d numbers.

    Some slides drop the 1/d of the mean and the square of σ; both are here.
    """

    def __init__(self, dim: int, eps: Annotated[float, Range(0.0, 1.0)] = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps = eps

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


@table.add("partial-rms", paper="Zhang & Sennrich 2019")
class PartialRMSNorm(RMSNorm):
    """x / √(mean(x_i²) + ε) · gain, the mean being that of the first ⌈share · dim⌉ numbers alone: pRMSNorm."""

    def __init__(
        self,
        dim: int,
        eps: Annotated[float, Range(0.0, 1.0)] = 1e-6,
        share: Annotated[float, Range(1e-6, 1.0)] = 0.0625,
    ) -> None:
        super().__init__(dim, eps)
        self.first = math.ceil(round(share * dim, 6))

    def forward(self, x: Tensor) -> Tensor:
        wide = x[..., : self.first].to(torch.promote_types(x.dtype, torch.float32))
        return (
            x * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt().to(x.dtype) * self.weight
        )


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
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean, variance = self.running_mean, self.running_var
        assert mean is not None
        assert variance is not None
        if self.training:
            mean, variance = self.follow(x, mean, variance)
        normed = (x - mean) * (variance + self.eps).rsqrt()
        return (normed * self.weight + self.bias).to(input.dtype)

    def follow(
        self, x: Tensor, running_mean: Tensor, running_variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean and the variance of the real tokens, towards which the running ones move; one token has no variance, and those in use.
        No size depends on a number, so that updates can be captured and replayed."""
        real = (
            self.real
            if self.real is not None and self.real.shape == x.shape[:-1]
            else x.new_ones(x.shape[:-1], dtype=torch.bool)
        )
        at, every = real.unsqueeze(-1), tuple(range(x.dim() - 1))
        count = real.sum()
        several = count > 1
        mean = torch.where(at, x, 0.0).sum(every) / count.clamp_min(1)
        variance = torch.where(at, (x - mean).square(), 0.0).sum(every) / count.clamp_min(1)
        with torch.no_grad():
            step = several * (self.momentum or 0.0)
            running_mean.lerp_(mean.to(running_mean.dtype), step.to(running_mean.dtype))
            running_variance.lerp_(
                (variance * count / (count - 1).clamp_min(1)).to(running_variance.dtype),
                step.to(running_variance.dtype),
            )
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        return torch.where(several, mean, running_mean), torch.where(
            several, variance, running_variance
        )


def batch_norms(part: nn.Module) -> list[TokenBatchNorm]:
    """The norms of a part that must know which tokens are real."""
    return [one for one in part.modules() if isinstance(one, TokenBatchNorm)]


def real_tokens(norms: list[TokenBatchNorm], lengths: Tensor, size: int) -> None:
    """Marks for norms which of `size` positions of texts of these lengths are tokens."""
    for one in norms:
        one.real = (
            torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
            if one.training
            else None
        )


def counted_tokens(norms: list[TokenBatchNorm], target: Tensor) -> None:
    """Marks for norms which positions of a text (B N) the loss counts, where one is computed of it."""
    for one in norms:
        left = requested_losses(target.unsqueeze(-1)) if one.training else None
        one.real = None if left is None or left.target is None else left.target.ne(left.ignore)


class BatchNorm(nn.BatchNorm2d):
    """Batch norm of feature maps; one number per channel has no variance, and is normed as in use."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() == input.shape[1]:
            return F.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        return super().forward(input)
