"""Matrix products of a decoder's steps: the same numbers in the layout that is fastest for so many rows. R rows, K inputs, N outputs."""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..layers.fast.int8 import Int8Linear

Product = Callable[[Tensor], Tensor]  # R K → R N
MAX_DIRECT_ROWS = 2  # rows up to which a product does little but read its matrix
THREAD_BYTES = 1 << 22  # bytes that one thread reads
MIN_PACKED_NUMBERS = (
    150_000  # numbers of a matrix below which oneDNN takes longer to begin than to multiply
)


# whether a step is captured that may use kernels of its own
in_one_row: ContextVar[bool] = ContextVar("in_one_row", default=False)


def layout_for(rows: int, like: Tensor) -> str:
    """`plain`, `turned` (a row of memory per input) or `packed` (oneDNN's blocks): as measured on CPUs; GPUs take all alike."""
    if like.device.type != "cpu" or like.dtype != torch.float32:
        return "plain"
    # MKL, which multiplies what is not in blocks, has AVX-512 on the processors of one maker alone; with AVX2 it reads as fast
    if rows <= MAX_DIRECT_ROWS and torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "turned"
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "packed"
    return "plain"


class WeightCopies:
    """What an engine has copied from a model's parameters, so that it can be brought up to date. No write to a tensor goes unnoticed: those
    through `.data` or numpy change no version counter, so the contents are read."""

    def __init__(self) -> None:
        # in their own layout: written again where they are
        self.concatenated: list[tuple[Tensor, list[Tensor]]] = []
        # in another layout: parameters with their fingerprints
        self.packed: dict[int, tuple[Tensor, list[int]]] = {}

    def concatenate(self, parts: list[Tensor]) -> Tensor:
        self.concatenated.append((torch.cat(parts), parts))
        return self.concatenated[-1][0]

    def pack(self, *weights: Tensor) -> None:
        """Notes that these are copied in another layout."""
        self.packed.update({id(one): (one, fingerprint(one)) for one in weights})

    def is_current(self) -> bool:
        return all(fingerprint(weight) == before for weight, before in self.packed.values())

    def refresh(self) -> None:
        """Writes concatenated tensors again, where they are: captured steps read them there."""
        for whole, parts in self.concatenated:
            torch.cat(parts, out=whole)


def fingerprint(weight: Tensor) -> list[int]:
    """CRC-32 of each piece of a tensor's bytes: depends on every bit and on its position. On a CPU; zlib runs without Python's lock."""
    flat: Any = weight.detach().contiguous().flatten().view(torch.uint8).numpy()
    pieces = [flat[start : start + THREAD_BYTES] for start in range(0, len(flat), THREAD_BYTES)]
    if len(pieces) < 2 or torch.get_num_threads() == 1:
        return list(map(zlib.crc32, pieces))
    with ThreadPoolExecutor(min(torch.get_num_threads(), len(pieces))) as threads:
        return list(threads.map(zlib.crc32, pieces))


def product(
    layers: Sequence[nn.Module], layout: str, copies: WeightCopies, activation: str = "none"
) -> Product:
    """The linear layers of one input as one product; `activation`: none or relu, applied to what comes out."""
    if all(isinstance(layer, Int8Linear) for layer in layers):
        joined: Any = layers[0] if len(layers) == 1 else Int8Linear.joined(list(layers))  # type: ignore[arg-type]
        return joined.forward if activation == "none" else joined.then_relu
    return of_weights(
        [layer.weight for layer in layers],  # type: ignore[misc]
        [layer.bias for layer in layers],  # type: ignore[misc]
        layout,
        copies,
        activation,
    )


def of_weights(
    weights: list[Tensor],
    biases: list[Tensor | None],
    layout: str,
    copies: WeightCopies,
    activation: str = "none",
) -> Product:
    """x Wᵀ + b for weights N K whose outputs follow one another."""
    bias = biases[0]
    if len(weights) > 1 and any(one is not None for one in biases):
        bias = copies.concatenate(
            [w.new_zeros(len(w)) if b is None else b for b, w in zip(biases, weights, strict=True)]
        )
    bias = None if bias is None else bias.detach()
    rows, columns = sum(map(len, weights)), weights[0].shape[1]
    if layout == "packed" and rows * columns < MIN_PACKED_NUMBERS:
        layout = "turned"
    if layout == "plain" or (layout == "turned" and rows < columns):
        return as_it_is(
            weights[0] if len(weights) == 1 else copies.concatenate(weights), bias, activation
        )
    copies.pack(*weights)
    weight = weights[0].detach() if len(weights) == 1 else torch.cat(weights).detach()
    if layout == "packed":
        blocks = torch.ops.mkldnn._reorder_linear_weight(weight)
        multiply = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, blocks, bias, activation, [], "")
    turned = weight.t().contiguous()
    if activation == "relu" and bias is not None:
        return lambda x: torch._addmm_activation(bias, x, turned)
    made: Product = (
        partial(torch.mm, mat2=turned) if bias is None else lambda x: torch.addmm(bias, x, turned)
    )
    return made if activation == "none" else partial(relu_after, made)


def as_it_is(weight: Tensor, bias: Tensor | None, activation: str) -> Product:
    """x Wᵀ + b in the layout that the weight has."""
    weight = weight.detach()
    made: Product = partial(F.linear, weight=weight, bias=bias)
    if activation == "relu" and bias is not None and weight.is_cuda:
        made = lambda x: torch._addmm_activation(bias, x, weight.t())
    elif activation == "relu":
        made = partial(relu_after, made)
    if weight.is_contiguous():
        return partial(of_rows, made, weight, bias, activation == "relu")
    return made


def of_rows(made: Product, weight: Tensor, bias: Tensor | None, relu: bool, x: Tensor) -> Tensor:
    """`made(x)`, or what a kernel for one row makes in a captured step."""
    if len(x) > 1 or not in_one_row.get():
        return made(x)
    from ..core.kernels.decode_step import multiply_row

    return multiply_row(x.contiguous(), weight, bias, relu)


class PackedLinears(TorchFunctionMode):
    """While it is entered, linear layers of large matrices multiply by oneDNN's blocks, whoever calls them; blocks are made once."""

    def __init__(self, copies: WeightCopies) -> None:
        super().__init__()
        self.copies = copies
        # with the weight itself, so that no other gets its id
        self.made: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        weight = given[1] if function is F.linear and len(given) > 1 else None
        if (
            not isinstance(weight, nn.Parameter)
            or weight.numel() < MIN_PACKED_NUMBERS
            or weight.dtype != torch.float32
        ):
            return function(*given, **(named or {}))
        if id(weight) not in self.made:
            self.copies.pack(weight)
            self.made[id(weight)] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        bias = given[2] if len(given) > 2 else (named or {}).get("bias")
        return torch.ops.mkldnn._linear_pointwise.default(
            given[0], self.made[id(weight)][1], bias, "none", [], ""
        )


def relu_after(made: Product, x: Tensor) -> Tensor:
    return made(x).relu_()
