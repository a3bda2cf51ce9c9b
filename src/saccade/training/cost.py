"""What a training run will cost, estimated before it starts: parameters, FLOPs counted on a real batch, seconds measured on it."""

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
        """Of all updates and evaluations: as fast, and as slow, as an update was."""
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
    """Runs forward and backward of a batch, of which an update has so many: once counting, then timing, the best of three."""
    with counter() as counted:
        loss().backward()
    seconds = list[float]()
    for _ in range(3):
        start = synchronized_time()
        loss().backward()
        seconds.append(ranks.largest(synchronized_time() - start) * batches)
        if seconds[-1] > 5 * batches:  # all ranks stop, or none
            break
    model.zero_grad(set_to_none=True)
    [flops] = ranks.total([float(counted.get_total_flops())])
    parameters = sum(p.numel() for p in model.parameters())
    return Cost(parameters, flops * batches, min(seconds), updates, slowest=max(seconds))


@contextmanager
def restored(model: nn.Module, work: Work) -> Iterator[None]:
    """After the `with`, what a loss changes is as it was before: what the work carries between updates, and the model's buffers."""
    carried = {name: tensor.clone() for name, tensor in work.state().items()}
    every = model_tensors(model)
    before = [(every[name], every[name].clone()) for name in sorted(buffers(model))]
    yield
    work.load_state(carried)
    with torch.no_grad():
        for tensor, value in before:
            tensor.copy_(value)


def synchronized_time() -> float:
    """The time when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def median_batch(work: Work, plans: Any, ranks: Ranks) -> Any:
    """A batch of median size among some of an epoch's."""
    some = sorted(plans[:: len(plans) // 16 + 1], key=lambda plan: work.batch(plan).tokens)
    return work.batch(ranks.share(some[len(some) // 2])[0])


class PeakMemory:
    """The most memory since it was made: what PyTorch allocated on a GPU, else by how much the memory of this process grew.

    A process that has freed memory before grows by less than a training needs, a small one not at all: never less than `held`."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.before = device, 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        # Linux alone forgets the highest value; elsewhere it is that of the process so far
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.before = highest_memory()

    def read(self, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """Bytes, under a name that says of what."""
        if self.device.type == "cuda":
            return {"peak_memory_gpu": float(torch.cuda.max_memory_allocated(self.device))}
        return {
            "peak_memory_process": max(highest_memory() - self.before, bytes_per_update(optimizer))
        }


def bytes_per_update(optimizer: torch.optim.Optimizer) -> float:
    """The bytes of the parameters, their gradients and the optimizer's state, which are there together in every update; of a model that is
    divided over ranks, this rank's."""
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
    """The most bytes that this process had in memory; 0 where the system does not say."""
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
    """What a run cost, for tables and result files: parameters, operations per update and in all, updates per second (evaluations not
    counted) and the peak of memory. Runs of version 0.3.0 and before kept the first alone."""
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
