"""Continuous decoding: a batch that sentences enter and leave at any step, each at a position of its own, by the fast decoder.

S sentences, W beams of each, R = S · W rows, H' heads of keys and values, G heads of queries on each, T positions, M memory positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..decoding import Beam, Hypothesis, Sample, Search
from ..decoding.engine import Engine, Memory, Own
from ..decoding.session import MIN_GROWTH, engine_of, read_memory
from ..decoding.weight_layouts import layout_for

# a cache with more positions, or a memory with more columns, is freed when no output is left
MAX_IDLE_POSITIONS = 8 * MIN_GROWTH


@dataclass(eq=False)
class Output:
    """One output being generated: its source, its search and its tokens so far."""

    source: list[int]  # those of a prompt without its last
    search: Search
    limit: int
    block: int = 0  # tokens that a language model reads at once
    hear: Callable[[int], None] | None = None  # called with each token
    is_wanted: Callable[[], bool] = lambda: True  # one that is not leaves at the next step
    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    found: list[Hypothesis] | None = None  # the result
    position: int = 0  # of the token that is read next
    read: list[int] = field(default_factory=list)  # what a language model has read of its window
    columns: int = 0  # of the memory
    hides: bool = False  # some of them

    @property
    def greedy(self) -> bool:
        return isinstance(self.search, Sample) and self.search.temperature == 0

    def take(self, token: int, log_prob: float) -> bool:
        """The next token of one that has no beams; whether it was the last."""
        self.log_prob += log_prob
        ended = token == self.search.eos
        if not ended:
            self.tokens.append(token)
            if self.hear is not None:
                self.hear(token)
        if ended or len(self.tokens) >= self.limit:
            self.found = [Hypothesis(self.tokens, self.log_prob, self.log_prob, ended)]
        return self.found is not None


class Flow:
    """The outputs of one model and one beam width that are generated together.

    Caches and memories have space for more rows than there are: who enters is written behind the others, and the last ones move to
    where somebody left. So nobody else's numbers are copied.
    """

    beams = 1  # each row has a cache of its own
    read_own: Own | None = None  # rows come and go: its steps are not captured

    def __init__(self, model: Any, width: int, never: tuple[int, ...], pad: int) -> None:
        self.model, self.width, self.never, self.pad = model, width, list(never), pad
        self.outputs: list[Output] = []
        self.engines: dict[str, Engine] = {}
        self.like = next(model.parameters()).detach()
        self.tokens = torch.zeros(0, dtype=torch.long, device=self.like.device)
        self.forget()

    def forget(self) -> None:
        self.cache = self.like.new_zeros(0, 0, 0, 0, 0, 0)  # L R T 2 H' D
        self.pairs: list[tuple[Tensor, Tensor]] = []  # of the memory, S H' M D
        self.mask = self.like.new_zeros(0, 1, 1, 0)
        self.memory: Memory | None = None  # the used part of both

    def choose_engine(self, rows: int) -> None:
        layout = layout_for(rows, self.like)
        if layout not in self.engines:
            self.engines[layout] = engine_of(self.model, rows)
        self.engine = self.engines[layout]

    @torch.inference_mode()
    def enter(self, new: Sequence[Output]) -> None:
        """Reads the sources of new outputs together; they take part from the next step on."""
        reads, before = hasattr(self.model, "encode"), len(self.outputs)
        if not before:  # the model may have changed
            self.engines.clear()
        self.choose_engine((before + len(new)) * self.width)
        if reads:
            self.read(new)
        for one in new:
            if reads:  # a table of learned positions has an end
                one.limit = min(one.limit, self.engine.largest or one.limit)
            one.search.begin([one.limit], self.like.device)
        tokens = torch.cat([self.tokens, *(one.search.tokens for one in new)])
        mixer, layers = self.engine.layers[0].mixer, len(self.engine.layers)
        longest = 0 if reads else max(len(one.source) for one in new)
        # zeros, not whatever was in memory: a hidden key has the weight 0, and 0 · NaN is NaN
        self.cache = with_space(
            self.cache, (layers, len(tokens), longest + MIN_GROWTH, 2, mixer.heads, mixer.width), 1
        )
        self.outputs, self.tokens = [*self.outputs, *new], tokens
        if reads:
            self.show_memory()
        for row, one in enumerate(() if reads else new, before):
            self.read_prompt(row, one, one.source)

    def read(self, new: Sequence[Output]) -> None:
        """The memory of new sentences, behind that of those which are here."""
        sizes = [len(one.source) for one in new]
        first = len(self.outputs)
        last = len(self.outputs) + len(new)
        source = [[*one.source, *[self.pad] * (max(sizes) - len(one.source))] for one in new]
        device = self.like.device
        given = torch.tensor(source, device=device)
        with self.engine.reading(given):
            read = read_memory(self.model, given, torch.tensor(sizes, device=device))
        columns = read.pairs[0][0].shape[2]
        for one, size in zip(new, sizes, strict=True):
            one.columns = size if columns == max(sizes) else columns  # an encoder may shorten
            one.hides = read.mask is not None and columns != max(sizes)
        if not self.pairs:
            self.pairs = [(key[:0], value[:0]) for key, value in read.pairs]
        heads, width = read.pairs[0][0].shape[1::2]
        self.mask = with_space(self.mask, (last, 1, 1, columns), 0, float("-inf"))
        self.mask[first:last] = float("-inf")
        self.mask[first:last, ..., :columns] = 0.0 if read.mask is None else read.mask
        shape = (len(self.mask), heads, self.mask.shape[3], width)
        self.pairs = [
            (with_space(key, shape, 0), with_space(value, shape, 0)) for key, value in self.pairs
        ]
        for there, here in zip(self.pairs, read.pairs, strict=True):
            there[0][first:last, :, :columns], there[1][first:last, :, :columns] = here

    def show_memory(self) -> None:
        """Slice the memory to the columns that the current outputs need."""
        count, most = len(self.outputs), max(one.columns for one in self.outputs)
        pairs = [(key[:count, :, :most], value[:count, :, :most]) for key, value in self.pairs]
        level = all(one.columns == most and not one.hides for one in self.outputs)
        self.memory = Memory(pairs, None if level else self.mask[:count, ..., :most], self.width)

    def read_prompt(self, row: int, one: Output, tokens: list[int]) -> None:
        """A language model's keys and values of what comes before the next token; of a full block the last half is read, as `Sliding` does."""
        one.read = tokens if len(tokens) < one.block else tokens[-max(one.block // 2, 1) :]
        one.position = len(one.read)
        if not one.read:
            return
        state = self.model.start(
            torch.tensor([one.read], device=self.tokens.device), torch.tensor([one.position])
        )
        for cache, block in zip(self.cache, state.caches, strict=True):
            cache[row, : one.position, 0] = block.mixer.key[0].transpose(0, 1)
            cache[row, : one.position, 1] = block.mixer.value[0].transpose(0, 1)

    @torch.inference_mode()
    def step(self) -> list[Output]:
        """Generate one token of every output; remove and return outputs that ended or were cancelled."""
        gone = [one for one in self.outputs if not one.is_wanted()]
        if gone:
            self.retain([n for n, one in enumerate(self.outputs) if one not in gone])
        if not self.outputs:
            return gone
        for row, one in enumerate(self.outputs):
            if one.block and one.position >= one.block:
                self.read_prompt(row, one, one.read)
        for one, token in zip(
            self.outputs, self.tokens.tolist() if self.memory is None else (), strict=False
        ):
            one.read.append(token)
        positions = [one.position for one in self.outputs for _ in range(self.width)]
        self.now = positions[0]
        self.end = max(positions) + 1
        self.level = min(positions) == max(positions)
        if self.end > self.cache.shape[2]:
            self.cache = F.pad(
                self.cache, (0, 0, 0, 0, 0, 0, 0, max(MIN_GROWTH, self.cache.shape[2] // 2))
            )
        self.engine.prepare(self.cache.shape[2])
        if not self.level:
            device = self.tokens.device
            self.where = torch.tensor(positions, device=device)
            self.rows = torch.arange(len(positions), device=device)
            # R T, above 0 what comes later
            self.distance = torch.arange(self.end, device=device) - self.where.unsqueeze(1)
            hidden = torch.zeros_like(self.distance, dtype=self.cache.dtype)
            self.hidden = hidden.masked_fill_(self.distance > 0, float("-inf"))[:, None, None]
        seen = self.cache[:, : len(self.tokens), : self.end].transpose(2, 4)  # L R H' 2 T D
        self.keys, self.values = seen[:, :, :, 0].unbind(0), seen[:, :, :, 1].unbind(0)
        log_probs = self.engine.step(self.tokens, self, self.memory).float().log_softmax(-1)
        for one in self.outputs:
            one.position += 1
        return gone + (self.take(log_probs) if self.width == 1 else self.take_beams(log_probs))

    def take(self, log_probs: Tensor) -> list[Output]:
        if self.never:
            log_probs[:, self.never] = float("-inf")
        tokens = log_probs.argmax(-1)
        for row, one in enumerate(self.outputs):
            if not one.greedy:
                tokens[row] = one.search.pick(log_probs[row : row + 1])[0]  # type: ignore[attr-defined]
        chosen = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).tolist()
        each = zip(self.outputs, tokens.tolist(), chosen, strict=True)
        ended = [one for one, token, log_prob in each if one.take(token, log_prob)]
        self.tokens = tokens
        if ended:
            self.retain([n for n, one in enumerate(self.outputs) if one.found is None])
        return ended

    def take_beams(self, log_probs: Tensor) -> list[Output]:
        rows, ended, width = [], [], self.width
        for n, (one, part) in enumerate(zip(self.outputs, log_probs.split(width), strict=True)):
            assert isinstance(one.search, Beam)
            chosen: Any = one.search.advance(part)
            if not one.search.active:
                one.found = one.search.results()[0]
                ended.append(one)
                rows.append(torch.arange(width, device=part.device) + n * width)
            else:
                rows.append(chosen + n * width)
        seen = self.cache[:, : len(self.tokens), : self.end]
        seen.copy_(seen.index_select(1, torch.cat(rows)))
        if ended:
            self.retain([n for n, one in enumerate(self.outputs) if one.found is None])
        if self.outputs:
            self.tokens = torch.cat([one.search.tokens for one in self.outputs])
        return ended

    def retain(self, staying: list[int]) -> None:
        """Keep the sentences with these numbers; the last ones move into the free rows."""
        count = len(staying)
        empty = sorted(set(range(count)) - set(staying))
        order = list(range(count))
        for row, n in zip(empty, [n for n in staying if n >= count], strict=True):
            order[row] = n
        self.outputs = [self.outputs[n] for n in order]
        every = torch.tensor(order, dtype=torch.long, device=self.like.device)
        self.tokens = self.tokens[self.rows_of(every)]
        if not staying:
            self.memory = None
            if max(self.cache.shape[2], self.mask.shape[3]) > MAX_IDLE_POSITIONS:
                self.forget()
            return
        if empty:
            to = torch.tensor(empty, device=self.like.device)
            rows, others = self.rows_of(to), self.rows_of(every[to])
            end = max(one.position for one in self.outputs)
            self.cache[:, rows, :end] = self.cache[:, others, :end]
            for tensor in (
                (self.mask, *(one for pair in self.pairs for one in pair)) if self.pairs else ()
            ):
                tensor[to] = tensor[every[to]]
        if self.pairs:
            self.show_memory()
        self.choose_engine(len(self.tokens))

    def rows_of(self, sentences: Tensor) -> Tensor:
        return (
            sentences.unsqueeze(1) * self.width + torch.arange(self.width, device=sentences.device)
        ).flatten()

    # what a step's attention asks for, as `decoding.engine.StepPosition` says

    def pick(self, table: Tensor) -> Tensor:
        if self.level:
            return table[self.now : self.now + 1]
        found = table[self.where]
        return found if table is self.engine.places else found.unsqueeze(1)

    def keep(self, n: int, pair: Tensor) -> tuple[Tensor, Tensor]:
        if self.level:
            self.cache[n, : len(pair), self.now] = pair
        else:
            self.cache[n].index_put_((self.rows, self.where), pair)
        return self.keys[n], self.values[n]

    def bias(self, table: Tensor | None) -> Tensor | None:
        if self.level:
            return None if table is None else table[:, -self.end :]
        if table is None:
            return self.hidden
        heads = self.engine.layers[0].mixer.heads
        last = table.shape[1] - 1
        found = table[:, (self.distance + last).clamp_max(last)].transpose(0, 1)  # R H T
        return found.view(len(found), heads, -1, found.shape[-1]) + self.hidden


def with_space(tensor: Tensor, shape: tuple[int, ...], rows: int, value: float = 0.0) -> Tensor:
    """The tensor, or a larger one that has this shape at least, with it in its corner; for some more `rows` (a dimension) than asked."""
    if all(has >= needed for has, needed in zip(tensor.shape, shape, strict=True)):
        return tensor
    larger = [max(has, needed) for has, needed in zip(tensor.shape, shape, strict=True)]
    larger[rows] = max(tensor.shape[rows], 1 << (shape[rows] - 1).bit_length())
    made = tensor.new_full(larger, value)
    made[tuple(map(slice, tensor.shape))] = tensor
    return made
