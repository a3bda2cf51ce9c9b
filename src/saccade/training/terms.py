"""What a training is told, and by whom: its settings, a task's work, and who watches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .cost import Cost
from .parallel import Layout, Replicated
from .runs import Progress, SaveLast, save_whole
from .schedules import Schedule, inverse_sqrt


@dataclass(frozen=True)
class Settings:
    """How to train; `autocast` is a 16-bit type or None, `patience` the evaluations without a better one before stopping
    (0: never), `average` the last evaluations whose mean is tried at the end (0: none).

    `parallel` lays the model out over several processes, `checkpoint` writes `last/`.
    """

    updates: int = 2000
    learning_rate: float = 1e-3
    schedule: Schedule = inverse_sqrt
    warmup: int = 100
    weight_decay: float = 0.01
    beta2: float = 0.98
    clip: float = 1.0
    accumulate: int = 1
    autocast: torch.dtype | None = None
    compile: bool = False
    graphs: bool = False
    evaluate_every: int = 250
    checkpoint_every: int = 250
    log_every: int = 10
    patience: int = 0
    average: int = 0
    watch: str = "loss"
    higher_is_better: bool = False
    seed: int = 0
    parallel: type[Layout] = Replicated
    checkpoint: SaveLast = save_whole


class Batch(Protocol):
    """A batch: how many tokens its loss sums over, and where its examples stood in the data."""

    @property
    def tokens(self) -> int: ...
    @property
    def lines(self) -> Sequence[int]: ...


class Work(Protocol):
    """What the loop needs to know of a task."""

    def epoch(self, epoch: int) -> Sequence[Any]:
        """The plans of an epoch's batches, in order. A plan is a sequence of examples: rank r of R ranks takes plan[r::R]."""

    def batch(self, plan: Any) -> Any:
        """The batch of a plan, on the model's device."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss summed over the batch's tokens."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures on the dev set; `loss` among them."""


class Watcher:
    """Is told how the training goes; this one says nothing."""

    def cost(self, cost: Cost) -> None: ...
    def update(self, at: Progress, row: dict[str, float]) -> None: ...
    def evaluated(self, at: Progress, figures: dict[str, float], best: bool) -> None: ...
    def note(self, text: str) -> None: ...
