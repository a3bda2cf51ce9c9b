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

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> Ensemble:
        """The models as one, which reads a long text in pieces where all of them do."""
        return (ReadingOn if all(hasattr(model, "forward_from") for model in models) else cls)(models)

    def mean(self, logits: list[Tensor]) -> Tensor:
        each = torch.stack([one.float().log_softmax(-1) for one in logits])
        return each.logsumexp(0) - math.log(len(logits))

    def forward(self, *read: Tensor) -> Tensor:
        return self.mean([model(*read) for model in self.models])

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(states=[model.start(source, lengths) for model in self.models])  # type: ignore[operator]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self._each("step", tokens, state)

    def _each(self, how: str, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        went = [getattr(model, how)(tokens, one) for model, one in zip(self.models, state.states, strict=True)]
        return self.mean([logits for logits, _ in went]), state.next(states=[one for _, one in went])


class ReadingOn(Ensemble):
    """Recurrent language models, whose states are carried from piece to piece of a text."""

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B N V) for tokens that follow those the states have read, and the states after them."""
        return self._each("forward_from", tokens, state)
