"""A bias, an activation and dropout as one kernel forward and one backward, which also adds up the gradient of the bias. R rows of width D."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from . import interpreted
from .add_norm import kept, odds
from .bias_gradient import column_sums
from .operators import outside_compile
from .score_tiles import hyperbolic_tangent
from .tiles import reciprocal

Given = Tensor | None
# rows, columns and warps of a tile, and of one in the pass back
TILE, BACK = ((8, 256, 4), (4, 128, 2))
PROGRAMS = 2112  # of a pass back for all blocks of columns, at most: 16 for each multiprocessor of a large GPU
RELU, GELU, GELU_TANH, SWISH = (tl.constexpr(n) for n in range(4))
MINUS_HALF_LOG2E = tl.constexpr(-0.7213475204444817)  # −½ log₂ e
# √(2/π) and the constant of gelu's approximation
INNER, CUBE = (tl.constexpr(0.7978845608028654), tl.constexpr(0.044715))


@triton.jit
def normal(x, SHORT: tl.constexpr):
    """The normal distribution function at x and its density. SHORT, for 16 bits: by a polynomial (Abramowitz & Stegun 7.1.26), at most 1e-7 away,
    which shares its exponential with the density."""
    e = tl.exp2(x * x * MINUS_HALF_LOG2E)
    if SHORT:
        t = reciprocal(1.0 + 0.23164189 * tl.abs(x))
        tail = (
            t
            * (
                0.127414796
                + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
            )
            * e
        )
        below = tl.where(x >= 0, 1.0 - tail, tail)
    else:
        below = 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)
    return below, e * 0.3989422804014327


@triton.jit
def bent(x, KIND: tl.constexpr, SHORT: tl.constexpr, FAST: tl.constexpr):
    """The activation of x, and its slope there."""
    if KIND == RELU:
        y = tl.maximum(x, 0.0)
        slope = tl.where(x > 0, 1.0, 0.0)
    elif KIND == GELU:
        below, density = normal(x, SHORT)
        y = x * below
        slope = below + x * density
    elif KIND == GELU_TANH:
        t = hyperbolic_tangent(INNER * (x + CUBE * x * x * x), FAST)
        y = 0.5 * x * (1.0 + t)
        slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * INNER * (1.0 + 3.0 * CUBE * x * x)
    else:
        s = 1.0 / (1.0 + tl.exp(-x))
        y = x * s
        slope = s * (1.0 + x * (1.0 - s))
    return y, slope


@triton.jit(do_not_specialize=["rows", "site", "least"])
def activate_forward(X, Bias, Seed, Out, rows, site, least, factor, WIDTH: tl.constexpr, KIND: tl.constexpr, SHORT: tl.constexpr,
            FAST: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):  # fmt: skip
    row, at = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1) * BC + tl.arange(0, BC)
    there = (row[:, None] < rows) & (at[None, :] < WIDTH)
    position = row[:, None].to(tl.int64) * WIDTH + at[None, :]
    x = tl.load(X + position, mask=there, other=0.0).to(tl.float32)
    if BIASED:
        x += tl.load(Bias + at, mask=at < WIDTH, other=0.0).to(tl.float32)[None, :]
    y, _ = bent(x, KIND, SHORT, FAST)
    if DROP:
        y *= kept(Seed, site, row, at, least, factor)
    tl.store(Out + position, y.to(Out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["rows", "site", "least"])
def activate_backward(Grad, X, Bias, Seed, GX, Sums, rows, site, least, factor, WIDTH: tl.constexpr, KIND: tl.constexpr, SHORT: tl.constexpr,
             FAST: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):  # fmt: skip
    """A program takes every n-th block of rows of its columns; `Sums` (programs D) has the gradient of the bias by its rows."""
    at = tl.program_id(1) * BC + tl.arange(0, BC)
    wide = at < WIDTH
    total = tl.zeros([BR, BC], tl.float32)
    bias = tl.zeros([BC], tl.float32)
    if BIASED:
        bias = tl.load(Bias + at, mask=wide, other=0.0).to(tl.float32)
    for start in tl.range(tl.program_id(0) * BR, rows, tl.num_programs(0) * BR):
        row = start + tl.arange(0, BR)
        there = (row[:, None] < rows) & wide[None, :]
        position = row[:, None].to(tl.int64) * WIDTH + at[None, :]
        _, slope = bent(
            tl.load(X + position, mask=there, other=0.0).to(tl.float32) + bias[None, :],
            KIND,
            SHORT,
            FAST,
        )
        slope *= tl.load(Grad + position, mask=there, other=0.0).to(tl.float32)
        if DROP:
            slope *= kept(Seed, site, row, at, least, factor)
        total += slope
        tl.store(GX + position, slope.to(GX.dtype.element_ty), mask=there)
    if BIASED:
        tl.store(Sums + tl.program_id(0) * WIDTH + at, tl.sum(total, 0), mask=wide)


def constants(
    x: Tensor, bias: Given, kind: int, drop: float, tile: tuple[int, int, int]
) -> dict[str, Any]:
    short = x.dtype != torch.float32
    found = {
        "WIDTH": x.shape[-1],
        "KIND": kind,
        "SHORT": short,
        "FAST": short and not interpreted(),
        "BIASED": bias is not None,
    }
    return found | {"DROP": drop > 0, "BR": tile[0], "BC": tile[1], "num_warps": tile[2]}


def compute(x: Tensor, bias: Given, seed: Given, kind: int, site: int, drop: float) -> Tensor:
    output, width = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // max(width, 1)
    given = (x, x if bias is None else bias, x if seed is None else seed, output)
    grid = (triton.cdiv(rows, TILE[0]), triton.cdiv(width, TILE[1]))
    activate_forward[grid](*given, rows, site, *odds(drop), **constants(x, bias, kind, drop, TILE))
    return output


run_forward = custom_op("saccade::activate", compute, mutates_args=())


@run_forward.register_fake
def empty(x: Tensor, bias: Given, seed: Given, kind: int, site: int, drop: float) -> Tensor:
    return torch.empty_like(x)


def differentiate(
    grad: Tensor, x: Tensor, bias: Given, seed: Given, kind: int, site: int, drop: float
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the bias."""
    of_x, width = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // max(width, 1)
    blocks = triton.cdiv(width, BACK[1])
    programs = min(
        triton.cdiv(rows, 2 * BACK[0]), 4 if interpreted() else triton.cdiv(PROGRAMS, blocks)
    )
    sums = x.new_empty((programs, width) if bias is not None else (1, 0), dtype=torch.float32)
    given = (grad, x, x if bias is None else bias, x if seed is None else seed, of_x, sums)
    activate_backward[(programs, blocks)](
        *given, rows, site, *odds(drop), **constants(x, bias, kind, drop, BACK)
    )
    return of_x, column_sums(sums, x.dtype if bias is None else bias.dtype)


run_backward = custom_op("saccade::activate_backward", differentiate, mutates_args=())


@run_backward.register_fake
def gradients(grad: Tensor, x: Tensor, bias: Given, *rest: Any) -> tuple[Tensor, Tensor]:
    kind = x.dtype if bias is None else bias.dtype
    return torch.empty_like(x), x.new_empty(x.shape[-1] if bias is not None else 0, dtype=kind)


def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.how = inputs[3:]


def pull_back(ctx: Any, grad: Tensor, run: Any = run_backward) -> tuple[Any, ...]:
    x, bias, seed = ctx.saved_tensors
    of_x, of_bias = run(grad.contiguous(), x, bias, seed, *ctx.how)
    return of_x, None if bias is None else of_bias, None, None, None, None


run_forward.register_autograd(pull_back, setup_context=save)
outside = outside_compile(compute, save, partial(pull_back, run=differentiate), learned=2)


def activate(x: Tensor, bias: Given, kind: int, dropout: tuple[Given, int, float]) -> Tensor:
    """dropout(activation(x + bias)); `kind` is one of RELU …; `dropout`: the seeds, which of them, the share."""
    seed, site, drop = dropout
    inputs = (x.contiguous(), bias, seed, kind, site, drop)
    return run_forward(*inputs) if torch.compiler.is_compiling() else outside(*inputs)


def trials(x: Tensor, bias: Given, kind: int, drop: float) -> list[Callable[[], Any]]:
    """Calls, on some rows x, by which both kernels are compiled."""
    seed = torch.zeros(1, dtype=torch.int32, device=x.device)
    return [
        partial(compute, x, bias, seed, kind, 0, drop),
        partial(differentiate, x, x, bias, seed, kind, 0, drop),
    ]
