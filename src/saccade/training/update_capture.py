"""Updates captured as CUDA graphs and replayed: a small model's update then takes no longer than its arithmetic."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..core.cuda_graphs import pause_garbage_collection, reset_generators
from .prefetch import iteration_lock
from .update import Parts, Update


def tensors(batch: Any) -> Iterator[Tensor]:
    """All tensors of a batch, in a fixed order: in its fields, in tuples, in masks."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple | list):
        for one in batch:
            if not isinstance(one, int):  # the lines of a batch are many
                yield from tensors(one)
    elif hasattr(batch, "__dict__"):
        for name, one in vars(batch).items():
            if not name.startswith("_"):  # what a mask keeps for the next time
                yield from tensors(one)


def shape(batch: Any) -> tuple[Any, ...]:
    """What two batches must share for one graph to serve both."""
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors(batch))


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
    """Runs the first batch of a shape kernel by kernel (libraries set themselves up in it), captures the second, replays all others.

    Compiling for one shape takes a minute: it is done for shapes that come twice in a row, not for what remains at the end of an epoch. Work of
    many shapes is compiled once for all of them."""

    captured = True
    most = 256  # graphs; batches of further shapes run kernel by kernel

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # A graph reads the learning rate and 1 / tokens from tensors that stay where they are.
        self.share = torch.ones((), device=self.device)
        self.seen: set[tuple[Any, ...]] = set()
        self.last: tuple[Any, ...] = ()
        self.repeated: set[tuple[Any, ...]] = set()
        self.graphs: dict[tuple[Any, ...], Captured] = {}
        if self.settings.autocast and self.settings.compile is not True and self.work.only_forward:
            self.forward = self.measured = LowPrecision(self.model, self.settings.autocast)

    def __call__(self, parts: Parts, tokens: int, rate: float) -> tuple[list[Tensor], Tensor]:
        [(batch, _)] = parts
        self.set_rate(rate)
        self.share.fill_(1 / max(tokens, 1))
        key, forward = self.way(shape(batch))
        if key in self.seen and key not in self.graphs and len(self.graphs) < self.most:
            try:
                self.graphs[key] = self.capture(batch, forward)
            except RuntimeError as error:
                self.most = 0
                self.optimizer.zero_grad()  # of a backward that broke off
                reset_generators(self.device)
                why = (str(error).strip().splitlines() or [type(error).__name__])[0]
                self.note(
                    f"training.graphs: these updates cannot be captured ({why}); continuing without"
                )
        self.seen.add(key)
        loss, norm = (
            self.graphs[key].replay(batch) if key in self.graphs else self.step(batch, forward)
        )
        return [loss], norm

    def way(self, key: tuple[Any, ...]) -> tuple[tuple[Any, ...], nn.Module]:
        """What batches of a shape are computed by, and a key for its graph."""
        if self.settings.compile is not True:
            return key, self.forward
        if key == self.last or not self.work.one_shape:
            self.repeated.add(key)
        self.last = key
        return ((*key, "compiled"), self.forward) if key in self.repeated else (key, self.model)

    def step(self, batch: Any, forward: nn.Module) -> tuple[Tensor, Tensor]:
        """An update that reads no number on the way, as it can be captured: its loss and its gradient's norm."""
        loss = self.loss(forward, batch) * self.share
        loss.backward()
        return loss.detach(), self.move()

    def capture(self, batch: Any, forward: nn.Module) -> Captured:
        """Nothing is computed here: the update is made when the graph is replayed."""
        inputs, graph = list(tensors(batch)), torch.cuda.CUDAGraph()
        # One pool of memory for all: they never run at the same time, and what one leaves is copied before the next begins.
        pool = next((one.graph.pool() for one in self.graphs.values()), None)
        # no other thread may use the GPU while an update is captured; that another thread frees something must not end the capture
        with (
            iteration_lock,
            pause_garbage_collection(),
            torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"),
        ):
            outputs = self.step(batch, forward)
        return Captured(graph, inputs, outputs)


class Cast(torch.autograd.Function):
    """Casts tensors to another type, and their gradients back to float32, with a few kernels for all."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        made = tuple(torch.empty_like(tensor, dtype=dtype) for tensor in tensors)
        torch._foreach_copy_(made, tensors)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *Cast.forward(ctx, torch.float32, *gradients)


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Weights and biases of linear layers, by name, but for those that are used elsewhere too (a tied embedding)."""
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {
        f"{name}.{kind}" if name else kind: parameter
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        for kind, parameter in module.named_parameters(recurse=False)
        if uses[id(parameter)] == 1 and parameter.dtype == torch.float32
    }


class LowPrecision(nn.Module):
    """`model` under autocast, with its matrices cast to 16 bits all at once: a small model has more matrices than arithmetic."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, *inputs: Any) -> Any:
        own = matrices(self.model)
        if not own:  # a recurrent model may have no linear layer
            return self.model(*inputs)
        return functional_call(
            self.model, dict(zip(own, Cast.apply(self.dtype, *own.values()), strict=True)), inputs
        )
