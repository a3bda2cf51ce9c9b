"""Inference with hard attention: reads the value at the largest score instead of multiplying by zeros."""

import torch
from torch import Tensor

from ..normalizers import Hard
from .call import Backend, Call, is_unmodified, table
from .eager import scores


class Gather(Backend):
    """The normalizer `hard` outside of training, any score and mask."""

    def refuses(self, call: Call) -> str | None:
        if not is_unmodified(call.normalize, Hard):
            return "the normalizer is not hard"
        if call.normalize.expected:
            return "the normalizer reads the expectation, not one position"
        if call.normalize.training:
            return "in training, what is sampled is learned by its weights"
        if call.positions is not None and call.position.adds_values:
            return "the position adds to the values, which needs the weights"
        return "dropout falls on weights, and it never holds any" if call.dropout else None

    def rank(self, call: Call) -> int:
        return 50

    def run(self, call: Call) -> Tensor:
        (batch, heads, _, _), allowed, value = call.sizes, call.allowed(), call.value
        hidden = None if allowed is None else ~allowed
        at = Hard.largest(scores(call), hidden)
        if value.shape[1] == heads:
            output = value.gather(2, at.unsqueeze(-1).expand(-1, -1, -1, value.shape[3]))
        else:  # shared heads are not repeated
            b = torch.arange(batch, device=at.device).view(-1, 1, 1)
            h = torch.arange(heads, device=at.device).view(-1, 1) // (heads // value.shape[1])
            output = value[b, h, at]
        return output if hidden is None else output.masked_fill(hidden.all(-1, keepdim=True), 0.0)


table.add("gather")(Gather())
