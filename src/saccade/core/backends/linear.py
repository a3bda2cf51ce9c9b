"""Kernel scores divided by their sum, in time linear in the length: φ(Q) (φ(K)ᵀ V) / φ(Q) Σφ(K)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..masks import Both, Causal, Full, Mask, Padding
from ..normalizers import Sum
from .problem import Backend, Problem, repeat_heads, table

CHUNK = 64


def on_keys(mask: Mask) -> tuple[bool, bool]:
    """(whether the mask is made of causal and key-only parts alone, whether one of them is causal)"""
    if isinstance(mask, Both):
        first, second = on_keys(mask.first), on_keys(mask.second)
        return first[0] and second[0], first[1] or second[1]
    return isinstance(mask, Full | Padding | Causal), isinstance(mask, Causal)


def key_part(mask: Mask) -> Mask:
    """The mask without its causal parts."""
    if isinstance(mask, Both):
        return key_part(mask.first) & key_part(mask.second)
    return Full() if isinstance(mask, Causal) else mask


class Linear(Backend):
    """Kernel scores with the normalizer `sum`, under causal and padding masks."""

    def refuses(self, problem: Problem) -> str | None:
        if not problem.mechanism.score.kernel:
            return "the score is no kernel φ(q)·φ(k)"
        if not isinstance(problem.mechanism.normalize, Sum):
            return "it knows no normalizer but sum"
        if problem.mechanism.position.bends or problem.mechanism.position.adds_values:
            return "the position bends scores, and it never holds any"
        if not on_keys(problem.mask)[0]:
            return f"{problem.mask!r} is more than causal and padding"
        if problem.dropout:
            return "dropout falls on weights, and it never holds any"
        return None

    def rank(self, problem: Problem) -> int:
        # Below about the width of a head there is nothing to save: the definition multiplies less.
        return 10 if problem.key.shape[2] > problem.key.shape[3] else 110

    def run(self, problem: Problem) -> Tensor:
        heads, dtype = problem.q.shape[1], problem.v.dtype
        wide = torch.promote_types(problem.query.dtype, torch.float32)  # long sums want more than 16 bits
        query = problem.query.to(wide) * problem.scale
        key, v = repeat_heads(problem.key, heads).to(wide), repeat_heads(problem.v, heads).to(wide)
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)  # the last column becomes the sum of the row
        _, causal = on_keys(problem.mask)
        rest = key_part(problem.mask)
        if not isinstance(rest, Full):
            key = key * rest.dense(*problem.sizes, key.device).transpose(-2, -1).to(wide)
        summed = causal_sums(query, key, v) if causal else query @ (key.transpose(-2, -1) @ v)
        output = summed[..., :-1] / summed[..., -1:].clamp_min(torch.finfo(wide).tiny)
        return output.to(dtype)


def causal_sums(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Σ_(j ≤ i) φ(q_i)·φ(k_j) v_j by chunks: inside a chunk quadratic, across chunks by a running sum of φ(k) vᵀ."""
    queries, keys = query.shape[2], key.shape[2]
    before = keys - queries  # the last query stands at the last key
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
