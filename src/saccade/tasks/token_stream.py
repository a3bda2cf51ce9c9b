"""Text as one stream of tokens, cut into blocks, and the work of training on it. B blocks, N tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import State
from ..data.batches import on
from ..data.documents import Document
from ..data.vocabulary import PAD
from ..errors import SaccadeError
from ..models.protocols import Carrying
from ..recipe import Recipe
from ..settings import fixed
from ..training.losses import Batch, batch_loss
from ..training.work import Work
from .objectives import Blocks

if TYPE_CHECKING:
    from .language import LanguageModelling

Plan = list[tuple[int, int]]  # the epoch and the start of each block


class Stream:
    """Documents one after another as one row of tokens, cut into blocks; the order and the cuts are a function of (seed, epoch)."""

    def __init__(
        self,
        each: Sequence[NDArray[np.int64]],
        block: int,
        several: bool,
        seed: int,
        device: torch.device,
        pad: int = PAD,
    ) -> None:
        # where documents start in their file, or which they are
        self.lines: Sequence[int] = range(1, len(each) + 1)
        self.each, self.block, self.several, self.seed = list(each), block, several, seed
        self.device, self.pad = device, pad
        self._made = -1
        if sum(map(len, self.each)) < 2:
            raise SaccadeError(
                "the text has fewer than two tokens; give more text", code="text-too-short"
            )
        self.make(0)

    def make(self, epoch: int) -> None:
        """The stream of an epoch: documents in a random order, those of epoch 0 in their own."""
        if self._made == epoch or (self._made >= 0 and not self.several):
            return
        order = np.arange(len(self.each))
        if epoch:
            order = np.argsort(
                np.random.PCG64([self.seed, epoch, 1]).random_raw(len(self.each)), kind="stable"
            )
        sizes = [len(self.each[n]) for n in order]
        self.here = np.concatenate([self.each[n] for n in order])
        self.tokens = torch.from_numpy(self.here).to(self.device)
        self.documents = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(self.device)
        self.numbers = np.repeat(order, sizes) if self.several else None
        self._made = epoch

    def starts(self, epoch: int) -> list[int]:
        """Where the blocks of an epoch begin: every token is asked for once, except those before a first cut drawn for the epoch."""
        last = len(self.tokens) - 1
        first = (
            int(np.random.PCG64([self.seed, epoch]).random_raw() % self.block)
            if epoch and last > self.block
            else 0
        )
        return list(range(first, max(last, 1), self.block))

    def blocks(self, starts: Sequence[int], epoch: int) -> Blocks:
        """The blocks that begin at these positions, one token longer; what each draws is a function of (seed, epoch, start) alone."""
        positions = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(self.block + 1)
        beyond = positions >= len(self.here)
        positions = positions.clip(max=len(self.here) - 1)
        here = np.where(beyond, self.pad, self.here[positions])
        at, gone = on(self.device, torch.from_numpy(positions), torch.from_numpy(beyond))
        documents = self.documents[at].masked_fill(gone, -1) if self.several else None
        lines = [
            self.lines[self.numbers[min(start, len(self.here) - 1)]]
            if self.numbers is not None
            else start
            for start in starts
        ]
        tokens = self.tokens[at].masked_fill(gone, self.pad)
        return Blocks(
            tokens, here, documents, [(self.seed, epoch, int(start)) for start in starts], lines
        )


class StreamWork(Work):
    """Blocks of the training stream in a random order, metrics on the dev stream."""

    one_shape = True

    def __init__(
        self,
        task: LanguageModelling,
        recipe: Recipe,
        train: Sequence[Document],
        dev: Sequence[Document],
        device: torch.device,
    ) -> None:
        self.measures = tuple(task.measures)
        self.task, self.smoothing = task, recipe.training.smoothing
        self.tokens = fixed(recipe.training.tokens)
        self.count, self.seed = max(1, self.tokens // recipe.language.block), recipe.seed
        self.stream = task.stream(train, recipe.seed, device)
        # as `evaluate` draws: one loss, whatever the seed of the training run
        self.dev = task.stream(dev, 0, device)
        self.dev_share = len(self.dev.here) / len(self.stream.here)

    def epoch(self, epoch: int) -> Sequence[Plan]:
        """Batches of (epoch, start); epochs are counted from 1 here, so that the first one is shuffled too."""
        self.stream.make(epoch + 1)
        starts = self.stream.starts(epoch + 1)
        order = np.argsort(
            np.random.PCG64([self.seed, epoch + 1, 2]).random_raw(len(starts)), kind="stable"
        )
        return [
            [(epoch + 1, starts[n]) for n in order[at : at + self.count]]
            for at in range(0, len(starts), self.count)
        ]

    def padding(self) -> float:
        starts = self.stream.starts(1)
        return 1 - (len(self.stream.tokens) - 1 - starts[0]) / (len(starts) * self.stream.block)

    def batch(self, plan: Plan) -> Batch:
        self.stream.make(plan[0][0])
        return self.task.objective.batch(
            self.stream.blocks([start for _, start in plan], plan[0][0])
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self.task.metrics(
            model, self.dev, self.tokens, rows=16 if len(self.dev.here) > 10_000 else 1
        )


class CarriedWork(StreamWork):
    """Rows read from end to end, one block per update, each from the state that the last one left (truncated backpropagation)."""

    only_forward = one_shape = ahead = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # What was carried last, for each number of rows: it stays where it is, since a captured update reads and writes it there.
        self.states: dict[int, Tensor] = {}
        self.empty: dict[int, list[tuple[Tensor, ...]]] = {}  # the model's own empty states
        # where the next blocks begin, if they continue the last ones
        self.expected: tuple[int, ...] = ()

    def epoch(self, epoch: int) -> Sequence[Plan]:
        """Row r reads the r-th part of the stream; blocks that make no whole update are left out at either end."""
        self.stream.make(epoch + 1)
        starts = self.stream.starts(epoch + 1)
        rows = min(self.count, len(starts))
        steps, rest = divmod(len(starts), rows)
        first = int(np.random.PCG64([self.seed, epoch + 1, 3]).random_raw() % (rest + 1))
        return [
            [(epoch + 1, starts[first + row * steps + step]) for row in range(rows)]
            for step in range(steps)
        ]

    def batch(self, plan: Plan) -> Batch:
        """The last input is whether the batch continues where the one made before it ended."""
        starts = tuple(start for _, start in plan)
        [continues] = on(self.stream.device, torch.tensor(starts == self.expected))
        self.expected = tuple(start + self.stream.block for start in starts)
        made = super().batch(plan)
        return replace(made, inputs=(*made.inputs, continues))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if not isinstance(model, Carrying):
            able = "choose model.family=rnn-decoder or transformer-xl, or xlnet for permutations"
            raise SaccadeError(
                f"language.carry is for a model that carries a state; leave it out, or {able}",
                code="carry-not-supported",
            )
        return batch_loss(partial(self.read, model), batch, self.smoothing)  # type: ignore[arg-type]

    def read(self, model: Carrying, tokens: Tensor, *more: Any) -> Tensor:
        """The logits of a batch, read from the state carried so far, which becomes the state after it."""
        rows, (*given, continues) = len(tokens), more
        if rows not in self.empty:
            self.empty[rows] = model.start(
                tokens[:, :0], torch.zeros(rows, dtype=torch.long)
            ).carried
        widths = [part.shape[-1] for memory in self.empty[rows] for part in memory]
        state = self.states.setdefault(
            rows, torch.cat([part for memory in self.empty[rows] for part in memory], -1)
        )
        # a copy: gradients need it when the state is written over
        parts = iter(torch.where(continues, state, 0).split(widths, -1))
        carried = [tuple(next(parts) for _ in memory) for memory in self.empty[rows]]
        logits, after = model.forward_from(tokens, *given, State(carried=carried, length=0))
        state.copy_(torch.cat([part.detach() for memory in after.carried for part in memory], -1))
        return logits

    def state(self) -> dict[str, Tensor]:
        states = {str(rows): state for rows, state in self.states.items()}
        return {"expected": torch.tensor(self.expected), **states} if states else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.expected = tuple(tensors["expected"].tolist()) if tensors else ()
        self.states = {
            int(rows): state.to(self.stream.device)
            for rows, state in tensors.items()
            if rows != "expected"
        }
