"""What the training loop asks of a task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .losses import Batch, batch_loss


class Work:
    """A task's work on its training and dev data."""

    measures: Sequence[str] = ("loss",)  # what `evaluate` gives
    counts: Mapping[str, int] = {}  # how many examples there are to train on, and in the dev set
    some: Sequence[Any] = ()  # a few of the dev set's, for the report
    smoothing = agreement = doubly_stochastic = 0.0  # of the loss; see `batch_loss`
    notes: tuple[str, ...] = ()  # what somebody who trains should know
    only_forward = True  # whether `loss` uses nothing of the model but model(*inputs)
    captures = True  # whether updates can be captured as CUDA graphs
    one_shape = False  # whether (nearly) all batches have the same shape
    ahead = True  # whether a batch depends on its plan alone, and may be made before its turn, in another thread
    # the plans of its batches: sequences of examples; rank r of R takes plan[r::R]
    epoch: Callable[[int], Sequence[Any]]
    batch: Callable[[Any], Any]  # of a plan, on the model's device
    evaluate: Callable[[nn.Module], dict[str, float]]  # metrics on the dev set, `loss` among them
    padding: Callable[[], float]  # its share in an epoch's batches
    dev_share = 0.0  # the size of the dev set over that of the training set

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss summed over the batch's tokens."""
        return batch_loss(model, batch, self.smoothing, self.agreement, self.doubly_stochastic)

    def state(self) -> dict[str, Tensor]:
        """What is carried from one update to the next; part of every checkpoint."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; nothing is carried when it is empty."""
