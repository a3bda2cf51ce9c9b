"""Linear layers in 8 bits on a CPU: weights as integers, one factor per output; inputs are rounded to integers as they come."""

import copy
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SaccadeError
from ..embeddings import Tokens
from ..feedforward import MLP, Gated
from ..multihead_attention import MultiHeadAttention
from ..output_heads import LinearHead

NO_INT8_KERNELS = "this PyTorch has no 8-bit kernels for this machine; choose another precision"


class Int8Linear(nn.Module):
    """W x + b with W = factor · integers in −127 … 127; it cannot be trained. The numbers are kept once, as PyTorch's kernels want them."""

    def __init__(self, integers: Tensor, factors: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = integers.shape
        self._packed = packed(integers, factors, bias)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> "Int8Linear":
        """The nearest such layer."""
        weight = weight.detach().float()
        factors = weight.abs().amax(1).clamp_min(1e-30) / 127
        integers = (weight / factors.unsqueeze(1)).round().to(torch.int8)
        return cls(integers, factors, None if bias is None else bias.detach().float())

    @classmethod
    def joined(cls, layers: list["Int8Linear"]) -> "Int8Linear":
        """Several layers of one input as one, whose outputs follow one another."""
        integers, factors, biases = zip(*(one.unpacked() for one in layers), strict=True)
        none = all(one is None for one in biases)
        filled = [
            torch.zeros(len(f)) if b is None else b for b, f in zip(biases, factors, strict=True)
        ]
        return cls(torch.cat(integers), torch.cat(factors), None if none else torch.cat(filled))

    def unpacked(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copies of integers, factors and bias; a layer with other numbers is a new one."""
        weight, bias = torch.ops.quantized.linear_unpack(self._packed)
        return weight.int_repr(), weight.q_per_channel_scales(), bias

    def forward(self, x: Tensor) -> Tensor:
        return operation("linear_dynamic")(x, self._packed, True)

    def then_relu(self, x: Tensor) -> Tensor:
        """The larger of what comes out and 0, in one call."""
        return operation("linear_relu_dynamic")(x, self._packed, True)


@cache
def operation(name: str) -> Callable[[Tensor, object, bool], Tensor]:
    """PyTorch's operation itself: what calls it looks for a compiler's stand-ins among the arguments, a tenth of a small product's time."""
    found: Any = getattr(torch.ops.quantized, name).default
    return getattr(found, "_op", found)


def packed(integers: Tensor, factors: Tensor, bias: Tensor | None) -> object:
    """The weights as PyTorch's kernels want them."""
    try:
        with warnings.catch_warnings():
            # these tensors are to leave PyTorch some day; until then they are the only way in
            warnings.simplefilter("ignore")
            zero = torch.zeros(len(factors), dtype=torch.int64)
            weight = torch._make_per_channel_quantized_tensor(integers, factors.double(), zero, 0)
        return torch.ops.quantized.linear_prepack(weight, bias)
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        raise SaccadeError(NO_INT8_KERNELS, code="int8-not-supported") from error


class Int8Head(LinearHead):
    """A linear head in 8 bits."""

    def __init__(self, head: LinearHead) -> None:
        nn.Module.__init__(self)
        [tied] = head._tied
        weight = head.weight if tied is None else tied.weight
        assert isinstance(weight, Tensor)
        self.scale, self.project = head.scale, Int8Linear.of(weight, head.bias)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.project(x if self.scale == 1.0 else x * self.scale)
        return found


def to_int8(model: nn.Module) -> nn.Module:
    """A copy of a model on a CPU whose attention, feed-forward parts and head are in 8 bits; what else has a matrix stays as it is."""
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        raise SaccadeError(
            "int8 runs on a CPU, got a model on another device; load it with device cpu, or choose bf16",
            code="device-not-supported",
        )
    made = copy.deepcopy(model)
    for part in list(made.modules()):
        for name, child in list(part.named_children()):
            if type(child) is nn.Linear and isinstance(part, MultiHeadAttention | MLP | Gated):
                setattr(part, name, Int8Linear.of(child.weight, child.bias))
            elif type(child) is LinearHead and (
                child._tied[0] is None or type(child._tied[0]) is Tokens
            ):
                setattr(part, name, Int8Head(child))
    return made.eval()
