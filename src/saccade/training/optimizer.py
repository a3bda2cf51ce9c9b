"""Optimizers without PyTorch's compiler, which its own load when they are made, and which takes seconds."""

import inspect
from typing import Any

import torch
from torch import nn

MOMENTUM = 0.9  # of SGD, and β₁ of Adam and AdamW


def unwrap(method: Any) -> Any:
    """A method as it was written: PyTorch wraps those of its optimizers, so that its compiler leaves them alone or breaks its graph there."""
    return inspect.unwrap(method)


class UnwrappedOptimizer(torch.optim.Optimizer):
    """Methods of PyTorch's optimizers, called without what surrounds them."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(UnwrappedOptimizer, torch.optim.AdamW):
    """PyTorch's own (Loshchilov & Hutter 2019)."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        unwrap(torch.optim.AdamW.step)(self)


class Adam(UnwrappedOptimizer, torch.optim.Adam):
    """PyTorch's own (Kingma & Ba 2015); weight decay is added to the gradient, the L2 penalty of many papers."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        unwrap(torch.optim.Adam.step)(self)


class Sgd(UnwrappedOptimizer, torch.optim.SGD):
    """PyTorch's SGD with Nesterov momentum (Sutskever et al. 2013); weight decay is added to the gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        unwrap(torch.optim.SGD.step)(self)


def make_optimizer(
    settings: Any, model: nn.Module, rate: Any, captured: bool
) -> torch.optim.Optimizer:
    """The optimizer of a recipe's `training` for a model's parameters; `captured`: its updates become a CUDA graph."""
    groups, decay = parameter_groups(model), settings.weight_decay
    if settings.optimizer == "sgd":
        return Sgd(groups, rate, MOMENTUM, weight_decay=decay, nesterov=True, fused=True)
    make = Adam if settings.optimizer == "adam" else AdamW
    return make(
        groups,
        rate,
        (MOMENTUM, settings.beta2),
        weight_decay=decay,
        fused=True,
        capturable=captured,
    )


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """A model's parameters, and in a group of their own those of modules with `decays = False`, which have no weight decay."""
    spared = {
        one
        for part in model.modules()
        if not getattr(part, "decays", True)
        for one in part.parameters()
    }
    groups = [{"params": [one for one in model.parameters() if one not in spared]}]
    return (
        [
            *groups,
            {"params": [one for one in model.parameters() if one in spared], "weight_decay": 0.0},
        ]
        if spared
        else groups
    )
