"""A kernel for short rows, such as sentences, image patches and windows. For long rows see triton.py.

It supports scaled dot products with a softmax, window masks, lengths, shifted windows and a bias per pair.
"""

from typing import Any

import torch
from torch import Tensor

from ..kernels import why_unavailable
from ..window_masks import ShiftedWindows
from .call import Call, CannotCompile, not_dot_softmax, table
from .triton import DTYPES, MAX_HEAD_WIDTH, Kernels, cast_alike, has_bias, shortest, span

# Maximum number of queries and of keys.
MAX_LENGTH = 64


class Short(Kernels):
    """Dot products with softmax over at most 64 queries and keys."""

    def refuses(self, call: Call) -> str | None:
        reason = why_unavailable(call.q.device) or not_dot_softmax(call) or refuses_sizes(call)
        if reason is not None:
            return reason
        if span(call.mask.mask) is None and type(call.mask.mask) is not ShiftedWindows:
            return "its mask is more than lengths, a reach to both sides, or shifted windows"
        if has_bias(call) and not shares_bias(call):
            return "the bias is not known to be the same for all texts"
        return self.failed.get(kernel_key(call)) if self.failed else None

    def rank(self, call: Call) -> int:
        return 3 if call.q.device.type == "cuda" else 310  # interpreted: only when asked for


def refuses_sizes(call: Call) -> str | None:
    (batch, heads, queries, keys) = call.sizes
    width = max(call.query.shape[-1], call.value.shape[-1])
    if queries > MAX_LENGTH or keys > MAX_LENGTH:
        return f"it holds {MAX_LENGTH} queries and keys at most, got {queries} and {keys}"
    if queries == 1:
        return "for one query it saves nothing"
    device = call.q.device.type
    autocast = device == "cuda" and torch.is_autocast_enabled(device)
    if call.query.dtype not in (DTYPES if autocast or device == "cpu" else DTYPES[1:]):
        return f"it runs in 16 bits, not in {str(call.query.dtype).removeprefix('torch.')}"
    if width > MAX_HEAD_WIDTH // 2:
        return f"its heads are {MAX_HEAD_WIDTH // 2} wide at most"
    if call.key.shape[1] != heads:
        return "heads that share keys would have to add their gradients up"
    return None if batch and keys else "there is nothing to attend to"


def shares_bias(call: Call) -> bool:
    """Whether all batch rows have the same bias."""
    assert call.positions is not None, "only asked of a bias"
    relation = call.positions.relation
    return (
        call.position.bias_of_pairs
        and call.positions.i.dim() == 1
        and (relation is None or relation.shape[0] == 1)
    )


def choice_key(call: Call) -> tuple[Any, ...] | None:
    """Facts that `refuses` depends on, besides the types of the parts."""
    if not call.q.is_cuda or call.q.shape[2] > MAX_LENGTH or refuses_sizes(call) is not None:
        return None
    return has_bias(call) and shares_bias(call), span(call.mask.mask) is None


def kernel_key(call: Call) -> tuple[Any, ...]:
    """Cache key of compiled kernels."""
    _, _, queries, keys = call.sizes
    reach = span(call.mask.mask)
    mask = None if reach is None else (reach[0] >= 0, reach[1] >= 0, bool(reach[2]))
    sizes = (
        queries,
        keys,
        call.query.shape[-1],
        call.value.shape[-1],
        call.query.dtype,
        call.q.device,
        call.dropout > 0,
    )
    return *sizes, mask, call.positions is not None and type(call.position), call.needs_grad


def attention(call: Call) -> Tensor:
    from ..kernels.short_rows import Extras, Options, attend_short

    device, (_, heads, queries, keys) = call.q.device, call.sizes
    q, k, v = cast_alike(call)
    extras, (left, right), mask = Extras(), (-1, -1), call.mask.mask
    closed = span(mask)
    mask.check(*call.sizes)
    if closed is not None:
        left, right, lengths = closed
        if lengths:
            extras = extras._replace(
                lengths=call.mask.once("lengths", lambda: shortest(lengths, device))
            )
    else:
        assert type(mask) is ShiftedWindows, "other masks are refused"
        bytes_of = lambda: mask.dense(len(mask.values), 1, queries, keys, device)[:, 0].to(
            torch.uint8
        )
        extras = extras._replace(allowed=call.mask.once("windows", bytes_of))
    bias = call.bias()
    if bias is not None:
        if bias.dim() == 4 and bias.shape[0] > 1:
            raise CannotCompile("the bias is another one for each text")
        extras = extras._replace(bias=bias.expand(1, heads, queries, keys)[0].contiguous())
    if call.dropout:
        extras = extras._replace(
            seed=torch.randint(2**31 - 1, (1,), device=device, dtype=torch.int32)
        )
    return attend_short(q, k, v, Options(call.scale, call.dropout, left, right), extras)


backend = Short(attention, kernel_key)
table.add("short")(backend)
