"""Updates recorded as CUDA graphs, one for each shape of a batch, and played again: an update of a small model then takes as long as
its arithmetic, not as long as the launching of its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.fixed import recording

MOST = 256  # recordings; batches of further shapes run as they are
Outputs = tuple[Tensor, ...]
Step = Callable[[Any], Outputs]  # an update from one batch: all on the device, no number read


def tensors(batch: Any) -> Iterator[Tensor]:
    """All tensors of a batch, in a fixed order: in its fields, in tuples, in masks."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple | list):
        for one in batch:
            yield from tensors(one)
    elif hasattr(batch, "__dict__"):
        for name, one in vars(batch).items():
            if not name.startswith("_"):
                yield from tensors(one)


def shape(batch: Any) -> tuple[Any, ...]:
    """What two batches must share for one recording to serve both."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors(batch))


@dataclass(frozen=True)
class Recording:
    """A recorded update: the graph, the tensors it reads from and those it leaves its outputs in."""

    graph: Any
    inputs: list[Tensor]
    outputs: Outputs

    def play(self, batch: Any) -> Outputs:
        for here, new in zip(self.inputs, tensors(batch), strict=True):
            here.copy_(new, non_blocking=True)
        self.graph.replay()
        return tuple(output.clone() for output in self.outputs)  # the next one overwrites them


class Recorder:
    """Makes updates by `step`. The first batch of a shape runs as it is (libraries set themselves up in it), the second is recorded,
    and all others of that shape are played. What cannot be recorded goes on as it is, with one note, when `reset` has forgotten the
    gradients of what was left half-way."""

    def __init__(self, step: Step, note: Callable[[str], None], reset: Callable[[], None]) -> None:
        self.step, self.note, self.reset = step, note, reset
        self.seen: set[tuple[Any, ...]] = set()
        self.recordings: dict[tuple[Any, ...], Recording] = {}
        self.refused = False

    def __call__(self, batch: Any) -> Outputs:
        key = shape(batch)
        if key not in self.recordings:
            if self.refused or key not in self.seen or len(self.recordings) >= MOST:
                self.seen.add(key)
                return self.step(batch)
            try:
                self.recordings[key] = self.record(batch)
            except RuntimeError as error:
                self.refused = True
                why = str(error).strip().splitlines()[0]
                self.note(f"training.graphs: these updates cannot be recorded ({why}); going on without")
                self.reset()
                return self.step(batch)
        return self.recordings[key].play(batch)

    def record(self, batch: Any) -> Recording:
        """Nothing is computed here: the update is made when the recording is played."""
        inputs = list(tensors(batch))
        graph = torch.cuda.CUDAGraph()
        # One pool of memory for all: they never run at the same time, and what one leaves is copied before the next begins.
        pool = next((one.graph.pool() for one in self.recordings.values()), None)
        with recording(), torch.cuda.graph(graph, pool=pool):
            outputs = self.step(batch)
        return Recording(graph, inputs, outputs)
