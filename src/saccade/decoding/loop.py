"""The one decoding loop."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core import State
from .searches import Hypothesis, Search


class Decodable(Protocol):
    """What a model must have to be decoded."""

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """The state after reading the sources: B N tokens and their lengths."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token a row → logits (rows V) and the state after it."""


@torch.inference_mode()
def decode(model: Decodable, source: Tensor, lengths: Tensor, search: Search, limits: list[int]) -> list[list[Hypothesis]]:
    """Hypotheses for each source, the best first; sentence n gets at most limits[n] tokens. Finished sentences leave the batch."""
    state = model.start(source, lengths)
    rows = search.begin(limits, source.device)
    while search.active:
        if rows is not None:
            state = state.reorder(rows)
        logits, state = model.step(search.tokens, state)
        rows = search.advance(logits.float().log_softmax(-1))
    return search.results()
