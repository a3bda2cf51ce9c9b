"""Losses, as sums over tokens, so that batches of any size add up."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def token_loss(logits: Tensor, target: Tensor, ignore: int, smoothing: float = 0.0) -> Tensor:
    """Σ over the target's tokens of the cross-entropy with `smoothing` of the probability spread over the vocabulary (Szegedy et al. 2016)."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(), target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )
