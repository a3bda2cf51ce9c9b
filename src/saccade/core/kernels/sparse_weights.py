"""Sparsemax and entmax-1.5 without B H Q K numbers: w = max(s − τ, 0) or max(s/2 − τ, 0)², with τ such that a row sums to one.

τ is sought by Newton's method for the row's norm, Σ max(s − τ, 0) or √Σ max(s/2 − τ, 0)²: convex and falling in τ, so that from
τ = the largest score − 1, where it is at least one, no step goes too far, and few are needed. Each step is a pass over blocks of keys
whose scores are computed again; the largest score takes one more, the output the last. There a second product keeps the mean of the
values by √w for backward, whose δ it gives (gates.py) without another pass.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .pointwise_weights import gradients, inner_factor, layout, weigh
from .tiles import block_range, keys_seen, load_tile, sizes, store_tile

MIN_STEP = tl.constexpr(1e-5)  # a step that is shorter is the last
MAX_STEPS = tl.constexpr(64)  # steps


@triton.jit
def scan(
    q, K, seen, tau, inner, keys,
    TOP: tl.constexpr, FORM: tl.constexpr, A: tl.constexpr, BA: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One pass over the keys: the largest score of each row (`TOP`), or its sum at τ and by how much that falls."""
    total = tl.full(tau.shape, float("-inf") if TOP else 0.0, tl.float32)
    slope = tl.zeros(tau.shape, tl.float32)
    for masked in tl.static_range(2):
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            s = tl.dot(q, tl.trans(load_tile(K, columns, keys, A, BA)), input_precision=PRECISION)
            if masked:
                s = tl.where(columns[None, :] < seen[:, None], s, float("-inf") if TOP else s)
            if TOP:
                total = tl.maximum(total, tl.max(s * inner, 1))
            else:
                weight, root = weigh(s, inner, tau[:, None], FORM)
                if masked:
                    weight = tl.where(columns[None, :] < seen[:, None], weight, 0.0)
                    root = tl.where(columns[None, :] < seen[:, None], root, 0.0)
                total += tl.sum(weight, 1)
                slope += tl.sum(root, 1)
    return total, slope


@triton.jit
def threshold_forward(
    Q, K, V, LENGTHS, OUT, TAU, MEAN, scale, offset, queries, keys,
    FORM: tl.constexpr, BY_COUNT: tl.constexpr, CAUSAL: tl.constexpr, H: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr,
    A: tl.constexpr, E: tl.constexpr, BA: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    block, plane = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    K += (b * (H // GK) + h // GK) * keys * A
    V += (b * (H // GV) + h // GV) * keys * E
    rows = block * BM + tl.arange(0, BM)
    seen = keys_seen(LENGTHS, b, rows, offset, keys, CAUSAL)
    q, inner = load_tile(Q + plane * queries * A, rows, queries, A, BA), inner_factor(scale, FORM)
    top, _ = scan(
        q, K, seen, tl.zeros([BM], tl.float32), inner, keys, True, FORM, A, BA, BN, PRECISION
    )
    top = tl.where(seen > 0, top, 0.0)
    tau, moved, turns = top - 1.0, tl.max(tl.zeros([BM], tl.float32)) + 1.0, 0
    while (moved > MIN_STEP) & (turns < MAX_STEPS):
        total, slope = scan(q, K, seen, tau, inner, keys, False, FORM, A, BA, BN, PRECISION)
        above = total - (tl.sqrt(total) if FORM == 3 else 1.0)
        step = tl.where(slope > 0.0, tl.maximum(above, 0.0) / tl.maximum(slope, 1e-30), 0.0)
        tau += step
        moved = tl.max(step - tl.abs(top) * 1e-6)  # of large scores float32 has no more digits
        turns += 1
    total, mean = tl.zeros([BM, BE], tl.float32), tl.zeros([BM, BE], tl.float32)
    count = tl.zeros([BM], tl.float32)
    for masked in tl.static_range(2):
        begin, end = block_range(seen, BN, masked)
        for start in tl.range(begin, end, BN):
            columns = start + tl.arange(0, BN)
            k, v = load_tile(K, columns, keys, A, BA), load_tile(V, columns, keys, E, BE)
            weight, root = weigh(
                tl.dot(q, tl.trans(k), input_precision=PRECISION), inner, tau[:, None], FORM
            )
            if masked:
                weight = tl.where(columns[None, :] < seen[:, None], weight, 0.0)
                root = tl.where(columns[None, :] < seen[:, None], root, 0.0)
            total = tl.dot(weight.to(v.dtype), v, total, input_precision=PRECISION)
            if MEAN is not None:
                mean = tl.dot(root.to(v.dtype), v, mean, input_precision=PRECISION)
                count += tl.sum(root, 1)
    store_tile(OUT + plane * queries * E, total, rows, queries, E, BE)
    if MEAN is not None:
        store_tile(
            MEAN + plane * queries * E,
            mean / tl.maximum(count, 1e-30)[:, None],
            rows,
            queries,
            E,
            BE,
        )
        tl.store(TAU + plane * queries + rows, tau, mask=rows < queries)


class Threshold(torch.autograd.Function):
    """Sparsemax or entmax-1.5, as `form` says."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Tensor | None,
        causal: bool,
        scale: float,
        form: int,
    ) -> Tensor:
        batch, heads, queries, _ = query.shape
        output, tau, mean = query.new_empty(batch, heads, queries, value.shape[3]), None, None
        if any(ctx.needs_input_grad[:3]):
            tau = query.new_empty(batch, heads, queries, dtype=torch.float32)
            mean = torch.empty_like(output)
        tile = layout(query, value, "threshold")
        known = {"FORM": form, "BY_COUNT": False, "CAUSAL": causal, **sizes(query, key, value)}
        grid = (triton.cdiv(queries, tile["BM"]), batch * heads)
        offset = key.shape[2] - queries
        threshold_forward[grid](
            query, key, value, lengths, output, tau, mean, scale, offset, **known, **tile
        )
        ctx.save_for_backward(query, key, value, lengths, tau, mean)
        ctx.scale, ctx.known = scale, known
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, lengths, tau, mean = ctx.saved_tensors
        return *gradients(
            query, key, value, lengths, grad.contiguous(), tau, mean, ctx.scale, ctx.known
        ), *(None,) * 4
