"""Progress on stderr: of training runs, and of long outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from ..training.checkpoints import Progress as At
from ..training.cost import Cost
from ..training.loop import Watcher
from .shared import err, note

EVERY = 15.0  # seconds between two lines where stderr is not a terminal
T = TypeVar("T")


def bars() -> Progress:
    """Live bars in a terminal, nothing elsewhere."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[state]}", TimeElapsedColumn())
    disable = err.quiet or not err.is_terminal
    return Progress(*columns, "left", TimeRemainingColumn(), console=err, transient=True, disable=disable)


@contextmanager
def count(what: str, total: int) -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Within the `with`, a function that passes items on and counts them: a bar on stderr, or a line now and then."""
    done, printed = 0, time.monotonic()

    def over(items: Iterable[T]) -> Iterator[T]:
        nonlocal done, printed
        for item in items:
            yield item
            done += 1
            progress.advance(task)
            if not err.is_terminal and time.monotonic() - printed > EVERY:
                printed = time.monotonic()
                note(f"{what}: {done:,} of {total:,}")

    with bars() as progress:
        task = progress.add_task(what, total=total, state="")
        yield over


class Board:
    """Shows training runs on stderr: a live bar for each in a terminal, a line at each evaluation everywhere."""

    def __init__(self) -> None:
        self.progress, self.open = bars(), 0

    @contextmanager
    def watcher(self, name: str, updates: int) -> Iterator[Watcher]:
        self.open += 1
        self.progress.start()
        try:
            yield RunWatcher(self.progress, name, updates)
        finally:
            self.open -= 1
            if not self.open:
                self.progress.stop()


class RunWatcher(Watcher):
    """One training run on a board."""

    def __init__(self, progress: Progress, name: str, updates: int) -> None:
        self.progress, self.name, self.updates = progress, name, updates
        self.task: TaskID | None = None
        self.speed, self.before = 0.0, (0, 0.0)

    def cost(self, cost: Cost) -> None:
        self.note(f"{cost}")
        self.task = self.progress.add_task(self.name, total=self.updates, state="")

    def update(self, at: At, row: dict[str, float]) -> None:
        if self.task is None or (at.update % 5 and at.update < self.updates):
            return
        tokens, seconds = self.before
        if seconds and at.seconds > seconds:
            self.speed = (at.tokens - tokens) / (at.seconds - seconds)
        self.before = (at.tokens, at.seconds)
        self.progress.update(self.task, completed=at.update, state=f"loss {row['loss']:.3f}  {self.speed:,.0f} tokens/s")

    def evaluated(self, at: At, figures: dict[str, float], best: bool) -> None:
        shown = "  ".join(f"dev {name} {value:.3f}" for name, value in figures.items())
        self.note(f"update {at.update:,}  {shown}  {at.seconds:.0f} s{'  best' if best else ''}")

    def note(self, text: str) -> None:
        note(f"{self.name}: {text}")
