"""PyTorch's scaled_dot_product_attention: the fused kernels of CPU and GPU for dot products with a softmax."""

from __future__ import annotations

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

    def mask(self, problem: Problem) -> tuple[Tensor | None, Tensor | None]:
        """What is added to the scores, and the rows that may attend nowhere: run as if they were full, and blanked afterwards."""
        if problem.unmasked:
            return None, None
        added, empty = problem.mask.added(*problem.sizes, problem.q.device, problem.query.dtype)
        return added, None if isinstance(problem.mask, Causal) else empty

    def run(self, problem: Problem) -> Tensor:
        query, key, v = problem.query, problem.key, problem.v
        # is_causal counts queries from the first key: right only when there are as many queries as keys (never with a cache).
        causal = isinstance(problem.mask, Causal) and query.shape[2] == key.shape[2] > 1
        bend = problem.bend()
        causal = causal and bend is None
        mask, empty = (None, None) if causal else self.mask(problem)
        output = F.scaled_dot_product_attention(
            query,
            key,
            v,
            attn_mask=together(bend, mask),
            dropout_p=problem.dropout,
            is_causal=causal,
            scale=problem.scale,
            enable_gqa=query.shape[1] != key.shape[1] or query.shape[1] != v.shape[1],
        )
        return output if empty is None else output.masked_fill(empty, 0.0)


def together(bend: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """What the position adds to the scores, with −∞ where one may not attend."""
    return bend if mask is None else mask if bend is None else bend + mask


table.add("sdpa")(Sdpa())
