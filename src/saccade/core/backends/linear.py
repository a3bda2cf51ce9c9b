"""Kernel scores divided by their sum, in time linear in the length: φ(Q) (φ(K)ᵀ V) / φ(Q) Σφ(K)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..masks import Full
from ..normalizers import Sum
from .call import Backend, Call, is_unmodified, repeat_heads, table

MIN_CHUNK_LENGTH = 64


class Linear(Backend):
    """Kernel scores with the normalizer `sum`, under causal and padding masks."""

    def refuses(self, call: Call) -> str | None:
        if not call.score.kernel or not call.score.dot:
            return "the score is not a kernel φ(q)·φ(k)"
        if not is_unmodified(call.normalize, Sum):
            return "the normalizer is not sum"
        if call.position.biases or call.position.adds_values:
            return "the position adds to scores or values, and it never holds any scores"
        if call.mask.mask.causal_and_keys() is None:
            return f"{call.mask!r} is more than causal and padding"
        if call.dropout:
            return "dropout falls on weights, and it never holds any"
        return None

    def rank(self, call: Call) -> int:
        # Shorter than a head is wide, the definition multiplies less. An export must not fix the number of chunks.
        if not call.score.kernel or torch.compiler.is_exporting():
            return 110
        return 10 if call.key.shape[2] > call.key.shape[3] else 110

    def run(self, call: Call) -> Tensor:
        heads, dtype = call.q.shape[1], call.value.dtype
        # Long sums need more than 16 bits.
        wide = torch.promote_types(call.query.dtype, torch.float32)
        query = call.query.to(wide) * call.scale
        key, v = repeat_heads(call.key, heads).to(wide), repeat_heads(call.value, heads).to(wide)
        # The last column accumulates the row sums.
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        causal, rest = call.mask.mask.causal_and_keys() or (False, Full())
        if type(rest) is not Full:
            key = key * rest.dense(*call.sizes, key.device).transpose(-2, -1).to(wide)
        summed = causal_sums(query, key, v) if causal else query @ (key.transpose(-2, -1) @ v)
        # Fully masked rows are divided by 1; the gradient at 0 would overflow.
        total = summed[..., -1:]
        output = summed[..., :-1] / total.clamp_min(torch.finfo(wide).tiny).masked_fill(
            total == 0, 1.0
        )
        return output.to(dtype)


def causal_sums(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Σ_(j ≤ i) φ(q_i)·φ(k_j) v_j: quadratic inside a chunk, prefix sums of φ(k) vᵀ across chunks."""
    # The last query is at the last key.
    queries, before = (query.shape[2], key.shape[2] - query.shape[2])
    # A prefix sum takes memory in proportion to the width of φ.
    chunk = min(queries, max(MIN_CHUNK_LENGTH, query.shape[3] // 2))
    state = key[:, :, :before].transpose(-2, -1) @ v[:, :, :before]
    cut: list[Tensor] = [
        F.pad(x, (0, 0, 0, -queries % chunk)).unflatten(2, (-1, chunk))
        for x in (query, key[:, :, before:], v[:, :, before:])
    ]
    q, k, values = cut  # B H chunks positions width
    inside = (q @ k.transpose(-2, -1)).tril() @ values
    if q.shape[2] == 1:
        rows = q @ state.unsqueeze(2) + inside
    else:
        sums = k[:, :, :-1].transpose(-2, -1) @ values[:, :, :-1]
        rows = q @ torch.cat([state.unsqueeze(2), sums], 2).cumsum(2) + inside
    return rows.flatten(2, 3)[:, :, :queries]


table.add("linear")(Linear())
