"""Text as one stream of tokens, cut into blocks, and a training's work on it. B blocks, N tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import State, extras
from ..data.batches import on
from ..data.vocabulary import PAD
from ..errors import SaccadeError
from ..models.kinds import CarryingLM
from ..recipe import Recipe
from ..training.losses import token_loss
from ..training.work import Work
from .objectives import Blocks, LanguageBatch, Objective


class Streamed(Protocol):
    """A task on a stream: what `StreamWork` needs of it."""

    several: bool
    objective: Objective

    def figures(self, model: nn.Module, stream: Stream, budget: int, rows: int = 1) -> dict[str, float]: ...


class Stream:
    """Documents one after another as one row of tokens, cut into blocks; the order and the cuts are a function of (seed, epoch)."""

    def __init__(self, each: Sequence[NDArray[np.int64]], block: int, several: bool, seed: int, device: torch.device) -> None:
        self.each, self.block, self.several, self.seed, self.device = list(each), block, several, seed, device
        self._made = -1
        if sum(map(len, self.each)) < 2:
            raise SaccadeError("the text has fewer than two tokens; give more text")
        self.make(0)

    def make(self, epoch: int) -> None:
        """The stream of an epoch: documents in a random order, those of epoch 0 as they stand."""
        if self._made == epoch or (self._made >= 0 and not self.several):
            return
        order = np.arange(len(self.each))
        if epoch:
            order = np.argsort(np.random.PCG64([self.seed, epoch, 1]).random_raw(len(self.each)), kind="stable")
        sizes = [len(self.each[n]) for n in order]
        self.here = np.concatenate([self.each[n] for n in order])
        self.tokens = torch.from_numpy(self.here).to(self.device)
        self.documents = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(self.device)
        self.numbers = np.repeat(order, sizes) if self.several else None
        self._made = epoch

    def starts(self, epoch: int) -> list[int]:
        """Where the blocks of an epoch begin: every token is wanted once, but for those before a first cut drawn for the epoch."""
        last = len(self.tokens) - 1
        first = int(np.random.PCG64([self.seed, epoch]).random_raw() % self.block) if epoch and last > self.block else 0
        return list(range(first, max(last, 1), self.block))

    def blocks(self, starts: Sequence[int], epoch: int) -> Blocks:
        """The blocks that begin at these places, with one token more behind each; what each draws is a function of (seed, epoch,
        start), whichever others it comes with."""
        places = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(self.block + 1)
        beyond = places >= len(self.here)
        places = places.clip(max=len(self.here) - 1)
        here = np.where(beyond, PAD, self.here[places])
        at, gone = on(self.device, torch.from_numpy(places), torch.from_numpy(beyond))
        documents = self.documents[at].masked_fill(gone, -1) if self.several else None
        lines = [int(self.numbers[start]) + 1 if self.numbers is not None else start for start in starts]
        tokens = self.tokens[at].masked_fill(gone, PAD)
        return Blocks(tokens, here, documents, [(self.seed, epoch, int(start)) for start in starts], lines)


class StreamWork(Work):
    """What the training loop asks for: blocks of the training stream in a random order, figures on the dev stream."""

    def __init__(
        self,
        task: Streamed,
        recipe: Recipe,
        train: list[NDArray[np.int64]],
        dev: list[NDArray[np.int64]],
        device: torch.device,
    ) -> None:
        if recipe.training.agreement:
            raise SaccadeError("training.agreement is for pairs, tags and labels; leave it out for a language model")
        block = recipe.language.block
        self.task, self.smoothing, self.tokens = task, recipe.training.smoothing, recipe.training.tokens
        self.count, self.seed = max(1, self.tokens // block), recipe.seed
        self.stream = Stream(train, block, task.several, recipe.seed, device)
        self.dev = Stream(dev, block, task.several, 0, device)  # as `evaluate` draws: one loss, whatever the seed of the training

    def epoch(self, epoch: int) -> Sequence[list[tuple[int, int]]]:
        """Batches of (epoch, start); epochs are counted from 1 here, so that the first one is shuffled too."""
        self.stream.make(epoch + 1)
        starts = self.stream.starts(epoch + 1)
        order = np.argsort(np.random.PCG64([self.seed, epoch + 1, 2]).random_raw(len(starts)), kind="stable")
        return [[(epoch + 1, starts[n]) for n in order[at : at + self.count]] for at in range(0, len(starts), self.count)]

    def padding(self) -> float:
        """Which part of an epoch's batches is padding: at most the end of the last block."""
        starts = self.stream.starts(1)
        return 1 - (len(self.stream.tokens) - 1 - starts[0]) / (len(starts) * self.stream.block)

    def batch(self, plan: list[tuple[int, int]]) -> LanguageBatch:
        self.stream.make(plan[0][0])
        return self.task.objective.batch(self.stream.blocks([start for _, start in plan], plan[0][0]))

    def loss(self, model: nn.Module, batch: LanguageBatch) -> Tensor:
        return self.task.objective.loss(model, batch, self.smoothing)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self.task.figures(model, self.dev, self.tokens, rows=16 if len(self.dev.here) > 10_000 else 1)


class CarriedWork(StreamWork):
    """Rows that are read from one end of the stream to the other, an update after the other: a recurrent model begins each block in
    the state in which it left the one before (truncated backpropagation through time). Every epoch begins with an empty state."""

    only_forward = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # What was carried last, for each number of rows. Its tensors stay where they are: a captured update reads and writes them there.
        self.states: dict[int, list[tuple[Tensor, ...]]] = {}
        self.expected: tuple[int, ...] = ()  # the starts of a batch that continues the last one

    def state(self) -> dict[str, Tensor]:
        """Each tensor under `rows/layer/number`, and which starts continue."""
        if not self.expected:
            return {}
        found = {"expected": torch.tensor(self.expected)}
        for rows, layers in self.states.items():
            found |= {f"{rows}/{n}/{m}": part for n, layer in enumerate(layers) for m, part in enumerate(layer)}
        return found

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.states, self.expected = {}, ()
        if tensors:
            self.expected = tuple(tensors["expected"].tolist())
        for rows, n, m in sorted(tuple(map(int, name.split("/"))) for name in tensors if name != "expected"):
            layers = self.states.setdefault(rows, [])
            if n == len(layers):
                layers.append(())
            layers[n] += (tensors[f"{rows}/{n}/{m}"].to(self.stream.device),)

    def epoch(self, epoch: int) -> Sequence[list[tuple[int, int]]]:
        """Row r reads the r-th part of the stream; blocks that make no whole update are left out at either end."""
        self.stream.make(epoch + 1)
        starts = self.stream.starts(epoch + 1)
        rows = min(self.count, len(starts))
        steps, rest = divmod(len(starts), rows)
        first = int(np.random.PCG64([self.seed, epoch + 1, 3]).random_raw() % (rest + 1))
        return [[(epoch + 1, starts[first + row * steps + step]) for row in range(rows)] for step in range(steps)]

    def batch(self, plan: list[tuple[int, int]]) -> LanguageBatch:
        """With whether it goes on where the batch made before it ended: a number of its own, read when its loss is computed."""
        starts = tuple(start for _, start in plan)
        [goes_on] = on(self.stream.device, torch.tensor(starts == self.expected))
        self.expected = tuple(start + self.stream.block for start in starts)
        made = super().batch(plan)
        return replace(made, read=(made.read[0], goes_on))

    def loss(self, model: nn.Module, batch: LanguageBatch) -> Tensor:
        tokens, goes_on = batch.read
        if not isinstance(model, CarryingLM):
            raise SaccadeError("language.carry is for a recurrent model; leave it out, or choose model.family=rnn-decoder")
        if len(tokens) not in self.states:
            empty = model.start(tokens[:, :0], torch.zeros(len(tokens), dtype=torch.long)).carried
            self.states[len(tokens)] = [tuple(torch.zeros_like(part) for part in memory) for memory in empty]
        state = self.states[len(tokens)]
        # what is read is a copy: the state is written over before the gradients are asked for
        carried = [tuple(torch.where(goes_on, part, 0) for part in memory) for memory in state]
        with extras.collect() as left:
            logits, after = model.forward_from(tokens, State(carried=carried))
        for memory, new in zip(state, after.carried, strict=True):
            for part, now in zip(memory, new, strict=True):
                part.copy_(now.detach())
        return token_loss(logits, batch.wanted, PAD, self.smoothing) + left.total((batch.wanted != PAD).sum(1))
