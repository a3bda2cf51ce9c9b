"""Cost estimate of a training run: parameters, and FLOPs and seconds measured on a real batch."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoints import Progress
from .distributed import Ranks
from .flops import counter
from .parameters import buffers, model_tensors
from .work import Work


@dataclass(frozen=True)
class Cost:
    """Parameters, updates, and FLOPs and seconds per update.

    `at_most` is set if updates will be captured and replayed, which is faster. `slowest` is the longest measured update in seconds.
    `evaluations` is the known duration of all evaluations, in updates.
    """

    parameters: int
    flops_per_update: float
    seconds_per_update: float
    updates: int
    at_most: bool = False
    slowest: float = 0.0
    evaluations: float = 0.0
    # Updates before these.
    done: int = 0

    def __str__(self) -> str:
        flops = f"{self.flops_per_update:.2e} FLOPs per update ({self.flops_per_update * self.updates:.2e} in all)"
        least, most = (duration(seconds) for seconds in self.seconds)
        time = (
            f"at most {least}"
            if self.at_most
            else f"about {least}"
            if least == most
            else f"{least} to {most}"
        )
        return f"{time} here: {self.parameters:,} parameters, {self.updates:,} updates at most, {flops}"

    @property
    def seconds(self) -> tuple[float, float]:
        """Lower and upper estimate for all updates and evaluations."""
        count = self.updates + self.evaluations
        return self.seconds_per_update * count, max(self.slowest, self.seconds_per_update) * count


def duration(seconds: float) -> str:
    """90 s, 12 min, 3.5 h, 2.1 days"""
    for size, unit in ((86400, "days"), (3600, "h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 150 else f"{seconds:.0f} s"


def measure(
    model: nn.Module, loss: Callable[[], Tensor], updates: int, batches: int, ranks: Ranks
) -> Cost:
    """Measures forward and backward of a batch: FLOPs once, then the best time of three. An update has several batches."""
    with counter() as counted:
        loss().backward()
    seconds = list[float]()
    for _ in range(3):
        start = synchronized_time()
        loss().backward()
        seconds.append(ranks.largest(synchronized_time() - start) * batches)
        # All ranks agree to stop.
        if seconds[-1] > 5 * batches:
            break
    model.zero_grad(set_to_none=True)
    [flops] = ranks.total([float(counted.get_total_flops())])
    parameters = sum(p.numel() for p in model.parameters())
    return Cost(parameters, flops * batches, min(seconds), updates, slowest=max(seconds))


@contextmanager
def restored(model: nn.Module, work: Work) -> Iterator[None]:
    """Restores the state of the work and the model's buffers after the `with`."""
    carried = {name: tensor.clone() for name, tensor in work.state().items()}
    every = model_tensors(model)
    before = [(every[name], every[name].clone()) for name in sorted(buffers(model))]
    yield
    work.load_state(carried)
    with torch.no_grad():
        for tensor, value in before:
            tensor.copy_(value)


def synchronized_time() -> float:
    """The time after all GPU work is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def median_batch(work: Work, plans: Any, ranks: Ranks) -> Any:
    """A batch of median size among a sample of an epoch."""
    some = sorted(plans[:: len(plans) // 16 + 1], key=lambda plan: work.batch(plan).tokens)
    return work.batch(ranks.share(some[len(some) // 2])[0])


class PeakMemory:
    """Peak memory since construction: PyTorch's allocations on a GPU, else the growth of this process.

    A process that has freed memory grows less than a training needs, so the result is at least `bytes_per_update`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.before = device, 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        # Only Linux can reset the peak.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.before = highest_memory()

    def read(self, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """Bytes by kind of memory."""
        if self.device.type == "cuda":
            return {"peak_memory_gpu": float(torch.cuda.max_memory_allocated(self.device))}
        return {
            "peak_memory_process": max(highest_memory() - self.before, bytes_per_update(optimizer))
        }


def bytes_per_update(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of parameters, gradients and optimizer state; of this rank's share if they are sharded."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter for parameter in parameters if parameter.requires_grad]
    states = [
        state
        for each in optimizer.state.values()
        for state in each.values()
        if isinstance(state, Tensor)
    ]
    parts = (
        one.to_local() if hasattr(one, "to_local") else one
        for one in (*parameters, *gradients, *states)
    )
    return float(sum(part.nbytes for part in parts))


def highest_memory() -> float:
    """Peak resident memory of this process in bytes; 0 if unknown."""
    with suppress(OSError):
        if found := re.search(
            r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii")
        ):
            return 1024.0 * int(found[1])
    with suppress(ImportError):
        import resource

        unit = 1.0 if sys.platform == "darwin" else 1024.0  # macOS counts bytes
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0.0


def summary(at: Progress, model: nn.Module) -> dict[str, float]:
    """The cost of a run for tables and result files.

    Parameters, FLOPs per update and in total, updates per second (without evaluations) and peak memory. Runs of version 0.3.0 and
    before have parameters only.
    """
    found = {"parameters": float(sum(p.numel() for p in model.parameters()))}
    if at.costs and at.update:
        each = at.costs["operations_per_update"]
        found |= {"operations_per_update": each, "operations": each * at.update}
        found["updates_per_second"] = at.update / max(
            at.seconds - at.costs["seconds_evaluating"], 1e-9
        )
    return found | {
        name: value for name, value in at.costs.items() if name.startswith("peak_memory")
    }
