"""How a model is laid out over ranks: whole on each (DDP), or divided among them (FSDP2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from .checkpoints import learned, set_parameters
from .distributed import Ranks
from .sharded import gather


class Layout:
    """A model in one process. `forward` computes the loss; the optimizer has the parameters of `model`."""

    def __init__(self, model: nn.Module, ranks: Ranks, compile: bool) -> None:
        self.model, self.ranks = model, ranks
        self.forward = self.spread(model, compile)

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        return torch.compile(model) if compile else model  # type: ignore[return-value]

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one of an update's batches; gradients are complete after the last."""
        return nullcontext()

    def scaled(self, loss: Tensor) -> Tensor:
        """DDP and FSDP divide gradients by the number of ranks; the loss is a sum over all ranks' tokens."""
        return loss * self.ranks.count if self.ranks.count > 1 else loss

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        """Within the `with`, a model that rank 0 can use alone."""
        yield self.model


class Replicated(Layout):
    """The whole model on each rank, gradients averaged between them (DDP, Li et al. 2020)."""

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        self.ddp = DistributedDataParallel(super().spread(model, compile))
        return self.ddp

    def batch(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.ddp.no_sync()


class Sharded(Layout):
    """Parameters, gradients and optimizer states divided over the ranks (FSDP2, Zhao et al. 2023).

    A module with `own_shard` is gathered by itself while it computes, all others together.
    """

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # rank 0 evaluates on a copy: what FSDP adds to a forward expects every rank to make the same calls
        self.copy = copy.deepcopy(model).cpu() if self.ranks.leads else None
        for tensor in learned(model).values():
            torch.distributed.broadcast(tensor.data, 0)
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.ranks.count,))
        for module in [module for module in model.modules() if getattr(module, "own_shard", False)]:
            fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        return super().spread(model, compile)

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        parameters = gather(learned(self.model), self.ranks.leads)
        if self.copy is None:
            yield self.model
            return
        set_parameters(self.copy, parameters)
        try:
            yield self.copy.to(next(self.model.parameters()).device)
        finally:
            self.copy.cpu()


LAYOUTS: dict[str, type[Layout]] = {"ddp": Replicated, "fsdp": Sharded}
