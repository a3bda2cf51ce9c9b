"""One decoding of one batch, step by step: by a model's own `start` and `step`, or by the fast decoder. R rows, S sentences, T positions."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..models.kinds import Decodable
from .engine import Engine, Memory
from .matrices import layout_for

STEP = 32  # positions by which caches grow
engines: weakref.WeakKeyDictionary[nn.Module, tuple[Any, dict[str, Engine]]] = weakref.WeakKeyDictionary()


class Session(Protocol):
    """What the loop drives."""

    def reorder(self, rows: Tensor) -> None:
        """Row n becomes row rows[n] of those so far."""

    def step(self, tokens: Tensor) -> Tensor:
        """The last tokens, R → logits R V."""


class PlainSession:
    """A model's own steps."""

    def __init__(self, model: Decodable, source: Tensor, lengths: Tensor) -> None:
        self.model, self.state = model, model.start(source, lengths)

    def reorder(self, rows: Tensor) -> None:
        self.state = self.state.reorder(rows)

    def step(self, tokens: Tensor) -> Tensor:
        logits, self.state = self.model.step(tokens, self.state)
        return logits


def marks(model: nn.Module) -> tuple[Any, ...]:
    """What changes when somebody changes a model: its parts, where parameters are, how often they were written, and one number of each."""
    every = [*model.parameters(), *model.buffers()]
    parts = tuple((id(part), type(part), len(vars(part)), len(part._forward_hooks)) for part in model.modules())
    where = parts, tuple(one.data_ptr() for one in every)
    if every[0].device.type != "cpu":
        return where  # what was copied is copied again for each batch
    versions = [None if one.is_inference() else one._version for one in every]
    some = [one.detach().reshape(-1)[one.numel() // 2] for one in every if one.numel() and one.is_floating_point()]
    return *where, tuple(versions), tuple(torch.stack([one.float() for one in some]).tolist())


def engine_of(model: nn.Module, rows: int) -> Engine:
    """The fast decoder of a model, made once for as long as its parameters stay as they are."""
    like = next(model.parameters())
    layout, now = layout_for(rows, like), marks(model)
    before, made = engines.get(model, (None, {}))
    if before != now or (like.is_inference() and like.device.type == "cpu"):
        made = {}
    if layout not in made:
        made[layout] = Engine(model, layout)
        engines[model] = (now, made)
    return made[layout]


class FastSession:
    """The fast decoder: caches that are written without a copy, with space for what comes; one memory per sentence, however wide the beam."""

    def __init__(self, model: Any, source: Tensor, lengths: Tensor, width: int, longest: int) -> None:
        self.engine, self.width = engine_of(model, len(source) * width), width
        if source.device.type != "cpu":
            self.engine.refresh()
        self.memory = read_memory(model, source, lengths) if hasattr(model, "encode") else None
        state = None if self.memory is not None else model.start(source, lengths)
        self.length: int = 0 if state is None else state.length
        self.longest = self.length + longest
        first = self.engine.layers[0].mixer
        room = min(self.longest, self.length + STEP)
        shape = (len(self.engine.layers), len(source), room, 2, first.heads, first.width)
        self.cache = self.engine.like.new_empty(shape)
        self.spare: Tensor | None = None
        if state is not None and self.length:
            for cache, one in zip(self.cache, state.caches, strict=True):
                cache[:, : self.length, 0], cache[:, : self.length, 1] = (
                    x.transpose(1, 2) for x in (one.mixer.key, one.mixer.value)
                )

    def reorder(self, rows: Tensor) -> None:
        memory, beams = self.memory, self.width
        if memory is not None and (beams == 1 or len(rows) != beams * len(memory) or memory.width != beams):
            memory.reorder(rows[::beams] // memory.width)  # the rows of a beam stay with their sentence
            memory.width = beams
        if self.length == 0:
            self.cache = self.cache.new_empty(self.cache.shape[0], len(rows), *self.cache.shape[2:])
        elif len(rows) != self.cache.shape[1]:
            self.cache, self.spare = self.cache.index_select(1, rows), None
        else:
            spare = torch.empty_like(self.cache) if self.spare is None else self.spare
            for here, there in zip(self.cache, spare, strict=True):
                torch.index_select(here[:, : self.length], 0, rows, out=there[:, : self.length])
            self.cache, self.spare = spare, self.cache

    def step(self, tokens: Tensor) -> Tensor:
        self.engine.check(self.length)
        if self.length == self.cache.shape[2]:
            room = min(self.longest, self.length + max(STEP, self.length // 2))
            larger = self.cache.new_empty(*self.cache.shape[:2], room, *self.cache.shape[3:])
            larger[:, :, : self.length] = self.cache
            self.cache, self.spare = larger, None
        self.engine.prepare(self.cache.shape[2])
        now, end = self.length, self.length + 1
        self.new = self.cache[:, :, now].unbind(0)
        seen = self.cache[:, :, :end].transpose(2, 4)  # L R H' 2 T D
        self.keys, self.values = seen[:, :, :, 0].unbind(0), seen[:, :, :, 1].unbind(0)
        logits = self.engine.step(tokens, self, self.memory)
        self.length = end
        return logits

    def pick(self, table: Tensor) -> Tensor:
        return table[self.length : self.length + 1]

    def keep(self, n: int, pair: Tensor) -> tuple[Tensor, Tensor]:
        self.new[n].copy_(pair)
        return self.keys[n], self.values[n]

    def bias(self, table: Tensor | None) -> Tensor | None:
        return None if table is None else table[:, -(self.length + 1) :]


def read_memory(model: Any, source: Tensor, lengths: Tensor) -> Memory:
    """Each block's keys and values of what the encoder makes of the sources."""
    memory = model.encode(source, lengths)
    allowed = model.readable(memory, lengths, 1).allowed()
    pairs = []
    for n, block in enumerate(model.decoder):
        ready = block.prepare(model.decoder.memory_at(n, memory))
        pairs.append((ready.key.contiguous(), ready.value.contiguous()))
    mask = None
    if allowed.is_cuda or not bool(allowed.all()):  # a GPU is not asked: one would have to wait for it
        hidden = ~(allowed | ~allowed.any(-1, keepdim=True))
        mask = torch.zeros(len(memory), 1, 1, memory.shape[1], dtype=memory.dtype, device=memory.device)
        mask = mask.masked_fill_(hidden, float("-inf"))
    return Memory(pairs, mask, 1)
