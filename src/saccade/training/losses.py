"""Batches and losses. Losses are sums over tokens, so batches of any size add up. B rows, N tokens, V classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import auxiliary_losses
from ..errors import SaccadeError


@dataclass(frozen=True)
class Batch:
    """Model inputs, targets (B or B N, `ignore` for no target) and source lines."""

    inputs: tuple[Any, ...]
    target: Tensor
    ignore: int
    # Number of tokens in the loss.
    tokens: int
    # Lines of the data, for messages.
    lines: Sequence[int]
    whole: ClassVar[bool] = (
        False  # whether its loss needs all that the model says, not log p of the targets alone
    )

    def wanted(self) -> Tensor:
        """Whether each target counts, B …"""
        return (self.target != self.ignore).reshape(len(self.target), -1)

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        """The losses of a model's output, flat. The model read the rows `repeats` times."""
        return each_loss(output, torch.cat([self.target] * repeats), self.ignore, smoothing)

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return token_loss(output, torch.cat([self.target] * repeats), self.ignore, smoothing)


@dataclass(frozen=True)
class MixedBatch(Batch):
    """Images mixed in pairs (mixup, cutmix): the other label and the share of the own one."""

    other: Tensor
    share: Tensor
    whole: ClassVar[bool] = True

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        """share · CE(own label) + (1 − share) · CE(other label)"""
        share = torch.cat([self.share] * repeats)
        own, other = (
            each_loss(output, torch.cat([one] * repeats), self.ignore, smoothing)
            for one in (self.target, self.other)
        )
        return share * own + (1 - share) * other

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return self.losses(output, smoothing, repeats).sum()


@dataclass(frozen=True)
class PixelBatch(Batch):
    """Images to reconstruct (B 3 H W). The loss is the mean squared error per image."""

    whole: ClassVar[bool] = True

    def wanted(self) -> Tensor:
        return torch.ones(len(self.target), 1, dtype=torch.bool, device=self.target.device)

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return (wide(output) - torch.cat([self.target] * repeats)).square().flatten(1).mean(1)

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return self.losses(output, smoothing, repeats).sum()


def token_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Sum of cross-entropies with label smoothing (Szegedy et al. 2016)."""
    if logits.dim() == target.dim():
        return each_loss(logits, target, ignore).sum()
    rows = wide(logits.flatten(0, -2))
    return F.cross_entropy(
        rows, target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )


def each_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy per token, flat. The head returns logits, or −loss of the targets alone."""
    if logits.dim() == target.dim():
        return -wide(logits).masked_fill(target == ignore, 0.0).flatten()
    rows = wide(logits.flatten(0, -2))
    return F.cross_entropy(
        rows, target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="none"
    )


def wide(x: Tensor) -> Tensor:
    """Casts 16-bit tensors to float32."""
    return x if x.dtype == torch.float64 else x.float()


def batch_loss(
    model: nn.Module,
    batch: Batch,
    smoothing: float = 0.0,
    agreement: float = 0.0,
    doubly_stochastic: float = 0.0,
) -> Tensor:
    """The token loss of a batch plus auxiliary losses.

    `agreement` is R-Drop's α, which reads each row twice (Wu et al. 2021). `doubly_stochastic` is the doubly stochastic attention
    penalty λ (Xu et al. 2015).
    """
    repeats = 2 if agreement else 1
    wanted = torch.cat([batch.wanted()] * repeats)
    counts = wanted[: len(batch.target)].sum(1)
    # R-Drop compares whole distributions.
    target = None if agreement or batch.whole else batch.target
    with auxiliary_losses.collect(target, doubly_stochastic > 0, batch.ignore, smoothing) as left:
        logits = model(*(torch.cat([one, one]) if agreement else one for one in batch.inputs))
    loss: Tensor = batch.total(logits, smoothing, repeats) / repeats + left.total(counts, repeats)
    if left.samples:
        losses = batch.losses(logits.detach(), smoothing, repeats).view(wanted.shape)
        loss = loss + left.estimate(losses, wanted) / repeats
    if doubly_stochastic:
        if not left.weights:
            wrong = f"training.doubly_stochastic is {doubly_stochastic:g}, and this model does not attend to a source"
            raise SaccadeError(
                f"{wrong}; leave it out, or choose a model with attention",
                code="no-attention-to-source",
            )
        loss = loss + doubly_stochastic * left.doubly_stochastic_penalty(wanted) / repeats
    if not agreement:
        return loss
    first, second = logits.float().log_softmax(-1).chunk(2)
    # ½ (L₁ + L₂) + α/2 · Σ ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)), and the sum of both KL is Σ (p₁ − p₂) (log p₁ − log p₂)
    apart: Tensor = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return loss + agreement / 4 * apart.masked_fill(batch.target == batch.ignore, 0.0).sum()
