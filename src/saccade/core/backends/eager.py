"""The definition, in a few plain lines that hold B H Q K numbers:

weights = normalize( score( encode(q), encode(k) ) + bias, mask )        output = weights @ v
"""

from torch import Tensor
from torch.nn import functional as F

from .call import Backend, Call, repeat_heads, table


def weights(call: Call) -> Tensor:
    """B H Q K, each row summing to 1 (or whatever the normalizer promises), 0 where one may not attend."""
    scores = call.score.compare(call.query, repeat_heads(call.key, call.q.shape[1]))
    bias = call.bias()
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return call.normalize(scores, call.allowed())


class Eager(Backend):
    """Runs every mechanism."""

    def refuses(self, call: Call) -> str | None:
        return None

    def rank(self, call: Call) -> int:
        return 100

    def run(self, call: Call) -> Tensor:
        w = weights(call)
        if call.dropout:
            w = F.dropout(w, call.dropout)
        w = w.to(call.value.dtype)
        output = w @ repeat_heads(call.value, call.q.shape[1])
        added = None if call.positions is None else call.position.values(w, call.positions)
        return output if added is None else output + added


definition: Backend = table.add("eager")(Eager())
