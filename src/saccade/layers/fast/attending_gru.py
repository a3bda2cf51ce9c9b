"""A GRU that looks into a memory before each of its steps, with an additive score: all steps as one function with its own gradient.

B batch, T steps, N memory positions, H hidden width, A width of the score, M width of the memory.

Step by step, q_t = W_q s, w_t = softmax(v · tanh(K + q_t)), c_t = w_t V, s' = gru(x_t + k_t W_c c_t, U s + b), where k_t is 0 for contexts
that a state does not read. Only what depends on the step before is computed in a step; the gradients of all matrices and of V are one
product each, after the last step. Where Triton's kernels run, `fused_gru` computes the same with fewer launches."""

from typing import Any

import torch
from torch import Tensor, nn

from ...core import State, auxiliary_losses
from ...core.backends.call import is_unmodified
from ...core.kernels import available
from ...core.normalizers import Softmax
from ...core.scores import Additive
from ..multihead_attention import Reader
from ..recurrent import Gru, Recurrence
from .cross_entropy import multiplied, without_autocast

Kept = tuple[Tensor, ...]


def gru_step(x: Tensor, inner: Tensor, state: Tensor) -> tuple[Tensor, Kept]:
    """The next state from what input and state give the gates (B 3H each), and what its gradient needs; one kernel on a GPU."""
    if x.is_cuda:
        after, kept = torch.ops.aten._thnn_fused_gru_cell(x, inner, state)
        return after, (kept,)
    width = state.shape[-1]
    reset, update = (x[:, : 2 * width] + inner[:, : 2 * width]).sigmoid_().chunk(2, -1)
    new = torch.addcmul(x[:, 2 * width :], reset, inner[:, 2 * width :]).tanh_()
    return torch.lerp(new, state, update), (reset, update, new, inner[:, 2 * width :], state)


def gru_step_back(slope: Tensor, kept: Kept) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of what the state gives the gates, and of the state itself."""
    if slope.is_cuda:
        found: tuple[Tensor, ...] = torch.ops.aten._thnn_fused_gru_cell_backward(
            slope, kept[0], False
        )
        return found[0], found[1], found[2]
    reset, update, new, inner, state = kept
    of_new = slope * (1 - update) * (1 - new * new)
    of_reset = of_new * inner * reset * (1 - reset)
    of_update = slope * (state - new) * update * (1 - update)
    gates = torch.cat([of_reset, of_update, of_new], -1)
    return gates, torch.cat([of_reset, of_update, of_new * reset], -1), slope * update


class AttendingGru(torch.autograd.Function):
    """x (T B 3H), first state (B H), K (B N A), V (B N M), what is added to scores (B N), v (A), [W_q Uᵀ] (H A+3H), its bias, W_c (3H M),
    k (T B 1, or None for ones) → states (T B H) and contexts (T B M)."""

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
        read: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        width, (batch, positions) = len(v), added.shape
        states, contexts, weights, fits, kepts = [state], [], [], [], list[Kept]()
        for t, projected in enumerate(x.unbind(0)):
            both = torch.addmm(bias, states[-1], joint)
            fits.append(torch.add(key, both[:, :width].unsqueeze(1)).tanh_())
            score = torch.addmv(added.view(-1), fits[-1].view(-1, width), v)
            weights.append(score.view(batch, positions).softmax(-1))
            contexts.append(torch.bmm(weights[-1].unsqueeze(1), value).squeeze(1))
            seen = contexts[-1] if read is None else contexts[-1] * read[t]
            after, kept = gru_step(
                torch.addmm(projected, seen, w_c.t()), both[:, width:], states[-1]
            )
            states.append(after)
            kepts.append(kept)
        ctx.fits, ctx.kepts, ctx.read = fits, kepts, read
        found = torch.stack(states), torch.stack(contexts)
        ctx.save_for_backward(*found, torch.stack(weights, 1), value, v, joint, w_c)
        return found[0][1:], found[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_states: Tensor, of_contexts: Tensor) -> tuple[Tensor | None, ...]:
        states, contexts, weights, value, v, joint, w_c = ctx.saved_tensors
        steps, width = len(contexts), len(v)
        slope, of_key = torch.zeros_like(states[0]), torch.zeros_like(ctx.fits[0])
        of_v = torch.zeros_like(v)
        of_gates, of_both = list[Tensor](), states.new_empty(steps, len(slope), joint.shape[1])
        # what each context gets from the output and from its step
        of_seen = torch.empty_like(contexts)
        for t in reversed(range(steps)):
            gates, inner, before = gru_step_back(slope + of_states[t], ctx.kepts[t])
            of_gates.append(gates)
            torch.addmm(
                of_contexts[t],
                gates if ctx.read is None else gates * ctx.read[t],
                w_c,
                out=of_seen[t],
            )
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
        seen = contexts if ctx.read is None else contexts * ctx.read
        of_joint = states[:-1].flatten(0, 1).t() @ flat
        of_w_c = of_x.flatten(0, 1).t() @ seen.flatten(0, 1)
        return of_x, slope, of_key, of_value, None, of_v, of_joint, flat.sum(0), of_w_c, None


def is_plain(reader: Reader, rnn: Recurrence) -> bool:
    """Whether the steps are a GRU's and additive attention's, of which nothing was changed, and nobody looks at the weights."""
    score, normalize = reader.mechanism.score, reader.mechanism.normalize
    if type(reader) is not Reader or type(rnn) is not Recurrence:
        return False
    looked_at = (
        reader.tape is not None
        or auxiliary_losses.weights_requested()
        or reader._forward_hooks
        or reader._forward_pre_hooks
    )
    if (
        looked_at
        or type(score) is not Additive
        or {"query", "key", "compare"} & vars(score).keys()
        or len(score.v) != 1
    ):
        return False
    whole = (
        is_unmodified(normalize, Softmax)
        and isinstance(reader.project, nn.Identity)
        and reader.window is None
    )
    return whole and rnn.cell is Gru and rnn.depth == 1 and not torch.compiler.is_compiling()


def run_steps(
    reader: Reader, rnn: Recurrence, projected: Tensor, state: State, read: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The states and contexts of all steps, B T H and B T M, from projected inputs and from a state with a prepared memory; `read`
    (B T 1) is 0 where a state does not read its context."""
    score: Any = reader.mechanism.score
    allowed, key = state.readable.allowed().flatten(1), state.key.squeeze(1)
    value = state.value.squeeze(1)
    added = torch.zeros(allowed.shape, dtype=key.dtype, device=key.device).masked_fill(
        ~allowed, torch.finfo(key.dtype).min
    )
    value = value * allowed.any(-1).view(-1, 1, 1)  # who may look nowhere sees zeros
    joint = torch.cat([score.w_q[0], rnn.parameter("weight_hh_l0").t()], 1)
    bias = torch.cat([torch.zeros_like(score.v[0]), rnn.parameter("bias_hh_l0")])
    # the context is the last part of an input
    w_c = rnn.parameter("weight_ih_l0")[:, -value.shape[-1] :]
    given = (
        projected.transpose(0, 1),
        state.carried[0][:, 0],
        key,
        value,
        added.expand(len(key), -1),
        score.v[0],
        joint,
        bias,
        w_c,
    )
    kind = torch.promote_types(projected.dtype, torch.float32)
    low = multiplied(projected.new_empty(0, dtype=kind))
    with without_autocast(projected.device):
        which = None if read is None else read.transpose(0, 1).to(kind)
        found = run_by_kernels(given, which, low) if kind == torch.float32 else None
        if found is None:
            found = AttendingGru.apply(*(one.to(kind).contiguous() for one in given), which)
    return found[0].transpose(0, 1), found[1].transpose(0, 1)


def run_by_kernels(
    given: tuple[Tensor, ...], read: Tensor | None, kind: torch.dtype
) -> tuple[Tensor, Tensor] | None:
    """States and contexts with products in `kind`, or None where Triton's kernels do not run, or operations are counted, which they hide."""
    if not available(given[0].device) or torch._C._len_torch_dispatch_stack():
        return None
    from . import fused_gru

    return fused_gru.run(given, read, kind)
