"""What training settings leave open is decided before a run starts: threads by measuring, updates by epochs, minutes or the data."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..recipe import TrainingRecipe
from .checkpoints import Progress
from .cost import kept, median_batch, now
from .distributed import Ranks
from .loop import Watcher
from .work import Work

# Where neither updates nor epochs nor minutes are given: few data are read often, and a processor should be done while one waits.
EPOCHS, FEWEST, MOST, CPU_MINUTES = 80, 500, 30_000, 10.0
WITH_STEP = 1.15  # an update takes so much longer than forward and backward: the optimizer, the next batch


def plan(
    settings: TrainingRecipe, model: nn.Module, work: Work, ranks: Ranks, before: Callable[[], Progress], watcher: Watcher
) -> TrainingRecipe:
    """The settings with a number for all that was open; `before` is how far a resumed run came."""
    device = next(model.parameters()).device
    per_epoch = -(-len(work.epoch(0)) // settings.accumulate)
    timed = not settings.updates and (settings.minutes or (not settings.epochs and device.type == "cpu"))
    probe = Probe(settings, model, work, ranks) if timed or not settings.threads else None
    if not settings.threads:
        settings = replace(settings, threads=torch.get_num_threads())
        if probe is not None and device.type == "cpu" and ranks.count == 1 and settings.threads > 1:
            watcher.stage("measuring with how many threads this machine is fastest")
            settings = replace(settings, threads=choose_threads(probe, settings.threads, watcher.note))
    if not settings.updates:
        every = settings.evaluate_every or per_epoch
        evaluations = per_epoch * work.dev_share / 3 / every  # without gradients, for each update
        with threads(settings.threads):
            seconds = probe.seconds() * WITH_STEP * (1 + evaluations) if probe is not None and timed else math.inf
        updates = choose_updates(settings, per_epoch, seconds, before() if settings.minutes else Progress())
        settings = replace(settings, updates=updates, warmup=min(settings.warmup, updates // 10))
    elif settings.epochs:
        settings = replace(settings, updates=min(settings.updates, settings.epochs * per_epoch))
    if not settings.evaluate_every:  # 10 to 100 times in all
        every = min(max(per_epoch, settings.updates // 100), max(settings.updates // 10, 1))
        settings = replace(settings, evaluate_every=every)
    return replace(settings, checkpoint_every=settings.checkpoint_every or settings.evaluate_every)


def choose_updates(settings: TrainingRecipe, per_epoch: int, seconds: float, before: Progress) -> int:
    """As many updates as the epochs and the minutes allow; without either, by the data and, on a processor, its speed."""
    allowed = [float(settings.epochs * per_epoch)] if settings.epochs else []
    if settings.minutes:
        pace = before.seconds / before.update if before.update else seconds
        allowed.append(before.update + max(60 * settings.minutes - before.seconds, 0.0) / pace)
    if not allowed:
        allowed = [min(max(EPOCHS * per_epoch, FEWEST), MOST), 60 * CPU_MINUTES / seconds]
    return max(int(min(allowed)), 1)


class Probe:
    """Times forward and backward of a batch of median size, whatever the number of threads; nothing of the model is changed."""

    def __init__(self, settings: TrainingRecipe, model: nn.Module, work: Work, ranks: Ranks) -> None:
        self.settings, self.model, self.work, self.ranks = settings, model, work, ranks
        self.device = next(model.parameters()).device

    def seconds(self, least: float = 2.0) -> float:
        """Of one update, the mean over at least so many seconds."""
        with kept(self.work):
            batch = median_batch(self.work, self.work.epoch(0), self.ranks)
            self.once(batch)
            start, count = now(), 0
            while not count or self.ranks.largest(now() - start) < least:
                self.once(batch)
                count += 1
            taken = self.ranks.largest(now() - start)
        self.model.zero_grad(set_to_none=True)
        return taken / count * self.settings.accumulate

    def once(self, batch: Any) -> None:
        kind = self.settings.autocast
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            loss = self.work.loss(self.model.train(), batch)
        loss.backward()


def choose_threads(probe: Probe, most: int, note: Callable[[str], None]) -> int:
    """The number of threads with which a batch is done soonest: 1, 2, 4 … or all."""
    found = {}
    for count in sorted({*(2**n for n in range(most.bit_length())), most}):
        with threads(count):
            found[count] = probe.seconds(least=0.5)
    best = min(found, key=found.__getitem__)
    others = ", ".join(f"{count}: {seconds:.2g} s" for count, seconds in found.items())
    note(f"training.threads={best}, the fastest of those measured (seconds per update with {others})")
    return best


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the `with`, torch computes with so many threads in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
