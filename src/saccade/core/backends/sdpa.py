"""PyTorch's scaled_dot_product_attention: the fused kernels of CPU and GPU for dot products with a softmax."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..masks import Causal
from ..normalizers import Softmax
from .problem import Backend, Problem, table


class Sdpa(Backend):
    """Dot-product scores, softmax, any mask, positions that turn or bend."""

    def refuses(self, problem: Problem) -> str | None:
        if not problem.mechanism.score.dot:
            return "the score is no dot product"
        if not isinstance(problem.mechanism.normalize, Softmax):
            return "it knows no normalizer but softmax"
        if problem.mechanism.position.adds_values:
            return "the position adds to what is summed, and it does not show its weights"
        return None

    def rank(self, problem: Problem) -> int:
        return 20

    def run(self, problem: Problem) -> Tensor:
        query, key, v = problem.query, problem.key, problem.v
        # is_causal counts queries from the first key: right only when there are as many queries as keys (never with a cache).
        causal = isinstance(problem.mask, Causal) and query.shape[2] == key.shape[2] > 1
        bend = problem.bend()
        allowed = problem.allowed() if not causal or bend is not None else None
        empty = None
        if allowed is not None and not isinstance(problem.mask, Causal):
            # A row that may attend nowhere is run as if it were full and then blanked: its gradients would be NaN otherwise.
            empty = ~allowed.any(-1, keepdim=True)
            allowed = allowed | empty
        mask = allowed if bend is None else bias(bend, allowed)
        output = F.scaled_dot_product_attention(
            query,
            key,
            v,
            attn_mask=mask,
            dropout_p=problem.dropout,
            is_causal=causal and bend is None,
            scale=problem.scale,
            enable_gqa=query.shape[1] != key.shape[1] or query.shape[1] != v.shape[1],
        )
        return output if empty is None else output.masked_fill(empty, 0.0)


def bias(bend: Tensor, allowed: Tensor | None) -> Tensor:
    """The bend with −∞ where one may not attend."""
    return bend if allowed is None else torch.where(allowed, bend, float("-inf"))


table.add("sdpa")(Sdpa())
