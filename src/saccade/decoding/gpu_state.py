"""What a step of decoding on a device reads and writes there: caches, memory, what was chosen. S sentences, W beams, R = S · W rows, T positions,
M memory positions, V vocabulary."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.backends.call import CannotCompile
from ..core.kernels import MAX_STEP_ROWS, MAX_VOCABULARY
from .engine import Engine, Memory, Own
from .graph_capture import captured
from .searches import Beam, Search
from .weight_layouts import in_one_row


def rounded(size: int, least: int) -> int:
    """Rounds a size up to one of a few buckets: `least`, then steps of an eighth to a quarter."""
    step = least
    while size > 8 * step:
        step *= 2
    return -(-size // step) * step


class Buffers:
    """Fixed tensors of a decoding step: caches, memory, last tokens and choices per position."""

    beams = 1  # each row has its own cache
    read_own: Own | None

    def __init__(self, engine: Engine, sizes: tuple[int, int, int, int], search: Search) -> None:
        sentences, self.width, self.room, columns = sizes
        like, first, rows = engine.like, engine.layers[0].mixer, sizes[0] * sizes[1]
        self.engine, self.eos, self.sentences = engine, search.eos, list[int]()
        self.greedy = not isinstance(search, Beam)
        self.cache = like.new_zeros(
            len(engine.layers), rows, self.room, 2, first.heads, first.width
        )
        pairs = []
        for layer in engine.layers:
            assert layer.cross is not None
            shape = (sentences, layer.cross.heads, columns, layer.cross.width)
            pairs.append((like.new_zeros(shape), like.new_zeros(shape)))
        self.memory = Memory(pairs, like.new_zeros(sentences, 1, 1, columns), self.width)
        whole: Callable[..., Tensor] = lambda *shape: torch.zeros(
            *shape, dtype=torch.long, device=like.device
        )
        self.position, self.tokens, self.limits, self.ended, self.alive = (
            whole(n) for n in (1, rows, sentences, sentences, 1)
        )  # fmt: skip
        self.done = torch.ones(sentences, dtype=torch.bool, device=like.device)
        self.scores = torch.zeros(sentences, self.width, device=like.device)
        # Highest score of a finished output.
        self.best_ended = torch.zeros(sentences, device=like.device)
        divisor: Callable[[int], float] = search.divisor if isinstance(search, Beam) else float
        self.divisors = torch.tensor(
            [divisor(length) for length in range(1, self.room + 3)], device=like.device
        )
        self.never = torch.tensor(search.never, dtype=torch.long, device=like.device)
        self.places = torch.arange(self.room, device=like.device)
        self.first_rows = torch.arange(sentences, device=like.device).unsqueeze(1) * self.width
        # Token, parent, parent of a finished output.
        self.chosen = whole(self.room, 3, sentences, self.width)
        # Score, and score of a finished output or −∞.
        self.values = torch.zeros(self.room, 2, sentences, self.width, device=like.device)
        self.graphs: dict[int, Any] = {}
        self.seen: set[int] = set()
        self.reached = 0
        self.hidden: Tensor | None = None
        self.rows = torch.arange(rows, dtype=torch.int32, device=like.device).unsqueeze(1)
        # The row whose cache has each row's keys: beams are reordered, caches are not.
        self.origins = self.rows.repeat(1, self.room)
        self.use_kernels(engine.kernels and rows <= MAX_STEP_ROWS)

    def fill(self, sentences: list[int], memory: Memory, tokens: Tensor, limits: Tensor) -> None:
        """Loads a new batch. The rest of the buffers counts as finished sentences."""
        count, columns = len(sentences), memory.pairs[0][0].shape[2]
        self.sentences, self.reached = sentences, 0
        for (key, value), (new_key, new_value) in zip(self.memory.pairs, memory.pairs, strict=True):
            key[:count, :, :columns], value[:count, :, :columns] = new_key, new_value
        assert self.memory.mask is not None
        self.memory.mask[:count].fill_(float("-inf"))
        self.memory.mask[:count, :, :, :columns] = 0.0 if memory.mask is None else memory.mask
        self.memory.mask[count:] = 0.0
        for whole in (self.position, self.ended):
            whole.zero_()
        self.origins.copy_(self.rows)
        self.tokens.fill_(0)
        self.tokens[: count * self.width] = tokens
        self.limits[:count] = limits
        self.done.fill_(True)
        self.done[:count] = False
        self.best_ended.fill_(float("-inf"))
        self.scores.fill_(float("-inf"))
        self.scores[:, 0] = 0.0

    def take(self, other: Buffers, slots: list[int]) -> None:
        """Takes over some sentences from larger buffers."""
        count, at = len(slots), torch.tensor(slots, device=self.position.device)
        rows = (at.unsqueeze(1) * self.width + torch.arange(self.width, device=at.device)).flatten()
        pairs = [
            (key.index_select(0, at), value.index_select(0, at))
            for key, value in other.memory.pairs
        ]
        assert other.memory.mask is not None
        memory = Memory(pairs, other.memory.mask.index_select(0, at), self.width)
        self.fill(
            [other.sentences[slot] for slot in slots], memory, other.tokens[rows], other.limits[at]
        )
        self.cache[:, : len(rows)] = other.cache[:, other.origins[rows].long(), other.places]
        self.position.copy_(other.position)
        self.ended[:count], self.scores[:count] = other.ended[at], other.scores[at]
        self.best_ended[:count] = other.best_ended[at]
        self.chosen[:, :, :count], self.values[:, :, :count] = (
            other.chosen[:, :, at],
            other.values[:, :, at],
        )
        self.reached = other.reached

    def pick(self, table: Tensor) -> Tensor:
        return table.index_select(0, self.position)

    def keep(self, n: int, pair: Tensor) -> tuple[Tensor, Tensor]:
        self.cache[n].index_copy_(1, self.position, pair.unsqueeze(1))
        seen = self.cache[n, :, : self.bucket].transpose(1, 3)  # R H' 2 T D
        return seen[:, :, 0], seen[:, :, 1]

    def use_kernels(self, on: bool) -> None:
        self.kernels = self.memory.kernels = on
        self.read_own = self.in_one_kernel if on else None
        self.traced = (
            on and self.width > 1 and all(layer.mixer.reads_in_one for layer in self.engine.layers)
        )

    def in_one_kernel(self, n: int, qkv: Tensor, groups: int, scale: float) -> Tensor:
        from ..core.kernels.decode_step import read_own

        return read_own(
            qkv, self.cache[n], self.position, groups, scale, self.origins if self.traced else None
        )

    def bias(self, table: Tensor | None) -> Tensor | None:
        if self.hidden is None:
            self.where = self.places[: self.bucket] - self.position  # distances of the keys
            self.hidden = torch.zeros(
                1, self.bucket, dtype=self.cache.dtype, device=self.cache.device
            )
            self.hidden.masked_fill_(self.where.unsqueeze(0) > 0, float("-inf"))
        if table is None:
            return self.hidden
        return self.hidden + table.index_select(
            1, (self.where + table.shape[1] - 1).clamp_max(table.shape[1] - 1)
        )

    def step(self, bucket: int) -> None:
        """One token per row, with up to `bucket` positions in use."""
        self.bucket, self.hidden = bucket, None
        before = in_one_row.set(self.kernels)
        try:
            logits = self.engine.step(self.tokens, self, self.memory)
        finally:
            in_one_row.reset(before)
        some = 1 if self.greedy else min(2 * self.width, logits.shape[-1])
        values, tokens = self.best(logits, some)
        if self.greedy and self.kernels:
            self.note(values, tokens)
            return
        (self.take_best if self.greedy else self.take_beams)(values, tokens)
        self.position.add_(1)
        self.done.logical_or_(self.position >= self.limits)
        self.alive.copy_((~self.done).sum())

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The largest log-probabilities per row and their tokens, R × count."""
        if self.kernels and logits.shape[1] <= MAX_VOCABULARY:
            from ..core.kernels.decode_step import best_tokens

            return best_tokens(logits, self.never, count)
        log_probs = logits.float().log_softmax(-1)
        if len(self.never):
            log_probs.index_fill_(1, self.never, float("-inf"))
        if count == 1:
            values, tokens = log_probs.max(-1, keepdim=True)
            return values, tokens
        found = log_probs.topk(count, -1)
        return found.values, found.indices

    def note(self, values: Tensor, tokens: Tensor) -> None:
        """`take_best` and the bookkeeping in one kernel."""
        from ..core.kernels.decode_step import note_best

        state = self.tokens, self.limits, self.done, self.alive
        note_best(values, tokens, self.position, self.chosen, self.values, *state, self.eos)

    def take_best(self, values: Tensor, tokens: Tensor) -> None:
        self.tokens.copy_(tokens.squeeze(1))
        self.chosen[:, 0].index_copy_(0, self.position, tokens.unsqueeze(0))
        self.values[:, 0].index_copy_(0, self.position, values.unsqueeze(0))
        self.done.logical_or_(tokens.squeeze(1) == self.eos)

    def take_beams(self, top: Tensor, tokens: Tensor) -> None:
        """Like `Beam.advance`. Finished outputs are stored by score and parent of each rank."""
        count, width = self.scores.shape
        some = top.shape[1]
        total = (self.scores.unsqueeze(-1) + top.view(count, width, some)).flatten(1)
        best, index = total.topk(min(2 * width, width * some), -1)
        parents, tokens = index // some, tokens.view(count, -1).gather(1, index)
        end = tokens == self.eos
        ends = best[:, :width].masked_fill(~end[:, :width], float("-inf"))
        scores, order = best.masked_fill(end, float("-inf")).topk(width, -1)
        next_parents, next_tokens = parents.gather(1, order), tokens.gather(1, order)
        self.chosen.index_copy_(
            0,
            self.position,
            torch.stack([next_tokens, next_parents, parents[:, :width]]).unsqueeze(0),
        )
        self.values.index_copy_(0, self.position, torch.stack([scores, ends]).unsqueeze(0))
        self.scores.copy_(scores)
        self.tokens.copy_(next_tokens.flatten())
        self.ended.add_((ends > float("-inf")).sum(1))
        now, one_more = (self.divisors.index_select(0, self.position + more) for more in (0, 1))
        torch.maximum(self.best_ended, ends.amax(1) / now, out=self.best_ended)
        # Like `Beam.settled`, except for ties.
        settled = (self.ended >= width) & (self.best_ended > scores[:, 0] / one_more)
        self.done.logical_or_(settled | scores[:, 0].isneginf())
        rows = (self.first_rows + next_parents).flatten()
        if self.traced:  # what comes after this position will be each row's own
            self.origins.copy_(
                torch.where(
                    self.places > self.position, self.rows, self.origins.index_select(0, rows)
                )
            )
        elif width > 1:
            self.cache[:, :, : self.bucket] = self.cache[:, :, : self.bucket].index_select(1, rows)

    def run(self) -> None:
        """One step. Per bucket, the first step runs eagerly (libraries initialize), the second is captured, others are replayed."""
        bucket = min(rounded(self.reached + 1, 32), self.room)
        self.reached += 1
        if bucket in self.graphs:
            self.graphs[bucket].replay()
            return
        if bucket in self.seen and self.cache.is_cuda:
            graph = captured("a decoding step", lambda: self.step(bucket))
            if graph is not None:
                self.graphs[bucket] = graph
                graph.replay()
                return
        self.seen.add(bucket)
        try:
            self.step(bucket)
        except (
            CannotCompile
        ) as error:  # nothing was chosen yet, and what was written is written again
            warnings.warn(
                f"a kernel of decoding does not compile here ({error}); continuing without",
                stacklevel=2,
            )
            self.engine.kernels = False
            self.use_kernels(False)
            self.step(bucket)
