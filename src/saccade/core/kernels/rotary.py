"""Rotary positions: pairs of numbers rotated by their position's angles, one kernel each way. B batch, H heads, N positions, D width."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

POSITIONS = 32  # of a program


@triton.jit(do_not_specialize=["size"])
def rotate(X, Cos, Sin, Out, heads, size, x_b, x_h, x_n, o_b, o_h, o_n, HALF: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr,
           BACK: tl.constexpr):  # fmt: skip
    b, h = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    n, d = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BH)
    there = (n[:, None] < size) & (d[None, :] < HALF)
    at = n[:, None] * HALF + d[None, :]
    cos = tl.load(Cos + at, mask=there, other=0.0).to(tl.float32)
    sin = tl.load(Sin + at, mask=there, other=0.0).to(tl.float32)
    if BACK:
        sin = -sin
    left = X + b * x_b + h * x_h + n[:, None] * x_n + d[None, :]
    x = tl.load(left, mask=there, other=0.0).to(tl.float32)
    y = tl.load(left + HALF, mask=there, other=0.0).to(tl.float32)
    out = Out + b * o_b + h * o_h + n[:, None] * o_n + d[None, :]
    tl.store(out, (x * cos - y * sin).to(Out.dtype.element_ty), mask=there)
    tl.store(out + HALF, (x * sin + y * cos).to(Out.dtype.element_ty), mask=there)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> Tensor:
    """x: B H N D; cos and sin: N D/2. The memory of the output is in the order of x's."""
    batch, heads, size, width = x.shape
    x = x if x.stride(-1) == 1 else x.contiguous()
    output = torch.empty_like(x)
    grid = (batch * heads, triton.cdiv(size, POSITIONS))
    constants = {
        "HALF": width // 2,
        "BH": int(triton.next_power_of_2(width // 2)),
        "BN": POSITIONS,
        "BACK": back,
        "num_warps": 2,
    }
    rotate[grid](
        x, cos, sin, output, heads, size, *x.stride()[:3], *output.stride()[:3], **constants
    )
    return output


class Rotate(torch.autograd.Function):
    """The gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return rotated(grad, cos, sin, back=True), None, None
