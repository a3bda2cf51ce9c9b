"""Kernels with gradients of their own. While a pass is compiled they are operators; outside, an operator written in Python would take as long as
a small kernel."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def outside_compile(
    compute: Callable[..., Any],
    save: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[[Any, Tensor | None], tuple[Any, ...]],
) -> Callable[..., Tensor]:
    """`compute`, whose first or only result is the output, as a function with gradients; `save` and `backward` as an operator has them."""
    once = once_differentiable(backward)  # an error for whoever asks for gradients of gradients

    class Outside(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            found = compute(*inputs)
            save(ctx, inputs, found)
            output: Tensor = found if isinstance(found, Tensor) else found[0]
            return output

        @staticmethod
        def backward(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
            return once(ctx, grad) if torch.is_grad_enabled() else backward(ctx, grad)

    run: Callable[..., Tensor] = Outside.apply
    return run
