"""Fused kernels for mechanisms other than a softmax of dot products, without B H Q K numbers in memory (core/kernels/)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ...errors import SaccadeError
from .. import kernels
from ..masks import Both, Mask, Padding
from ..normalizers import Entmax15, Relu, Sigmoid, Softmax, Sparsemax, Sum
from ..scores import Additive
from .call import Backend, Call, CannotCompile, is_unmodified, repeat_heads
from .flex import error_line

PLAIN_COMPARE = Additive.compare
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Below this length, launching a kernel costs more than it saves.
KERNEL_MIN_LENGTH = 128


@dataclass(frozen=True)
class Form:
    """A supported kind of mechanism: its kernel, its multiplications (forward, backward) and supported widths."""

    name: str
    run: Callable[[Call, Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
    operations: Callable[[Call], tuple[int, int]]
    widths: Callable[[int, int], bool]


def form_of(call: Call) -> Form | None:
    """The form of a mechanism, or None. Overrides are respected."""
    score, normalize = call.score, call.normalize
    if type(normalize) is Softmax and not isinstance(score, Additive):
        return None
    if isinstance(score, Additive):
        plain = getattr(score.compare, "__func__", None) is PLAIN_COMPARE
        return ADDITIVE if plain and is_unmodified(normalize, Softmax) else None
    if not score.dot:
        return None
    if is_unmodified(normalize, Sum):
        return LINEAR if score.kernel else None
    if is_unmodified(normalize, Relu) or is_unmodified(normalize, Sigmoid):
        return GATES
    if is_unmodified(normalize, Sparsemax) or is_unmodified(normalize, Entmax15):
        return SPARSE
    return None


class Forms(Backend):
    """Additive scores with a softmax, dot products with ReLU, sigmoid, sparsemax or entmax-1.5, causal kernel scores with their sum."""

    def __init__(self) -> None:
        self.failed: dict[tuple[Any, ...], str] = {}  # calls whose kernel did not compile, and why
        self.compiled: set[tuple[Any, ...]] = set()

    def refuses(self, call: Call) -> str | None:
        form, plain = form_of(call), call.mask.mask.causal_and_keys()
        if form is None:
            return "it has no kernel for this score with this normalizer"
        if plain is None or (form is LINEAR and not plain[0]):
            if plain:
                return f"{call.mask!r} is not causal"
            return f"{call.mask!r} is more than causal and padding"
        if call.positions is not None and (call.position.biases or call.position.adds_values):
            return "the position adds to scores or values, and it never holds any scores"
        if call.dropout:
            return "dropout falls on weights, and it never holds any"
        if call.query.dtype not in DTYPES:
            return f"it does not run in {str(call.query.dtype).removeprefix('torch.')}"
        widths = (call.query.shape[-1], call.value.shape[-1])
        if not form.widths(*widths):
            return f"its kernel has no layout for widths {widths[0]} and {widths[1]}"
        if torch.compiler.is_compiling():
            return "its kernels are not compiled with a larger graph"
        reason = kernels.why_unavailable(call.q.device)
        return reason if reason is not None or not self.failed else self.failed.get(signature(call))

    def rank(self, call: Call) -> int:
        if call.q.device.type != "cuda":
            return 300  # interpreted: only when asked for
        return 5 if call.q.shape[2] * call.key.shape[2] >= KERNEL_MIN_LENGTH**2 else 110

    def run(self, call: Call) -> Tensor:
        form, which = form_of(call), signature(call)
        assert form is not None, "what has no form is refused"
        # A counter of operations does not see kernels.
        if torch._C._len_torch_dispatch_stack():
            with _disable_current_modes():
                output = self.run(call)
            made: Tensor = CountOperations.apply(output, *form.operations(call))
            return made
        if which in self.compiled:
            return attention(call, form)
        try:
            output = attention(call, form)
            if output.requires_grad:  # compile the backward kernels too, while one can turn back; then the graph is used up
                wanted = [x for x in (call.query, call.key, call.value) if x.requires_grad]
                torch.autograd.grad(output, wanted, torch.zeros_like(output), allow_unused=True)
                output = attention(call, form)
        except (SaccadeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever Triton and its assembler raise
            self.failed[which] = f"its kernel does not compile here ({error_line(error)})"
            raise CannotCompile(self.failed[which]) from error
        self.compiled.add(which)
        return output


def signature(call: Call) -> tuple[Any, ...]:
    """Cache key of compiled kernels."""
    plain = call.mask.mask.causal_and_keys()
    heads = (call.query.shape[1], call.key.shape[1], call.value.shape[1])
    mask = None if plain is None else (plain[0], isinstance(plain[1], Padding | Both))
    sizes = (
        call.query.shape[-1],
        call.value.shape[-1],
        heads,
        call.query.dtype,
        call.q.device,
        call.needs_grad,
    )
    return (
        type(call.score),
        type(call.normalize),
        getattr(call.normalize, "by_count", None),
        mask,
        *sizes,
    )


def attention(call: Call, form: Form) -> Tensor:
    """Prepares contiguous tensors of one type and key lengths, and runs the kernel."""
    call.mask.mask.check(*call.sizes)
    causal, rest = call.mask.mask.causal_and_keys() or (False, call.mask.mask)
    kind, device = call.value.dtype, call.q.device
    dtype = call.query.dtype
    if torch.is_autocast_enabled(device.type):
        kind = dtype = torch.get_autocast_dtype(device.type)
    query, key, value = (x.to(dtype).contiguous() for x in (call.query, call.key, call.value))
    counts = call.mask.once("lengths", lambda: lengths(rest, call))
    with torch.autocast(device.type, enabled=False):
        output = form.run(call, query, key, value, counts, causal)
    return output.to(kind)


def lengths(mask: Mask, call: Call) -> Tensor | None:
    """The number of visible keys per batch row; None if all are."""
    if isinstance(mask, Both):
        one, two = lengths(mask.first, call), lengths(mask.second, call)
        if one is not None and two is not None:
            return torch.minimum(one, two)
        return two if one is None else one
    if not isinstance(mask, Padding):
        return None
    return mask.values.to(call.q.device).clamp(0, call.key.shape[2]).int()


def additive(
    call: Call, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, causal: bool
) -> Tensor:
    from ..kernels.additive import AdditiveSoftmax

    made: Tensor = AdditiveSoftmax.apply(
        query, repeat_heads(key, query.shape[1]), value, call.score.v, lengths, causal
    )
    return made


def gates(
    call: Call, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, causal: bool
) -> Tensor:
    from ..kernels.pointwise_weights import RELU, SIGMOID, Gates

    form = RELU if type(call.normalize) is Relu else SIGMOID
    made: Tensor = Gates.apply(
        query, key, value, lengths, causal, call.scale, form, call.normalize.by_count
    )
    return made


def sparse(
    call: Call, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, causal: bool
) -> Tensor:
    from ..kernels.pointwise_weights import ENTMAX, SPARSEMAX
    from ..kernels.sparse_weights import Threshold

    form = SPARSEMAX if type(call.normalize) is Sparsemax else ENTMAX
    made: Tensor = Threshold.apply(query, key, value, lengths, causal, call.scale, form)
    return made


def linear(
    call: Call, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, causal: bool
) -> Tensor:
    from ..kernels.causal_linear import CausalSums

    made: Tensor = CausalSums.apply(query, key, value, lengths, call.scale)
    return made


def pair_operations(call: Call) -> tuple[int, int]:
    """Multiplications (forward, backward) of q kᵀ and the weighted sum, as in the eager backend."""
    batch, heads, queries, keys = call.sizes
    every = batch * heads * queries * keys
    compared, summed = every * call.query.shape[-1], every * call.value.shape[-1]
    # The gradient of a matrix-vector product is an outer product, not a matrix product.
    one_set = isinstance(call.score, Additive) and len(call.score.v) == 1
    return compared + summed, (1 if one_set else 2) * compared + 2 * summed


def chunk_operations(call: Call) -> tuple[int, int]:
    """Multiplications of `causal_sums` in linear.py, which this kernel replaces."""
    from .linear import MIN_CHUNK_LENGTH

    (batch, heads, queries, keys), width = call.sizes, call.query.shape[-1]
    wide = call.value.shape[-1] + 1
    chunk = min(queries, max(MIN_CHUNK_LENGTH, width // 2))
    chunks = -(-queries // chunk)
    # Positions that enter a state and positions that read one.
    states = (keys - queries) + chunk * (2 * chunks - 1)
    total = batch * heads * (states * width * wide + chunks * chunk * chunk * (width + wide))
    return total, 2 * total


class CountOperations(torch.autograd.Function):
    """Identity. Runs meta-tensor matmuls of the kernel's size, so FlopCounterMode counts the kernel."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, forward: int, backward: int) -> Tensor:
        ctx.backward_products = backward
        multiply(forward)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        multiply(ctx.backward_products)
        return grad, None, None


def multiply(count: int) -> None:
    torch.bmm(torch.empty(1, 1, count, device="meta"), torch.empty(1, count, 1, device="meta"))


ADDITIVE = Form("additive", additive, pair_operations, lambda a, e: a <= 1024 and e <= 1024)
GATES = Form("gates", gates, pair_operations, lambda a, e: max(a, e) <= 256)
SPARSE = Form("sparse", sparse, pair_operations, lambda a, e: max(a, e) <= 256)
LINEAR = Form(
    "linear", linear, chunk_operations, lambda a, e: a <= 256 and e <= 256 and a * e <= 16384
)
backend = Forms()  # part of the backend `triton`
