"""Batches and their loss, a sum over tokens, so that batches of any size add up. B rows, N tokens, V classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import extras


@dataclass(frozen=True)
class Batch:
    """What a model is called with, what it should answer (B or B × N, `ignore` where nothing is wanted), and where it comes from."""

    inputs: tuple[Any, ...]
    target: Tensor
    ignore: int
    tokens: int  # how many the loss sums over
    lines: Sequence[int]  # of the data, for messages


def token_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Σ of the tokens' cross-entropies; `smoothing` of the probability is spread over all classes (Szegedy et al. 2016)."""
    if logits.dim() == target.dim():
        return each_loss(logits, target, ignore).sum()
    rows = logits.flatten(0, -2).float()
    return F.cross_entropy(rows, target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum")


def each_loss(logits: Tensor, target: Tensor, ignore: int) -> Tensor:
    """Each token's cross-entropy, flat; from logits, or from log p of the targets where a head answered with these alone."""
    if logits.dim() == target.dim():
        return -logits.float().masked_fill(target == ignore, 0.0).flatten()
    return F.cross_entropy(logits.flatten(0, -2).float(), target.flatten(), ignore_index=ignore, reduction="none")


@torch.no_grad()
def advantage(logits: Tensor, target: Tensor, ignore: int) -> Tensor:
    """How much more each row (B) loses than it would at the other rows' loss per token: times log p of what it sampled, the gradient is
    that of the expected loss (REINFORCE, Williams 1992), since its baseline does not depend on its own choice."""
    losses = each_loss(logits, target, ignore).view(len(target), -1).sum(1)
    counts = (target != ignore).reshape(len(target), -1).sum(1)
    return losses - counts * (losses.sum() - losses) / (counts.sum() - counts).clamp_min(1)


def batch_loss(model: nn.Module, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor:
    """The token loss of a batch and the costs that layers leave; an `agreement` α reads each row twice (R-Drop, Wu et al. 2021)."""
    wanted = batch.target != batch.ignore
    counts, repeats = wanted.reshape(len(wanted), -1).sum(1), 2 if agreement else 1
    target = torch.cat([batch.target] * repeats)
    with extras.collect(None if smoothing or agreement else target) as left:  # these two need the whole distribution
        logits = model(*(torch.cat([one, one]) if agreement else one for one in batch.inputs))
    loss = token_loss(logits, target, batch.ignore, smoothing) / repeats + left.total(counts, repeats)
    for _, log_prob in left.samples:
        loss = loss + (advantage(logits, target, batch.ignore) * log_prob).sum() / repeats
    if not agreement:
        return loss
    first, second = logits.float().log_softmax(-1).chunk(2)
    # ½ (L₁ + L₂) + α/2 · Σ ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)), and the sum of both KL is Σ (p₁ − p₂) (log p₁ − log p₂)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return loss + agreement / 4 * apart.masked_fill(~wanted, 0.0).sum()
