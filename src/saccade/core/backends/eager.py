"""The reference implementation. It stores all B H Q K scores.

weights = normalize( score( encode(q), encode(k) ) + bias, mask )        output = weights @ v
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .call import Backend, Call, repeat_heads, table


def scores(call: Call) -> Tensor:
    """Scores before masking, B H Q K."""
    found = call.score.compare(call.query, repeat_heads(call.key, call.q.shape[1]))
    bias = call.bias(found.dtype)
    return found if bias is None else found + bias


def weights(call: Call) -> Tensor:
    """Weights after normalization, B H Q K; 0 where masked."""
    found: Tensor = call.normalize(scores(call), call.allowed())
    return found.to(call.query.dtype) if call.query.dtype is torch.float16 else found


def weighted_sum(call: Call, w: Tensor) -> Tensor:
    """The weighted sum of the values, B H Q E."""
    if call.dropout:
        w = F.dropout(w, call.dropout)
    w = w.to(call.value.dtype)
    output = w @ repeat_heads(call.value, call.q.shape[1])
    added = None if call.positions is None else call.position.values(w, call.positions)
    return output if added is None else output + added


class Eager(Backend):
    """Runs every mechanism."""

    def refuses(self, call: Call) -> str | None:
        return None

    def rank(self, call: Call) -> int:
        return 100

    def run(self, call: Call) -> Tensor:
        return weighted_sum(call, weights(call))


definition: Backend = table.add("eager")(Eager())
