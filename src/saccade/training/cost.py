"""What a training run will cost, estimated before it starts: parameters, FLOPs counted on a real batch, seconds measured on it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .distributed import Ranks
from .operations import counter


@dataclass(frozen=True)
class Cost:
    """Parameters, FLOPs and seconds per update, and updates; `at_most` where updates will be captured and replayed."""

    parameters: int
    flops_per_update: float
    seconds_per_update: float
    updates: int
    at_most: bool = False

    def __str__(self) -> str:
        flops = f"{self.flops_per_update:.2e} FLOPs per update ({self.flops_per_update * self.updates:.2e} in all)"
        time = f"{'at most' if self.at_most else 'about'} {duration(self.seconds_per_update * self.updates)} here"
        return f"{self.parameters:,} parameters, {self.updates:,} updates at most, {flops}, {time}"


def duration(seconds: float) -> str:
    """90 s, 12 min, 3.5 h, 2.1 days"""
    for size, unit in ((86400, "days"), (3600, "h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 150 else f"{seconds:.0f} s"


def measure(model: nn.Module, loss: Callable[[], Tensor], updates: int, batches: int, ranks: Ranks) -> Cost:
    """Runs forward and backward of a batch, of which an update has so many: once counting, then timing, the best of three."""
    with counter() as counted:
        loss().backward()
    seconds = math.inf
    for _ in range(3):
        start = now()
        loss().backward()
        seconds = min(seconds, now() - start)
        if ranks.largest(seconds) > 5:  # all ranks stop, or none
            break
    model.zero_grad(set_to_none=True)
    [flops] = ranks.total([float(counted.get_total_flops())])
    return Cost(sum(p.numel() for p in model.parameters()), flops * batches, ranks.largest(seconds) * batches, updates)


def now() -> float:
    """The time when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
