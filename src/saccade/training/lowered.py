"""A model whose matrices are cast to 16 bits all at once: autocast casts them one by one, and a small model has more matrices than
arithmetic. The results are the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Cast(torch.autograd.Function):
    """Casts tensors to another type, and their gradients back to float32, with a few kernels for all."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        return cast(tensors, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *cast(gradients, torch.float32)


def cast(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    made = tuple(torch.empty_like(tensor, dtype=dtype) for tensor in tensors)
    torch._foreach_copy_(made, tensors)
    return made


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Weights and biases of linear layers, by name, but for those that are used elsewhere too (a tied embedding)."""
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {
        f"{name}.{kind}" if name else kind: parameter
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        for kind, parameter in module.named_parameters(recurse=False)
        if uses[id(parameter)] == 1 and parameter.dtype == torch.float32
    }


class Lowered(nn.Module):
    """`model` as it computes under autocast; its parameters are those of the model."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, *inputs: Any) -> Any:
        own = matrices(self.model)
        if not own:  # a recurrent model may have no linear layer
            return self.model(*inputs)
        return functional_call(self.model, dict(zip(own, Cast.apply(self.dtype, *own.values()), strict=True)), inputs)
