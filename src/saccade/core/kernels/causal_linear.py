"""Causal linear attention by chunks: inside a chunk a masked product, between chunks a running state Σ φ(k) vᵀ, kept in registers.

    o_i = n_i / z_i,   n_i = Σ_(j ≤ i) (φ_i·φ_j) v_j,   z_i = Σ_(j ≤ i) φ_i·φ_j

A long text is cut into segments that run side by side, each from the state before it; states of segments are summed first. Backward,
with ∂n = ∂o / z and ∂z = −(∂o·o) / z, is the same scan for ∂q, and one from the end, with the state Σ φ(q) ∂nᵀ, for ∂k and ∂v.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .tiles import load_tile, shared, sizes, store_tile

CHUNK = 64
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
GPU_PROGRAMS = 264  # programs that fill a GPU


@triton.jit
def load_keys(
    K, V, LENGTHS, b, at, keys, A: tl.constexpr, E: tl.constexpr, BA: tl.constexpr, BE: tl.constexpr
):
    """Keys and values of a chunk in float32, those after the end of the text as zeros."""
    end = keys if LENGTHS is None else tl.load(LENGTHS + b)
    return load_tile(K, at, end, A, BA).to(tl.float32), load_tile(V, at, end, E, BE).to(tl.float32)


@triton.jit
def load_queries(Q, at, offset, queries, A: tl.constexpr, BA: tl.constexpr):
    """Queries at positions of keys: the last one is at the last key, and before the first there are zeros."""
    rows = at - offset
    there = (rows[:, None] >= 0) & (rows[:, None] < queries) & (tl.arange(0, BA)[None, :] < A)
    return tl.load(Q + rows[:, None] * A + tl.arange(0, BA)[None, :], mask=there, other=0.0).to(
        tl.float32
    )


@triton.jit
def store_queries(X, values, at, offset, queries, A: tl.constexpr, BA: tl.constexpr):
    rows = at - offset
    there = (rows[:, None] >= 0) & (rows[:, None] < queries) & (tl.arange(0, BA)[None, :] < A)
    tl.store(
        X + rows[:, None] * A + tl.arange(0, BA)[None, :], values.to(X.dtype.element_ty), mask=there
    )


@triton.jit
def load_gradient(DO, RESULT, Z, at, offset, queries, E: tl.constexpr, BE: tl.constexpr):
    """∂n and ∂z."""
    rows = at - offset
    z = tl.load(Z + rows, mask=(rows >= 0) & (rows < queries), other=1.0)
    some = z > TINY  # else nothing is there to attend to
    dn = tl.where(some[:, None], load_queries(DO, at, offset, queries, E, BE) / z[:, None], 0.0)
    return dn, -tl.sum(dn * load_queries(RESULT, at, offset, queries, E, BE), 1)


@triton.jit
def linear_scan(
    Q, K, V, LENGTHS, DO, RESULT, Z, STATES, SUMS, OUT, OUT_V, scale, offset, length, queries, keys,
    PASS: tl.constexpr, H: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr, A: tl.constexpr, E: tl.constexpr,
    BA: tl.constexpr, BE: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One segment of `length` positions. PASS 0: its own states; 1: the output and z; 2: ∂q; 3: its own states from the end; 4: ∂k, ∂v."""
    segment, plane = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = plane // H, plane % H
    K += (b * (H // GK) + h // GK) * keys * A
    V += (b * (H // GV) + h // GV) * keys * E
    Q += plane * queries * A
    slot = plane * tl.num_programs(0) + segment
    inner = tl.arange(0, C)
    here = slot * BA * BE + tl.arange(0, BA)[:, None] * BE + tl.arange(0, BE)[None, :]
    state, summed = tl.zeros([BA, BE], tl.float32), tl.zeros([BA], tl.float32)
    if (PASS != 0) & (PASS != 3):
        state, summed = tl.load(STATES + here), tl.load(SUMS + slot * BA + tl.arange(0, BA))
    begin, end = segment * length, tl.minimum(segment * length + length, keys)
    for step in tl.range(0, tl.cdiv(end - begin, C)):
        start = begin + (step if PASS < 3 else tl.cdiv(end - begin, C) - 1 - step) * C
        at = start + inner
        k, v = load_keys(K, V, LENGTHS, b, at, keys, A, E, BA, BE)
        if PASS != 0:
            q = load_queries(Q, at, offset, queries, A, BA) * scale
        if PASS >= 2:
            dn, dz = load_gradient(
                DO + plane * queries * E,
                RESULT + plane * queries * E,
                Z + plane * queries,
                at,
                offset,
                queries,
                E,
                BE,
            )
        if PASS == 1:
            scores = tl.where(
                inner[:, None] >= inner[None, :],
                tl.dot(q, tl.trans(k), input_precision=PRECISION),
                0.0,
            )
            z = tl.maximum(tl.sum(scores, 1) + tl.sum(q * summed[None, :], 1), TINY)
            n = tl.dot(
                scores, v, tl.dot(q, state, input_precision=PRECISION), input_precision=PRECISION
            )
            store_queries(OUT + plane * queries * E, n / z[:, None], at, offset, queries, E, BE)
            tl.store(
                Z + plane * queries + at - offset, z, mask=(at >= offset) & (at - offset < queries)
            )
        if PASS == 2:
            ds = tl.dot(dn, tl.trans(v), input_precision=PRECISION) + dz[:, None]
            ds = tl.where(inner[:, None] >= inner[None, :], ds, 0.0)
            dq = tl.dot(
                ds,
                k,
                tl.dot(dn, tl.trans(state), input_precision=PRECISION),
                input_precision=PRECISION,
            )
            dq = (dq + dz[:, None] * summed[None, :]) * scale
            store_queries(OUT + plane * queries * A, dq, at, offset, queries, A, BA)
        if PASS == 4:
            later = inner[:, None] <= inner[None, :]  # keys × queries
            scores = tl.where(later, tl.dot(k, tl.trans(q), input_precision=PRECISION), 0.0)
            ds = tl.where(
                later, tl.dot(v, tl.trans(dn), input_precision=PRECISION) + dz[None, :], 0.0
            )
            dv = tl.dot(
                scores, dn, tl.dot(k, state, input_precision=PRECISION), input_precision=PRECISION
            )
            dk = (
                tl.dot(
                    ds,
                    q,
                    tl.dot(v, tl.trans(state), input_precision=PRECISION),
                    input_precision=PRECISION,
                )
                + summed[None, :]
            )
            # keys that are not there have no gradient
            last = keys if LENGTHS is None else tl.load(LENGTHS + b)
            store_tile(
                OUT + plane * keys * A, tl.where(at[:, None] < last, dk, 0.0), at, keys, A, BA
            )
            store_tile(
                OUT_V + plane * keys * E, tl.where(at[:, None] < last, dv, 0.0), at, keys, E, BE
            )
        if PASS < 3:
            state = tl.dot(tl.trans(k), v, state, input_precision=PRECISION)
            summed += tl.sum(k, 0)
        else:
            state = tl.dot(tl.trans(q), dn, state, input_precision=PRECISION)
            summed += tl.sum(q * dz[:, None], 0)
    if (PASS == 0) | (PASS == 3):
        tl.store(STATES + here, state)
        tl.store(SUMS + slot * BA + tl.arange(0, BA), summed)


class Scan:
    """The passes over one call: segments, grid and states before each of them."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, scale: float
    ) -> None:
        (batch, heads, queries, _), keys = query.shape, key.shape[2]
        self.known = sizes(query, key, value)
        self.given, self.scale, self.offset = (query, key, value, lengths), scale, keys - queries
        planes, chunks = batch * heads, triton.cdiv(keys, CHUNK)
        segments = max(1, min(GPU_PROGRAMS // planes, chunks // 4))
        self.length = triton.cdiv(chunks, segments) * CHUNK
        self.grid = (triton.cdiv(keys, self.length), planes)

    def run(
        self,
        which: int,
        states: list[Tensor],
        grad: Tensor | None,
        output: Tensor | None,
        z: Tensor | None,
        *to: Tensor | None,
    ) -> None:
        at = (
            *self.given,
            grad,
            output,
            z,
            *states,
            *to,
            *(None,) * (2 - len(to)),
            self.scale,
            self.offset,
            self.length,
        )
        # the state then fills most registers, and so do five products
        wide = self.known["BA"] * self.known["BE"] > 4096
        chunk = 16 if wide else CHUNK // 2 if which == 4 else CHUNK
        linear_scan[self.grid](
            *at,
            **self.known,
            PASS=which,
            C=chunk,
            num_warps=8 if wide else 4,
            num_stages=1 if wide else 2,
        )

    def states(
        self,
        which: int,
        grad: Tensor | None = None,
        output: Tensor | None = None,
        z: Tensor | None = None,
    ) -> list[Tensor]:
        """The state before each segment, or after it where the scan is from the end: sums over the segments in between."""
        (segments, planes), query = self.grid, self.given[0]
        shapes = (
            (planes, segments, self.known["BA"], self.known["BE"]),
            (planes, segments, self.known["BA"]),
        )
        if segments == 1:
            return [query.new_zeros(shape, dtype=torch.float32) for shape in shapes]
        found = [query.new_empty(shape, dtype=torch.float32) for shape in shapes]
        self.run(which, found, grad, output, z)
        return [(x.cumsum(1) if which == 0 else x.flip(1).cumsum(1).flip(1)) - x for x in found]


class CausalSums(torch.autograd.Function):
    """Features of queries and keys (B H Q A, B H' K A), values (B H'' K E)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, scale: float
    ) -> Tensor:
        scan = Scan(query, key, value, lengths, scale)
        output = query.new_empty(*query.shape[:3], value.shape[3])
        z = query.new_empty(query.shape[:3], dtype=torch.float32)
        scan.run(1, scan.states(0), None, None, z, output)
        ctx.save_for_backward(query, key, value, lengths, output, z)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, lengths, output, z = ctx.saved_tensors
        scan, grad = Scan(query, key, value, lengths, ctx.scale), grad.contiguous()
        (batch, heads), dq = query.shape[:2], torch.empty_like(query)
        dk, dv = (
            x.new_empty(
                batch, heads, *x.shape[2:], dtype=torch.float32 if x.shape[1] < heads else x.dtype
            )
            for x in (key, value)
        )
        scan.run(2, scan.states(0), grad, output, z, dq)
        scan.run(4, scan.states(3, grad, output, z), grad, output, z, dk, dv)
        return dq, shared(dk, key), shared(dv, value), None, None
