"""Optimizers without PyTorch's compiler, which its own load when they are made, and which takes seconds."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.9  # of SGD, and β₁ of AdamW


def plain(method: Any) -> Any:
    """A method as it was written: PyTorch wraps those of its optimizers, so that its compiler leaves them alone or breaks its graph there."""
    return inspect.unwrap(method)


class Plain(torch.optim.Optimizer):
    """Methods of PyTorch's optimizers, called without what surrounds them."""

    add_param_group = plain(torch.optim.Optimizer.add_param_group)
    zero_grad = plain(torch.optim.Optimizer.zero_grad)
    state_dict = plain(torch.optim.Optimizer.state_dict)
    load_state_dict = plain(torch.optim.Optimizer.load_state_dict)


class AdamW(Plain, torch.optim.AdamW):
    """PyTorch's own (Loshchilov & Hutter 2019)."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        plain(torch.optim.AdamW.step)(self)


class Sgd(Plain, torch.optim.SGD):
    """PyTorch's SGD with Nesterov momentum (Sutskever et al. 2013); weight decay is added to the gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        plain(torch.optim.SGD.step)(self)


def make_optimizer(settings: Any, parameters: Iterable[Tensor], rate: Any, captured: bool) -> torch.optim.Optimizer:
    """The optimizer of a recipe's `training`; `captured`: its updates become a CUDA graph."""
    if settings.optimizer == "sgd":
        return Sgd(parameters, rate, MOMENTUM, weight_decay=settings.weight_decay, nesterov=True, fused=True)
    betas = MOMENTUM, settings.beta2
    return AdamW(parameters, rate, betas, weight_decay=settings.weight_decay, fused=True, capturable=captured)
