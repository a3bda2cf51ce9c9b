"""Batches and their loss, a sum over tokens, so that batches of any size add up. B rows, N tokens, V classes."""

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
    """What a model is called with, what it should answer (B or B × N, `ignore` where nothing is wanted), and where it comes from."""

    inputs: tuple[Any, ...]
    target: Tensor
    ignore: int
    tokens: int  # how many the loss sums over
    lines: Sequence[int]  # of the data, for messages
    whole: ClassVar[bool] = (
        False  # whether its loss needs all that the model says, not log p of the targets alone
    )

    def wanted(self) -> Tensor:
        """B × what is asked for in a row: whether it counts."""
        return (self.target != self.ignore).reshape(len(self.target), -1)

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        """Each loss of what a model answered, flat; it read the rows `repeats` times."""
        return each_loss(output, torch.cat([self.target] * repeats), self.ignore, smoothing)

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return token_loss(output, torch.cat([self.target] * repeats), self.ignore, smoothing)


@dataclass(frozen=True)
class MixedBatch(Batch):
    """Pictures that are mixed in pairs: the other's label, and how much each one's own counts (mixup, cutmix)."""

    other: Tensor
    share: Tensor
    whole: ClassVar[bool] = True

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        """share · CE(own label) + (1 − share) · CE(the other's)"""
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
    """Pictures to be made (B 3 H W); the loss of each is the mean squared error of its numbers."""

    whole: ClassVar[bool] = True

    def wanted(self) -> Tensor:
        return torch.ones(len(self.target), 1, dtype=torch.bool, device=self.target.device)

    def losses(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return (wide(output) - torch.cat([self.target] * repeats)).square().flatten(1).mean(1)

    def total(self, output: Tensor, smoothing: float = 0.0, repeats: int = 1) -> Tensor:
        return self.losses(output, smoothing, repeats).sum()


def token_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Σ of the tokens' cross-entropies; `smoothing` of the probability is spread over all classes (Szegedy et al. 2016)."""
    if logits.dim() == target.dim():
        return each_loss(logits, target, ignore).sum()
    rows = wide(logits.flatten(0, -2))
    return F.cross_entropy(
        rows, target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )


def each_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Each token's cross-entropy, flat; from logits, or from log p of the targets (−loss, smoothed) where a head answered with these alone."""
    if logits.dim() == target.dim():
        return -wide(logits).masked_fill(target == ignore, 0.0).flatten()
    rows = wide(logits.flatten(0, -2))
    return F.cross_entropy(
        rows, target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="none"
    )


def wide(x: Tensor) -> Tensor:
    """In float32, or as it is in float64."""
    return x if x.dtype == torch.float64 else x.float()


def batch_loss(
    model: nn.Module,
    batch: Batch,
    smoothing: float = 0.0,
    agreement: float = 0.0,
    doubly_stochastic: float = 0.0,
) -> Tensor:
    """The token loss of a batch and what layers leave; an `agreement` α reads each row twice (R-Drop, Wu et al. 2021), and
    `doubly_stochastic` λ asks that each position of a source is looked at once in all (Xu et al. 2015)."""
    repeats = 2 if agreement else 1
    wanted = torch.cat([batch.wanted()] * repeats)
    counts = wanted[: len(batch.target)].sum(1)
    # two answers that should agree are compared as a whole
    target = None if agreement or batch.whole else batch.target
    with auxiliary_losses.collect(target, doubly_stochastic > 0, batch.ignore, smoothing) as left:
        logits = model(*(torch.cat([one, one]) if agreement else one for one in batch.inputs))
    loss = batch.total(logits, smoothing, repeats) / repeats + left.total(counts, repeats)
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
    apart = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return loss + agreement / 4 * apart.masked_fill(batch.target == batch.ignore, 0.0).sum()
