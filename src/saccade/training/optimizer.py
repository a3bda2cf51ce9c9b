"""AdamW without PyTorch's compiler, which its optimizers load when they are made, and which takes seconds."""

import inspect
from typing import Any

import torch


def plain(method: Any) -> Any:
    """A method as it was written: PyTorch wraps those of its optimizers, so that its compiler leaves them alone or breaks its graph there."""
    return inspect.unwrap(method)


class AdamW(torch.optim.AdamW):
    """PyTorch's own (Loshchilov & Hutter 2019), called without what surrounds its methods."""

    add_param_group = plain(torch.optim.Optimizer.add_param_group)
    zero_grad = plain(torch.optim.Optimizer.zero_grad)
    state_dict = plain(torch.optim.Optimizer.state_dict)
    load_state_dict = plain(torch.optim.Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        plain(torch.optim.AdamW.step)(self)
