"""How a model is laid out over ranks: whole on each (DDP), or divided among them (FSDP2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from .checkpoints import learned
from .distributed import Ranks
from .shards import whole


class Layout:
    """A model in one process. `forward` is what a loss is computed with; the model's parameters are the optimizer's."""

    def __init__(self, model: nn.Module, ranks: Ranks, compile: bool) -> None:
        self.model, self.ranks = model, ranks
        self.forward = self.spread(model, compile)

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        return compiled(model) if compile else model

    def batch(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one of an update's batches; gradients are complete after the last."""
        return nullcontext()

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        """Within the `with`, a model that rank 0 can use alone."""
        yield self.model

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss whose gradients, as the ranks join them, are those of the loss's sum over the ranks."""
        return loss


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model)  # type: ignore[return-value]


class Replicated(Layout):
    """The whole model on each rank, gradients averaged between them (DDP, Li et al. 2020).

    A module with parameters that have no part in some batches (an expert that was not asked, say) has `may_rest`.
    """

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        rests = any(getattr(module, "may_rest", False) for module in model.modules())
        self.ddp = DistributedDataParallel(compiled(model) if compile else model, find_unused_parameters=rests)
        return self.ddp

    def batch(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.ddp.no_sync()

    def scaled(self, loss: Tensor) -> Tensor:
        return loss * self.ranks.count  # DDP divides by it


class Sharded(Layout):
    """Parameters, gradients and optimizer states divided over the ranks; a block's are gathered while it computes (FSDP2, Zhao et al. 2023).

    A module that has `own_shard` is gathered by itself, the rest at once.
    """

    def spread(self, model: nn.Module, compile: bool) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # rank 0 evaluates on a copy: what FSDP adds to a forward expects every rank to make the same calls
        self.copy = copy.deepcopy(model).cpu() if self.ranks.leads else None
        for tensor in learned(model).values():
            torch.distributed.broadcast(tensor.data, 0)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (self.ranks.count,))
        for module in [module for module in model.modules() if getattr(module, "own_shard", False)]:
            fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        return compiled(model) if compile else model

    @contextmanager
    def plain(self) -> Iterator[nn.Module]:
        device = next(self.model.parameters()).device
        kept = {} if self.copy is None else learned(self.copy)
        with torch.no_grad():
            for name, tensor in learned(self.model).items():
                gathered = whole(tensor)
                if self.copy is not None:
                    kept[name].copy_(gathered)
        if self.copy is None:
            yield self.model
            return
        try:
            yield self.copy.to(device)
        finally:
            self.copy.cpu()

    def scaled(self, loss: Tensor) -> Tensor:
        return loss * self.ranks.count  # FSDP divides by it
