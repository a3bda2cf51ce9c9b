"""What the training loop asks of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .losses import Batch, batch_loss


class Work:
    """A task's work on its training and dev data."""

    smoothing = agreement = 0.0  # of the loss; see `batch_loss`
    only_forward = True  # whether `loss` uses nothing of the model but model(*inputs)

    def epoch(self, epoch: int) -> Sequence[Any]:
        """The plans of an epoch's batches, in order. A plan is a sequence of examples: rank r of R ranks takes plan[r::R]."""
        raise NotImplementedError

    def batch(self, plan: Any) -> Any:
        """The batch of a plan, on the model's device."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss summed over the batch's tokens."""
        return batch_loss(model, batch, self.smoothing, self.agreement)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on the dev set, `loss` among them."""
        raise NotImplementedError

    def padding(self) -> float:
        """The share of padding in an epoch's batches."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """What is carried from one update to the next; part of every checkpoint."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; nothing is carried when it is empty."""
