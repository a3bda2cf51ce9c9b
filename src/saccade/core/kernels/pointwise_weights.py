"""Weights that look at one score at a time: w = f(scale · q·k − τ), with τ known for each row.

Forward is one loop over blocks of keys without the running maximum of a softmax; backward computes the weights again, once for dq
and once for dk and dv. Sparsemax and entmax (entmax.py) are of this kind once τ is found, and have their backward here:

    relu       w = max(s, 0) / n           ∂s = [s > 0] ∂w / n
    sigmoid    w = σ(s − τ)                ∂s = w (1 − w) ∂w          in 16 bits ½ + ½ tanh(s / 2): one instruction instead of two
    sparsemax  w = max(s − τ, 0)           ∂s = [w > 0] (∂w − δ)      δ: the mean of ∂w over the support
    entmax     w = max(s/2 − τ, 0)²        ∂s = √w (∂w − δ)           δ: the mean of ∂w by √w
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import interpreted
from .score_tiles import hyperbolic_tangent
from .tiles import (
    LOG2E,
    block_range,
    keys_seen,
    load_tile,
    reciprocal,
    row_range,
    shared,
    sizes,
    store_tile,
)

RELU, SIGMOID, SPARSEMAX, ENTMAX = range(4)
# to 16 bits of 1, not of the weight: for rows that are not divided by their number of keys
COARSE_SIGMOID = -1
EXPONENT = tl.constexpr(LOG2E)


@triton.jit
def weigh(s, inner, tau, FORM: tl.constexpr):
    """From q·k to the weight, and the factor of ∂s; of NaN both are NaN."""
    x = s * inner - tau
    if FORM == 1:
        weight = reciprocal(1.0 + tl.exp2(x))
        slope = weight - weight * weight
    elif FORM == -1:
        weight = 0.5 + 0.5 * hyperbolic_tangent(x, True)
        slope = weight - weight * weight
    elif FORM == 3:
        slope = tl.maximum(x, 0.0, tl.PropagateNan.ALL)
        weight = slope * slope
    else:
        weight = tl.maximum(x, 0.0, tl.PropagateNan.ALL)
        slope = tl.where(x > 0.0, 1.0, weight)
    return weight, slope


@triton.jit
def row_terms(TAU, plane, rows, queries, seen, BY_COUNT: tl.constexpr, FORM: tl.constexpr):
    """τ of each row (of a sigmoid in powers of 2, with the other sign), and what its weights are multiplied by."""
    factor = tl.full(rows.shape, 1.0, tl.float32)
    if FORM >= 2:
        tau = tl.load(TAU + plane * queries + rows, mask=rows < queries, other=0.0)
    else:
        tau = tl.zeros(rows.shape, tl.float32)
        if BY_COUNT:
            count = tl.maximum(seen, 1).to(tl.float32)
            if FORM == 1:
                tau = -tl.log2(count)
            else:
                factor = 1.0 / count
    return tau, factor


@triton.jit
def inner_factor(scale, FORM: tl.constexpr):
    """What q·k is multiplied by before τ is subtracted."""
    if FORM == 1:
        scale = scale * -EXPONENT
    elif FORM == 3 or FORM == -1:
        scale = scale * 0.5
    return scale


@triton.jit
def gates_forward(
    Q, K, V, LENGTHS, OUT, scale, offset, queries, keys,
    FORM: tl.constexpr, BY_COUNT: tl.constexpr, CAUSAL: tl.constexpr, H: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr,
    A: tl.constexpr, E: tl.constexpr, BA: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    # the longest rows begin first
    block, plane = (tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64))
    b, h = plane // H, plane % H
    K += (b * (H // GK) + h // GK) * keys * A
    V += (b * (H // GV) + h // GV) * keys * E
    rows = block * BM + tl.arange(0, BM)
    seen = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL)
    tau, factor = row_terms(Q, plane, rows, queries, seen, BY_COUNT, FORM)
    q, inner = load_tile(Q + plane * queries * A, rows, queries, A, BA), inner_factor(scale, FORM)
    total = tl.zeros([BM, BE], tl.float32)
    for masked in tl.static_range(2):  # first the blocks of which every row sees every key
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            k, v = load_tile(K, columns, keys, A, BA), load_tile(V, columns, keys, E, BE)
            weight, _ = weigh(
                tl.dot(q, tl.trans(k), input_precision=PRECISION), inner, tau[:, None], FORM
            )
            if masked:
                weight = tl.where(columns[None, :] < seen[:, None], weight, 0.0)
            total = tl.dot(weight.to(v.dtype), v, total, input_precision=PRECISION)
    store_tile(OUT + plane * queries * E, total * factor[:, None], rows, queries, E, BE)


@triton.jit
def query_gradient(
    Q, K, V, LENGTHS, DO, TAU, MEAN, DELTA, DQ, scale, offset, queries, keys,
    FORM: tl.constexpr, BY_COUNT: tl.constexpr, CAUSAL: tl.constexpr, H: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr,
    A: tl.constexpr, E: tl.constexpr, BA: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dq; where there is a δ, it is ∂o · MEAN, the mean of the values by √w that the forward pass left, and is kept for the other kernel."""
    block, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    K += (b * (H // GK) + h // GK) * keys * A
    V += (b * (H // GV) + h // GV) * keys * E
    rows = block * BM + tl.arange(0, BM)
    seen = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL)
    tau, factor = row_terms(TAU, plane, rows, queries, seen, BY_COUNT, FORM)
    q, inner = load_tile(Q + plane * queries * A, rows, queries, A, BA), inner_factor(scale, FORM)
    grad = load_tile(DO + plane * queries * E, rows, queries, E, BE)
    delta = tl.zeros([BM], tl.float32)
    if FORM >= 2:
        mean = load_tile(MEAN + plane * queries * E, rows, queries, E, BE)
        delta = tl.sum(grad.to(tl.float32) * mean.to(tl.float32), 1)
        tl.store(DELTA + plane * queries + rows, delta, mask=rows < queries)
    total = tl.zeros([BM, BA], tl.float32)
    for masked in tl.static_range(2):
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            k, v = load_tile(K, columns, keys, A, BA), load_tile(V, columns, keys, E, BE)
            _, slope = weigh(
                tl.dot(q, tl.trans(k), input_precision=PRECISION), inner, tau[:, None], FORM
            )
            ds = slope * (tl.dot(grad, tl.trans(v), input_precision=PRECISION) - delta[:, None])
            if masked:
                ds = tl.where(columns[None, :] < seen[:, None], ds, 0.0)
            total = tl.dot(ds.to(k.dtype), k, total, input_precision=PRECISION)
    store_tile(DQ + plane * queries * A, total * (factor * scale)[:, None], rows, queries, A, BA)


@triton.jit
def key_gradient(
    Q, K, V, LENGTHS, DO, TAU, DELTA, DK, DV, scale, offset, queries, keys,
    FORM: tl.constexpr, BY_COUNT: tl.constexpr, CAUSAL: tl.constexpr, H: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr,
    A: tl.constexpr, E: tl.constexpr, BA: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of one head of queries; everything is transposed, so that the weights are the left side of a product as they are."""
    origin, plane = tl.program_id(0) * BN, tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    columns, inner = origin + tl.arange(0, BN), inner_factor(scale, FORM)
    k = load_tile(K + (b * (H // GK) + h // GK) * keys * A, columns, keys, A, BA)
    v = load_tile(V + (b * (H // GV) + h // GV) * keys * E, columns, keys, E, BE)
    Q, DO = Q + plane * queries * A, DO + plane * queries * E
    dk, dv = tl.zeros([BN, BA], tl.float32), tl.zeros([BN, BE], tl.float32)
    first, free, last = row_range(LENGTHS, b, origin, offset, queries, CAUSAL, BM, BN)
    for masked in tl.static_range(2):
        for start in tl.range(first if masked else free, free if masked else last, BM):
            rows = start + tl.arange(0, BM)  # rows after the last one are zeros, and add nothing
            seen = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL)
            tau, factor = row_terms(TAU, plane, rows, queries, seen, BY_COUNT, FORM)
            q, grad = load_tile(Q, rows, queries, A, BA), load_tile(DO, rows, queries, E, BE)
            weight, slope = weigh(
                tl.dot(k, tl.trans(q), input_precision=PRECISION), inner, tau[None, :], FORM
            )
            if BY_COUNT:
                weight, slope = weight * factor[None, :], slope * factor[None, :]
            if masked:
                weight = tl.where(columns[:, None] < seen[None, :], weight, 0.0)
                slope = tl.where(columns[:, None] < seen[None, :], slope, 0.0)
            dv = tl.dot(weight.to(grad.dtype), grad, dv, input_precision=PRECISION)
            dw = tl.dot(v, tl.trans(grad), input_precision=PRECISION)
            if FORM >= 2:
                dw -= tl.load(DELTA + plane * queries + rows, mask=rows < queries, other=0.0)[
                    None, :
                ]
            dk = tl.dot((slope * dw).to(q.dtype), q, dk, input_precision=PRECISION)
    store_tile(DK + plane * keys * A, dk * scale, columns, keys, A, BA)
    store_tile(DV + plane * keys * E, dv, columns, keys, E, BE)


def layout(query: Tensor, value: Tensor, which: str) -> dict[str, int]:
    """Queries and keys of a tile, warps and stages, by the wider of the two widths; float32 takes twice the memory."""
    wide = max(query.shape[-1], value.shape[-1]) * (2 if query.dtype == torch.float32 else 1)
    rows, columns, warps, stages = next(found for most, found in LAYOUTS[which] if wide <= most)
    return {"BM": rows, "BN": columns, "num_warps": warps, "num_stages": stages}


# widest head, then queries, keys, warps, stages
LAYOUTS: dict[str, list[tuple[int, tuple[int, int, int, int]]]] = {
    "forward": [
        (64, (128, 128, 8, 3)),
        (128, (128, 64, 8, 3)),
        (256, (64, 64, 4, 2)),
        (512, (32, 32, 4, 2)),
    ],
    "threshold": [
        (64, (128, 64, 8, 3)),
        (128, (128, 64, 8, 2)),
        (256, (64, 32, 8, 2)),
        (512, (32, 32, 8, 1)),
    ],
    "query": [
        (64, (128, 64, 8, 3)),
        (128, (128, 64, 8, 2)),
        (256, (64, 32, 4, 2)),
        (512, (32, 32, 4, 1)),
    ],
    "key": [
        (64, (64, 128, 8, 3)),
        (128, (64, 128, 8, 2)),
        (256, (32, 64, 8, 1)),
        (512, (32, 32, 8, 1)),
    ],
}


class Gates(torch.autograd.Function):
    """ReLU and sigmoid. `form`: which; `by_count`: as in the normalizers."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, causal: bool, scale: float, form: int, by_count: bool
    ) -> Tensor:  # fmt: skip
        batch, heads, queries, _ = query.shape
        output = query.new_empty(batch, heads, queries, value.shape[3])
        tile = layout(query, value, "forward")
        if form == SIGMOID and not by_count and query.dtype != torch.float32 and not interpreted():
            form = COARSE_SIGMOID
        known = {"FORM": form, "BY_COUNT": by_count, "CAUSAL": causal, **sizes(query, key, value)}
        grid = (triton.cdiv(queries, tile["BM"]), batch * heads)
        gates_forward[grid](
            query, key, value, lengths, output, scale, key.shape[2] - queries, **known, **tile
        )
        ctx.save_for_backward(query, key, value, lengths)
        ctx.scale, ctx.known = scale, known
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, lengths = ctx.saved_tensors
        return *gradients(
            query, key, value, lengths, grad.contiguous(), None, None, ctx.scale, ctx.known
        ), *(None,) * 5


def gradients(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, grad: Tensor, tau: Tensor | None, mean: Tensor | None,
    scale: float, known: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk, dv of any form."""
    (batch, heads, queries, a), (keys, e) = query.shape, value.shape[2:]
    offset, delta = keys - queries, None if tau is None else torch.empty_like(tau)
    dq = torch.empty_like(query)
    # shared heads are added up in float32
    alone = torch.float32 if known["GK"] * known["GV"] > 1 else query.dtype
    dk = query.new_empty(batch, heads, keys, a, dtype=alone)
    dv = query.new_empty(batch, heads, keys, e, dtype=alone)
    tile = layout(query, value, "query")
    by_rows = (triton.cdiv(queries, tile["BM"]), batch * heads)
    by_columns = layout(query, value, "key")
    query_gradient[by_rows](
        query, key, value, lengths, grad, tau, mean, delta, dq, scale, offset, **known, **tile
    )  # fmt: skip
    grid = (triton.cdiv(keys, by_columns["BN"]), batch * heads)
    key_gradient[grid](
        query, key, value, lengths, grad, tau, delta, dk, dv, scale, offset, **known, **by_columns
    )
    return dq, shared(dk, key), shared(dv, value)
