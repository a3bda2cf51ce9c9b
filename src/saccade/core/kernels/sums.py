"""A part's output joins x, and the sum is normed for the next part: one kernel forward and one backward. R rows of width D.

    x' = x + dropout(part + bias)        y = norm(x')

PyTorch takes five to eight kernels for each direction, every one of which reads and writes all rows. Dropout is a hash of a number's position
and a seed, as in compiled passes (`layers.dropouts.scatter_zeros`), which the pass back repeats. The gradients of gain, shift and bias are sums over
all rows: each program adds up those of its own.
"""

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from . import interpreted
from .columns import column_sums
from .operators import outside_compile

Given = Tensor | None
Numbers = tuple[Tensor, Tensor, Tensor, Tensor]
TILE = 2048  # numbers that a program holds of each tensor
LEAST = 512  # that it holds in the pass back, where there are more tensors: one warp has whole rows, and waits for no other
ROWS = 8  # that a program of the pass back has at least
WIDEST = 8192  # numbers of a row


@triton.jit
def mix(x):
    """32 bits of which each depends on all (the constants of Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def kept(Seed, site, position, least, factor):
    """What the number at a position is multiplied by: 0 where its 24 bits are below `least`. Each site of a model has a seed of its own."""
    bits = mix(mix(position.to(tl.uint32)) ^ tl.load(Seed + site).to(tl.uint32))
    return tl.where((bits & 0xFFFFFF).to(tl.int32) < least, 0.0, factor)


def odds(drop: float) -> tuple[int, float]:
    """The two numbers by which `kept` drops this share."""
    return int(drop * (1 << 24)), 1 / (1 - drop)


@triton.jit(do_not_specialize=["rows", "site", "least"])
def add_norm_forward(X, Part, Bias, Seed, Gain, Shift, Sum, Out, Mean, Scale, rows, site, least, factor, eps, D: tl.constexpr, BD: tl.constexpr,
            BR: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, CENTERED: tl.constexpr):  # fmt: skip
    row, at = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BD)
    wide, there = at < D, (row[:, None] < rows) & (at[None, :] < D)
    position = row[:, None].to(tl.int64) * D + at[None, :]
    part = tl.load(Part + position, mask=there, other=0.0).to(tl.float32)
    if BIASED:
        part += tl.load(Bias + at, mask=wide, other=0.0).to(tl.float32)[None, :]
    if DROP:
        part *= kept(Seed, site, position, least, factor)
    x = tl.load(X + position, mask=there, other=0.0).to(tl.float32) + part
    tl.store(Sum + position, x.to(Sum.dtype.element_ty), mask=there)
    x = x.to(Sum.dtype.element_ty).to(tl.float32)  # the norm is that of the sum as it is kept
    mean = tl.zeros([BR], tl.float32)
    if CENTERED:
        mean = tl.sum(x, 1) / D
        x = tl.where(there, x - mean[:, None], 0.0)
        tl.store(Mean + row, mean, mask=row < rows)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps)
    tl.store(Scale + row, scale, mask=row < rows)
    y = x * scale[:, None] * tl.load(Gain + at, mask=wide, other=0.0).to(tl.float32)[None, :]
    if CENTERED:
        y += tl.load(Shift + at, mask=wide, other=0.0).to(tl.float32)[None, :]
    tl.store(Out + position, y.to(Out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["rows", "site", "least"])
def add_norm_backward(GSum, GOut, Sum, Mean, Scale, Seed, Gain, GX, GPart, Sums, rows, site, least, factor, D: tl.constexpr, BD: tl.constexpr,
             BR: tl.constexpr, SUMMED: tl.constexpr, DROP: tl.constexpr, CENTERED: tl.constexpr):  # fmt: skip
    """A program takes every n-th block of rows. `Sums` (programs 3 D) has the gradients of gain, shift and bias by its rows."""
    at = tl.arange(0, BD)
    wide = at < D
    gain = tl.load(Gain + at, mask=wide, other=0.0).to(tl.float32)[None, :]
    of_gain = tl.zeros([BR, BD], tl.float32)
    of_shift = tl.zeros([BR, BD], tl.float32)
    of_bias = tl.zeros([BR, BD], tl.float32)
    for start in tl.range(tl.program_id(0) * BR, rows, tl.num_programs(0) * BR):
        row = start + tl.arange(0, BR)
        there = (row[:, None] < rows) & wide[None, :]
        position = row[:, None].to(tl.int64) * D + at[None, :]
        x = tl.load(Sum + position, mask=there, other=0.0).to(tl.float32)
        scale = tl.load(Scale + row, mask=row < rows, other=0.0)[:, None]
        if CENTERED:
            x = tl.where(there, x - tl.load(Mean + row, mask=row < rows, other=0.0)[:, None], 0.0)
        x *= scale
        slope = tl.load(GOut + position, mask=there, other=0.0).to(tl.float32)
        of_gain += slope * x
        of_shift += slope
        slope *= gain
        pull = slope - x * (tl.sum(slope * x, 1) / D)[:, None]
        if CENTERED:
            pull -= (tl.sum(slope, 1) / D)[:, None]
        pull = tl.where(there, pull * scale, 0.0)
        if SUMMED:
            pull += tl.load(GSum + position, mask=there, other=0.0).to(tl.float32)
        tl.store(GX + position, pull.to(GX.dtype.element_ty), mask=there)
        if DROP:
            pull *= kept(Seed, site, position, least, factor)
        of_bias += pull
        tl.store(GPart + position, pull.to(GPart.dtype.element_ty), mask=there)
    own = Sums + tl.program_id(0) * 3 * D + at
    tl.store(own, tl.sum(of_gain, 0), mask=wide)
    tl.store(own + D, tl.sum(of_shift, 0), mask=wide)
    tl.store(own + 2 * D, tl.sum(of_bias, 0), mask=wide)


def sizes(width: int, tile: int) -> dict[str, int]:
    """Rows of a program, and its warps: four numbers or more for each thread."""
    block = int(triton.next_power_of_2(width))
    return {"D": width, "BD": block, "BR": max(tile // block, 1), "num_warps": min(max(tile // 512, block // 512), 16)}


def compute(x: Tensor, part: Tensor, bias: Given, seed: Given, gain: Tensor, shift: Given, site: int, drop: float, eps: float,
            dtype: torch.dtype) -> Numbers:  # fmt: skip
    total, output, mean, scale = found = empty(x, part, bias, seed, gain, shift, site, drop, eps, dtype)
    rows, how = mean.numel(), sizes(x.shape[-1], TILE)
    how |= {"BIASED": bias is not None, "DROP": drop > 0, "CENTERED": shift is not None}
    given = (x, part, gain if bias is None else bias, gain if seed is None else seed, gain, gain if shift is None else shift)
    add_norm_forward[(triton.cdiv(rows, how["BR"]),)](*given, total, output, mean, scale, rows, site, *odds(drop), eps, **how)
    return found


run_forward = custom_op("saccade::add_norm", compute, mutates_args=())


@run_forward.register_fake
def empty(x: Tensor, part: Tensor, bias: Given, seed: Given, gain: Tensor, shift: Given, site: int, drop: float, eps: float,
          dtype: torch.dtype) -> Numbers:  # fmt: skip
    row = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return torch.empty_like(x), x.new_empty(x.shape, dtype=dtype), row, torch.empty_like(row)


def differentiate(of_sum: Given, of_output: Tensor, total: Tensor, mean: Tensor, scale: Tensor, seed: Given, gain: Tensor,
                  kind: torch.dtype, centered: bool, site: int, drop: float) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x and of the part, and those of gain, shift and bias, 3 D."""
    of_x, of_part, _ = gradients(of_sum, of_output, total, mean, scale, seed, gain, kind, centered, site, drop)
    rows, how = mean.numel(), sizes(total.shape[-1], LEAST)
    # as many as run at the same time on the multiprocessors of a large GPU, six on each unless they are wide
    programs = min(triton.cdiv(rows, ROWS), 4 if interpreted() else 132 * min(16 // how["num_warps"], 6))
    sums = gain.new_empty(programs, 3, how["D"], dtype=torch.float32)
    how |= {"SUMMED": of_sum is not None, "DROP": drop > 0, "CENTERED": centered}
    first, seeds = total if of_sum is None else of_sum, gain if seed is None else seed
    given = (first, of_output, total, mean, scale, seeds, gain, of_x, of_part)
    add_norm_backward[(programs,)](*given, sums, rows, site, *odds(drop), **how)
    return of_x, of_part, column_sums(sums.flatten(1)).view(3, -1)


run_backward = custom_op("saccade::add_norm_backward", differentiate, mutates_args=())


@run_backward.register_fake
def gradients(of_sum: Given, of_output: Tensor, total: Tensor, mean: Tensor, scale: Tensor, seed: Given, gain: Tensor,
              kind: torch.dtype, centered: bool, site: int, drop: float) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(total), torch.empty_like(total, dtype=kind), gain.new_empty(3, len(gain), dtype=torch.float32)


def save(ctx: Any, inputs: tuple[Any, ...], output: Numbers) -> None:
    _, part, bias, seed, gain, shift, *numbers = inputs
    total, _, mean, scale = output
    ctx.save_for_backward(total, mean, scale, seed, gain)
    ctx.how = part.dtype, shift is not None, numbers[0], numbers[1]
    ctx.set_materialize_grads(False)  # nobody reads the last sum
    ctx.kinds = None if bias is None else bias.dtype, gain.dtype, None if shift is None else shift.dtype


def pull_back(ctx: Any, of_sum: Given, of_output: Given, *_: Any, run: Any = run_backward) -> tuple[Any, ...]:
    total, *saved = ctx.saved_tensors
    of_sum = None if of_sum is None else of_sum.contiguous()
    of_output = torch.zeros_like(total) if of_output is None else of_output.contiguous()
    of_x, of_part, sums = run(of_sum, of_output, total, *saved, *ctx.how)
    of_bias, of_gain, of_shift = (
        None if kind is None else sums[n].to(kind) for n, kind in zip((2, 0, 1), ctx.kinds, strict=True)
    )
    return of_x, of_part, of_bias, None, of_gain, of_shift, None, None, None, None


run_forward.register_autograd(pull_back, setup_context=save)
outside = outside_compile(compute, save, partial(pull_back, run=differentiate), learned=6, outputs=2)


def add_norm(x: Tensor, part: Tensor, bias: Given, norm: tuple[Tensor, Given, float], dropout: tuple[Given, int, float],
             dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum, and its norm in another type. `norm`: gain, shift (None: RMS norm) and ε; `dropout`: the seeds, which of them, the share."""
    (gain, shift, eps), (seed, site, drop) = norm, dropout
    inputs = (x.contiguous(), part.contiguous(), bias, seed, gain, shift, site, drop, eps, dtype)
    total, output, *_ = run_forward(*inputs) if torch.compiler.is_compiling() else outside(*inputs)
    return total, output
