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
from torch.nn import functional as F

from .tiles import LOG2E, block_range, keys_seen, load_tile, power, precision, reciprocal, shared, store_tile

FAR = tl.constexpr(29.0)  # log₂: up to here u₁ u₂ < 2¹¹⁸, far from float32's last number
SCALE = tl.constexpr(2 * LOG2E)
PAIRS = 2**23  # numbers of ∂s that are held at a time
UNITS = 64  # hidden units of a tile of `spread`


@triton.jit
def find_far(X, FLAG, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=0.0).to(tl.float32)
    if tl.max(tl.abs(x)) * SCALE > FAR:
        tl.store(FLAG, 1)


@triton.jit
def prepare(X, Y, FLAG, count, A: tl.constexpr, WIDTH: tl.constexpr, TRANSPOSED: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr):
    """exp(2x), or log₂ of it where some are large, in float32, A rounded up to WIDTH."""
    plane, rows, at = tl.program_id(1).to(tl.int64), tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(2) * BA + tl.arange(0, BA)
    there, at = (rows[:, None] < count) & (at[None, :] < A), at[None, :]
    x = tl.load(X + (plane * count + rows[:, None]) * A + at, mask=there, other=0.0).to(tl.float32) * SCALE
    if tl.load(FLAG) == 0:
        x = tl.exp2(x)
    to = Y + (plane * WIDTH + at) * count + rows[:, None] if TRANSPOSED else Y + (plane * count + rows[:, None]) * WIDTH + at
    tl.store(to, x, mask=(rows[:, None] < count) & (at < WIDTH))


@triton.jit
def one_more(x, y, IS_FAR: tl.constexpr):
    """1 + exp(2q + 2k)"""
    return 1.0 + (tl.exp2(tl.minimum(x + y, 60.0)) if IS_FAR else x * y)


@triton.jit
def compare_as(X, Y, V, rows, columns, queries, keys, A: tl.constexpr, IS_FAR: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    s = tl.zeros([BM, BN], tl.float32)
    for a in tl.range(0, A, 2, loop_unroll_factor=2):
        x1, x2 = tl.load(X + a * queries + rows), tl.load(X + (a + 1) * queries + rows)
        y1, y2 = tl.load(Y + a * keys + columns), tl.load(Y + (a + 1) * keys + columns)
        u1, u2 = one_more(x1[:, None], y1[None, :], IS_FAR), one_more(x2[:, None], y2[None, :], IS_FAR)
        s += (tl.load(V + a) * u2 + tl.load(V + a + 1) * u1) * reciprocal(u1 * u2)
    return s


@triton.jit
def compare(X, Y, V, FLAG, rows, columns, queries, keys, A: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Scores in powers of 2, less those of all r = 0; V is −2 v log₂ e. Rows and columns must be there."""
    if tl.load(FLAG) == 0:
        s = compare_as(X, Y, V, rows, columns, queries, keys, A, False, BM, BN)
    else:
        s = compare_as(X, Y, V, rows, columns, queries, keys, A, True, BM, BN)
    return s


@triton.jit
def additive_forward(
    X, Y, U, V, FLAG, LENGTHS, O, LSE, offset, queries, keys,
    CAUSAL: tl.constexpr, H: tl.constexpr, SETS: tl.constexpr, GV: tl.constexpr, A: tl.constexpr, E: tl.constexpr,
    BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    X, Y, U = X + plane * A * queries, Y + plane * A * keys, U + (h % SETS) * A
    V += (b * (H // GV) + h // GV) * keys * E
    rows = block * BM + tl.arange(0, BM)
    seen, inside = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL), tl.minimum(rows, queries - 1)
    top, count, total = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, BE], tl.float32)
    for masked in tl.static_range(2):
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            if masked:
                s = compare(X, Y, U, FLAG, inside, tl.minimum(columns, keys - 1), queries, keys, A, BM, BN)
                s = tl.where(columns[None, :] < seen[:, None], s, float("-inf"))
            else:
                s = compare(X, Y, U, FLAG, inside, columns, queries, keys, A, BM, BN)
            higher = tl.maximum(top, tl.max(s, 1))
            weight, shrink = tl.exp2(s - higher[:, None]), tl.exp2(top - higher)
            v = load_tile(V, columns, keys, E, BE)
            total = tl.dot(weight.to(v.dtype), v, total * shrink[:, None], input_precision=PRECISION)
            count, top = count * shrink + tl.sum(weight, 1), higher
    some = count > 0.0
    store_tile(O + plane * queries * E, total / tl.where(some, count, 1.0)[:, None], rows, queries, E, BE)
    lse = tl.where(some, top + tl.log2(tl.where(some, count, 1.0)), float("inf"))
    tl.store(LSE + plane * queries + rows, lse, mask=rows < queries)


@triton.jit
def score_gradient(
    X, Y, U, V, FLAG, LENGTHS, LSE, O, DO, DS, P, first, chunk, offset, queries, keys,
    CAUSAL: tl.constexpr, H: tl.constexpr, SETS: tl.constexpr, GV: tl.constexpr, A: tl.constexpr, E: tl.constexpr,
    BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """∂s and the weights of a chunk of queries from `first` on: B H chunk K."""
    plane, start = tl.program_id(2).to(tl.int64), tl.program_id(0) * BN
    b, h = plane // H, plane % H
    local, columns = tl.program_id(1) * BM + tl.arange(0, BM), start + tl.arange(0, BN)
    rows = first + local
    seen, inside = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL), tl.minimum(rows, queries - 1)
    to = (plane * chunk + local[:, None]) * keys + columns[None, :]
    there = (local[:, None] < chunk) & (columns[None, :] < keys)
    weight, ds = tl.zeros([BM, BN], tl.float32), tl.zeros([BM, BN], tl.float32)
    if start < tl.max(seen):
        X, Y, U = X + plane * A * queries, Y + plane * A * keys, U + (h % SETS) * A
        s = compare(X, Y, U, FLAG, inside, tl.minimum(columns, keys - 1), queries, keys, A, BM, BN)
        lse = tl.load(LSE + plane * queries + inside)
        weight = tl.where(columns[None, :] < seen[:, None], tl.exp2(s - lse[:, None]), 0.0)
        dw, delta = tl.zeros([BM, BN], tl.float32), tl.zeros([BM], tl.float32)
        V += (b * (H // GV) + h // GV) * keys * E
        for e in tl.range(0, E, BE):
            at = e + tl.arange(0, BE)
            of_rows, of_columns = (plane * queries + inside[:, None]) * E + at[None, :], columns[:, None] * E + at[None, :]
            grad, out = tl.load(DO + of_rows, mask=at[None, :] < E, other=0.0), tl.load(O + of_rows, mask=at[None, :] < E, other=0.0)
            v = tl.load(V + of_columns, mask=(columns[:, None] < keys) & (at[None, :] < E), other=0.0)
            dw = tl.dot(grad, tl.trans(v), dw, input_precision=PRECISION)
            delta += tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        ds = weight * (dw - delta[:, None])
    tl.store(P + to, weight.to(P.dtype.element_ty), mask=there)
    tl.store(DS + to, ds, mask=there)


@triton.jit
def spread_as(
    x, Y, DS, begin, end, step, at, A: tl.constexpr, IS_FAR: tl.constexpr, TO_V: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr
):
    total, of_v = tl.zeros([BR, BA], tl.float32), tl.zeros([BR, BA], tl.float32)
    for m in tl.range(begin, end, 2, loop_unroll_factor=2):
        more = tl.minimum(m + 1, end - 1)
        y1, y2 = tl.load(Y + m * A + at), tl.load(Y + more * A + at)
        ds1, ds2 = tl.load(DS + m * step), tl.load(DS + more * step) * tl.where(more > m, 1.0, 0.0)
        u1, u2 = one_more(x, y1[None, :], IS_FAR), one_more(x, y2[None, :], IS_FAR)
        both = reciprocal(u1 * u2)
        r1, r2 = u2 * both, u1 * both
        total += ds1[:, None] * (r1 - r1 * r1) + ds2[:, None] * (r2 - r2 * r2)
        if TO_V:
            of_v += ds1[:, None] * r1 + ds2[:, None] * r2
    return total, of_v


@triton.jit
def spread(
    X, Y, DS, FLAG, OUT, OF_V, first_row, count, rows_all, others, others_all, first_other, share, row_step, other_step,
    A: tl.constexpr, PARTS: tl.constexpr, TO_V: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    """Σ ∂s (r − r²) over the other side's positions, of which each part has `share`: PARTS planes × rows × A, summed afterwards."""
    plane, part, block = tl.program_id(2).to(tl.int64) // PARTS, tl.program_id(2) % PARTS, tl.program_id(0)
    at, rows = tl.program_id(1) * BA + tl.arange(0, BA), block * BR + tl.arange(0, BR)
    units, inside = tl.minimum(at, A - 1), tl.minimum(rows, count - 1)
    x = tl.load(X + (plane * rows_all + first_row + inside[:, None]) * A + units[None, :])
    Y += (plane * others_all + first_other) * A
    DS += plane * count * others + inside * row_step
    begin, end = part * share, tl.minimum(part * share + share, others)
    if tl.load(FLAG) == 0:
        total, of_v = spread_as(x, Y, DS, begin, end, other_step, units, A, False, TO_V, BR, BA)
    else:
        total, of_v = spread_as(x, Y, DS, begin, end, other_step, units, A, True, TO_V, BR, BA)
    planes = tl.num_programs(2).to(tl.int64) // PARTS
    there = (rows[:, None] < count) & (at[None, :] < A)
    tl.store(OUT + ((part * planes + plane) * count + rows[:, None]) * A + at[None, :], total, mask=there)
    if TO_V:
        summed = tl.sum(tl.where(rows[:, None] < count, of_v, 0.0), 0)
        tl.store(OF_V + ((part * planes + plane) * tl.num_programs(0) + block) * A + at, summed, mask=at < A)


def prepared(x: Tensor, flag: Tensor, transposed: bool) -> Tensor:
    (batch, heads, count, a), rows = x.shape, 64
    width = a + a % 2
    made = x.new_empty(batch, heads, *((width, count) if transposed else (count, width)), dtype=torch.float32)
    grid = (triton.cdiv(count, rows), batch * heads, triton.cdiv(width, UNITS))
    prepare[grid](x, made, flag, count, A=a, WIDTH=width, TRANSPOSED=transposed, BR=rows, BA=UNITS)
    return made


def spread_over(x: Tensor, y: Tensor, ds: Tensor, flag: Tensor, at: slice, of_queries: bool) -> tuple[Tensor, Tensor | None]:
    """Σ ∂s (r − r²) for the queries of a chunk, or for all keys over the queries of a chunk and Σ ∂s r over all of them, B H A."""
    (batch, heads, chunk, keys), a, rows = ds.shape, x.shape[-1], 32
    count, others = (chunk, keys) if of_queries else (keys, chunk)
    blocks = triton.cdiv(count, rows)
    parts = max(1, min(triton.cdiv(others, 64), 512 // (blocks * batch * heads)))
    share = triton.cdiv(others, 2 * parts) * 2
    out = x.new_empty(parts, batch, heads, count, a)
    of_v = None if of_queries else x.new_empty(parts, batch, heads, blocks, a)
    starts = (at.start, count, x.shape[2], others, y.shape[2], 0) if of_queries else (0, count, x.shape[2], others, y.shape[2], at.start)
    steps, known = (keys, 1) if of_queries else (1, keys), {"A": a, "PARTS": parts, "TO_V": not of_queries, "BR": rows, "BA": UNITS}
    spread[blocks, triton.cdiv(a, UNITS), parts * batch * heads](x, y, ds, flag, out, of_v, *starts, share, *steps, **known)
    return out.sum(0), None if of_v is None else of_v.sum((0, 3))


class AdditiveSoftmax(torch.autograd.Function):
    """Projected queries and keys (B H N A), values (B H' K E), v (1 or H × A)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, v: Tensor, lengths: Tensor | None, causal: bool
    ) -> Tensor:  # fmt: skip
        (batch, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
        flag = torch.zeros(1, dtype=torch.int32, device=query.device)
        for x in (query, key):
            find_far[triton.cdiv(x.numel(), 4096),](x, flag, x.numel(), BLOCK=4096)
        u = F.pad(v.float() * (-2 * LOG2E), (0, a % 2)).contiguous()
        output, lse = query.new_empty(batch, heads, queries, e), query.new_empty(batch, heads, queries, dtype=torch.float32)
        known = {"CAUSAL": causal, "H": heads, "SETS": len(v), "GV": heads // value.shape[1], "A": a + a % 2, "E": e}
        known["PRECISION"] = precision(query)
        wide = e * value.element_size()
        rows, columns, warps = (32, 64, 4) if wide <= 512 else (16, 32, 4) if wide <= 1024 else (16, 16, 8)
        transposed = prepared(query, flag, True), prepared(key, flag, True)
        additive_forward[triton.cdiv(queries, rows), batch * heads](
            *transposed, u, value, flag, lengths, output, lse, keys - queries, queries, keys, **known,
            BE=power(e), BM=rows, BN=columns, num_warps=warps, num_stages=2,
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, v, lengths, flag, u, output, lse)
        ctx.known = known
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, v, lengths, flag, u, output, lse = ctx.saved_tensors
        (batch, heads, queries, a), (keys, e), grad = query.shape, value.shape[2:], grad.contiguous()
        transposed, (x, y) = (prepared(query, flag, True), prepared(key, flag, True)), (prepared(query, flag, False), prepared(key, flag, False))
        dq, dk, dv = torch.empty_like(x), torch.zeros_like(y), query.new_zeros(batch, heads, keys, e, dtype=torch.float32)
        du, at_once = x.new_zeros(batch, heads, x.shape[-1]), max(64, PAIRS // (batch * heads * keys) // 64 * 64)
        for first in range(0, queries, at_once):
            at = slice(first, min(first + at_once, queries))
            chunk = at.stop - first
            ds = x.new_empty(batch, heads, chunk, keys)
            weights = ds if value.dtype == torch.float32 else torch.empty_like(ds, dtype=value.dtype)
            weights = torch.empty_like(ds) if weights is ds else weights
            score_gradient[triton.cdiv(keys, 64), triton.cdiv(chunk, 32), batch * heads](
                *transposed, u, value, flag, lengths, lse, output, grad, ds, weights, first, chunk, keys - queries, queries, keys,
                **ctx.known, BE=min(64, power(e)), BM=32, BN=64, num_warps=4, num_stages=1,
            )  # fmt: skip
            dv += weights.transpose(-2, -1) @ grad[:, :, at]
            dq[:, :, at], _ = spread_over(x, y, ds, flag, at, True)
            of_keys, of_v = spread_over(y, x, ds, flag, at, False)
            dk += of_keys
            du += of_v
        factor = 4 * v.float().unsqueeze(1)
        dq, dk = ((grad[..., :a] * factor).to(like.dtype) for grad, like in ((dq, query), (dk, key)))
        of_v = -2 * du[..., :a].sum(0)
        return dq, dk, shared(dv, value), (of_v.sum(0, keepdim=True) if len(v) == 1 else of_v).to(v.dtype), None, None
