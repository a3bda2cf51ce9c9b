"""A part's output joins x, and the sum is normed for the next part: one kernel forward and one backward. R rows of width D.

    x' = x + dropout(part + bias)        y = norm(x')

PyTorch takes five to eight kernels for each direction, every one of which reads and writes all rows. Dropout is a hash of a number's row and column
and a seed, as in compiled passes (`layers.dropouts.scatter_zeros`), which the pass back repeats. The gradients of gain, shift and bias are sums over
all rows: each program adds up those of its own.

x is kept in float32; its gradient has the type that products are computed in, as those of all parts have, and is theirs where nothing was dropped.
PyTorch gives a gradient the type of its tensor: so a tensor of the other type goes beside x (`Stream`), without numbers, and carries the gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from . import interpreted
from .bias_gradient import column_sums
from .operators import outside_compile

Given = Tensor | None
Numbers = tuple[Tensor, Tensor, Tensor, Tensor]
TILE_NUMBERS = 2048  # numbers that a program holds of each tensor
MIN_BACKWARD_ROWS = 8  # that a program of the pass back has at least
MAX_ROW_WIDTH = 8192  # numbers of a row


class Stream(NamedTuple):
    """x as it goes through a stack: what carries its gradient (x itself before the first part), and its numbers."""

    carrier: Tensor
    numbers: Tensor


@triton.jit
def stir(x):
    """32 bits of which the high ones depend on all (the constants of Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    return (x ^ (x >> 15)) * 0x846CA68B


@triton.jit
def mix(x):
    x = stir(x)
    return x ^ (x >> 16)


@triton.jit
def kept(Seed, site, row, at, least, factor):
    """What the numbers of rows and columns are multiplied by: 0 where 32 bits are below `least`. Each site of a model has a seed of its own."""
    key = mix(mix(row.to(tl.uint32)) ^ tl.load(Seed + site).to(tl.uint32))
    bits = stir(key[:, None] ^ at.to(tl.uint32)[None, :])
    return tl.where(bits.to(tl.int32, bitcast=True) < least, 0.0, factor)


def odds(drop: float) -> tuple[int, float]:
    """The two numbers by which `kept` drops this share."""
    return int(drop * (1 << 32)) - (1 << 31), 1 / (1 - drop)


@triton.jit(do_not_specialize=["rows", "site", "least"])
def add_norm_forward(X, Part, Bias, Seed, Gain, Shift, Sum, Out, Mean, Scale, rows, site, least, factor, eps, D: tl.constexpr, BD: tl.constexpr,
            BR: tl.constexpr, PART: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, CENTERED: tl.constexpr):  # fmt: skip
    row, at = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BD)
    wide, there = at < D, (row[:, None] < rows) & (at[None, :] < D)
    position = row[:, None].to(tl.int64) * D + at[None, :]
    x = tl.load(X + position, mask=there, other=0.0).to(tl.float32)
    if PART:
        part = tl.load(Part + position, mask=there, other=0.0).to(tl.float32)
        if BIASED:
            part += tl.load(Bias + at, mask=wide, other=0.0).to(tl.float32)[None, :]
        if DROP:
            part *= kept(Seed, site, row, at, least, factor)
        x += part
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
             BR: tl.constexpr, SUMMED: tl.constexpr, PART: tl.constexpr, APART: tl.constexpr, DROP: tl.constexpr,
             CENTERED: tl.constexpr):  # fmt: skip
    """A program takes every n-th block of rows. `Sums` (programs 3 D) has the gradients of gain, shift and bias by its rows. The gradient of x
    is stored where it is another than that of the part (APART)."""
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
        if APART:
            tl.store(GX + position, pull.to(GX.dtype.element_ty), mask=there)
        if PART:
            if DROP:
                pull *= kept(Seed, site, row, at, least, factor)
            of_bias += pull
            tl.store(GPart + position, pull.to(GPart.dtype.element_ty), mask=there)
    own = Sums + tl.program_id(0) * 3 * D + at
    tl.store(own, tl.sum(of_gain, 0), mask=wide)
    tl.store(own + D, tl.sum(of_shift, 0), mask=wide)
    tl.store(own + 2 * D, tl.sum(of_bias, 0), mask=wide)


def sizes(width: int) -> dict[str, int]:
    """Rows of a program, and its warps: four numbers or more for each thread."""
    block = int(triton.next_power_of_2(width))
    return {
        "D": width,
        "BD": block,
        "BR": max(TILE_NUMBERS // block, 1),
        "num_warps": min(max(TILE_NUMBERS // 512, block // 512), 16),
    }


def run_kernel(x: Tensor, part: Given, bias: Given, seed: Given, gain: Tensor, shift: Given, site: int, drop: float, eps: float,
               output: Tensor) -> Numbers:  # fmt: skip
    """The sum (x itself without a part), its norm, and the mean and the factor of each row."""
    total = x if part is None else torch.empty_like(x)
    mean = x.new_empty(x.shape[:-1], dtype=torch.float32)
    scale, rows, how = torch.empty_like(mean), mean.numel(), sizes(x.shape[-1])
    how |= {
        "PART": part is not None,
        "BIASED": bias is not None,
        "DROP": drop > 0,
        "CENTERED": shift is not None,
    }
    given = [gain if one is None else one for one in (x, part, bias, seed, gain, shift)]
    add_norm_forward[(triton.cdiv(rows, how["BR"]),)](
        *given, total, output, mean, scale, rows, site, *odds(drop), eps, **how
    )
    return total, output, mean, scale


def run_kernel_back(of_sum: Given, of_output: Tensor, total: Tensor, mean: Tensor, scale: Tensor, seed: Given, gain: Tensor, of_x: Tensor,
                    of_part: Given, centered: bool, site: int, drop: float) -> Tensor:  # fmt: skip
    """Fills in the gradients of x and of the part; returns those of gain, shift and bias, 3 D."""
    rows, width, block = mean.numel(), total.shape[-1], int(triton.next_power_of_2(total.shape[-1]))
    warps = max(block // 1024, 1)  # few, so that a row waits for none of them
    # as many as run at the same time on the multiprocessors of a large GPU
    programs = min(
        triton.cdiv(rows, MIN_BACKWARD_ROWS),
        4 if interpreted() else 132 * max((12 if block <= 512 else 8) // warps, 2),
    )
    sums = gain.new_empty(programs, 3, width, dtype=torch.float32)
    how: dict[str, Any] = {
        "D": width,
        "BD": block,
        "BR": 1,
        "num_warps": warps,
        "SUMMED": of_sum is not None,
    }
    how |= {"PART": of_part is not None, "APART": of_x is not of_part, "DROP": drop > 0}
    given = [
        gain if one is None else one
        for one in (of_sum, of_output, total, mean, scale, seed, gain, of_x, of_part)
    ]
    add_norm_backward[(programs,)](*given, sums, rows, site, *odds(drop), CENTERED=centered, **how)
    return column_sums(sums.flatten(1)).view(3, -1)


def compute(x: Tensor, part: Tensor, bias: Given, seed: Given, gain: Tensor, shift: Given, site: int, drop: float, eps: float,
            dtype: torch.dtype) -> Numbers:  # fmt: skip
    return run_kernel(
        x, part, bias, seed, gain, shift, site, drop, eps, torch.empty_like(x, dtype=dtype)
    )


run_forward = custom_op("saccade::add_norm", compute, mutates_args=())


@run_forward.register_fake
def empty(x: Tensor, part: Tensor, bias: Given, seed: Given, gain: Tensor, shift: Given, site: int, drop: float, eps: float,
          dtype: torch.dtype) -> Numbers:  # fmt: skip
    row = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return torch.empty_like(x), x.new_empty(x.shape, dtype=dtype), row, torch.empty_like(row)


def differentiate(of_sum: Given, of_output: Tensor, total: Tensor, mean: Tensor, scale: Tensor, seed: Given, gain: Tensor,
                  kind: torch.dtype, centered: bool, site: int, drop: float) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of x and of the part, and those of gain, shift and bias, 3 D."""
    of_x, of_part = torch.empty_like(total), torch.empty_like(total, dtype=kind)
    return (
        of_x,
        of_part,
        run_kernel_back(
            of_sum, of_output, total, mean, scale, seed, gain, of_x, of_part, centered, site, drop
        ),
    )


run_backward = custom_op("saccade::add_norm_backward", differentiate, mutates_args=())


@run_backward.register_fake
def gradients(of_sum: Given, of_output: Tensor, total: Tensor, mean: Tensor, scale: Tensor, seed: Given, gain: Tensor,
              kind: torch.dtype, centered: bool, site: int, drop: float) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return (
        torch.empty_like(total),
        torch.empty_like(total, dtype=kind),
        gain.new_empty(3, len(gain), dtype=torch.float32),
    )


def save(ctx: Any, inputs: tuple[Any, ...], output: Numbers) -> None:
    _, part, bias, seed, gain, shift, *numbers = inputs
    total, _, mean, scale = output
    ctx.save_for_backward(total, mean, scale, seed, gain)
    ctx.how = None if part is None else part.dtype, shift is not None, numbers[0], numbers[1]
    ctx.set_materialize_grads(False)  # nobody reads the last sum
    ctx.kinds = (
        None if bias is None else bias.dtype,
        gain.dtype,
        None if shift is None else shift.dtype,
    )


def pull_back(
    ctx: Any, of_sum: Given, of_output: Given, *_: Any, run: Any = run_backward
) -> tuple[Any, ...]:
    total, *saved = ctx.saved_tensors
    of_sum = None if of_sum is None else of_sum.contiguous()
    of_output = torch.zeros_like(total) if of_output is None else of_output.contiguous()
    of_x, of_part, sums = run(of_sum, of_output, total, *saved, *ctx.how)
    of_bias, of_gain, of_shift = (
        None if kind is None else sums[n].to(kind)
        for n, kind in zip((2, 0, 1), ctx.kinds, strict=True)
    )
    return of_x, of_part, of_bias, None, of_gain, of_shift, None, None, None, None


run_forward.register_autograd(pull_back, setup_context=save)


def compute_beside(carrier: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Given, Tensor, Tensor]:
    """What carries the gradient of the sum, its norm, the sum (None without a part: it is x), the means and factors of rows."""
    x, part, bias, seed, gain, shift, site, drop, eps, dtype = inputs
    made = torch.empty_like(x, dtype=dtype)
    total, output, mean, scale = run_kernel(x, part, bias, seed, gain, shift, site, drop, eps, made)
    kind = dtype if part is None else part.dtype
    # without numbers, since nobody reads them
    beside = x.new_empty((), dtype=carried_type(kind, x.dtype)).expand(x.shape)
    return beside, output, None if part is None else total, mean, scale


def save_beside(
    ctx: Any, inputs: tuple[Any, ...], found: tuple[Tensor, Tensor, Given, Tensor, Tensor]
) -> None:
    (carrier, x, *rest), (_, output, total, mean, scale) = inputs, found
    save(ctx, (x, *rest), (x if total is None else total, output, mean, scale))
    ctx.carried = carrier.dtype
    if total is not None:
        ctx.mark_non_differentiable(total)


def pull_beside(ctx: Any, of_carrier: Given, of_output: Given, *_: Any) -> tuple[Any, ...]:
    def run(*given: Any) -> tuple[Tensor, Given, Tensor]:
        *tensors, kind, centered, site, drop = given
        of_part = None if kind is None else torch.empty_like(tensors[2], dtype=kind)
        same = of_part is not None and kind == ctx.carried and not drop
        of_x: Any = of_part if same else torch.empty_like(tensors[2], dtype=ctx.carried)
        every = (*tensors, of_x, of_part, centered, site, drop)
        return of_x, of_part, run_kernel_back(*every)

    of_x, *found = pull_back(ctx, of_carrier, of_output, run=run)
    return of_x, None, *found


outside = outside_compile(compute_beside, save_beside, pull_beside, learned=7, outputs=3)


def add_norm(x: Stream, part: Given, bias: Given, norm: tuple[Tensor, Given, float], dropout: tuple[Given, int, float],
             dtype: torch.dtype) -> tuple[Stream, Tensor]:  # fmt: skip
    """The sum, and its norm in another type; without a part (not in a compiled pass) the norm of x. `norm`: gain, shift (None: RMS norm) and ε;
    `dropout`: the seeds, which of them, the share."""
    (gain, shift, eps), (seed, site, drop), (carrier, numbers) = norm, dropout, x
    rows = None if part is None else part.contiguous()
    inputs = (numbers.contiguous(), rows, bias, seed, gain, shift, site, drop, eps, dtype)
    if torch.compiler.is_compiling():
        total, output, *_ = run_forward(*inputs)
        return Stream(total, total), output
    carrier, output, total = outside(carrier, *inputs)
    return Stream(carrier, numbers.detach() if total is None else total), output


def trials(
    x: Tensor, kind: torch.dtype, bias: Given, norm: tuple[Tensor, Given, float], drop: float
) -> list[Callable[[], Any]]:
    """Calls, on some rows x, by which the kernels of a stack are compiled: its first norm, its sums, and the last of them."""
    (gain, shift, eps), seed = norm, torch.zeros(1, dtype=torch.int32, device=x.device)
    part, row = x.to(kind), x.new_zeros(len(x), dtype=torch.float32)
    apart = carried_type(kind, x.dtype)
    found = list[Callable[[], Any]]()
    for given, dtype, summed in ((None, kind, True), (part, kind, True), (part, x.dtype, False)):
        share, of_x = (0.0, torch.empty_like(x)) if given is None else (drop, x.to(apart))
        of_part = None if given is None else of_x if apart == kind and not drop else part.clone()
        added, output = None if given is None else bias, x.to(dtype)
        forward = (x, given, added, seed, gain, shift, 0, share, eps, output)
        back = (x.to(apart) if summed else None, output, x, row, row, seed, gain, of_x, of_part)
        rest = (shift is not None, 0, share)
        found += [partial(run_kernel, *forward), partial(run_kernel_back, *back, *rest)]
    return found


def carried_type(kind: torch.dtype, own: torch.dtype) -> torch.dtype:
    """Of the gradient of x: not float16, in which sums of gradients could end at 0 or ∞."""
    return kind if kind == torch.bfloat16 else own
