"""Updates captured as CUDA graphs and replayed, without launch overhead for small models."""

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
            # Skip the line numbers of a batch.
            if not isinstance(one, int):
                yield from tensors(one)
    elif hasattr(batch, "__dict__"):
        for name, one in vars(batch).items():
            # Skip the caches of masks.
            if not name.startswith("_"):
                yield from tensors(one)


def shape(batch: Any) -> tuple[Any, ...]:
    """The key of a graph: batches with equal keys share it."""
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors(batch))


@dataclass(frozen=True)
class Captured:
    """A captured update: the graph, its input tensors, and its loss and norm."""

    graph: Any
    inputs: list[Tensor]
    outputs: tuple[Tensor, Tensor]

    def replay(self, batch: Any) -> tuple[Tensor, Tensor]:
        for here, new in zip(self.inputs, tensors(batch), strict=True):
            here.copy_(new, non_blocking=True)
        self.graph.replay()
        loss, norm = self.outputs
        # The next replay overwrites both.
        return loss.clone(), norm.clone()


class CapturedUpdate(Update):
    """Runs the first batch of a shape kernel by kernel (libraries set themselves up in it), captures the second, replays all others.

    Compiling for one shape takes a minute: it is done for shapes that come twice in a row, not for what remains at the end of an epoch. Work of
    many shapes is compiled once for all of them."""

    captured = True
    # Maximum number of graphs; batches of further shapes run eagerly.
    most = 256

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # A graph reads the learning rate and 1 / tokens from fixed tensors.
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
        """The key and the model for batches of one shape."""
        if self.settings.compile is not True:
            return key, self.forward
        if key == self.last or not self.work.one_shape:
            self.repeated.add(key)
        self.last = key
        return ((*key, "compiled"), self.forward) if key in self.repeated else (key, self.model)

    def step(self, batch: Any, forward: nn.Module) -> tuple[Tensor, Tensor]:
        """An update without synchronization, so it can be captured. Returns loss and gradient norm."""
        loss = self.loss(forward, batch) * self.share
        loss.backward()
        return loss.detach(), self.move()

    def capture(self, batch: Any, forward: nn.Module) -> Captured:
        """Captures an update without running it."""
        inputs, graph = list(tensors(batch)), torch.cuda.CUDAGraph()
        # All graphs share a memory pool: they never run concurrently, and results are copied.
        pool = next((one.graph.pool() for one in self.graphs.values()), None)
        # No other thread may use the GPU during a capture, but it may free memory.
        with (
            iteration_lock,
            pause_garbage_collection(),
            torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"),
        ):
            outputs = self.step(batch, forward)
        return Captured(graph, inputs, outputs)


class Cast(torch.autograd.Function):
    """Casts tensors to another type and gradients back to float32, in few kernels."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        made = tuple(torch.empty_like(tensor, dtype=dtype) for tensor in tensors)
        torch._foreach_copy_(made, tensors)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *Cast.forward(ctx, torch.float32, *gradients)


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Weights and biases of linear layers by name, except those used elsewhere (tied embeddings)."""
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {
        f"{name}.{kind}" if name else kind: parameter
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        for kind, parameter in module.named_parameters(recurse=False)
        if uses[id(parameter)] == 1 and parameter.dtype == torch.float32
    }


class LowPrecision(nn.Module):
    """Autocast that casts all matrices to 16 bits at once. Small models have many matrices and little arithmetic."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, *inputs: Any) -> Any:
        own = matrices(self.model)
        # A recurrent model may have no linear layer.
        if not own:
            return self.model(*inputs)
        cast = Cast.apply(self.dtype, *own.values())  # type: ignore[no-untyped-call]
        return functional_call(self.model, dict(zip(own, cast, strict=True)), inputs)
