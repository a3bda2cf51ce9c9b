"""Updates captured as CUDA graphs and replayed: a small model's update then takes as long as its arithmetic, not as long as the
launching of its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..recipe import TrainingRecipe
from .distributed import Ranks
from .lowered import Lowered
from .update import Parts, Report, Update

MOST = 256  # graphs; batches of further shapes run kernel by kernel


def captures(settings: TrainingRecipe, device: torch.device, ranks: Ranks, note: Callable[[str], None]) -> bool:
    """Whether updates are captured: where the recipe asks for it, in one process on a GPU, with one batch per update."""
    if not settings.graphs or device.type != "cuda":
        return False  # a recipe that asks for it can be used without a GPU too
    if ranks.count > 1 or settings.accumulate > 1:
        note("training.graphs needs one process and one batch per update; continuing without")
        return False
    return True


def tensors(batch: Any) -> Iterator[Tensor]:
    """All tensors of a batch, in a fixed order: in its fields, in tuples, in masks."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple | list):
        for one in batch:
            yield from tensors(one)
    elif hasattr(batch, "__dict__"):
        for name, one in vars(batch).items():
            if not name.startswith("_"):  # what a mask keeps for the next time
                yield from tensors(one)


def shape(batch: Any) -> tuple[Any, ...]:
    """What two batches must share for one graph to serve both."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors(batch))


@dataclass(frozen=True)
class Captured:
    """A captured update: its graph, the tensors it reads, and those that it leaves its loss and norm in."""

    graph: Any
    inputs: list[Tensor]
    outputs: tuple[Tensor, Tensor]

    def replay(self, batch: Any) -> tuple[Tensor, Tensor]:
        for here, new in zip(self.inputs, tensors(batch), strict=True):
            here.copy_(new, non_blocking=True)
        self.graph.replay()
        loss, norm = self.outputs
        return loss.clone(), norm.clone()  # the next replay overwrites them


class CapturedUpdate(Update):
    """Makes updates from one batch each. The first batch of a shape runs kernel by kernel (libraries set themselves up in it), the
    second is captured, and it and all others of that shape are replayed. What cannot be captured runs on, with one note."""

    captured = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # A graph reads the learning rate and 1 / tokens from tensors that stay where they are.
        self.share = torch.ones((), device=self.device)
        self.seen: set[tuple[Any, ...]] = set()
        self.graphs: dict[tuple[Any, ...], Captured] = {}
        self.refused = False
        if self.settings.autocast and not self.settings.compile and self.work.only_forward:
            self.layout.forward = Lowered(self.layout.model, self.settings.autocast)

    def __call__(self, parts: Parts, tokens: int, rate: float, report: Report) -> None:
        [(batch, _)] = parts
        self.set_rate(rate)
        self.share.fill_(1 / max(tokens, 1))
        loss, norm = self.run(batch)
        report([loss], norm)

    def run(self, batch: Any) -> tuple[Tensor, Tensor]:
        key = shape(batch)
        if key not in self.graphs:
            if self.refused or key not in self.seen or len(self.graphs) >= MOST:
                self.seen.add(key)
                return self.step(batch)
            try:
                self.graphs[key] = self.capture(batch)
            except RuntimeError as error:
                self.refused = True
                why = str(error).strip().splitlines()[0]
                self.note(f"training.graphs: these updates cannot be captured ({why}); continuing without")
                self.optimizer.zero_grad()  # of a backward that broke off
                return self.step(batch)
        return self.graphs[key].replay(batch)

    def step(self, batch: Any) -> tuple[Tensor, Tensor]:
        """An update that reads no number on the way, as it can be captured: its loss and its gradient's norm."""
        loss = self.loss(self.layout.forward, batch) * self.share
        loss.backward()
        norm = self.clip()
        self.move()
        return loss.detach(), norm

    def capture(self, batch: Any) -> Captured:
        """Nothing is computed here: the update is made when the graph is replayed."""
        inputs, graph = list(tensors(batch)), torch.cuda.CUDAGraph()
        # One pool of memory for all: they never run at the same time, and what one leaves is copied before the next begins.
        pool = next((one.graph.pool() for one in self.graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool):
            outputs = self.step(batch)
        return Captured(graph, inputs, outputs)
