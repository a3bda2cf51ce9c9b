"""Batches and their loss, a sum over tokens, so that batches of any size add up. B rows, N tokens, V classes."""

from __future__ import annotations

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
    return F.cross_entropy(
        logits.flatten(0, -2).float(), target.flatten(), ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )


def batch_loss(model: nn.Module, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor:
    """The token loss of a model's answer to a batch, and the costs that its layers leave (`core.extras`).

    With an `agreement` α each row is read twice, with different dropout, and the two answers are drawn together (R-Drop, Wu et al.
    2021): ½ (L₁ + L₂) + α/2 · Σ ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)).
    """
    wanted = batch.target != batch.ignore
    counts = wanted.reshape(len(wanted), -1).sum(1)
    if not agreement:
        with extras.collect() as left:
            logits = model(*batch.inputs)
        return token_loss(logits, batch.target, batch.ignore, smoothing) + left.total(counts)
    with extras.collect() as left:
        both = model(*(torch.cat([one, one]) for one in batch.inputs)).float()
    loss = token_loss(both, torch.cat([batch.target, batch.target]), batch.ignore, smoothing) / 2
    first, second = both.log_softmax(-1).chunk(2)
    # KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) = Σ (p₁ − p₂) (log p₁ − log p₂)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return loss + agreement / 4 * apart.masked_fill(~wanted, 0.0).sum() + left.total(counts, repeats=2)
