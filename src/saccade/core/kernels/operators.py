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
    backward: Callable[..., tuple[Any, ...]],
    learned: int,
    outputs: int = 1,
) -> Callable[..., Any]:
    """`compute`, whose first `outputs` results have gradients, as a function of its own; `save` and `backward` as an operator has them. Only the
    first `learned` inputs have gradients; the others go by as one, since PyTorch looks at each of them several times."""
    once = once_differentiable(backward)  # an error for whoever asks for gradients of gradients

    class Outside(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            inputs = (*given[:-1], *given[-1])
            found = compute(*inputs)
            save(ctx, inputs, found)
            if isinstance(found, Tensor):
                return found
            return found[0] if outputs == 1 else tuple(found[:outputs])

        @staticmethod
        def backward(ctx: Any, *grad: Tensor | None) -> tuple[Any, ...]:
            return *(once if torch.is_grad_enabled() else backward)(ctx, *grad)[:learned], None

    apply: Callable[..., Any] = Outside.apply
    return lambda *inputs: apply(*inputs[:learned], inputs[learned:])
