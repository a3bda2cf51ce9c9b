"""Several models as one: the mean of their probabilities, token by token. B rows, V vocabulary, M models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..core import State
from ..errors import SaccadeError
from ..models.kinds import CarryingLM, Decodable


class Ensemble(Decodable):
    """log p(y) = log (1/M Σ p_m(y)), called like any one of the models."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise SaccadeError("an ensemble of no models; give at least one")
        self.models = nn.ModuleList(models)

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> Ensemble:
        """The models as one, which reads a long text in pieces where all of them do."""
        return (CarryingEnsemble if all(isinstance(model, CarryingLM) for model in models) else cls)(models)

    def mean(self, logits: list[Tensor]) -> Tensor:
        return torch.stack([one.float().log_softmax(-1) for one in logits]).logsumexp(0) - math.log(len(logits))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.mean([model(*inputs) for model in self.models])

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(states=[model.start(source, lengths) for model in self.models])  # type: ignore[operator]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.each("step", tokens, state)

    def each(self, how: str, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        found = [getattr(model, how)(tokens, one) for model, one in zip(self.models, state.states, strict=True)]
        return self.mean([logits for logits, _ in found]), state.next(states=[one for _, one in found])


class CarryingEnsemble(Ensemble, CarryingLM):  # type: ignore[misc]  # called as its models are
    """Recurrent language models, whose states are carried from piece to piece of a text."""

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.each("forward_from", tokens, state)
