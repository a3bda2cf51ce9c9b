"""The interface between the training loop and a task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .losses import Batch, batch_loss


class Work:
    """Training and evaluation of one task on its data."""

    measures: Sequence[str] = ("loss",)  # metrics that `evaluate` returns
    counts: Mapping[str, int] = {}  # number of examples in the training and dev data
    some: Sequence[Any] = ()  # a few dev examples for the report
    smoothing = agreement = doubly_stochastic = 0.0  # terms of the loss; see `batch_loss`
    notes: tuple[str, ...] = ()  # printed before training
    only_forward = True  # `loss` only calls model(*inputs)
    captures = True  # updates can be captured as CUDA graphs
    one_shape = False  # (nearly) all batches have the same shape
    ahead = True  # batches depend on their plan alone and can be made in another thread
    # the plans of its batches: sequences of examples; rank r of R takes plan[r::R]
    epoch: Callable[[int], Sequence[Any]]
    # Plan → batch on the model's device.
    batch: Callable[[Any], Any]
    # Metrics on the dev set, including `loss`.
    evaluate: Callable[[nn.Module], dict[str, float]]
    # Share of padding in an epoch's batches.
    padding: Callable[[], float]
    # Size of the dev set relative to the training set.
    dev_share = 0.0

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss summed over the batch's tokens."""
        return batch_loss(model, batch, self.smoothing, self.agreement, self.doubly_stochastic)

    def state(self) -> dict[str, Tensor]:
        """Tensors carried from update to update. Part of every checkpoint."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the result of `state`; an empty mapping resets it."""
