"""Matrix products of decoding steps in the fastest layout for a number of rows. R rows, K inputs, N outputs."""

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
# Up to this number of rows, a product is bound by reading its matrix.
MAX_DIRECT_ROWS = 2
# Bytes read per thread.
THREAD_BYTES = 1 << 22
MIN_PACKED_NUMBERS = (
    150_000  # numbers of a matrix below which oneDNN takes longer to begin than to multiply
)


# Whether the captured step may use custom kernels.
in_one_row: ContextVar[bool] = ContextVar("in_one_row", default=False)


def layout_for(rows: int, like: Tensor) -> str:
    """`plain`, `turned` (transposed) or `packed` (oneDNN blocks), as measured on CPUs. On GPUs all are equally fast."""
    if like.device.type != "cpu" or like.dtype != torch.float32:
        return "plain"
    # MKL uses AVX-512 on Intel only. With AVX2 it reads as fast.
    if rows <= MAX_DIRECT_ROWS and torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "turned"
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "packed"
    return "plain"


class WeightCopies:
    """Copies of a model's parameters with fingerprints, so they can be updated.

    Contents are compared, because writes through `.data` or NumPy change no version counter.
    """

    def __init__(self) -> None:
        # Concatenated copies, updated in place.
        self.concatenated: list[tuple[Tensor, list[Tensor]]] = []
        # Parameters copied in another layout, with fingerprints.
        self.packed: dict[int, tuple[Tensor, list[int]]] = {}

    def concatenate(self, parts: list[Tensor]) -> Tensor:
        self.concatenated.append((torch.cat(parts), parts))
        return self.concatenated[-1][0]

    def pack(self, *weights: Tensor) -> None:
        """Registers weights that are copied in another layout."""
        self.packed.update({id(one): (one, fingerprint(one)) for one in weights})

    def is_current(self) -> bool:
        return all(fingerprint(weight) == before for weight, before in self.packed.values())

    def refresh(self) -> None:
        """Updates concatenated tensors in place, where captured steps read them."""
        for whole, parts in self.concatenated:
            torch.cat(parts, out=whole)


def fingerprint(weight: Tensor) -> list[int]:
    """CRC-32 of each piece of a CPU tensor's bytes. zlib releases the GIL."""
    flat: Any = weight.detach().contiguous().flatten().view(torch.uint8).numpy()
    pieces = [flat[start : start + THREAD_BYTES] for start in range(0, len(flat), THREAD_BYTES)]
    if len(pieces) < 2 or torch.get_num_threads() == 1:
        return list(map(zlib.crc32, pieces))
    with ThreadPoolExecutor(min(torch.get_num_threads(), len(pieces))) as threads:
        return list(threads.map(zlib.crc32, pieces))


def product(
    layers: Sequence[nn.Module], layout: str, copies: WeightCopies, activation: str = "none"
) -> Product:
    """Linear layers of one input as one product, followed by `activation` (none or relu)."""
    if all(isinstance(layer, Int8Linear) for layer in layers):
        joined: Int8Linear = layers[0] if len(layers) == 1 else Int8Linear.joined(list(layers))  # type: ignore[arg-type, assignment]
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
    """x Wᵀ + b for weights N K with concatenated outputs."""
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
    """x Wᵀ + b in the weight's own layout."""
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
    """`made(x)`, or a kernel for single rows in a captured step."""
    if len(x) > 1 or not in_one_row.get():
        return made(x)
    from ..core.kernels.decode_step import multiply_row

    return multiply_row(x.contiguous(), weight, bias, relu)


class PackedLinears(TorchFunctionMode):
    """Context that runs F.linear on oneDNN-packed weights. Weights are packed once."""

    def __init__(self, copies: WeightCopies) -> None:
        super().__init__()
        self.copies = copies
        # Holding the weight keeps its id valid.
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
