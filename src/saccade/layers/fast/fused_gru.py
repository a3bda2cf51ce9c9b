"""All steps of `attending_gru` with a kernel each for attention and gates, forward and backward, and products in the type of K and V.

B batch, T steps, N memory positions, H hidden width, A width of the score, M width of the memory.

Where these are of 16 bits, as under autocast, so are the operands of every product; their sums, states, gates, scores and weights are float32.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from ...core.backends.call import CannotCompile
from ...core.kernels import INSTALLED
from .attending_gru import AttendingGru

if INSTALLED:  # nobody calls what is below without Triton
    from ...core.kernels.gru_attention import (
        MAX_WIDTH,
        advance,
        advance_back,
        attend,
        attend_back,
        differentiate_keys,
    )

Kind = tuple[Any, ...]
failed: set[Kind] = set()  # whose kernels did not compile


def kind_of(x: Tensor, key: Tensor, value: Tensor) -> Kind:
    """What compiled kernels depend on."""
    return x.device, x.dtype, key.dtype, x.shape[2], key.shape[2], value.shape[2]


def can_run(x: Tensor, key: Tensor, value: Tensor) -> bool:
    small = max(key.shape[2], value.shape[2]) <= MAX_WIDTH
    return (
        small
        and min(x.numel(), key.numel(), value.numel()) > 0
        and kind_of(x, key, value) not in failed
    )


def run(
    given: tuple[Tensor, ...], read: Tensor | None, kind: torch.dtype
) -> tuple[Tensor, Tensor] | None:
    """States and contexts of what AttendingGru is given, with products in `kind`; None where its kernels do not run."""
    x, state, key, value, *rest = given
    key, value = key.to(kind).contiguous(), value.to(kind).contiguous()
    if not can_run(x, key, value):
        return None
    state, *rest = (one.float().contiguous() for one in (state, *rest))
    try:
        found: tuple[Tensor, Tensor] = FusedAttendingGru.apply(
            x, state, key, value, *rest, None if read is None else read.float().contiguous()
        )
    except CannotCompile as error:
        give_up(kind_of(x, key, value), error)
        return None
    return found


def give_up(kind: Kind, error: CannotCompile) -> None:
    failed.add(kind)
    warnings.warn(
        f"a kernel of the attending GRU does not compile here ({error}); continuing without",
        stacklevel=2,
    )


def multiply(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a b, of 16 bits or not, in float32."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return torch.mm(a.to(out.dtype), b.to(out.dtype), out=out)


def each(x: Tensor | None, steps: int) -> tuple[Any, ...]:
    """Of every step, with numbers of a row side by side."""
    if x is None:
        return (None,) * steps
    return (x if x.stride(-1) == 1 else x.contiguous()).unbind(0)


class FusedAttendingGru(torch.autograd.Function):
    """What AttendingGru computes, from the same; K and V, of one type, say in which products are computed, x is of any type, all else float32."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        x, state, key, value, added, v, joint, bias, w_c, read = given
        (steps, batch, gated), (hidden, wide), kind = x.shape, joint.shape, key.dtype
        both, gates = state.new_empty(steps, batch, wide), state.new_empty(steps, batch, gated)
        states = state.new_empty(steps + 1, batch, hidden)
        contexts = state.new_empty(steps, batch, value.shape[2])
        weights = state.new_empty(steps, batch, key.shape[1])
        lows = states if kind == states.dtype else torch.empty_like(states, dtype=kind)
        states[0] = lows[0] = state
        # a state does not see what the output does
        apart = kind != contexts.dtype or read is not None
        seen = torch.empty_like(contexts, dtype=kind) if apart else contexts
        of_step = zip(
            each(x, steps), both, gates, weights, contexts, seen, each(read, steps), strict=True
        )
        by_state, by_context = joint.to(kind), w_c.to(kind).t()
        for t, (projected, asks, gate, weight, context, sees, reads) in enumerate(of_step):
            multiply(lows[t], by_state, asks)
            attend(
                asks, bias, key, value, added, v, reads, weight, context, sees if apart else None
            )
            multiply(sees, by_context, gate)
            advance(
                projected,
                asks,
                bias,
                gate,
                states[t],
                states[t + 1],
                None if lows is states else lows[t + 1],
            )
        kept = (both, gates, states, lows, contexts, seen, weights, by_state, by_context)
        ctx.save_for_backward(*given, *kept)
        return states[1:], contexts

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_states: Tensor, of_contexts: Tensor) -> tuple[Tensor | None, ...]:
        given, kept = ctx.saved_tensors[:10], ctx.saved_tensors[10:]
        try:
            return differentiate(of_states, of_contexts, given, kept)
        except CannotCompile as error:
            give_up(kind_of(given[0], given[2], given[3]), error)
        with torch.enable_grad():
            again = [one.detach().float().contiguous().requires_grad_() for one in given[:9]]
            found = AttendingGru.apply(*again, given[9])
        gradients = torch.autograd.grad(found, again, (of_states, of_contexts), allow_unused=True)
        return *(
            None if one is None else one.to(was.dtype)
            for one, was in zip(gradients, given, strict=False)
        ), None


def differentiate(
    of_states: Tensor, of_contexts: Tensor, given: tuple[Any, ...], kept: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    x, state, key, value, _, v, joint, bias, w_c, read = given
    both, gates, states, lows, contexts, seen, weights, by_state, by_context = kept
    steps, kind = len(x), key.dtype
    of_x, of_both, of_seen = (torch.empty_like(one, dtype=kind) for one in (gates, both, contexts))
    of_score, pulled = torch.empty_like(weights), torch.empty_like(contexts[0])
    slope, direct = torch.zeros_like(state), torch.zeros_like(state)
    of_outputs, of_found, reads = (each(one, steps) for one in (of_states, of_contexts, read))
    for t in reversed(range(steps)):
        advance_back(
            slope, direct, of_outputs[t], gates[t], both[t], bias, states[t], of_x[t], of_both[t]
        )
        multiply(of_x[t], by_context.t(), pulled)
        kept_of_it = (contexts[t], reads[t], both[t], bias, key, value, v, weights[t])
        attend_back(pulled, of_found[t], *kept_of_it, of_seen[t], of_score[t], of_both[t])
        multiply(of_both[t], by_state.t(), slope)
    of_key, of_v = differentiate_keys(both, bias, key, v, of_score)
    of_value = torch.bmm(weights.permute(1, 2, 0).to(kind), of_seen.transpose(0, 1))
    flat, flat_x = of_both.flatten(0, 1), of_x.flatten(0, 1)
    of_joint = multiply(lows[:-1].flatten(0, 1).t(), flat, torch.empty_like(joint))
    of_w_c = multiply(flat_x.t(), seen.flatten(0, 1), torch.empty_like(w_c))
    of_bias = flat.sum(0, dtype=bias.dtype)
    learned = (of_key, of_value, None, of_v, of_joint, of_bias, of_w_c, None)
    return of_x.to(x.dtype), slope + direct, *learned
