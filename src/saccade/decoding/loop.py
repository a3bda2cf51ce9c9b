"""The one decoding loop, and models that read a limited number of tokens at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..core import State
from ..models.kinds import Decodable
from .searches import Hypothesis, Search


@torch.inference_mode()
def steps(model: Decodable, source: Tensor, lengths: Tensor, search: Search, limits: list[int]) -> Iterator[dict[int, int]]:
    """Decodes step by step; yields `search.latest` after each. Finished sentences leave the batch."""
    state = model.start(source, lengths)
    rows = search.begin(limits, source.device)
    while search.active:
        if rows is not None:
            state = state.reorder(rows)
        logits, state = model.step(search.tokens, state)
        rows = search.advance(logits.float().log_softmax(-1))
        yield search.latest


def decode(model: Decodable, source: Tensor, lengths: Tensor, search: Search, limits: list[int]) -> list[list[Hypothesis]]:
    """Hypotheses for each source, the best first; sentence n gets at most limits[n] tokens."""
    for _ in steps(model, source, lengths, search, limits):
        pass
    return search.results()


class Sliding(Decodable):
    """A language model that reads at most `block` tokens at once: when they are full, it continues from their second half."""

    def __init__(self, model: nn.Module, block: int) -> None:
        super().__init__()
        self.model, self.block = model, block

    def start(self, source: Tensor, lengths: Tensor) -> State:
        read = source if source.shape[1] < self.block else source[:, -max(self.block // 2, 1) :]
        inner = self.model.start(read, torch.full((len(read),), read.shape[1]))  # type: ignore[operator]
        return State(inner=inner, read=read)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if state.read.shape[1] >= self.block:
            state = self.start(state.read, tokens)
        logits, inner = self.model.step(tokens, state.inner)  # type: ignore[operator]
        return logits, State(inner=inner, read=torch.cat([state.read, tokens.unsqueeze(1)], 1))
