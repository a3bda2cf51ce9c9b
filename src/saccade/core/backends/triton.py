"""Fused Triton kernels for softmax attention. For other scores and normalizers see triton_forms.py.

They support scaled and capped dot products, any mask, ALiBi, T5 and Shaw positions, with memory linear in the length, forward and
backward. Masked blocks of keys are skipped.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..kernels import why_unavailable
from ..mask_cache import cached_for_mask
from ..masks import Both, Causal, Full, Mask, Padding, Prepared, Window
from ..normalizers import Softmax
from ..positions import Alibi, Shaw, T5Buckets
from ..scores import SoftCapped
from ..tracing import can_sync
from . import triton_forms
from .call import Backend, Call, CannotCompile, is_unmodified, repeat_heads, table
from .flex import GPU_MIN_LENGTH, CountOperations
from .triton_forms import KERNEL_MIN_LENGTH, form_of

MAX_HEAD_WIDTH = 256
# Distances whose gradients are stored per query.
MAX_DISTANCES = 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Span = tuple[int, int, tuple[Tensor, ...]]
SPANS: dict[type[Mask], Span] = {Full: (-1, -1, ()), Causal: (-1, 0, ())}


class Kernels(Backend):
    """Base class of kernel backends. A kind of call whose kernel does not compile is not tried again."""

    def __init__(
        self, attend: Callable[[Call], Tensor], kind: Callable[[Call], tuple[Any, ...]]
    ) -> None:
        self.attend, self.kind = attend, kind  # and what its kernels depend on
        self.failed: dict[tuple[Any, ...], str] = {}  # calls whose kernel did not compile, and why
        self.compiled: set[tuple[Any, ...]] = set()

    def run(self, call: Call) -> Tensor:
        if torch.compiler.is_compiling():
            return self.attend(call)
        # A counter of operations does not see kernels.
        if torch._C._len_torch_dispatch_stack():
            with _disable_current_modes():
                output = self.run(call)
            made: Tensor = CountOperations.apply(
                output, (*call.query.shape, *call.value.shape[-2:])
            )
            return made
        which = self.kind(call)
        if which in self.compiled:
            return self.attend(call)
        try:
            output = self.attend(call)
            # Compile the backward kernels while a fallback is possible.
            if output.requires_grad:
                wanted = [x for x in (call.query, call.key, call.value) if x.requires_grad]
                torch.autograd.grad(
                    output, wanted, torch.zeros_like(output), retain_graph=True, allow_unused=True
                )
        except CannotCompile as error:
            self.failed[which] = str(error)
            raise
        self.compiled.add(which)
        return output


class Triton(Kernels):
    """Dot products, also soft-capped, with softmax, any mask, ALiBi, T5 and Shaw; additive scores with softmax; dot products with ReLU,
    sigmoid, sparsemax or entmax-1.5; causal kernel scores with their sum."""

    def refuses(self, call: Call) -> str | None:
        if form_of(call) is not None:
            return triton_forms.backend.refuses(call)
        reason = why_unavailable(call.q.device) or refuses_parts(call) or refuses_sizes(call)
        if (
            reason is None
            and not can_sync()
            and span_of(call) is None
            and "tiles" not in call.mask.kept
        ):
            reason = "the blocks of its mask cannot be listed while a pass is compiled or captured"
        return reason or (self.failed.get(kernel_key(call)) if self.failed else None)

    def rank(self, call: Call) -> int:
        if form_of(call) is not None:
            return triton_forms.backend.rank(call)
        if call.q.device.type != "cuda":
            return 300  # interpreted: only when asked for
        pairs = call.q.shape[2] * call.key.shape[2]
        if not call.score.dot or (call.positions is not None and call.position.adds_values):
            return 5 if pairs >= KERNEL_MIN_LENGTH**2 else 110
        if (
            call.unmasked or (call.causal and call.q.shape[2] == call.key.shape[2])
        ) and not has_bias(call):
            return 25
        return 5 if pairs >= GPU_MIN_LENGTH**2 else 25

    def run(self, call: Call) -> Tensor:
        return super().run(call) if form_of(call) is None else triton_forms.backend.run(call)


def kernel_key(call: Call) -> tuple[Any, ...]:
    """Cache key of compiled kernels."""
    query, closed, position = call.query, span_of(call), call.position
    mask = str(call.mask) if closed is None else (closed[0], closed[1], len(closed[2]))
    sizes = (
        query.shape,
        call.key.shape,
        call.value.shape,
        query.dtype,
        query.device,
        call.needs_grad,
    )
    at = (
        ()
        if call.positions is None
        else (type(position), reach(call), *(one.requires_grad for one in position.parameters()))
    )
    return type(call.score), call.dropout > 0, mask, sizes, at


def cast_alike(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in one type, values with as many heads as keys."""
    device, query, key = call.q.device.type, call.query, call.key
    value = repeat_heads(call.value, call.key.shape[1])
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
    if query.dtype == key.dtype == value.dtype == dtype:
        return query, key, value
    return query.to(dtype), key.to(dtype), value.to(dtype)


def attention(call: Call) -> Tensor:
    # PyTorch 2.11 warns about functools.cache in a compiled graph.
    flash = load_kernels() if torch.compiler.is_compiling() else flash_kernels()
    q, k, v = cast_alike(call)
    extras, (left, right) = flash.Extras(), (-1, -1)
    closed = span_of(call)
    if closed is None:
        from ..kernels.block_lists import make_plan

        mask, sizes, device = call.mask.mask, call.sizes, call.q.device
        make = lambda: cached_for_mask(
            mask, "tiles", (sizes, device), lambda: make_plan(mask, sizes, device)
        )
        plan = call.mask.once("tiles", make)
        extras = extras._replace(
            rows=plan.rows, columns=plan.columns, bits=plan.bits, partly=plan.partly
        )
    else:
        left, right, lengths = closed
        if lengths:
            call.mask.mask.check(*call.sizes)
            extras = extras._replace(
                lengths=call.mask.once("lengths", lambda: shortest(lengths, call.q.device))
            )
    if call.dropout:
        extras = extras._replace(
            seed=torch.randint(2**31 - 1, (1,), device=q.device, dtype=torch.int32)
        )
    cap = call.score.cap if type(call.score) is SoftCapped else 0.0
    options = flash.Options(call.scale, cap, call.dropout, left, right, reach(call))
    output: Tensor = flash.flash(q, k, v, options, with_position(call, extras, q.dtype))
    return output


def load_kernels() -> Any:
    from ..kernels import flash

    return flash


# An import statement takes as long as a kernel launch.
flash_kernels = cache(load_kernels)


def with_position(call: Call, extras: Any, dtype: torch.dtype) -> Any:
    """Adds a position to the kernel's arguments: slopes, or scores and vectors by distance from −limit to limit."""
    position, limit = call.position, reach(call)
    if not has_bias(call):
        return extras
    if type(position) is T5Buckets:
        distances = torch.arange(-limit, limit + 1, device=call.q.device)
        by_distance = position.table[position.bucket(distances)].transpose(0, 1)
        return extras._replace(table=by_distance[None, :, None].contiguous())
    if type(position) is Shaw:
        near = slice(position.max_distance - limit, position.max_distance + limit + 1)
        scale, keys = call.score.scale(call.q.shape[-1]), position.keys[near].to(dtype)
        vectors = None if position.value_vectors is None else position.value_vectors[near]
        return extras._replace(
            table=scale * (call.q.to(dtype) @ keys.transpose(0, 1)), vectors=vectors
        )
    assert type(position) is Alibi, "other positions are refused"
    return extras._replace(slopes=position.slopes.float())


def reach(call: Call) -> int:
    """The distance beyond which a position does not distinguish keys."""
    position = call.position
    if isinstance(position, T5Buckets | Shaw) and has_bias(call):
        return min(position.max_distance, max(call.key.shape[2] - 1, 1))
    return 0


def has_bias(call: Call) -> bool:
    return call.positions is not None and (call.position.biases or call.position.adds_values)


def refuses_parts(call: Call) -> str | None:
    score, position, positions = call.score, call.position, call.positions
    # The kernel would ignore these methods if they are set on an instance.
    own = ("compare", "scale", "bias", "values", "bucket", "index")
    if not score.dot and (
        type(score) is not SoftCapped or any(name in score.__dict__ for name in own)
    ):
        return "the score is not a dot product, plain or soft-capped"
    if not is_unmodified(call.normalize, Softmax):
        return "the normalizer is not softmax"
    if positions is None or not has_bias(call):
        return None
    if type(position) not in (Alibi, T5Buckets, Shaw) or any(
        name in position.__dict__ for name in own
    ):
        return "of positions that add to scores or values it knows ALiBi, T5 and Shaw alone"
    if not positions.in_line or call.q.shape[2] > call.key.shape[2]:
        return "it counts positions from the first key to the last query, and others were given"
    if type(position) is Shaw and call.dropout and position.value_vectors is not None:
        return "it has no dropout on weights by which vectors of distances are summed"
    return None


def refuses_sizes(call: Call) -> str | None:
    position = call.position
    if call.query.dtype not in DTYPES:
        return f"it does not run in {str(call.query.dtype).removeprefix('torch.')}"
    if max(call.query.shape[-1], call.value.shape[-1]) > MAX_HEAD_WIDTH:
        return f"its heads are {MAX_HEAD_WIDTH} wide at most"
    if not call.q.shape[0]:
        return "the batch is empty"
    if has_bias(call) and type(position) is Shaw and call.q.shape[-1] != position.keys.shape[1]:
        return "the position is made for queries of another width"
    if (call.needs_grad or type(position) is Shaw) and 2 * reach(call) + 1 > MAX_DISTANCES:
        return f"it keeps gradients of {MAX_DISTANCES} distances at most, got {2 * reach(call) + 1}"
    return None


def span(mask: Mask) -> Span | None:
    """(left reach, right reach, key lengths) of a mask, −1 for unlimited reach; None for other masks."""
    kind_of_mask = type(mask)
    if kind_of_mask in SPANS:
        return SPANS[kind_of_mask]
    if isinstance(mask, Prepared):
        return span(mask.mask)
    if isinstance(mask, Both) and kind_of_mask is Both:
        one, two = span(mask.first), span(mask.second)
        if one is None or two is None:
            return None
        return smaller_reach(one[0], two[0]), smaller_reach(one[1], two[1]), one[2] + two[2]
    if isinstance(mask, Window) and kind_of_mask is Window:
        return mask.left, mask.right, ()
    if isinstance(mask, Padding) and kind_of_mask is Padding:
        return -1, -1, (mask.values,)
    return None


def span_of(call: Call) -> Span | None:
    """`span` of a call's mask, cached except while compiling."""
    mask = call.mask.mask
    return (
        span(mask) if torch.compiler.is_compiling() else call.mask.once("span", lambda: span(mask))
    )


def smaller_reach(one: int, other: int) -> int:
    """The smaller of two reaches, −1 being unlimited. torch.compile cannot trace `min` of a generator."""
    return max(one, other) if one < 0 or other < 0 else min(one, other)


def shortest(lengths: tuple[Tensor, ...], device: torch.device) -> Tensor:
    return torch.stack([each.to(device) for each in lengths]).amin(0).int()


def choice_key(call: Call) -> tuple[Any, ...] | None:
    """Facts that `refuses` depends on, besides the types of the parts."""
    if not call.q.is_cuda:
        return None
    queries, keys = call.q.shape[2], call.key.shape[2]
    listed = span_of(call) is None and not can_sync()
    placed = call.positions is not None and call.positions.in_line
    return (
        queries * keys >= KERNEL_MIN_LENGTH**2,
        queries > keys,
        placed,
        listed,
        refuses_sizes(call),
    )


backend = Triton(attention, kernel_key)
table.add("triton")(backend)
