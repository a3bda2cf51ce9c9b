"""What the kernels share: tiles of rows, how many keys a row sees, sizes. Tensors are contiguous, B H N W; a plane is one head of one text."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import interpreted

LOG2E = 1.4426950408889634
MAX_HEAD_WIDTH = 256  # of a head, for which there is a layout below


@triton.jit
def load_tile(X, rows, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a plane, 0 beyond its last row and its width."""
    at = tl.arange(0, BLOCK)
    there = rows[:, None] < count
    if WIDTH != BLOCK:
        there = there & (at[None, :] < WIDTH)
    return tl.load(X + rows[:, None] * WIDTH + at[None, :], mask=there, other=0.0)


@triton.jit
def store_tile(X, values, rows, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    there = rows[:, None] < count
    if WIDTH != BLOCK:
        there = there & (at[None, :] < WIDTH)
    tl.store(X + rows[:, None] * WIDTH + at[None, :], values.to(X.dtype.element_ty), mask=there)


@triton.jit
def keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL: tl.constexpr):
    """How many keys each row may attend to: the first of them, since masks are causal, padding, or both."""
    seen = tl.zeros_like(rows) + keys
    if LENGTHS is not None:
        seen = tl.minimum(seen, tl.load(LENGTHS + b))
    if CAUSAL:
        seen = tl.minimum(seen, rows + offset + 1)
    return seen


@triton.jit
def block_range(seen, BN: tl.constexpr, MASKED: tl.constexpr):
    """Where blocks of keys begin and end of which every row sees every key, or those after them, which need a mask."""
    whole = tl.min(seen) // BN * BN
    begin, end = whole * 0, whole
    if MASKED:
        begin, end = whole, tl.max(seen)
    return begin, end


@triton.jit
def row_range(
    LENGTHS, b, origin, offset, queries, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """For a block of keys: the first row that sees some of them, the first that sees all of them, and after which none does."""
    first, free, last = origin * 0, origin * 0, origin * 0 + queries
    if CAUSAL:
        first = tl.maximum(origin - offset, 0) // BM * BM
        free = tl.cdiv(tl.maximum(origin + BN - 1 - offset, 0), BM) * BM
    if LENGTHS is not None:
        length = tl.load(LENGTHS + b)
        last = tl.where(origin >= length, first, last)
        free = tl.where(origin + BN > length, last, free)
    return first, tl.minimum(free, last), last


if interpreted():

    @triton.jit
    def reciprocal(x):
        return 1.0 / x

else:

    @triton.jit
    def reciprocal(x):
        """One instruction; a division would be scaled for numbers that never come."""
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


def power(width: int) -> int:
    """The next power of two, at least 16, which a product on matrix units needs."""
    return max(16, triton.next_power_of_2(width))


def precision(x: Tensor) -> str:
    """How float32 is multiplied: as PyTorch is set, in three parts that keep its digits or in one."""
    if x.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return "tf32x3"


def sizes(query: Tensor, key: Tensor, value: Tensor) -> dict[str, Any]:
    """Sizes that every kernel asks for."""
    (_, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
    known = {"H": heads, "A": a, "E": e, "GK": heads // key.shape[1], "GV": heads // value.shape[1]}
    return {
        "queries": queries,
        "keys": keys,
        **known,
        "BA": power(a),
        "BE": power(e),
        "PRECISION": precision(query),
    }


def shared(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of a head that several heads of queries share: the sum of theirs."""
    if grad.shape[1] == like.shape[1]:
        return grad.to(like.dtype)
    return grad.unflatten(1, (like.shape[1], -1)).sum(2).to(like.dtype)
