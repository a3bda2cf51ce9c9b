"""Softmax attention over short rows: a program holds all queries and keys of one head of one text, so each number is read and written once,
forward and backward, and nothing is kept between them: the weights are computed again.

B batch, H heads, Q queries, K keys, D and E widths. Kernels for long rows make such texts wait: they keep sums per row, and read keys twice.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from ..tracing import can_sync
from . import interpreted
from .launch import Config, fastest
from .operators import outside_compile
from .score_tiles import LOG2E, kept_by_dropout, load_tile, seen, store_tile
from .tiles import power, precision

Given = Tensor | None
ROWS_PER_PROGRAM = 64  # that one program takes down one after the other where a bias has gradients: it adds them up before it writes
# By the larger of Q and K. From Triton 3.6 on, products of whole warp groups on a Hopper GPU can read shared memory that is not theirs where
# little is left for each (github.com/triton-lang/triton/issues/10629 and 11366): four warps only where heads are as wide as a block.
WARPS: dict[int, list[int]] = {16: [1, 2], 32: [1, 2], 64: [4, 2]}
chosen: dict[tuple[Any, ...], Config] = {}  # kind of launch → the fastest
# else a kernel would be built for each that is a multiple of 16, and for 1
COUNTS = ["period", "batch", "queries", "keys", "left", "right"]


class Options(NamedTuple):
    """The numbers of a call; −1 for a side of the mask that is open."""

    scale: float
    drop: float = 0.0
    left: int = -1
    right: int = -1


class Extras(NamedTuple):
    """Its tensors besides q, k and v: a bias (H Q K), what a mask allows (P Q K as bytes; text b has number b mod P), lengths (B), a seed."""

    bias: Tensor | None = None
    allowed: Tensor | None = None
    lengths: Tensor | None = None
    seed: Tensor | None = None


@triton.jit
def weights_of(
    q, k, b, h, plane, row, column, Bias, Allowed, Lengths, Seed, period, queries, keys, left, right, scale, drop,
    BIASED: tl.constexpr, MASKED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The weights of all queries, 0 in rows that may attend nowhere, and what dropout multiplies each by."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E)
    inside = (row[:, None] < queries) & (column[None, :] < keys)
    pair = row[:, None] * keys + column[None, :]
    if BIASED:
        s += (
            tl.load(Bias + h * queries * keys + pair, mask=inside, other=0.0).to(tl.float32) * LOG2E
        )
    length = keys
    if HAS_LENGTHS:
        length = tl.maximum(tl.minimum(keys, tl.load(Lengths + b).to(tl.int32)), 0)
    allowed = inside & seen(
        row[:, None] + keys - queries, column[None, :], left, right, length, HAS_LEFT, HAS_RIGHT
    )
    if MASKED:
        allowed = allowed & (
            tl.load(Allowed + (b % period) * queries * keys + pair, mask=inside, other=0) != 0
        )
    s = tl.where(allowed, s, float("-inf"))
    top = tl.max(s, 1)
    p = tl.exp2(s - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(p, 1)
    p = p * tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)[:, None]
    kept = 1.0
    if DROP:
        kept = kept_by_dropout(tl.load(Seed) + plane, row[:, None], column[None, :], keys, drop)
    return p, kept


@triton.jit(do_not_specialize=COUNTS)
def forward(
    Q, K, V, Out, Bias, Allowed, Lengths, Seed, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n,
    period, batch, heads, queries, keys, left, right, scale, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIASED: tl.constexpr, MASKED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0)
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    row, column = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    d, e = tl.arange(0, PADDED), tl.arange(0, PADDED_V)
    q = load_tile(Q + b * q_b + h * q_h, row, q_n, queries, d, WIDTH, PADDED, True)
    k = load_tile(K + b * k_b + h * k_h, column, k_n, keys, d, WIDTH, PADDED, True)
    v = load_tile(V + b * v_b + h * v_h, column, v_n, keys, e, WIDTH_V, PADDED_V, True)
    p, kept = weights_of(q, k, b, h, plane, row, column, Bias, Allowed, Lengths, Seed, period, queries, keys, left, right, scale, drop,
                         BIASED, MASKED, HAS_LENGTHS, HAS_LEFT, HAS_RIGHT, DROP, PRECISION)  # fmt: skip
    found = tl.dot((p * kept).to(v.dtype), v, input_precision=PRECISION)
    store_tile(Out + b * o_b + h * o_h, row, o_n, queries, e, found, WIDTH_V)


@triton.jit(do_not_specialize=COUNTS)
def backward(
    Q, K, V, Grad, DQ, DK, DV, DBias, Bias, Allowed, Lengths, Seed, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_n,
    dq_b, dq_h, dq_n, dk_b, dk_h, dk_n, dv_b, dv_h, dv_n, period, batch, heads, queries, keys, left, right, scale, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIASED: tl.constexpr, MASKED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    LEARNED: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Of one head of COUNT texts. The gradient of the bias is the sum over all texts: each program adds its own to it once."""
    first = (tl.program_id(0) // heads).to(tl.int64) * COUNT
    h = (tl.program_id(0) % heads).to(tl.int64)
    row, column = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    d, e = tl.arange(0, PADDED), tl.arange(0, PADDED_V)
    pulled = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for n in tl.range(0, tl.minimum(batch - first, COUNT)):
        b = first + n
        q = load_tile(Q + b * q_b + h * q_h, row, q_n, queries, d, WIDTH, PADDED, True)
        k = load_tile(K + b * k_b + h * k_h, column, k_n, keys, d, WIDTH, PADDED, True)
        v = load_tile(V + b * v_b + h * v_h, column, v_n, keys, e, WIDTH_V, PADDED_V, True)
        grad = load_tile(Grad + b * g_b + h * g_h, row, g_n, queries, e, WIDTH_V, PADDED_V, True)
        p, kept = weights_of(q, k, b, h, (b * heads + h).to(tl.int32), row, column, Bias, Allowed, Lengths, Seed, period, queries, keys,
                             left, right, scale, drop, BIASED, MASKED, HAS_LENGTHS, HAS_LEFT, HAS_RIGHT, DROP, PRECISION)  # fmt: skip
        dv = tl.dot(tl.trans((p * kept).to(grad.dtype)), grad, input_precision=PRECISION)
        store_tile(DV + b * dv_b + h * dv_h, column, dv_n, keys, e, dv, WIDTH_V)
        dp = tl.dot(grad, tl.trans(v), input_precision=PRECISION) * kept
        ds = p * (dp - tl.sum(p * dp, 1)[:, None])
        if LEARNED:
            pulled += ds
        small = (ds * scale).to(q.dtype)
        store_tile(
            DQ + b * dq_b + h * dq_h,
            row,
            dq_n,
            queries,
            d,
            tl.dot(small, k, input_precision=PRECISION),
            WIDTH,
        )
        store_tile(
            DK + b * dk_b + h * dk_h,
            column,
            dk_n,
            keys,
            d,
            tl.dot(tl.trans(small), q, input_precision=PRECISION),
            WIDTH,
        )
    if LEARNED:
        inside = (row[:, None] < queries) & (column[None, :] < keys)
        tl.atomic_add(
            DBias + h * queries * keys + row[:, None] * keys + column[None, :],
            pulled,
            mask=inside,
            sem="relaxed",
        )


def attend_short(q: Tensor, k: Tensor, v: Tensor, options: Options, extras: Extras) -> Tensor:
    """B H Q D, B H K D, B H K E → B H Q E."""
    inputs = (*(x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)), *extras, *options)
    return run_forward(*inputs) if torch.compiler.is_compiling() else short_outside(*inputs)


def compute(q: Tensor, k: Tensor, v: Tensor, bias: Given, allowed: Given, lengths: Given, seed: Given,
            scale: float, drop: float, left: int, right: int) -> Tensor:  # fmt: skip
    output = empty(q, k, v)
    tensors = (q, k, v, output, bias, allowed, lengths, seed)
    options = Options(scale, drop, left, right)
    launch(forward, q.shape[0], tensors, tensors[:4], (q, k, v), options, tensors[4:7], {})
    return output


run_forward = custom_op("saccade::short_forward", compute, mutates_args=())


@run_forward.register_fake
def empty(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    """The output's memory is in the order of q's, so that heads lie side by side where they did."""
    batch, heads, queries, _ = q.shape
    if q.stride(1) < q.stride(2):
        return q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    return q.new_empty(batch, heads, queries, v.shape[-1])


def differentiate(grad: Tensor, learned: bool, q: Tensor, k: Tensor, v: Tensor, bias: Given, allowed: Given, lengths: Given,
                  seed: Given, scale: float, drop: float, left: int, right: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v, and of the bias where it is `learned`."""
    dq, dk, dv, d_bias = gradients(grad, learned, q, k, v, bias)
    count = ROWS_PER_PROGRAM if learned else 1
    tensors = (q, k, v, grad, dq, dk, dv, d_bias.zero_(), bias, allowed, lengths, seed)
    how = {"LEARNED": learned, "COUNT": count}
    groups, options = triton.cdiv(q.shape[0], count), Options(scale, drop, left, right)
    strided = (q, k, v, grad, dq, dk, dv)
    launch(backward, groups, tensors, strided, (q, k, v), options, tensors[8:11], how)
    return dq, dk, dv, d_bias


run_backward = custom_op("saccade::short_backward", differentiate, mutates_args=())


@run_backward.register_fake
def gradients(grad: Tensor, learned: bool, q: Tensor, k: Tensor, v: Tensor, bias: Given,
              *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    size = bias.shape if learned and bias is not None else (0,)
    return (
        torch.empty_like(q),
        torch.empty_like(k),
        torch.empty_like(v),
        q.new_empty(size, dtype=torch.float32),
    )


def launch(kernel: Any, groups: int, tensors: tuple[Given, ...], strided: tuple[Tensor, ...], qkv: tuple[Tensor, Tensor, Tensor],
           options: Options, given: tuple[Given, ...], constants: dict[str, Any]) -> None:  # fmt: skip
    """Runs a kernel with the number of warps that is fastest; `given`: bias, mask and lengths."""
    (q, k, v), (bias, allowed, lengths) = qkv, given
    (batch, heads, queries, width), keys = q.shape, k.shape[2]
    strides = [stride for one in strided for stride in one.stride()[:3]]
    constants |= {
        "WIDTH": width, "PADDED": power(width), "WIDTH_V": v.shape[3], "PADDED_V": power(v.shape[3]), "BIASED": bias is not None,
        "MASKED": allowed is not None, "HAS_LENGTHS": lengths is not None, "HAS_LEFT": options.left >= 0,
        "HAS_RIGHT": options.right >= 0, "DROP": options.drop > 0, "PRECISION": precision(q),
    }  # fmt: skip
    masks = 1 if allowed is None else len(allowed)
    numbers = (masks, batch, heads, queries, keys, options.left, options.right)

    def run(config: Config) -> None:
        # a kernel that is built without a tensor never looks at it
        there = [q if one is None else one for one in tensors]
        sizes = {
            "BLOCK_Q": config[0],
            "BLOCK_K": config[1],
            "num_warps": config[2],
            "num_stages": config[3],
        }
        kernel[(groups * heads,)](
            *there, *strides, *numbers, options.scale, options.drop, **constants, **sizes
        )

    block = power(max(queries, keys))
    which = (kernel, q.dtype, q.device, block, *constants.values())
    narrow = min(constants["PADDED"], constants["PADDED_V"]) < block
    several = [2] if narrow and block > 32 else WARPS[block]
    candidates = (
        [chosen[which]] if which in chosen else [(block, block, warps, 1) for warps in several]
    )
    if len(candidates) == 1 or interpreted() or not can_sync():
        fastest([candidates[0]], run)
    else:
        chosen[which] = fastest(candidates, run)


def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.rest = inputs[7:]
    ctx.set_materialize_grads(False)


def pull_back(ctx: Any, grad: Given, run: Callable[..., Any] = run_backward) -> tuple[Any, ...]:
    """The gradients of q, k, v and the bias; nothing else has one."""
    nothing = (None,) * 7
    if grad is None:
        return (None,) * 4 + nothing
    q, k, v, bias, *rest = ctx.saved_tensors
    learned = bias is not None and ctx.needs_input_grad[3]
    grad = (grad if grad.stride(-1) == 1 else grad.contiguous()).to(q.dtype)
    dq, dk, dv, d_bias = run(grad, learned, q, k, v, bias, *rest, *ctx.rest)
    return dq, dk, dv, d_bias.to(bias.dtype) if learned else None, *nothing


run_forward.register_autograd(pull_back, setup_context=save)


short_outside = outside_compile(compute, save, partial(pull_back, run=differentiate), learned=4)
