"""Matrix products of a decoder's steps: the same numbers in the layout that is fastest for so many rows. R rows, K inputs, N outputs."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..layers.int8 import Int8Linear

Product = Callable[[Tensor], Tensor]  # R K → R N
Copies = list[tuple[Tensor, list[Tensor]]]  # a tensor, and those that it was joined of
FEW = 2  # rows up to which a product does little but read its matrix
SMALL = 150_000  # numbers of a matrix below which oneDNN takes longer to begin than to multiply


in_one_row: ContextVar[bool] = ContextVar(
    "in_one_row", default=False
)  # whether a step is captured that may use kernels of its own


def layout_for(rows: int, like: Tensor) -> str:
    """`plain`, `turned` (a row of memory per input) or `packed` (oneDNN's blocks): as measured on CPUs; GPUs take all alike."""
    if like.device.type != "cpu" or like.dtype != torch.float32:
        return "plain"
    # MKL, which multiplies what is not in blocks, has AVX-512 on the processors of one maker alone; with AVX2 it reads as fast
    if rows <= FEW and torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "turned"
    return "packed" if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise") else "plain"


def product(layers: Sequence[nn.Module], layout: str, activation: str = "none", copies: Copies | None = None) -> Product:
    """The linear layers of one input as one product; `activation`: none or relu, applied to what comes out. `copies` gets what is joined."""
    if all(isinstance(layer, Int8Linear) for layer in layers):
        joined: Any = layers[0] if len(layers) == 1 else Int8Linear.joined(list(layers))  # type: ignore[arg-type]
        return joined.forward if activation == "none" else joined.then_relu
    weights: list[Any] = [layer.weight for layer in layers]
    biases: list[Any] = [layer.bias for layer in layers]
    weight = weights[0] if len(layers) == 1 else torch.cat(weights)
    bias = biases[0]
    if len(layers) > 1 and any(one is not None for one in biases):
        bias = torch.cat([one if one is not None else w.new_zeros(len(w)) for one, w in zip(biases, weights, strict=True)])
    if copies is not None and len(layers) > 1 and layout == "plain":
        copies.append((weight, weights))
        if bias is not None and all(one is not None for one in biases):
            copies.append((bias, biases))
    return of_weight(weight, bias, layout, activation)


def of_weight(weight: Tensor, bias: Tensor | None, layout: str, activation: str = "none") -> Product:
    """x Wᵀ + b for a weight N K."""
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if layout == "packed" and weight.numel() < SMALL:
        layout = "turned"
    if layout == "packed":
        blocks, multiply = torch.ops.mkldnn._reorder_linear_weight(weight), torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, blocks, bias, activation, [], "")
    if layout == "turned" and weight.shape[0] >= weight.shape[1]:
        turned = weight.t().contiguous()
        if activation == "relu" and bias is not None:
            return lambda x: torch._addmm_activation(bias, x, turned)
        made: Product = partial(torch.mm, mat2=turned) if bias is None else lambda x: torch.addmm(bias, x, turned)
    else:
        made = partial(F.linear, weight=weight, bias=bias)
        if activation == "relu" and bias is not None and weight.is_cuda:
            made = lambda x: torch._addmm_activation(bias, x, weight.t())  # noqa: E731
        elif activation == "relu":
            made = partial(relu_after, made)
        return partial(of_rows, made, weight, bias, activation == "relu") if weight.is_contiguous() else made
    return made if activation == "none" else partial(relu_after, made)


def of_rows(made: Product, weight: Tensor, bias: Tensor | None, relu: bool, x: Tensor) -> Tensor:
    """`made(x)`, or what a kernel for one row makes in a captured step."""
    if len(x) > 1 or not in_one_row.get():
        return made(x)
    from ..core.kernels.steps import multiply_row

    return multiply_row(x.contiguous(), weight, bias, relu)


class InBlocks(TorchFunctionMode):
    """While it is entered, linear layers of large matrices multiply by oneDNN's blocks, whoever calls them; blocks are made once."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[Tensor, Tensor]] = {}  # with the weight itself, so that no other gets its id

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        weight = given[1] if function is F.linear and len(given) > 1 else None
        if not isinstance(weight, nn.Parameter) or weight.numel() < SMALL or weight.dtype != torch.float32:
            return function(*given, **(named or {}))
        if id(weight) not in self.made:
            self.made[id(weight)] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        bias = given[2] if len(given) > 2 else (named or {}).get("bias")
        return torch.ops.mkldnn._linear_pointwise.default(given[0], self.made[id(weight)][1], bias, "none", [], "")


def relu_after(made: Product, x: Tensor) -> Tensor:
    return made(x).relu_()
