"""Decoding sessions: a model's own `start` and `step`, or the fast decoder. R rows, S sentences, T positions."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..models.protocols import Decodable
from .engine import Engine, Memory, Own
from .weight_layouts import layout_for

# Heads of all sentences from which on keys of the source are transposed.
MIN_TRANSPOSED_HEADS = 64
# Minimum growth of caches, in positions.
MIN_GROWTH = 32
# Steps of a beam between removals of unused keys.
DROP_INTERVAL = 8
engines: weakref.WeakKeyDictionary[nn.Module, tuple[Any, dict[str, Engine]]] = (
    weakref.WeakKeyDictionary()
)


class Session(Protocol):
    """The interface between the decoding loop and a decoder."""

    def reorder(self, rows: Tensor) -> None:
        """Row n becomes the previous row rows[n]."""

    def step(self, tokens: Tensor) -> Tensor:
        """One step: last tokens R → logits R V."""


class PlainSession:
    """Runs a model's own steps."""

    def __init__(self, model: Decodable, source: Tensor, lengths: Tensor) -> None:
        self.model, self.state = model, model.start(source, lengths)

    def reorder(self, rows: Tensor) -> None:
        self.state = self.state.reorder(rows)

    def step(self, tokens: Tensor) -> Tensor:
        logits, self.state = self.model.step(tokens, self.state)
        return logits


def structure(model: nn.Module) -> tuple[Any, ...]:
    """Key of a model's structure: parts, settings and tensor addresses. Holding the parts keeps their ids valid."""
    parts = list(model.modules())
    tensors = [
        one
        for part in parts
        for one in (*part._parameters.values(), *part._buffers.values())
        if one is not None
    ]
    kinds = tuple((type(part), len(vars(part)), len(part._forward_hooks)) for part in parts)
    settings = tuple(
        value for part in parts for value in vars(part).values() if type(value) in (int, float)
    )
    return (
        parts[1:],
        kinds,
        settings,
        tuple((one.data_ptr(), one.shape, one.stride()) for one in tensors),
    )


def engine_of(model: nn.Module, rows: int) -> Engine:
    """The fast decoder of a model, cached while the model is unchanged."""
    layout, now = layout_for(rows, next(model.parameters())), structure(model)
    before, made = engines.get(model, (None, {}))
    if before != now:
        made = {}
    if layout in made and made[layout].copies.is_current():
        made[layout].refresh()
        return made[layout]
    made[layout] = Engine(model, layout)
    engines[model] = (now, made)
    return made[layout]


class FastSession:
    """The fast decoder: caches that are written without a copy, with space for what comes; one memory per sentence, however wide the beam.

    A sentence's beams share its cache too: each step adds W keys, and a beam sees those of its own past, by a mask. So nothing is copied
    when beams continue one another, and keys that no beam sees any more are dropped every few steps.
    """

    read_own: Own | None = (
        None  # launched one by one, the kernels of a step take longer than what they replace
    )

    def __init__(
        self, model: Any, source: Tensor, lengths: Tensor, width: int, longest: int
    ) -> None:
        self.engine, self.width, self.beams = engine_of(model, len(source) * width), width, 1
        self.memory = None
        if hasattr(model, "encode"):
            with self.engine.reading(source):
                self.memory = read_memory(model, source, lengths, turn=True)
        state = None if self.memory is not None else model.start(source, lengths)
        self.length: int = 0 if state is None else state.length
        self.filled, self.longest = self.length, self.length + longest
        first, like = self.engine.layers[0].mixer, self.engine.like
        room = self.length + min(longest, MIN_GROWTH) * width
        # of it, until keys are dropped
        self.room = room if width == 1 else min(room, self.length + DROP_INTERVAL * width)
        self.cache = like.new_empty(
            len(self.engine.layers), len(source), room, 2, first.heads, first.width
        )
        if state is not None and self.length:
            for cache, one in zip(self.cache, state.caches, strict=True):
                cache[:, : self.length, 0], cache[:, : self.length, 1] = (
                    x.transpose(1, 2) for x in (one.mixer.key, one.mixer.value)
                )
        if width > 1:
            self.hidden = like.new_zeros(len(source), room)  # R T: 0 or −∞
            # S T: positions of the keys
            self.places = torch.arange(room, device=like.device).repeat(len(source), 1)
            self.apart = like.new_full((width, width), float("-inf")).fill_diagonal_(0.0)

    def reorder(self, rows: Tensor) -> None:
        # The rows of a beam stay with their sentence.
        memory, sentences = (self.memory, rows[:: self.width] // self.beams)
        leaving = len(sentences) != self.cache.shape[1]
        if memory is not None and leaving:
            memory.reorder(sentences)
        if leaving:
            self.cache = self.cache.index_select(1, sentences)
        if self.width > 1:
            self.hidden = self.hidden.index_select(0, rows)
            self.places = self.places.index_select(0, sentences) if leaving else self.places
        self.beams = self.width
        if memory is not None:
            memory.width = self.width

    def grow(self) -> None:
        """Grows the cache. Shared keys that no beam uses are dropped; beams share most of their past."""
        count, before = self.cache.shape[1:3]
        if self.beams > 1:
            seen = (self.hidden[:, : self.filled] == 0).view(count, self.beams, self.filled).any(1)
            self.filled = int(seen.sum(1).max())
            order = seen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[
                :, : self.filled
            ]
            rows = (
                order + torch.arange(count, device=order.device).unsqueeze(1) * before
            ).flatten()
            # In place, since allocating memory costs more than the copy.
            for layer in self.cache:
                layer[:, : self.filled] = (
                    layer.flatten(0, 1).index_select(0, rows).unflatten(0, order.shape)
                )
            self.places[:, : self.filled] = self.places.gather(1, order)
            self.hidden[:, : self.filled] = self.hidden.gather(
                1, order.repeat_interleave(self.beams, 0)
            )
        steps = DROP_INTERVAL if self.beams > 1 else MIN_GROWTH
        self.room = self.filled + min(
            max(steps * self.beams, self.filled // 2), (self.longest - self.length) * self.beams
        )
        if self.room > before:
            more = self.room - before
            self.cache = nn.functional.pad(self.cache, (0, 0, 0, 0, 0, 0, 0, more))
            if self.beams > 1:
                self.places, self.hidden = (
                    nn.functional.pad(one, (0, more)) for one in (self.places, self.hidden)
                )

    def step(self, tokens: Tensor) -> Tensor:
        self.engine.check(self.length)
        if self.filled + self.beams > self.room:
            self.grow()
        self.engine.prepare(min(self.longest, self.length - self.length % MIN_GROWTH + MIN_GROWTH))
        start, end = self.filled, self.filled + self.beams
        self.new = self.cache[:, :, start:end].unbind(0)
        seen = self.cache[:, :, :end].transpose(2, 4)  # L S H' 2 T D
        self.keys, self.values = seen[:, :, :, 0].unbind(0), seen[:, :, :, 1].unbind(0)
        if self.beams > 1:
            self.hidden.view(-1, self.beams, self.hidden.shape[1])[:, :, start:end] = self.apart
            self.places[:, start:end] = self.length
            self.mask: Tensor = self.hidden[:, :end].view(-1, 1, self.beams, end)
        logits = self.engine.step(tokens, self, self.memory)
        self.length, self.filled = self.length + 1, end
        return logits

    def pick(self, table: Tensor) -> Tensor:
        return table[self.length : self.length + 1]

    def keep(self, n: int, pair: Tensor) -> tuple[Tensor, Tensor]:
        self.new[n].copy_(pair.view(self.new[n].shape))
        return self.keys[n], self.values[n]

    def bias(self, table: Tensor | None) -> Tensor | None:
        if self.beams == 1:
            return None if table is None else table[:, -(self.length + 1) :]
        if table is None:
            return self.mask
        distances = self.places[:, : self.mask.shape[-1]] + (table.shape[1] - 1 - self.length)
        return table[:, distances].transpose(0, 1).unsqueeze(2) + self.mask


def read_memory(model: Any, source: Tensor, lengths: Tensor, turn: bool = False) -> Memory:
    """Encodes the sources and projects each block's keys and values. `turn`: keys may be transposed."""
    memory = model.encode(source, lengths)
    allowed = model.readable(memory, lengths, 1).allowed()
    # For many heads, two batched products with transposed keys are faster than PyTorch's attention.
    turned = (
        turn and memory.device.type == "cpu" and len(memory) * model.heads >= MIN_TRANSPOSED_HEADS
    )
    pairs = []
    for n, block in enumerate(model.decoder):
        ready = block.prepare(model.decoder.memory_at(n, memory))
        key = ready.key.transpose(2, 3) if turned else ready.key
        pairs.append((key.contiguous(), ready.value.contiguous()))
    mask = None
    # A GPU is not asked, to avoid a synchronization.
    if allowed.is_cuda or not bool(allowed.all()):
        hidden = ~(allowed | ~allowed.any(-1, keepdim=True))
        mask = torch.zeros(
            len(memory), 1, 1, memory.shape[1], dtype=memory.dtype, device=memory.device
        )
        mask = mask.masked_fill_(hidden, float("-inf"))
    return Memory(pairs, mask, 1, turned)
