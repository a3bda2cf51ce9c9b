"""Kernel scores divided by their sum, in time linear in the length: φ(Q) (φ(K)ᵀ V) / φ(Q) Σφ(K)."""

import torch
from torch import Tensor

from ..masks import Full
from ..normalizers import Sum
from .call import Backend, Call, repeat_heads, table, unchanged

CHUNK = 64


class Linear(Backend):
    """Kernel scores with the normalizer `sum`, under causal and padding masks."""

    def refuses(self, call: Call) -> str | None:
        if not call.score.kernel or not call.score.dot:
            return "the score is not a kernel φ(q)·φ(k)"
        if not unchanged(call.normalize, Sum):
            return "the normalizer is not sum"
        if call.position.biases or call.position.adds_values:
            return "the position adds to scores or values, and it never holds any scores"
        if call.mask.mask.causal_and_keys() is None:
            return f"{call.mask!r} is more than causal and padding"
        if call.dropout:
            return "dropout falls on weights, and it never holds any"
        return None

    def rank(self, call: Call) -> int:
        # Below about the width of a head there is nothing to save: the definition multiplies less.
        return 10 if call.key.shape[2] > call.key.shape[3] else 110

    def run(self, call: Call) -> Tensor:
        heads, dtype = call.q.shape[1], call.value.dtype
        wide = torch.promote_types(call.query.dtype, torch.float32)  # long sums want more than 16 bits
        query = call.query.to(wide) * call.scale
        key, v = repeat_heads(call.key, heads).to(wide), repeat_heads(call.value, heads).to(wide)
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)  # the last column becomes the sum of the row
        causal, rest = call.mask.mask.causal_and_keys() or (False, Full())
        if type(rest) is not Full:
            key = key * rest.dense(*call.sizes, key.device).transpose(-2, -1).to(wide)
        summed = causal_sums(query, key, v) if causal else query @ (key.transpose(-2, -1) @ v)
        output = summed[..., :-1] / summed[..., -1:].clamp_min(torch.finfo(wide).tiny)
        return output.to(dtype)


def causal_sums(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Σ_(j ≤ i) φ(q_i)·φ(k_j) v_j by chunks: inside a chunk quadratic, across chunks by a running sum of φ(k) vᵀ."""
    queries, keys = query.shape[2], key.shape[2]
    before = keys - queries  # the last query is at the last key
    state = key[:, :, :before].transpose(-2, -1) @ v[:, :, :before]
    rows = []
    for start in range(0, queries, CHUNK):
        stop = min(start + CHUNK, queries)
        q, k, values = query[:, :, start:stop], key[:, :, before + start : before + stop], v[:, :, before + start : before + stop]
        inside = (q @ k.transpose(-2, -1)).tril() @ values
        rows.append(q @ state + inside)
        state = state + k.transpose(-2, -1) @ values
    return torch.cat(rows, 2)


table.add("linear")(Linear())
