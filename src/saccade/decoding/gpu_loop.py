"""Greedy and beam search that stay on the device: a step chooses its tokens there, is captured as a CUDA graph and replayed, and what was
chosen is read at the end. S sentences, W beams, R = S · W rows, T positions, M memory positions, V vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.token_inputs import Learned
from ..models.transformer import ReadingDecoder, Transformer
from .engine import Engine, Memory
from .fast_support import STACKS, is_unmodified, why_plain
from .gpu_results import collect
from .gpu_state import Buffers, rounded
from .graph_capture import captured
from .searches import Beam, Hypothesis, Sample, Search
from .session import engine_of, read_memory

MAX_STEPS_AHEAD = (
    3  # steps that the device may be ahead of the question whether all sentences have ended
)
# Cached sets of buffers with their graphs, and their total size.
KEPT, BYTES = (8, 4 * 2**30)
# Batches with fewer sentences do not shrink.
MIN_SHRUNK_ROWS = 8
# For tests: the same steps without graphs.
on_cpu = False


def is_supported(model: nn.Module, search: Search, source: Tensor, longest: int) -> bool:
    """Whether a batch is supported: encoder–decoder on a GPU, greedy or beam search without a coverage penalty."""
    greedy = type(search) is Sample and search.temperature == 0
    if not greedy and not (type(search) is Beam and not search.wants_weights):
        return False
    if (
        longest < 1
        or not (source.is_cuda or on_cpu)
        or not isinstance(model, ReadingDecoder)
        or why_plain(model) is not None
    ):
        return False
    position = model.target.position
    # Beyond it the model raises.
    return not isinstance(position, Learned) or longest <= len(position.vectors)


class Encoder:
    """The encoder. From the second batch of a size on, it is one graph."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, ...]] = set()
        self.graphs: dict[tuple[int, ...], tuple[Any, Tensor, Tensor, Memory]] = {}

    def __call__(self, model: Any, source: Tensor, lengths: Tensor) -> Memory:
        size = tuple(source.shape)
        known = is_unmodified(model, Transformer) and is_unmodified(model.encoder, *STACKS)
        if size not in self.graphs:
            if (
                size not in self.seen
                or not source.is_cuda
                or not known
                or len(self.graphs) >= 4 * KEPT
            ):
                self.seen.add(size)
                return read_memory(model, source, lengths)
            made: list[Memory] = []
            given = source.clone(), lengths.to(source.device, copy=True)
            graph = captured("the encoder", lambda: made.append(read_memory(model, *given)))
            if graph is None:
                return read_memory(model, source, lengths)
            self.graphs[size] = graph, *given, made[0]
        graph, here, sizes, memory = self.graphs[size]
        here.copy_(source)
        sizes.copy_(lengths)
        graph.replay()
        # A copy, which may be reordered.
        return Memory(memory.pairs, memory.mask, 1)


class GpuDecoder:
    """Decodes batches of one model on a GPU."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.encode = engine, Encoder()
        self.kept: OrderedDict[tuple[Any, ...], Buffers] = OrderedDict()

    def buffers(
        self, count: int, width: int, longest: int, columns: int, search: Search
    ) -> Buffers:
        """Cached buffers of the next larger sizes."""
        sizes = (rounded(count, 1), width, rounded(longest, 32), rounded(columns, 16))
        rule = (search.length_rule, search.length_penalty) if isinstance(search, Beam) else ()
        key = (*sizes, search.eos, search.never, *rule)
        # Graphs read tables of the old size.
        if sizes[2] > self.engine.size:
            self.kept.clear()
            self.engine.prepare(sizes[2])
        found = self.kept.pop(key, None) or Buffers(self.engine, sizes, search)
        self.kept[key] = found
        while len(self.kept) > KEPT or (
            len(self.kept) > 2 and sum(one.cache.nbytes for one in self.kept.values()) > BYTES
        ):
            self.kept.popitem(last=False)
        return found

    def decode(self, memory: Memory, search: Search, limits: list[int]) -> None:
        """Fills the search's results."""
        width = search.width if isinstance(search, Beam) else 1
        device = self.engine.like.device
        rows = search.begin(limits, device)
        sentences = [n for n, limit in enumerate(limits) if limit > 0]
        if rows is not None and len(sentences) < len(limits):
            memory.reorder(torch.tensor(sentences, device=device))
        columns, longest = memory.pairs[0][0].shape[2], max(limits)
        here = self.buffers(len(sentences), width, longest, columns, search)
        here.fill(
            sentences,
            memory,
            search.tokens,
            torch.tensor([limits[n] for n in sentences], device=device),
        )
        questions: list[tuple[Tensor, Any]] = []
        while here.reached < longest:
            here.run()
            questions.append(ask(here.alive))
            alive = (
                answer(*questions.pop(0))
                if len(questions) > (MAX_STEPS_AHEAD if here.cache.is_cuda else 0)
                else len(here.sentences)
            )
            if alive == 0:
                break
            if len(here.sentences) >= MIN_SHRUNK_ROWS and 2 * alive <= len(here.sentences):
                done = here.done.tolist()
                collect(search, here, {slot for slot in range(len(here.sentences)) if done[slot]})
                staying = [slot for slot in range(len(here.sentences)) if not done[slot]]
                if not staying:
                    return
                smaller = self.buffers(len(staying), width, longest, columns, search)
                smaller.take(here, staying)
                here, questions = smaller, []
        collect(search, here, set(range(len(here.sentences))))


def ask(alive: Tensor) -> tuple[Tensor, Any]:
    """Starts an asynchronous read of a number."""
    if not alive.is_cuda:
        return alive.clone(), None
    there, event = torch.empty(1, dtype=alive.dtype, pin_memory=True), torch.cuda.Event()
    there.copy_(alive, non_blocking=True)
    event.record()
    return there, event


def answer(there: Tensor, event: Any) -> int:
    if event is not None:
        event.synchronize()
    return int(there)


def decode(
    model: Any, source: Tensor, lengths: Tensor, search: Search, limits: list[int]
) -> list[list[Hypothesis]]:
    """Hypotheses for each source, best first."""
    engine = engine_of(model, len(source))
    if engine.resident is None:
        engine.resident = GpuDecoder(engine)
    engine.resident.decode(engine.resident.encode(model, source, lengths), search, limits)
    return search.results()
