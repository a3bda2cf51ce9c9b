"""PyTorch's FlexAttention: masks as predicates and bends by place compiled into one kernel; masked blocks cost nothing."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from ..masks import Causal, Mask
from ..normalizers import Softmax
from .problem import Backend, Problem, repeat_heads, table

CACHED = 256  # block masks kept; one is Q/128 × K/128 small numbers a batch row
LONG = 2048  # measured on an H200 (benchmarks/results/backends-cuda.json): shorter problems run faster on SDPA with a dense mask


class Flex(Backend):
    """Dot-product scores, softmax, any mask, positions that turn or bend by place alone."""

    def refuses(self, problem: Problem) -> str | None:
        mechanism = problem.mechanism
        if not mechanism.score.dot:
            return "the score is no dot product"
        if not isinstance(mechanism.normalize, Softmax):
            return "it knows no normalizer but softmax"
        if mechanism.position.adds_values:
            return "the position adds to what is summed, and it does not show its weights"
        if problem.dropout:
            return "it drops no weights"
        if problem.q.device.type == "cpu" and problem.needs_grad:
            return "it has no backward on a CPU"
        if problem.q.device.type not in ("cpu", "cuda"):
            return f"it does not run on '{problem.q.device.type}'"
        if problem.query.dtype == torch.float64:
            return "it does not run in float64"
        if problem.q.device.type == "cuda" and min(problem.query.shape[-1], problem.v.shape[-1]) < 16:
            return "its GPU kernel needs heads at least 16 wide"
        return None

    def rank(self, problem: Problem) -> int:
        if problem.q.device.type == "cpu":
            return 200  # compiling takes longer than most sequences: only when asked for
        plain = problem.unmasked or isinstance(problem.mask, Causal)
        if plain and not problem.mechanism.position.bends:
            return 30
        return 10 if problem.q.shape[2] * problem.key.shape[2] >= LONG * LONG else 30

    def run(self, problem: Problem) -> Tensor:
        return fused(
            problem.query,
            problem.key,
            repeat_heads(problem.v, problem.key.shape[1]),  # keys of a score with parameters have more heads than values
            score_mod=bending(problem),
            block_mask=None if problem.unmasked else block_mask(problem.mask, problem.sizes, problem.q.device),
            scale=problem.scale,
            enable_gqa=problem.query.shape[1] != problem.key.shape[1],
        )


def bending(problem: Problem) -> Callable[..., Tensor] | None:
    """FlexAttention's score_mod: the bend computed for (h, i, j) where it depends on nothing else, or looked up in all of them."""
    position, offset = problem.mechanism.position, problem.key.shape[2] - problem.q.shape[2]
    if not position.bends:
        return None
    if problem.places is not None and problem.places.usual and position.bends_by_place:

        def by_place(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + position.bend_at(h, i + offset, j).to(score.dtype)

        return by_place
    bend = problem.bend()
    assert bend is not None, "a position that bends has a bend"
    everywhere = bend.expand(problem.sizes)

    def looked_up(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + everywhere[b, h, i, j]

    return looked_up


@functools.cache
def compiled(device: str) -> Any:
    # On a CPU the C++ that torch 2.13 writes for symbolic sizes does not compile: each size is a version of its own there.
    return torch.compile(flex_attention, dynamic=False if device == "cpu" else None)


def fused(*tensors: Any, **how: Any) -> Any:
    """FlexAttention compiled: uncompiled it would hold all scores, and has nothing over `eager`.

    Each kind of mask is a version of its own; past the usual limit of eight, versions would silently run uncompiled.
    """
    if torch.compiler.is_compiling():  # inside a compiled model it is compiled with the rest
        return flex_attention(*tensors, **how)
    with torch._dynamo.config.patch(recompile_limit=1024, accumulated_recompile_limit=65536):
        return compiled(tensors[0].device.type)(*tensors, **how)


_block_masks: OrderedDict[tuple[Any, ...], tuple[Mask, BlockMask]] = OrderedDict()


def block_mask(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> BlockMask:
    """The block mask of a mask, cached per mask (with its lengths) and sizes: building one costs more than the attention."""
    batch, heads, queries, keys = sizes
    rows, planes = batch if mask.by_batch else None, heads if mask.by_head else None
    key = (mask.key, rows, planes, queries, keys, str(device))
    if key in _block_masks:
        _block_masks.move_to_end(key)
        return _block_masks[key][1]
    mask.check(*sizes)
    here, offset = mask.to(device), keys - queries

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return here(b, h, i + offset, j)

    made = create_block_mask(mask_mod, rows, planes, queries, keys, device=str(device))
    _block_masks[key] = (mask, made)  # the mask stays alive, so that a key by identity stays its own
    if len(_block_masks) > CACHED:
        _block_masks.popitem(last=False)
    return made


table.add("flex")(Flex())
