"""Several models as one: the mean of their probabilities, token by token. B rows, V vocabulary, M models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..core import State
from ..errors import SaccadeError


class Ensemble(nn.Module):
    """log p(y) = log (1/M Σ p_m(y)); looks, for all the world, like one model."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise SaccadeError("an ensemble of no models; give at least one")
        self.models = nn.ModuleList(models)

    def mean(self, logits: list[Tensor]) -> Tensor:
        each = torch.stack([one.float().log_softmax(-1) for one in logits])
        return each.logsumexp(0) - math.log(len(logits))

    def forward(self, *read: Tensor) -> Tensor:
        return self.mean([model(*read) for model in self.models])

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(states=[model.start(source, lengths) for model in self.models])  # type: ignore[operator]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        stepped = [model.step(tokens, one) for model, one in zip(self.models, state.states, strict=True)]  # type: ignore[operator]
        return self.mean([logits for logits, _ in stepped]), state.next(states=[one for _, one in stepped])
