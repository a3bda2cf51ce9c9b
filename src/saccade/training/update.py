"""One update, in one process or by ranks that each have the whole model (DDP) or a part of it (FSDP2); `capture` is faster."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..recipe import TrainingRecipe
from .distributed import Ranks
from .optimizer import make_optimizer
from .parameters import model_tensors, set_parameters
from .sharded import full_tensor, gather
from .work import Work

# this rank's part of each batch, and how often it counts (0 or 1)
Parts = Sequence[tuple[Any, int]]


class Update:
    """Makes updates kernel by kernel; `forward` computes the loss, the optimizer has the parameters of `model`."""

    captured = False

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        settings: TrainingRecipe,
        ranks: Ranks,
        note: Callable[[str], None],
    ) -> None:
        self.model, self.work, self.settings, self.ranks, self.note = (
            model,
            work,
            settings,
            ranks,
            note,
        )
        self.device = next(model.parameters()).device
        self.forward = self.spread()  # first: the optimizer gets the parameters as they are divided
        self.measured = model  # what the cost of a run is measured by
        # a graph would keep a number as it is
        rate: Any = (
            torch.tensor(settings.learning_rate, device=self.device)
            if self.captured
            else settings.learning_rate
        )
        self.optimizer = make_optimizer(settings, model, rate, self.captured)

    def __call__(self, parts: Parts, tokens: int, rate: float) -> tuple[list[Tensor], Tensor]:
        """Each batch's loss and the gradient's norm, which nobody has read yet; `tokens` are those of all parts on all ranks."""
        losses = []
        for n, (batch, counts) in enumerate(parts, 1):
            with self.batch(last=n == len(parts)):
                # 0 tokens: unknown words alone
                loss = counts * self.loss(self.forward, batch) / max(tokens, 1)
                # DDP and FSDP divide by it; the loss is a sum over all ranks' tokens
                (loss * self.ranks.count).backward()
            losses.append(loss.detach())
        self.set_rate(rate)
        return losses, self.move()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        kind = self.settings.autocast
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            return self.work.loss(model, batch)

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].fill_(rate) if self.captured else rate

    def move(self) -> Tensor:
        """Clips the gradients and applies them; their norm before."""
        norm = full_tensor(
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or float("inf"))
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def spread(self) -> nn.Module:
        if self.settings.compile is not True:
            return self.model
        # of many shapes one graph for all, whose kernels take sizes as they come; else a minute would go into each of them
        dynamic = not self.work.one_shape if self.captured else None
        return torch.compile(self.model, dynamic=dynamic)  # type: ignore[return-value]

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one of an update's batches; gradients are complete after the last."""
        return nullcontext()

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        """Within the `with`, a model that rank 0 can use alone."""
        yield self.model


class Replicated(Update):
    """The whole model on each rank, gradients averaged between them (DDP, Li et al. 2020)."""

    def spread(self) -> nn.Module:
        return nn.parallel.DistributedDataParallel(super().spread())

    def batch(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.forward.no_sync()  # type: ignore[operator]


class Sharded(Update):
    """Parameters, gradients and optimizer states divided over the ranks (FSDP2, Zhao et al. 2023)."""

    def spread(self) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # rank 0 evaluates on a copy: what FSDP adds to a forward expects every rank to make the same calls
        self.copy = copy.deepcopy(self.model).cpu() if self.ranks.leads else None
        for tensor in model_tensors(self.model).values():
            torch.distributed.broadcast(tensor.data, 0)
        mesh = init_device_mesh(self.device.type, (self.ranks.count,))
        for module in [
            module for module in self.model.modules() if getattr(module, "own_shard", False)
        ]:
            # gathered by itself while it computes, all others together
            fully_shard(module, mesh=mesh)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=False)
        return super().spread()

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        parameters = gather(model_tensors(self.model), self.ranks.leads)
        if self.copy is None:
            yield self.model
            return
        set_parameters(self.copy, parameters)
        try:
            yield self.copy.to(self.device)
        finally:
            self.copy.cpu()


PARALLEL: dict[str, type[Update]] = {"ddp": Replicated, "fsdp": Sharded}
