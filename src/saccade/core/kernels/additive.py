"""softmax( v·tanh(q + k) ) values, without B H Q K A numbers. A hidden units, two at a time.

With x = exp(2q) and y = exp(2k), made once for each query and key, tanh(q + k) = 1 − 2r with r = 1 / (1 + x y), and of two units

    v₁ r₁ + v₂ r₂ = (v₁ u₂ + v₂ u₁) / (u₁ u₂),  u = 1 + x y,

so that a unit takes half an instruction of the special-function unit, which is what bounds a tanh, and three and a half of the others.
Σ v is the same for all keys and falls out of the softmax. Where some |2q| or |2k| is large (`far`), x and y stay logarithms.

Backward goes over chunks of queries: ∂s of a chunk (one number per pair) is computed again, then ∂q and ∂k are sums over pairs of
4 v ∂s (r − r²), both made at once: a warp has the units of 32 queries in registers and goes over keys. What it adds up for a query stays there;
what it adds up for a key it adds to a sum of its own in memory, so that nothing is added by several programs at once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .mixed_products import add_product
from .tiles import (
    LOG2E,
    block_range,
    keys_seen,
    load_tile,
    power,
    precision,
    reciprocal,
    shared,
    store_tile,
)

LOG2_LIMIT = tl.constexpr(29.0)  # log₂: up to here u₁ u₂ < 2¹¹⁸, far from float32's last number
SCALE = tl.constexpr(2 * LOG2E)
# of ∂s that are held at a time: 50 MB with the weights; with fewer, Python takes longer than the kernels
PAIRS = 1 << 23
ROWS = (
    64  # queries and keys are padded to a multiple of it; a program of `spread` has as many queries
)
SPREAD_PROGRAMS = 1056  # programs of `spread` that fill a GPU: one warp each, eight on each of its multiprocessors
# queries, keys and warps of a tile of scores: 32 of them for each thread, so that it loads little for many
TILE = (64, 64, 4)


@triton.jit
def find_far(X, FLAG, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=0.0).to(tl.float32)
    if tl.max(tl.abs(x)) * SCALE > LOG2_LIMIT:
        tl.store(FLAG, 1)


@triton.jit
def prepare(
    X,
    Y,
    FLAG,
    count,
    padded,
    A: tl.constexpr,
    WIDTH: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BR: tl.constexpr,
    BA: tl.constexpr,
):
    """exp(2x), or log₂ of it where some are large, in float32; rows and width are rounded up, so that no load needs a mask."""
    plane, rows = tl.program_id(1).to(tl.int64), tl.program_id(0) * BR + tl.arange(0, BR)
    at = tl.program_id(2) * BA + tl.arange(0, BA)
    there = (rows[:, None] < count) & (at[None, :] < A)
    x = (
        tl.load(X + (plane * count + rows[:, None]) * A + at[None, :], mask=there, other=0.0).to(
            tl.float32
        )
        * SCALE
    )
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
def compare_as(
    s,
    X,
    Y,
    V,
    wide,
    long,
    A: tl.constexpr,
    IS_FAR: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    for a in tl.range(0, A, 2, loop_unroll_factor=2):
        x1, x2 = tl.load(X + a * wide + rows), tl.load(X + (a + 1) * wide + rows)
        y1, y2 = tl.load(Y + a * long + columns), tl.load(Y + (a + 1) * long + columns)
        u1 = one_more(x1[:, None], y1[None, :], IS_FAR)
        u2 = one_more(x2[:, None], y2[None, :], IS_FAR)
        s += (tl.load(V + a) * u2 + tl.load(V + a + 1) * u1) * reciprocal(u1 * u2)
    return s


@triton.jit
def compare(X, Y, V, FLAG, wide, long, A: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Scores of a tile in powers of 2, less those of all r = 0; V is −2 v log₂ e, X and Y (A × `wide` and A × `long`) begin at the tile.
    The zeros from which it adds up are loaded, since they give the tile the layout in which a thread has several neighbors."""
    s = tl.load(FLAG + 16 + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]).to(
        tl.float32
    )
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
    top, count = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, BE], tl.float32)
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
            # what 16 bits lose of a weight; next to all the tanh a second product costs nothing
            if v.dtype != tl.float32:
                total = tl.dot((weight - high.to(tl.float32)).to(v.dtype), v, total)
            count, top = count * shrink + tl.sum(weight, 1), higher
    some = count > 0.0
    store_tile(
        RESULT + plane * queries * E,
        total / tl.where(some, count, 1.0)[:, None],
        rows,
        queries,
        E,
        BE,
    )
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
        s = compare(
            X, Y + plane * A * long + start, U + (h % SETS) * A, FLAG, wide, long, A, BM, BN
        )
        lse = tl.load(LSE + plane * queries + rows, mask=rows < queries, other=0.0)
        weight = tl.where(columns[None, :] < seen[:, None], tl.exp2(s - lse[:, None]), 0.0)
        dw, delta = tl.zeros([BM, BN], tl.float32), tl.zeros([BM], tl.float32)
        V += (b * (H // GV) + h // GV) * keys * E
        for e in tl.range(0, E, BE):
            at = e + tl.arange(0, BE)
            of_rows = (plane * queries + rows[:, None]) * E + at[None, :]
            there = (rows[:, None] < queries) & (at[None, :] < E)
            grad = tl.load(DO + of_rows, mask=there, other=0.0)
            out = tl.load(RESULT + of_rows, mask=there, other=0.0)
            v = tl.load(
                V + columns[:, None] * E + at[None, :],
                mask=(columns[:, None] < keys) & (at[None, :] < E),
                other=0.0,
            )
            dw = tl.dot(grad, tl.trans(v), dw, input_precision=PRECISION)
            delta += tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        ds = weight * (dw - delta[:, None])
    to = (plane * chunk + local[:, None]) * long + columns[None, :]
    tl.store(P + to, weight.to(P.dtype.element_ty))
    tl.store(DS + to, ds)


@triton.jit
def spread_as(
    x,
    Y,
    DS,
    OF_Y,
    begin,
    end,
    fresh,
    A: tl.constexpr,
    IS_FAR: tl.constexpr,
    BR: tl.constexpr,
    BA: tl.constexpr,
):
    total, of_v, at = tl.zeros([BR, BA], tl.float32), tl.zeros([BA], tl.float32), tl.arange(0, BA)
    added = (at >= 0) & (fresh == 0)
    for m in tl.range(begin, end, 2):
        y1, y2 = tl.load(Y + m * A + at), tl.load(Y + m * A + A + at)
        ds1, ds2 = tl.load(DS + m)[:, None], tl.load(DS + m + 1)[:, None]
        sum1 = tl.load(OF_Y + m * A + at, mask=added, other=0.0)
        sum2 = tl.load(OF_Y + m * A + A + at, mask=added, other=0.0)
        u1, u2 = one_more(x, y1[None, :], IS_FAR), one_more(x, y2[None, :], IS_FAR)
        both = reciprocal(u1 * u2)
        r1, r2 = u2 * both, u1 * both
        # never made: each of its two sums multiplies and adds at once
        slope1, slope2 = (ds1 * (r1 - r1 * r1), ds2 * (r2 - r2 * r2))
        total += slope1
        total += slope2
        of_v += tl.sum(ds1 * r1, 0) + tl.sum(ds2 * r2, 0)
        tl.store(OF_Y + m * A + at, sum1 + tl.sum(slope1, 0))
        tl.store(OF_Y + m * A + A + at, sum2 + tl.sum(slope2, 0))
    return total, of_v


@triton.jit(do_not_specialize=["first", "groups", "share", "fresh"])
def spread(
    X, Y, DS, FLAG, OF_X, OF_Y, OF_V, first, groups, held, queries, keys, share, fresh,
    A: tl.constexpr, ROUNDS: tl.constexpr, BR: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    """Σ ∂s (r − r²) over a part of the keys (`share`) for ROUNDS · BR queries of a chunk, and over these for each of the keys, which is added to
    what earlier chunks gave unless it is `fresh`; and Σ ∂s r over both. DS and OF_X have `held` rows per plane."""
    plane, units, planes = tl.program_id(2).to(tl.int64), tl.program_id(1) * BA, tl.num_programs(2)
    group, part, at = tl.program_id(0) % groups, tl.program_id(0) // groups, tl.arange(0, BA)
    begin, end = part * share, tl.minimum(part * share + share, keys)
    of_v = tl.zeros([BA], tl.float32)
    Y += plane * keys * A + units
    OF_Y += (group * planes + plane) * keys * A + units
    for turn in tl.static_range(ROUNDS):
        local = (group * ROUNDS + turn) * BR + tl.arange(0, BR)
        x = tl.load(X + (plane * queries + first + local[:, None]) * A + units + at[None, :])
        ds = DS + (plane * held + local) * keys
        if tl.load(FLAG) == 0:
            total, more = spread_as(x, Y, ds, OF_Y, begin, end, fresh, A, False, BR, BA)
        else:
            total, more = spread_as(x, Y, ds, OF_Y, begin, end, fresh, A, True, BR, BA)
        tl.store(
            OF_X + ((part * planes + plane) * held + local[:, None]) * A + units + at[None, :],
            total,
        )
        of_v += more
        fresh = 0
        tl.debug_barrier()  # the next round adds to what this one has stored
    to = OF_V + (tl.program_id(0) * planes + plane) * A + units + at
    tl.store(to, tl.load(to) + of_v)


def prepared(x: Tensor, flag: Tensor, transposed: bool) -> Tensor:
    """B H N A → B H A' N', or B H N' A'."""
    (batch, heads, count, a), units = x.shape, unit_block(x)
    width, padded = triton.cdiv(a, units) * units, triton.cdiv(count, ROWS) * ROWS
    made = x.new_empty(
        batch, heads, *((width, padded) if transposed else (padded, width)), dtype=torch.float32
    )
    grid = (padded // ROWS, batch * heads, width // units)
    prepare[grid](
        x, made, flag, count, padded, A=a, WIDTH=width, TRANSPOSED=transposed, BR=ROWS, BA=units
    )
    return made


def unit_block(x: Tensor) -> int:
    return min(64, power(x.shape[-1]))


class AdditiveSoftmax(torch.autograd.Function):
    """Projected queries and keys (B H N A), values (B H' K E), v (1 or H × A)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, v: Tensor, lengths: Tensor | None, causal: bool
    ) -> Tensor:  # fmt: skip
        (batch, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
        # and the zeros that `compare` loads
        flag = torch.zeros(16 + ROWS * 64, dtype=torch.int32, device=query.device)
        for x in (query, key):
            find_far[triton.cdiv(x.numel(), 4096),](x, flag, x.numel(), BLOCK=4096)
        x, y = prepared(query, flag, True), prepared(key, flag, True)
        u = F.pad(v.float() * (-2 * LOG2E), (0, x.shape[2] - a)).contiguous()
        # in float32: the gradient subtracts output · grad of each row, and what 16 bits lose there adds up over all pairs
        output, lse = (
            query.new_empty(batch, heads, queries, *more, dtype=torch.float32)
            for more in ((e,), ())
        )
        known: dict[str, Any] = {
            "CAUSAL": causal,
            "H": heads,
            "SETS": len(v),
            "GV": heads // value.shape[1],
            "A": x.shape[2],
            "E": e,
        }
        known |= {
            "queries": queries,
            "keys": keys,
            "wide": x.shape[3],
            "long": y.shape[3],
            "PRECISION": precision(query),
        }
        size = e * value.element_size()
        # the wider values are, the fewer queries
        tiles = ((256, TILE), (512, (32, 64, 4)), (1024, (16, 32, 4)))
        rows, columns, warps = next((tile for most, tile in tiles if size <= most), (16, 16, 8))
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
        (batch, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
        grad = grad.contiguous()
        transposed = [prepared(x, flag, True) for x in (query, key)]
        x, y = (prepared(x, flag, False) for x in (query, key))
        (_, _, wide, width), long, planes = x.shape, y.shape[2], batch * heads
        units = unit_block(query)
        held = min(max(1, PAIRS // (planes * long) // ROWS) * ROWS, wide)
        groups = held // ROWS
        share = 2 * triton.cdiv(
            long,
            2 * max(1, min(long // 32, SPREAD_PROGRAMS // (groups * planes * (width // units)))),
        )
        parts = triton.cdiv(long, share)
        ds = x.new_empty(planes, held, long)
        weights = torch.empty_like(ds, dtype=value.dtype)
        dq, dv = torch.empty_like(x), x.new_zeros(planes, keys, e)
        of_x = x.new_empty(parts, batch, heads, held, width)
        of_y = x.new_empty(groups, batch, heads, long, width)
        of_v = x.new_zeros(groups * parts, batch, heads, width)
        with _disable_current_modes():  # the products are part of the kernel, whose operations are counted as those of the definition
            for first in range(0, wide, held):
                chunk = min(held, wide - first)
                score_gradient[long // TILE[1], chunk // TILE[0], planes](
                    *transposed, u, value, flag, lengths, lse, output, grad, ds, weights, first, held, keys - queries, **ctx.known,
                    BE=min(64, power(e)), BM=TILE[0], BN=TILE[1], num_warps=TILE[2], num_stages=1,
                )  # fmt: skip
                pulled = grad[:, :, first : first + chunk].flatten(0, 1)
                add_product(dv, weights[:, : pulled.shape[1], :keys], pulled)
                spread[chunk // ROWS * parts, width // units, planes](
                    x, y, ds, flag, of_x, of_y, of_v, first, chunk // ROWS, held, wide, long, share, int(first == 0),
                    A=width, ROUNDS=2, BR=ROWS // 2, BA=units, num_warps=1,
                )  # fmt: skip
                torch.sum(of_x[..., :chunk, :], 0, out=dq[:, :, first : first + chunk])
            dk, du = of_y.sum(0), of_v.sum(0)
        factor = 4 * v.float().unsqueeze(1)
        dq, dk = (
            (found[:, :, :n, :a] * factor).to(query.dtype)
            for found, n in ((dq, queries), (dk, keys))
        )
        of_v = -2 * du[..., :a].sum(0)
        of_v = (of_v.sum(0, keepdim=True) if len(v) == 1 else of_v).to(v.dtype)
        return dq, dk, shared(dv.unflatten(0, (batch, heads)), value), of_v, None, None
