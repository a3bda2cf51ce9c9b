"""What a training run will cost, estimated before it starts: parameters, FLOPs counted on a real batch, seconds measured on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .distributed import Ranks
from .operations import counter
from .work import Work


@dataclass(frozen=True)
class Cost:
    """Parameters, FLOPs and seconds per update, and updates; `at_most` where updates will be captured and replayed. `slowest` are the
    most seconds that an update took, and `evaluations` how many updates take as long as all evaluations, as far as is known."""

    parameters: int
    flops_per_update: float
    seconds_per_update: float
    updates: int
    at_most: bool = False
    slowest: float = 0.0
    evaluations: float = 0.0
    done: int = 0  # updates before these

    def __str__(self) -> str:
        flops = f"{self.flops_per_update:.2e} FLOPs per update ({self.flops_per_update * self.updates:.2e} in all)"
        least, most = (duration(seconds) for seconds in self.seconds)
        time = f"at most {least}" if self.at_most else f"about {least}" if least == most else f"{least} to {most}"
        return f"{time} here: {self.parameters:,} parameters, {self.updates:,} updates at most, {flops}"

    @property
    def seconds(self) -> tuple[float, float]:
        """Of all updates and evaluations: as fast, and as slow, as an update was."""
        count = self.updates + self.evaluations
        return self.seconds_per_update * count, max(self.slowest, self.seconds_per_update) * count


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
    seconds = list[float]()
    for _ in range(3):
        start = now()
        loss().backward()
        seconds.append(ranks.largest(now() - start) * batches)
        if seconds[-1] > 5 * batches:  # all ranks stop, or none
            break
    model.zero_grad(set_to_none=True)
    [flops] = ranks.total([float(counted.get_total_flops())])
    parameters = sum(p.numel() for p in model.parameters())
    return Cost(parameters, flops * batches, min(seconds), updates, slowest=max(seconds))


def now() -> float:
    """The time when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def median_batch(work: Work, plans: Any, ranks: Ranks) -> Any:
    """A batch of median size among some of an epoch's."""
    some = sorted(plans[:: len(plans) // 16 + 1], key=lambda plan: work.batch(plan).tokens)
    return work.batch(ranks.share(some[len(some) // 2])[0])
