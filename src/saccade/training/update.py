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

# This rank's part of each batch and its weight (0 or 1).
Parts = Sequence[tuple[Any, int]]


class Update:
    """Eager updates. `forward` computes the loss; the optimizer has the parameters of `model`."""

    captured = False

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        settings: TrainingRecipe,
        ranks: Ranks,
        note: Callable[[str], None],
    ) -> None:
        self.model, self.work, self.settings, self.ranks = model, work, settings, ranks
        self.note = note
        self.device = next(model.parameters()).device
        # Before the optimizer, which needs the sharded parameters.
        self.forward = self.spread()
        # The model for the cost estimate.
        self.measured = model
        # A graph would freeze a Python number.
        rate: Any = (
            torch.tensor(settings.learning_rate, device=self.device)
            if self.captured
            else settings.learning_rate
        )
        self.optimizer = make_optimizer(settings, model, rate, self.captured)

    def __call__(self, parts: Parts, tokens: int, rate: float) -> tuple[list[Tensor], Tensor]:
        """The loss per batch and the gradient norm, not yet synchronized. `tokens` counts all parts on all ranks."""
        losses = []
        for n, (batch, counts) in enumerate(parts, 1):
            with self.batch(last=n == len(parts)):
                # Batches of unknown words alone have 0 tokens.
                loss = counts * self.loss(self.forward, batch) / max(tokens, 1)
                # DDP and FSDP average gradients, while the loss is a sum over all ranks.
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
        """Clips and applies the gradients. Returns the norm before clipping."""
        norm = full_tensor(
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or float("inf"))
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def spread(self) -> nn.Module:
        if self.settings.compile is not True:
            return self.model
        # Many shapes share one dynamic graph; compiling each would take a minute.
        dynamic = not self.work.one_shape if self.captured else None
        return torch.compile(self.model, dynamic=dynamic)  # type: ignore[return-value]

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Context of forward and backward of one batch. Gradients are complete after the `last` one."""
        return nullcontext()

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        """A model that rank 0 can use alone inside the `with`."""
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

        # Rank 0 evaluates on a copy, since an FSDP forward needs all ranks.
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
