"""The decoding loop, ensembles and sliding windows. B rows, M models."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..core import State, record
from ..core.record import source_weights
from ..errors import SaccadeError
from ..models.protocols import CarryingLM, Decodable
from . import gpu_loop
from .fast_support import why_plain
from .searches import Beam, Hypothesis, Search
from .session import FastSession, PlainSession, Session


@torch.inference_mode()
def steps(
    model: Decodable, source: Tensor, lengths: Tensor, search: Search, limits: list[int]
) -> Iterator[dict[int, int]]:
    """Decodes step by step and yields `search.latest` after each step. Finished sentences leave the batch."""
    session = begin(model, source, lengths, search, max(limits, default=0))
    rows = search.begin(limits, source.device)
    padding = (
        torch.arange(source.shape[1], device=source.device) >= lengths.unsqueeze(1)
        if search.wants_weights
        else None
    )
    log_probs = torch.empty(0)
    while search.active:
        if rows is not None:
            session.reorder(rows)
            padding = None if padding is None else padding.index_select(0, rows)
        if padding is None:
            logits = session.step(search.tokens)
        else:
            with record(model, quiet=True) as seen:
                logits = session.step(search.tokens)
            search.look(source_weights(seen).squeeze(1).masked_fill(padding, 1.0))
        logits = logits.float()
        # Reused, since allocating memory costs more than the sum.
        if log_probs.shape != logits.shape:
            log_probs = torch.empty_like(logits)
        rows = search.advance(torch.log_softmax(logits, -1, out=log_probs))
        yield search.latest


def begin(
    model: Decodable, source: Tensor, lengths: Tensor, search: Search, longest: int
) -> Session:
    """Starts decoding a batch with the fast decoder, or with the model's own steps as fallback (`why_plain`)."""
    inner = model.model if type(model) is SlidingWindow else model
    if search.wants_weights or longest < 1 or why_plain(inner) is not None:
        return PlainSession(model, source, lengths)
    if type(model) is SlidingWindow:
        return SlidingSession(model, source, longest)
    return FastSession(model, source, lengths, search.width if type(search) is Beam else 1, longest)


@torch.inference_mode()
def decode(
    model: Decodable, source: Tensor, lengths: Tensor, search: Search, limits: list[int]
) -> list[list[Hypothesis]]:
    """Decodes a batch.

    Args:
        model: A model with `start` and `step`.
        source: Token ids of the sources, B N.
        lengths: Lengths of the sources, B.
        search: The search, such as `Beam` or `Sample`.
        limits: Maximum number of tokens per source.

    Returns:
        Hypotheses for each source, best first.

    >>> import torch
    >>> from saccade.decoding import Beam, decode
    >>> from saccade.models import Seq2Seq
    >>> from saccade.models.builder import Builder
    >>> model = Builder({"family": "luong", "dim": 4, "hidden": 4}).make(Seq2Seq, 9, 9).eval()
    >>> found = decode(model, torch.tensor([[3, 4, 2]]), torch.tensor([3]), Beam(1, 2, width=2), [5])
    >>> len(found), len(found[0]) <= 2
    (1, True)
    """
    if gpu_loop.is_supported(model, search, source, max(limits, default=0)):
        return gpu_loop.decode(model, source, lengths, search, limits)
    for _ in steps(model, source, lengths, search, limits):
        pass
    return search.results()


class SlidingWindow(Decodable):
    """A language model with at most `block` tokens of context. A full block continues from its second half."""

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


class PromptedModel(Decodable):
    """A model that reads a prompt (B P) before it generates."""

    def __init__(self, model: nn.Module, prompts: Tensor) -> None:
        super().__init__()
        self.model, self.prompts = model, prompts

    def start(self, source: Tensor, lengths: Tensor) -> State:
        state: State = self.model.start(source, lengths)  # type: ignore[operator]
        for tokens in self.prompts.unbind(1):
            _, state = self.step(tokens, state)
        return state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(tokens, state)  # type: ignore[operator, no-any-return]


class SlidingSession:
    """`SlidingWindow` on the fast decoder."""

    def __init__(self, model: SlidingWindow, source: Tensor, longest: int) -> None:
        self.model, self.longest, self.read = model, longest, source
        self.start()

    def start(self) -> None:
        block, read = self.model.block, self.read
        self.read = read if read.shape[1] < block else read[:, -max(block // 2, 1) :]
        room = max(min(self.longest, block - self.read.shape[1]), 1)
        sizes = torch.full((len(read),), self.read.shape[1])
        self.inner = FastSession(self.model.model, self.read, sizes, 1, room)

    def reorder(self, rows: Tensor) -> None:
        self.read = self.read.index_select(0, rows)
        self.inner.reorder(rows)

    def step(self, tokens: Tensor) -> Tensor:
        if self.read.shape[1] >= self.model.block:
            self.start()
        self.read = torch.cat([self.read, tokens.unsqueeze(1)], 1)
        return self.inner.step(tokens)


class Ensemble(Decodable):
    """Ensemble: log p(y) = log (1/M Σ p_m(y)). Called like a single model."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise SaccadeError("an ensemble of no models; give at least one", code="no-models")
        self.models = nn.ModuleList(models)

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> "Ensemble":
        """Builds an ensemble. It reads long texts in pieces if all models do."""
        return (
            CarryingEnsemble if all(isinstance(model, CarryingLM) for model in models) else cls
        )(models)

    def mean(self, logits: list[Tensor]) -> Tensor:
        return torch.stack([one.float().log_softmax(-1) for one in logits]).logsumexp(0) - math.log(
            len(logits)
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.mean([model(*inputs) for model in self.models])

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(states=[model.start(source, lengths) for model in self.models])  # type: ignore[operator]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.each("step", tokens, state)

    def each(self, how: str, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        found = [
            getattr(model, how)(tokens, one)
            for model, one in zip(self.models, state.states, strict=True)
        ]
        return self.mean([logits for logits, _ in found]), state.next(
            states=[one for _, one in found]
        )


class CarryingEnsemble(Ensemble, CarryingLM):  # type: ignore[misc]  # called as its models are
    """Ensemble of recurrent language models with carried states."""

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.each("forward_from", tokens, state)
