"""A GRU that looks into a memory before each of its steps, with an additive score: all steps as one function with its own gradient.

B batch, T steps, N memory positions, H hidden width, A width of the score, M width of the memory.

Step by step, q_t = W_q s, w_t = softmax(v · tanh(K + q_t)), c_t = w_t V, s' = gru(x_t + W_c c_t, U s + b). Only what depends on the step
before is computed in a step; the gradients of all matrices and of V are one product each, after the last step."""

from typing import Any

import torch
from torch import Tensor

Kept = tuple[Tensor, ...]


def gru_step(x: Tensor, inner: Tensor, state: Tensor) -> tuple[Tensor, Kept]:
    """The next state from what input and state give the gates (B 3H each), and what its gradient needs; one kernel on a GPU."""
    if x.is_cuda:
        after, kept = torch._thnn_fused_gru_cell(x, inner, state)  # type: ignore[attr-defined]
        return after, (kept,)
    width = state.shape[-1]
    reset, update = (x[:, : 2 * width] + inner[:, : 2 * width]).sigmoid_().chunk(2, -1)
    new = torch.addcmul(x[:, 2 * width :], reset, inner[:, 2 * width :]).tanh_()
    return torch.lerp(new, state, update), (reset, update, new, inner[:, 2 * width :], state)


def gru_step_back(slope: Tensor, kept: Kept) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of what the state gives the gates, and of the state itself."""
    if slope.is_cuda:
        found: tuple[Tensor, ...] = torch._thnn_fused_gru_cell_backward(slope, kept[0], False)  # type: ignore[attr-defined]
        return found[0], found[1], found[2]
    reset, update, new, inner, state = kept
    of_new = slope * (1 - update) * (1 - new * new)
    of_reset = of_new * inner * reset * (1 - reset)
    of_update = slope * (state - new) * update * (1 - update)
    gates = torch.cat([of_reset, of_update, of_new], -1)
    return gates, torch.cat([of_reset, of_update, of_new * reset], -1), slope * update


class AttendingGru(torch.autograd.Function):
    """x (T B 3H), first state (B H), K (B N A), V (B N M), what is added to scores (B N), v (A), [W_q Uᵀ] (H A+3H), its bias, W_c (3H M)
    → states (T B H) and contexts (T B M)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        state: Tensor,
        key: Tensor,
        value: Tensor,
        added: Tensor,
        v: Tensor,
        joint: Tensor,
        bias: Tensor,
        w_c: Tensor,
    ) -> tuple[Tensor, Tensor]:
        width, (batch, positions) = len(v), added.shape
        states, contexts, weights, fits, kepts = [state], [], [], [], list[Kept]()
        for projected in x.unbind(0):
            both = torch.addmm(bias, states[-1], joint)
            fits.append(torch.add(key, both[:, :width].unsqueeze(1)).tanh_())
            score = torch.addmv(added.view(-1), fits[-1].view(-1, width), v)
            weights.append(score.view(batch, positions).softmax(-1))
            contexts.append(torch.bmm(weights[-1].unsqueeze(1), value).squeeze(1))
            after, kept = gru_step(torch.addmm(projected, contexts[-1], w_c.t()), both[:, width:], states[-1])
            states.append(after)
            kepts.append(kept)
        ctx.fits, ctx.kepts = fits, kepts
        found = torch.stack(states), torch.stack(contexts)
        ctx.save_for_backward(*found, torch.stack(weights, 1), value, v, joint, w_c)
        return found[0][1:], found[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_states: Tensor, of_contexts: Tensor) -> tuple[Tensor | None, ...]:
        states, contexts, weights, value, v, joint, w_c = ctx.saved_tensors
        steps, width = len(contexts), len(v)
        slope, of_key, of_v = torch.zeros_like(states[0]), torch.zeros_like(ctx.fits[0]), torch.zeros_like(v)
        of_gates, of_both = list[Tensor](), states.new_empty(steps, len(slope), joint.shape[1])
        of_seen = torch.empty_like(contexts)  # what each context gets from the output and from its step
        for t in reversed(range(steps)):
            gates, inner, before = gru_step_back(slope + of_states[t], ctx.kepts[t])
            of_gates.append(gates)
            torch.addmm(of_contexts[t], gates, w_c, out=of_seen[t])
            of_weights = torch.bmm(value, of_seen[t].unsqueeze(-1)).squeeze(-1)
            of_score = torch._softmax_backward_data(of_weights, weights[:, t], -1, value.dtype)
            of_v.addmv_(ctx.fits[t].view(-1, width).t(), of_score.reshape(-1))
            of_fit = torch.ops.aten.tanh_backward(of_score.unsqueeze(-1) * v, ctx.fits[t])
            of_key += of_fit
            torch.sum(of_fit, 1, out=of_both[t, :, :width])
            of_both[t, :, width:] = inner
            slope = torch.addmm(before, of_both[t], joint.t())
        flat, of_x = of_both.flatten(0, 1), torch.stack(of_gates[::-1])
        of_value = torch.bmm(weights.transpose(1, 2), of_seen.transpose(0, 1))
        of_joint, of_w_c = states[:-1].flatten(0, 1).t() @ flat, of_x.flatten(0, 1).t() @ contexts.flatten(0, 1)
        return of_x, slope, of_key, of_value, None, of_v, of_joint, flat.sum(0), of_w_c
