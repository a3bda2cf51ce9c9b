"""Trainings on stderr, as they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..training.checkpoints import Progress as At
from ..training.cost import Cost
from ..training.loop import Watcher
from .shared import err


class Board:
    """Shows trainings on stderr: a live bar for each in a terminal, a line at each evaluation everywhere."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=err, transient=True, disable=err.quiet or not err.is_terminal)
        self.open = 0

    @contextmanager
    def watcher(self, name: str, updates: int) -> Iterator[TrainingWatcher]:
        self.open += 1
        self.progress.start()
        try:
            yield TrainingWatcher(self.progress, name, updates)
        finally:
            self.open -= 1
            if not self.open:
                self.progress.stop()


class TrainingWatcher(Watcher):
    """One training on a board."""

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
        err.print(f"{self.name}: {text}", markup=False, soft_wrap=True)
