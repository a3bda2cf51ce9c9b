"""Sums over rows, one for each column, as gradients of biases are: the same numbers each time, since nothing is added by several programs at once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import interpreted

FEW = 1024  # rows that one program sums up; more are summed by several, and their sums once more
PARTS = 64


@triton.jit(do_not_specialize=["rows", "share"])
def sum_columns(X, Out, rows, share, WIDTH: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Each part of the rows has `share` of them."""
    part, at = tl.program_id(1), tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BR, BC], tl.float32)
    for start in tl.range(part * share, tl.minimum(part * share + share, rows), BR):
        row = start + tl.arange(0, BR)
        there = (row[:, None] < tl.minimum(part * share + share, rows)) & (at[None, :] < WIDTH)
        total += tl.load(X + row[:, None].to(tl.int64) * WIDTH + at[None, :], mask=there, other=0.0).to(tl.float32)
    tl.store(Out + part * WIDTH + at, tl.sum(total, 0), mask=at < WIDTH)


def column_sums(x: Tensor) -> Tensor:
    """R D, contiguous → D, in float32."""
    rows, width = x.shape
    if rows > (64 if interpreted() else FEW):
        parts = min(triton.cdiv(rows, 128), PARTS)
        share = triton.cdiv(rows, parts)
        some = x.new_empty(parts, width, dtype=torch.float32)
        sum_columns[(triton.cdiv(width, 128), parts)](x, some, rows, share, WIDTH=width, BR=32, BC=128, num_warps=4)
        x, rows = some, parts
    total = x.new_empty(width, dtype=torch.float32)
    sum_columns[(triton.cdiv(width, 32), 1)](x, total, rows, rows, WIDTH=width, BR=256, BC=32, num_warps=8)
    return total


class BiasGradient(torch.autograd.Function):
    """x itself (… D), to which a bias was added whose gradient is made here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.kind = bias.dtype
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, column_sums(grad.contiguous().flatten(0, -2)).to(ctx.kind)
