"""Softmax attention in one family of kernels, with their gradients. While a pass is compiled they are operators, which `torch.compile` takes
as they are; else they are called directly, since an operator written in Python takes as long as a small kernel.

B batch, H heads, Q queries, K keys, D and E widths, R distances from −limit to limit. Nothing that is Q × K is ever held.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from .backward_keys import backward_keys
from .backward_queries import backward_queries
from .launch import Extras, Options, describe, launch
from .operators import outside_compile
from .softmax_forward import forward

Given = Tensor | None


def flash(q: Tensor, k: Tensor, v: Tensor, options: Options, extras: Extras) -> Tensor:
    """B H Q D, B H' K D, B H' K E → B H Q E."""
    inputs = (*(x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)), *extras, *options)
    return run_forward(*inputs)[0] if torch.compiler.is_compiling() else flash_outside(*inputs)


def compute(q: Tensor, k: Tensor, v: Tensor, table: Given, vectors: Given, slopes: Given, lengths: Given, rows: Given,
            columns: Given, bits: Given, seed: Given, partly: Sequence[int], scale: float, cap: float, drop: float,
            left: int, right: int, limit: int) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The output, log₂ of each row's sum of weights (B H Q), and the weights by distance (B H Q R) where values have vectors."""
    options = Options(scale, cap, drop, left, right, limit)
    extras = Extras(table, vectors, slopes, lengths, rows, columns, bits, seed, partly)
    output, lse, weights = outputs(q, k, v, table, vectors)
    band, ends = lse, lse
    if vectors is not None:
        band = torch.full(weights.shape, float("-inf"), device=q.device)
        ends = torch.empty(*lse.shape, 2, device=q.device)
    tensors = (q, k, v, output, lse, table, band, ends, slopes, lengths, rows, bits, seed)
    given = describe(q, k, v, *extras[:8])
    launch(forward, "forward", tensors, (q, k, v, output), given, options, extras)
    if vectors is not None:
        band = torch.exp2(band - lse.unsqueeze(-1))
        band[..., 0], band[..., -1] = ends[..., 0], ends[..., 1]
        weights.copy_(band)
        output += weights @ vectors.to(q.dtype)
    return output, lse, weights


run_forward = custom_op("saccade::flash_forward", compute, mutates_args=())


@run_forward.register_fake
def outputs(
    q: Tensor, k: Tensor, v: Tensor, table: Given, vectors: Given, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Empty ones. The output's memory is in the order of q's, so that heads lie side by side where they did."""
    batch, heads, queries, _ = q.shape
    side_by_side = q.stride(1) < q.stride(2)
    output = q.new_empty(
        batch, *((queries, heads) if side_by_side else (heads, queries)), v.shape[-1]
    )
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    weights = q.new_empty(0 if vectors is None else (batch, heads, queries, len(vectors)))
    return output.transpose(1, 2) if side_by_side else output, lse, weights


def differentiate(grad: Tensor, output: Tensor, lse: Tensor, learned: bool, q: Tensor, k: Tensor, v: Tensor, table: Given,
                  vectors: Given, slopes: Given, lengths: Given, rows: Given, columns: Given, bits: Given, seed: Given,
                  partly: Sequence[int], scale: float, cap: float, drop: float, left: int, right: int,
                  limit: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v, and of the scores by distance (B H Q R) where they are `learned`."""
    options = Options(scale, cap, drop, left, right, limit)
    extras = Extras(table, vectors, slopes, lengths, rows, columns, bits, seed, partly)
    dq, dk, dv, band = gradients(grad, output, lse, learned, q, k, v, table)
    if learned:
        band.zero_()
    delta, given = torch.empty_like(lse), describe(q, k, v, grad, *extras[:8])
    pulls = lse if vectors is None else (grad @ vectors.to(grad.dtype).transpose(0, 1)).contiguous()
    inputs = (q, k, v, output, lse, grad, delta)
    tensors = (*inputs, dq, table, pulls, band, slopes, lengths, rows, bits, seed)
    strided, how = (q, k, v, output, grad, dq), {"LEARNED": learned}
    launch(backward_queries, "queries", tensors, strided, given, options, extras, **how)
    others = (q, k, v, lse, grad, delta, dk, dv, table, pulls, slopes, lengths, columns, bits, seed)
    launch(backward_keys, "keys", others, (q, k, v, grad, dk, dv), given, options, extras)
    return dq, dk, dv, band


run_backward = custom_op("saccade::flash_backward", differentiate, mutates_args=())


@run_backward.register_fake
def gradients(grad: Tensor, output: Tensor, lse: Tensor, learned: bool, q: Tensor, k: Tensor, v: Tensor, table: Given,
              *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Empty ones."""
    band = (
        q.new_empty(*lse.shape, table.shape[-1])
        if learned and table is not None
        else q.new_empty(0)
    )
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), band


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:11])
    ctx.rest = inputs[11:]
    ctx.set_materialize_grads(False)


def backward(
    ctx: Any, grad: Given, *_: Any, run: Callable[..., Any] = run_backward
) -> tuple[Any, ...]:
    """The gradients of q, k, v, the scores by distance and the vectors by distance; nothing else has one."""
    nothing = (None,) * (6 + len(ctx.rest))
    if grad is None:
        return (None,) * 5 + nothing
    output, lse, weights, *tensors = ctx.saved_tensors
    q, table, vectors = tensors[0], tensors[3], tensors[4]
    learned = table is not None and ctx.needs_input_grad[3]
    grad = (grad if grad.stride(-1) == 1 else grad.contiguous()).to(q.dtype)
    dq, dk, dv, band = run(grad, output, lse, learned, *tensors, *ctx.rest)
    d_table = d_vectors = None
    if learned:
        shared = [axis for axis in (0, 2) if table.shape[axis] < band.shape[axis]]
        d_table = (band.sum(shared, keepdim=True, dtype=torch.float32) if shared else band).to(
            table.dtype
        )
    if vectors is not None and ctx.needs_input_grad[4]:
        d_vectors = (weights.flatten(0, 2).transpose(0, 1) @ grad.flatten(0, 2)).to(vectors.dtype)
    return dq, dk, dv, d_table, d_vectors, *nothing


run_forward.register_autograd(backward, setup_context=save)


flash_outside = outside_compile(compute, save, partial(backward, run=differentiate), learned=5)
