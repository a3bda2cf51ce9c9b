"""softmax( v·tanh(q + k) ) values, without B H Q K A numbers. A hidden units, two at a time.

With x = exp(2q) and y = exp(2k), made once for each query and key, tanh(q + k) = 1 − 2r with r = 1 / (1 + x y), and of two units

    v₁ r₁ + v₂ r₂ = (v₁ u₂ + v₂ u₁) / (u₁ u₂),  u = 1 + x y,

so that a unit takes half an instruction of the special-function unit, which is what bounds a tanh, and three and a half of the others.
Σ v is the same for all keys and falls out of the softmax. Where some |2q| or |2k| is large (`far`), x and y stay logarithms.

Backward goes over chunks of queries: ∂s of a chunk (one number per pair) is computed again, then ∂q and ∂k are sums over pairs of
4 v ∂s (r − r²), each over the other side's positions inside of threads, so that nothing is added by several programs at once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .tiles import LOG2E, block_range, keys_seen, load_tile, power, precision, reciprocal, shared, store_tile

FAR = tl.constexpr(29.0)  # log₂: up to here u₁ u₂ < 2¹¹⁸, far from float32's last number
SCALE = tl.constexpr(2 * LOG2E)
PAIRS = 3 * 2**22  # of ∂s that are held at a time: 75 MB with the weights; with fewer, Python takes longer than the kernels
ROWS = 64  # queries and keys are padded to a multiple of it
AT_ONCE = 512  # programs of `spread` that fill a GPU
# queries, keys and warps of a tile of the forward pass: fewer keys than threads, so that they need not be shared
TILE = (32, 64, 4)


@triton.jit
def find_far(X, FLAG, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=0.0).to(tl.float32)
    if tl.max(tl.abs(x)) * SCALE > FAR:
        tl.store(FLAG, 1)


@triton.jit
def prepare(
    X, Y, FLAG, count, padded, A: tl.constexpr, WIDTH: tl.constexpr, TRANSPOSED: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr
):
    """exp(2x), or log₂ of it where some are large, in float32; rows and width are rounded up, so that no load needs a mask."""
    plane, rows, at = (
        tl.program_id(1).to(tl.int64),
        tl.program_id(0) * BR + tl.arange(0, BR),
        tl.program_id(2) * BA + tl.arange(0, BA),
    )
    there = (rows[:, None] < count) & (at[None, :] < A)
    x = tl.load(X + (plane * count + rows[:, None]) * A + at[None, :], mask=there, other=0.0).to(tl.float32) * SCALE
    if tl.load(FLAG) == 0:
        x = tl.exp2(x)
    if TRANSPOSED:
        tl.store(Y + (plane * WIDTH + at[None, :]) * padded + rows[:, None], x)
    else:
        tl.store(Y + (plane * padded + rows[:, None]) * WIDTH + at[None, :], x)


@triton.jit
def one_more(x, y, IS_FAR: tl.constexpr):
    """1 + exp(2q + 2k)"""
    return 1.0 + (tl.exp2(tl.minimum(x + y, 60.0)) if IS_FAR else x * y)


@triton.jit
def compare_as(s, X, Y, V, wide, long, A: tl.constexpr, IS_FAR: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    for a in tl.range(0, A, 2, loop_unroll_factor=2):
        x1, x2 = tl.load(X + a * wide + rows), tl.load(X + (a + 1) * wide + rows)
        y1, y2 = tl.load(Y + a * long + columns), tl.load(Y + (a + 1) * long + columns)
        u1, u2 = one_more(x1[:, None], y1[None, :], IS_FAR), one_more(x2[:, None], y2[None, :], IS_FAR)
        s += (tl.load(V + a) * u2 + tl.load(V + a + 1) * u1) * reciprocal(u1 * u2)
    return s


@triton.jit
def compare(X, Y, V, FLAG, wide, long, A: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Scores of a tile in powers of 2, less those of all r = 0; V is −2 v log₂ e, X and Y (A × `wide` and A × `long`) begin at the tile.
    The zeros from which it adds up are loaded, since they give the tile the layout in which a thread has several neighbors."""
    s = tl.load(FLAG + 16 + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]).to(tl.float32)
    if tl.load(FLAG) == 0:
        s = compare_as(s, X, Y, V, wide, long, A, False, BM, BN)
    else:
        s = compare_as(s, X, Y, V, wide, long, A, True, BM, BN)
    return s


@triton.jit
def additive_forward(
    X, Y, U, V, FLAG, LENGTHS, RESULT, LSE, offset, queries, keys, wide, long,
    CAUSAL: tl.constexpr, H: tl.constexpr, SETS: tl.constexpr, GV: tl.constexpr, A: tl.constexpr, E: tl.constexpr,
    BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    X, Y, U = X + plane * A * wide + block * BM, Y + plane * A * long, U + (h % SETS) * A
    V += (b * (H // GV) + h // GV) * keys * E
    rows = block * BM + tl.arange(0, BM)
    seen = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL)
    top, count, total = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, BE], tl.float32)
    for masked in tl.static_range(2):
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            s = compare(X, Y + start, U, FLAG, wide, long, A, BM, BN)
            if masked:
                s = tl.where(columns[None, :] < seen[:, None], s, float("-inf"))
            higher = tl.maximum(top, tl.max(s, 1))
            weight, shrink = tl.exp2(s - higher[:, None]), tl.exp2(top - higher)
            v = load_tile(V, columns, keys, E, BE)
            high = weight.to(v.dtype)
            total = tl.dot(high, v, total * shrink[:, None], input_precision=PRECISION)
            if v.dtype != tl.float32:  # what 16 bits lose of a weight; next to all the tanh a second product costs nothing
                total = tl.dot((weight - high.to(tl.float32)).to(v.dtype), v, total)
            count, top = count * shrink + tl.sum(weight, 1), higher
    some = count > 0.0
    store_tile(RESULT + plane * queries * E, total / tl.where(some, count, 1.0)[:, None], rows, queries, E, BE)
    lse = tl.where(some, top + tl.log2(tl.where(some, count, 1.0)), float("inf"))
    tl.store(LSE + plane * queries + rows, lse, mask=rows < queries)


@triton.jit
def score_gradient(
    X, Y, U, V, FLAG, LENGTHS, LSE, RESULT, DO, DS, P, first, chunk, offset, queries, keys, wide, long,
    CAUSAL: tl.constexpr, H: tl.constexpr, SETS: tl.constexpr, GV: tl.constexpr, A: tl.constexpr, E: tl.constexpr,
    BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """∂s and the weights of a chunk of queries from `first` on, B H chunk × `long`, zeros after the last query and key."""
    plane, start = tl.program_id(2).to(tl.int64), tl.program_id(0) * BN
    b, h = plane // H, plane % H
    local, columns = tl.program_id(1) * BM + tl.arange(0, BM), start + tl.arange(0, BN)
    rows = first + local
    seen = tl.where(rows < queries, keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL), 0)
    weight, ds = tl.zeros([BM, BN], tl.float32), tl.zeros([BM, BN], tl.float32)
    if start < tl.max(seen):
        X += plane * A * wide + first + tl.program_id(1) * BM
        s = compare(X, Y + plane * A * long + start, U + (h % SETS) * A, FLAG, wide, long, A, BM, BN)
        lse = tl.load(LSE + plane * queries + rows, mask=rows < queries, other=0.0)
        weight = tl.where(columns[None, :] < seen[:, None], tl.exp2(s - lse[:, None]), 0.0)
        dw, delta = tl.zeros([BM, BN], tl.float32), tl.zeros([BM], tl.float32)
        V += (b * (H // GV) + h // GV) * keys * E
        for e in tl.range(0, E, BE):
            at = e + tl.arange(0, BE)
            of_rows, there = (plane * queries + rows[:, None]) * E + at[None, :], (rows[:, None] < queries) & (at[None, :] < E)
            grad, out = tl.load(DO + of_rows, mask=there, other=0.0), tl.load(RESULT + of_rows, mask=there, other=0.0)
            v = tl.load(V + columns[:, None] * E + at[None, :], mask=(columns[:, None] < keys) & (at[None, :] < E), other=0.0)
            dw = tl.dot(grad, tl.trans(v), dw, input_precision=PRECISION)
            delta += tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        ds = weight * (dw - delta[:, None])
    to = (plane * chunk + local[:, None]) * long + columns[None, :]
    tl.store(P + to, weight.to(P.dtype.element_ty))
    tl.store(DS + to, ds)


@triton.jit
def spread_as(
    x, Y, DS, begin, end, STEP, A: tl.constexpr, IS_FAR: tl.constexpr, TO_V: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr
):
    total, of_v, at = tl.zeros([BR, BA], tl.float32), tl.zeros([BR, BA], tl.float32), tl.arange(0, BA)
    for m in tl.range(begin, end, 2, loop_unroll_factor=2):
        y1, y2 = tl.load(Y + m * A + at), tl.load(Y + m * A + A + at)
        ds1, ds2 = tl.load(DS + m * STEP)[:, None], tl.load(DS + m * STEP + STEP)[:, None]
        u1, u2 = one_more(x, y1[None, :], IS_FAR), one_more(x, y2[None, :], IS_FAR)
        both = reciprocal(u1 * u2)
        r1, r2 = u2 * both, u1 * both
        total += ds1 * (r1 - r1 * r1)
        total += ds2 * (r2 - r2 * r2)
        if TO_V:
            of_v += ds1 * r1
            of_v += ds2 * r2
    return total, of_v


@triton.jit
def spread(
    X, Y, DS, FLAG, OUT, OF_V, first_row, first_other, rows, others, rows_all, others_all, share, row_step, other_step,
    A: tl.constexpr, PARTS: tl.constexpr, TO_V: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    """Σ ∂s (r − r²) over the other side's positions, of which each part has `share`: PARTS planes × rows × A, summed afterwards."""
    plane, part, block = tl.program_id(2).to(tl.int64) // PARTS, tl.program_id(2) % PARTS, tl.program_id(0)
    units, at, local = tl.program_id(1) * BA, tl.arange(0, BA), tl.arange(0, BR)
    X += (plane * rows_all + first_row + block * BR) * A + units
    Y += (plane * others_all + first_other) * A + units
    DS += plane * rows * others + block * BR * row_step
    x = tl.load(X + local[:, None] * A + at[None, :])
    begin, end = part * share, tl.minimum(part * share + share, others)
    if tl.load(FLAG) == 0:
        total, of_v = spread_as(x, Y, DS + local * row_step, begin, end, other_step, A, False, TO_V, BR, BA)
    else:
        total, of_v = spread_as(x, Y, DS + local * row_step, begin, end, other_step, A, True, TO_V, BR, BA)
    to = part * (tl.num_programs(2).to(tl.int64) // PARTS) + plane
    tl.store(OUT + (to * rows + block * BR + local[:, None]) * A + units + at[None, :], total)
    if TO_V:
        tl.store(OF_V + (to * tl.num_programs(0) + block) * A + units + at, tl.sum(of_v, 0))


def prepared(x: Tensor, flag: Tensor, transposed: bool) -> Tensor:
    """B H N A → B H A' N', or B H N' A'."""
    (batch, heads, count, a), units = x.shape, unit_block(x)
    width, padded = triton.cdiv(a, units) * units, triton.cdiv(count, ROWS) * ROWS
    made = x.new_empty(batch, heads, *((width, padded) if transposed else (padded, width)), dtype=torch.float32)
    grid = (padded // ROWS, batch * heads, width // units)
    prepare[grid](x, made, flag, count, padded, A=a, WIDTH=width, TRANSPOSED=transposed, BR=ROWS, BA=units)
    return made


def unit_block(x: Tensor) -> int:
    return min(64, power(x.shape[-1]))


def spread_over(
    x: Tensor, y: Tensor, ds: Tensor, flag: Tensor, first: int, of_queries: bool, units: int
) -> tuple[Tensor, Tensor | None]:
    """Σ ∂s (r − r²) for the queries of a chunk, or for all keys over the queries of a chunk and Σ ∂s r over all of them, each as parts that
    are still to be summed: parts B H N A', and parts B H blocks A'."""
    (batch, heads, chunk, long), a = ds.shape, x.shape[-1]
    rows, others = (chunk, long) if of_queries else (long, chunk)
    blocks = rows // ROWS
    parts = max(1, min(others // 64, AT_ONCE // (blocks * batch * heads)))
    share = triton.cdiv(others, 4 * parts) * 4
    out = x.new_empty(parts, batch, heads, rows, a)
    of_v = None if of_queries else x.new_empty(parts, batch, heads, blocks, a)
    starts, steps = ((first, 0), (long, 1)) if of_queries else ((0, first), (1, long))
    spread[blocks, a // units, parts * batch * heads](
        x, y, ds, flag, out, of_v, *starts, rows, others, x.shape[2], y.shape[2], share, *steps,
        A=a, PARTS=parts, TO_V=not of_queries, BR=ROWS, BA=units, num_warps=4,
    )  # fmt: skip
    return out, of_v


class AdditiveSoftmax(torch.autograd.Function):
    """Projected queries and keys (B H N A), values (B H' K E), v (1 or H × A)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, v: Tensor, lengths: Tensor | None, causal: bool
    ) -> Tensor:  # fmt: skip
        (batch, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
        flag = torch.zeros(16 + ROWS * 64, dtype=torch.int32, device=query.device)  # and the zeros that `compare` loads
        for x in (query, key):
            find_far[triton.cdiv(x.numel(), 4096),](x, flag, x.numel(), BLOCK=4096)
        x, y = prepared(query, flag, True), prepared(key, flag, True)
        u = F.pad(v.float() * (-2 * LOG2E), (0, x.shape[2] - a)).contiguous()
        # in float32: the gradient subtracts output · grad of each row, and what 16 bits lose there adds up over all pairs
        output, lse = (query.new_empty(batch, heads, queries, *more, dtype=torch.float32) for more in ((e,), ()))
        known: dict[str, Any] = {
            "CAUSAL": causal,
            "H": heads,
            "SETS": len(v),
            "GV": heads // value.shape[1],
            "A": x.shape[2],
            "E": e,
        }
        known |= {"queries": queries, "keys": keys, "wide": x.shape[3], "long": y.shape[3], "PRECISION": precision(query)}
        size = e * value.element_size()
        rows, columns, warps = TILE if size <= 512 else (16, 32, 4) if size <= 1024 else (16, 16, 8)
        additive_forward[triton.cdiv(queries, rows), batch * heads](
            x, y, u, value, flag, lengths, output, lse, keys - queries, **known,
            BE=power(e), BM=rows, BN=columns, num_warps=warps, num_stages=2,
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, v, lengths, flag, u, output, lse)
        ctx.known = known
        return output.to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, v, lengths, flag, u, output, lse = ctx.saved_tensors
        (batch, heads, queries, a), (keys, e), grad = query.shape, value.shape[2:], grad.contiguous()
        transposed = [prepared(x, flag, True) for x in (query, key)]
        x, y = (prepared(x, flag, False) for x in (query, key))
        dq, dk, dv = torch.empty_like(x), torch.zeros_like(y), query.new_zeros(batch * heads, keys, e, dtype=torch.float32)
        du, long = x.new_zeros(batch, heads, x.shape[-1]), y.shape[2]
        at_once = max(1, PAIRS // (batch * heads * long) // ROWS) * ROWS
        for first in range(0, queries, at_once):
            chunk = min(at_once, x.shape[2] - first)
            ds = x.new_empty(batch, heads, chunk, long)
            weights = torch.empty_like(ds, dtype=value.dtype)
            score_gradient[long // 64, chunk // 32, batch * heads](
                *transposed, u, value, flag, lengths, lse, output, grad, ds, weights, first, chunk, keys - queries, **ctx.known,
                BE=min(64, power(e)), BM=32, BN=64, num_warps=4, num_stages=1,
            )  # fmt: skip
            pulled = grad[:, :, first : first + chunk].flatten(0, 1)
            with _disable_current_modes():  # it is part of the kernel, whose operations are counted as those of the definition
                dv += torch.bmm(weights.flatten(0, 1)[:, : pulled.shape[1], :keys].transpose(1, 2), pulled)
            of_queries, _ = spread_over(x, y, ds, flag, first, True, unit_block(query))
            torch.sum(of_queries, 0, out=dq[:, :, first : first + chunk])
            of_keys, of_v = spread_over(y, x, ds, flag, first, False, unit_block(query))
            dk += of_keys.sum(0)
            du += 0 if of_v is None else of_v.sum((0, 3))
        factor = 4 * v.float().unsqueeze(1)
        dq, dk = ((found[:, :, :n, :a] * factor).to(query.dtype) for found, n in ((dq, queries), (dk, keys)))
        of_v = -2 * du[..., :a].sum(0)
        of_v = (of_v.sum(0, keepdim=True) if len(v) == 1 else of_v).to(v.dtype)
        return dq, dk, shared(dv.unflatten(0, (batch, heads)), value), of_v, None, None
