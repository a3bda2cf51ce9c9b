"""Losses, as sums over tokens, so that batches of any size add up."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def token_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Σ over the target's tokens of the cross-entropy with `smoothing` of the probability spread over the vocabulary (Szegedy et al. 2016)."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(), target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )


def model_loss(
    model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor, ignore: int, smoothing: float = 0.0, agreement: float = 0.0
) -> Tensor:
    """The token loss of a model's answer to `inputs`. With an `agreement` α every example is read twice, each time with a dropout of
    its own, and the two answers are drawn together (R-Drop, Wu et al. 2021): ½ (L₁ + L₂) + α/2 · Σ ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))."""
    if not agreement:
        return token_loss(model(*inputs), target, ignore, smoothing)
    both = model(*(torch.cat([one, one]) for one in inputs)).float()
    loss = token_loss(both, torch.cat([target, target]), ignore, smoothing) / 2
    first, second = both.log_softmax(-1).chunk(2)
    # KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) = Σ (p₁ − p₂) (log p₁ − log p₂)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return loss + agreement / 4 * apart.masked_fill(target == ignore, 0.0).sum()
