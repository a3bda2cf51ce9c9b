"""Sums over rows, one for each column, as gradients of biases are: the same numbers each time, since nothing is added by several programs at once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import interpreted

MAX_PROGRAM_ROWS = (
    1024  # rows that one program sums up; more are summed by several, and their sums once more
)
PARTIAL_SUMS = 64


@triton.jit(do_not_specialize=["rows", "share"])
def sum_columns(X, Out, rows, share, WIDTH: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Each part of the rows has `share` of them."""
    part, at = tl.program_id(1), tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BR, BC], tl.float32)
    for start in tl.range(part * share, tl.minimum(part * share + share, rows), BR):
        row = start + tl.arange(0, BR)
        there = (row[:, None] < tl.minimum(part * share + share, rows)) & (at[None, :] < WIDTH)
        total += tl.load(
            X + row[:, None].to(tl.int64) * WIDTH + at[None, :], mask=there, other=0.0
        ).to(tl.float32)
    tl.store(Out + part * WIDTH + at, tl.sum(total, 0).to(Out.dtype.element_ty), mask=at < WIDTH)


@triton.jit(do_not_specialize=["rows", "share"])
def join_columns(
    A,
    B,
    C,
    Out,
    Sums,
    rows,
    share,
    WA: tl.constexpr,
    WB: tl.constexpr,
    WC: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
):
    """Three matrices side by side, and the sums over each part of the rows."""
    block, part = tl.program_id(0), tl.program_id(1)
    X, width, first = A, WA, 0
    if block >= tl.cdiv(WA, BC) + tl.cdiv(WB, BC):
        X, width, first, block = C, WC, WA + WB, block - tl.cdiv(WA, BC) - tl.cdiv(WB, BC)
    elif block >= tl.cdiv(WA, BC):
        X, width, first, block = B, WB, WA, block - tl.cdiv(WA, BC)
    at = block * BC + tl.arange(0, BC)
    total = tl.zeros([BR, BC], tl.float32)
    for start in tl.range(part * share, tl.minimum(part * share + share, rows), BR):
        row = start + tl.arange(0, BR)
        there = (row[:, None] < tl.minimum(part * share + share, rows)) & (at[None, :] < width)
        x = tl.load(X + row[:, None].to(tl.int64) * width + at[None, :], mask=there, other=0.0)
        tl.store(
            Out + row[:, None].to(tl.int64) * (WA + WB + WC) + first + at[None, :], x, mask=there
        )
        total += x.to(tl.float32)
    tl.store(Sums + part * (WA + WB + WC) + first + at, tl.sum(total, 0), mask=at < width)


def share_of(rows: int) -> tuple[int, int]:
    """How many parts the rows are summed in, and the rows of each."""
    parts = min(triton.cdiv(rows, 128), PARTIAL_SUMS)
    return parts, triton.cdiv(rows, parts)


def column_sums(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """R D, contiguous → D; summed in float32."""
    rows, width = x.shape
    if rows > (64 if interpreted() else MAX_PROGRAM_ROWS):
        parts, share = share_of(rows)
        some = x.new_empty(parts, width, dtype=torch.float32)
        sum_columns[(triton.cdiv(width, 128), parts)](
            x, some, rows, share, WIDTH=width, BR=32, BC=128, num_warps=4
        )
        x, rows = some, parts
    total = x.new_empty(width, dtype=dtype)
    sum_columns[(triton.cdiv(width, 32), 1)](
        x, total, rows, rows, WIDTH=width, BR=256, BC=32, num_warps=8
    )
    return total


def joined(parts: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Three matrices (R D each, contiguous) side by side, and the sums of their columns."""
    widths, rows = [part.shape[1] for part in parts], len(parts[0])
    found, (count, share) = parts[0].new_empty(rows, sum(widths)), share_of(rows)
    sums = found.new_empty(count, sum(widths), dtype=torch.float32)
    grid = (sum(triton.cdiv(width, 128) for width in widths), count)
    join_columns[grid](*parts, found, sums, rows, share, *widths, BR=32, BC=128, num_warps=4)
    return found, column_sums(sums, dtype)


class BiasGradient(torch.autograd.Function):
    """x itself (… D), to which a bias was added whose gradient is made here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.kind = bias.dtype
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, column_sums(grad.contiguous().flatten(0, -2), ctx.kind)


class ThreeParts(torch.autograd.Function):
    """Three parts of x (… D) side by side, to which a bias was added: their gradients are joined and the bias's is made in one reading."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, *widths: int) -> tuple[Tensor, ...]:
        ctx.kind = bias.dtype
        return x.split(widths, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found, of_bias = joined([one.contiguous().flatten(0, -2) for one in gradients], ctx.kind)
        return found.view(*gradients[0].shape[:-1], -1), of_bias, None, None, None
