"""Optimizers that do not load PyTorch's compiler, which takes seconds."""

import inspect
from typing import Any

import torch
from torch import nn

# Momentum of SGD, and β₁ of Adam and AdamW.
MOMENTUM = 0.9


def unwrap(method: Any) -> Any:
    """The original method without the wrapper that PyTorch adds for its compiler."""
    return inspect.unwrap(method)


class UnwrappedOptimizer(torch.optim.Optimizer):
    """PyTorch optimizer without compiler wrappers."""

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
    """The optimizer of a recipe's `training`. `captured`: its updates become a CUDA graph."""
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
    """Parameter groups: modules with `decays = False` have no weight decay."""
    spared = {
        one
        for part in model.modules()
        if not getattr(part, "decays", True)
        for one in part.parameters()
    }
    groups = [{"params": [one for one in model.parameters() if one not in spared]}]
    if spared:
        return [
            *groups,
            {"params": [one for one in model.parameters() if one in spared], "weight_decay": 0.0},
        ]
    return groups
