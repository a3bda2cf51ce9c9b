"""PyTorch's scaled_dot_product_attention: the fused kernels of CPU and GPU for dot products with a softmax."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..masks import Causal, Full
from .call import Backend, Call, not_dot_softmax, table


class Sdpa(Backend):
    """Dot-product scores, softmax, any mask, positions that encode or add a bias."""

    def refuses(self, call: Call) -> str | None:
        return not_dot_softmax(call)

    def rank(self, call: Call) -> int:
        return 20

    def run(self, call: Call) -> Tensor:
        query, key, v, kind = call.query, call.key, call.value, type(call.mask.mask)
        (_, heads, queries, width), (_, kv_heads, keys, _) = query.shape, key.shape
        bias, mask, empty = None if call.positions is None else call.bias(), None, None
        # is_causal counts queries from the first key: right only when there are as many queries as keys (never with a cache).
        causal = bias is None and kind is Causal and queries == keys > 1
        if not (causal or kind is Full or (kind is Causal and queries == 1)):
            mask, empty = call.mask.added(query.dtype)
        added = bias if mask is None else mask if bias is None else bias + mask
        scale, grouped = call.score.scale(width), heads != kv_heads or heads != v.shape[1]
        output = F.scaled_dot_product_attention(query, key, v, added, call.dropout, causal, scale=scale, enable_gqa=grouped)
        # Rows that may attend nowhere ran as if they were full.
        return output if empty is None or kind is Causal else torch.where(empty, 0.0, output)


backend: Backend = table.add("sdpa")(Sdpa())
