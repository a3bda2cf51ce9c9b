"""How many tanh a GPU can do in a second: each number is loaded once, and goes through the instruction again and again."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import interpreted
from .score_tiles import hyperbolic_tangent

REPEATS, BLOCK = 256, 1024


@triton.jit
def repeat_tanh(X, count, REPEATS: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < count, other=0.0)
    for _ in tl.range(0, REPEATS):
        x = hyperbolic_tangent(x, FAST)
    tl.store(X + at, x, mask=at < count)


def run(x: Tensor, repeats: int = REPEATS) -> int:
    """x becomes tanh(tanh(…x)); how many tanh that were."""
    assert x.dtype == torch.float32
    repeat_tanh[(triton.cdiv(x.numel(), BLOCK),)](
        x, x.numel(), REPEATS=repeats, BLOCK=BLOCK, FAST=not interpreted()
    )
    return x.numel() * repeats
