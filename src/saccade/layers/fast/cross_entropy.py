"""Cross-entropy of W x + b without all logits at once: chunk by chunk, the gradients made on the way. R rows, D width, V vocabulary.

Of each chunk of rows the logits are computed, their loss taken, and what they give the gradients of x, W and b is added up; then they are
gone. As much arithmetic as with all logits, but R × V numbers are never kept, nor their log-softmax, nor its gradient.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import kernels
from ...core.kernels.mixed_products import add_product

MAX_UNCHUNKED_LOGITS = 1 << 24  # logits; fewer are computed at once
# logits in memory at a time: half a gigabyte in 16 bits on a GPU, what caches hold elsewhere
CHUNK_LOGITS = {"cuda": 1 << 28, "cpu": 1 << 21}
UNEQUAL_WEIGHTS = "rows have different weights in the loss; sum the losses, or weight those of `F.cross_entropy(head(x), target, reduction='none')`"


def needs_chunks(rows: int, vocab: int) -> bool:
    return rows * vocab >= MAX_UNCHUNKED_LOGITS


def rows_at_once(vocab: int, device: torch.device) -> int:
    """How many rows a chunk has: a power of two, as matrix products like it, and as batches mostly are a multiple of it."""
    most = CHUNK_LOGITS.get(device.type, CHUNK_LOGITS["cpu"])
    if device.type == "cuda":  # of float32 a sixty-fourth of its memory at most
        most = min(most, torch.cuda.get_device_properties(device).total_memory >> 8)
    count = most // vocab
    return 1 << max(count.bit_length() - 1, 0)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Within the `with`, types are as they are; the device `meta`, which computes nothing, knows no autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def multiplied(x: Tensor) -> torch.dtype:
    """The type that a matrix product of x is computed in here."""
    kind = x.device.type
    lowered = kind != "meta" and torch.is_autocast_enabled(kind) and x.dtype != torch.float64
    return torch.get_autocast_dtype(kind) if lowered else x.dtype


class NegativeLosses(torch.autograd.Function):
    """−loss of each row. Its gradient is that of their sum times anything, as the loss of a batch is: gradients of x, W and b are made in
    the forward pass, and scaled by that of the first row that counts. Rows with other weights are refused, on a GPU by a device-side assertion."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        ignore: int,
        smoothing: float,
        size: int,
    ) -> Tensor:
        counted = target != ignore
        made = Chunks(multiplied(x), x, weight, bias, (smoothing, ignore), ctx.needs_input_grad)
        with without_autocast(x.device):
            # one chunk without a `range`, of which a compiled pass would know no other count of rows
            starts = [0] if len(x) <= size else range(0, len(x), size)
            parts = [
                made.add(start, min(start + size, len(x)), target, counted) for start in starts
            ]
        ctx.kinds = x.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(counted, *made.gradients)
        return -torch.cat(parts).masked_fill(~counted, 0.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        counted, *gradients = ctx.saved_tensors
        first = grad.gather(0, counted.int().argmax(0, keepdim=True))
        torch._assert_async(((grad == first) | ~counted | grad.isnan()).all(), UNEQUAL_WEIGHTS)
        scale = -first
        found = [
            None if one is None else (one * scale).to(kind)
            for one, kind in zip(gradients, ctx.kinds, strict=True)
        ]
        return *found, None, None, None, None


class Chunks:
    """Adds up the gradients of x, W and b, where they are wanted."""

    def __init__(
        self,
        kind: torch.dtype,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        loss: tuple[float, int],
        wanted: tuple[bool, ...],
    ) -> None:
        """`loss`: its smoothing, and the target that it ignores."""
        # cast once, not once per chunk
        self.x, self.weight, (self.smoothing, self.ignore) = (x.to(kind), weight.to(kind), loss)
        self.bias = None if bias is None else bias.to(kind)
        self.wide = torch.promote_types(kind, torch.float32)
        self.of_x = torch.empty_like(self.x) if wanted[0] else None
        self.of_weight = torch.zeros_like(weight, dtype=self.wide) if wanted[1] else None
        self.of_bias = (
            torch.zeros_like(bias, dtype=self.wide) if bias is not None and wanted[2] else None
        )
        self.by_kernel = kind != torch.float64 and any(wanted[:3]) and kernels.available(x.device)

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        return self.of_x, self.of_weight, self.of_bias

    def add(self, start: int, end: int, target: Tensor, counted: Tensor) -> Tensor:
        """The losses of some rows, (1 − ε) · −log p of the target + ε · the mean of −log p, and what they give the gradients."""
        x, hidden, share = self.x[start:end], ~counted[start:end].unsqueeze(1), self.smoothing
        logits = F.linear(x, self.weight, self.bias)
        by_kernel = (
            kernels.losses_and_slopes(logits, target[start:end], self.ignore, share)
            if self.by_kernel
            else None
        )
        if by_kernel is not None:
            self.gather(start, end, logits, x, hidden)
            return by_kernel
        at = target[start:end].unsqueeze(1).masked_fill(hidden, 0)
        found = logits.log_softmax(-1, dtype=self.wide)
        there = found.gather(1, at)
        losses = (share - 1) * there.squeeze(1)
        if share:
            losses = losses - share * found.mean(1)
        if all(one is None for one in self.gradients):
            return losses
        # of a logit: p − ε / V, and 1 − ε less at the target, where p may be so near to 1 that 16 bits cannot hold the difference
        even = share / self.weight.shape[0]
        slope = (
            (found.exp_() - even).to(x.dtype)
            if share or torch.compiler.is_compiling()
            else exponential(found, logits)
        )
        slope.scatter_(1, at, (there.exp() - (1 - share) - even).to(x.dtype))
        self.gather(start, end, slope, x, hidden)
        return losses

    def gather(self, start: int, end: int, slope: Tensor, x: Tensor, hidden: Tensor) -> None:
        """Adds up what the gradients of some rows' logits give the others; hidden rows do not count."""
        if self.of_x is not None:
            self.of_x[start:end] = (slope @ self.weight).masked_fill_(hidden, 0.0)
        if self.of_weight is not None:
            add_product(self.of_weight, slope, x.masked_fill(hidden, 0.0))
        if self.of_bias is not None:
            self.of_bias += slope.masked_fill(hidden, 0.0).sum(0, dtype=self.wide)


def exponential(x: Tensor, out: Tensor) -> Tensor:
    """e^x, written over `out`, which may have fewer bits."""
    return x.exp_() if out.dtype == x.dtype else torch.exp(x, out=out)


def negative_losses(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignore: int, smoothing: float
) -> Tensor:
    """−cross-entropy of softmax(W x + b) for each target (0 for those to `ignore`); x: … D, targets: …"""
    size = rows_at_once(weight.shape[0], x.device)
    found: Tensor = NegativeLosses.apply(
        x.flatten(0, -2), weight, bias, target.flatten(), ignore, smoothing, size
    )
    return found.view(target.shape)
