"""Progress on stderr: of training runs, and of long outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..experiments.runner import Board
from ..experiments.study import Job
from ..training.checkpoints import Progress as At
from ..training.cost import Cost, duration
from ..training.loop import Watcher
from ..training.run_printer import RunPrinter
from .shared import err, note

COLUMNS = (
    "{task.description}",
    BarColumn(),
    MofNCompleteColumn(),
    "{task.fields[state]}",
    TimeElapsedColumn(),
)


def bars() -> Progress:
    """Live bars in a terminal, nothing elsewhere. Rich would send what is printed on stdout to stderr while a bar lives."""
    disable = err.quiet or not err.is_terminal
    at_end = ("left", TimeRemainingColumn())
    return Progress(
        *COLUMNS, *at_end, console=err, transient=True, redirect_stdout=False, disable=disable
    )


class JobBoard(Board):
    """Shows jobs on stderr: live bars in a terminal, a line for each job that ends, and for `notes` all that a job says, everywhere."""

    def __init__(self, what: str, total: int, done: int = 0, notes: bool = True) -> None:
        self.progress, self.what, self.total, self.done = bars(), what, total, done
        self.notes = notes
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        self.all = self.progress.add_task(
            self.what, total=self.total, completed=self.done, state=""
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, job: Job) -> None:
        self.tasks[job.name] = self.progress.add_task(job.label, total=None, state="")

    def at(self, job: Job, update: int, total: int, state: str) -> None:
        self.progress.update(self.tasks[job.name], completed=update, total=total, state=state)

    def end(self, job: Job, error: str) -> None:
        if (shown := self.tasks.pop(job.name, None)) is not None:
            self.progress.remove_task(shown)
        self.done += 1
        self.progress.update(self.all, completed=self.done)
        if error or self.total > 1:
            note(f"{self.done} of {self.total}: {job.label}{f' failed: {error}' if error else ''}")

    def note(self, text: str) -> None:
        if self.notes:
            note(text)

    def expect(self, count: int, seconds: float, operations: float, jobs: int) -> None:
        side_by_side = (
            f"; {jobs} side by side, about {duration(seconds / jobs)} where they do not slow each other down"
            if jobs > 1
            else ""
        )
        note(
            f"{count} to do: about {operations:.1e} operations, {duration(seconds)} one after another{side_by_side}"
        )


class RunBoard:
    """Shows training runs on stderr: a live bar for each in a terminal, a line at each evaluation everywhere."""

    def __init__(self) -> None:
        disable = err.quiet or not err.is_terminal
        self.progress = Progress(
            SpinnerColumn(), *COLUMNS, console=err, transient=True, disable=disable
        )

    @contextmanager
    def watcher(self, name: str, updates: int) -> Iterator[Watcher]:
        # two runs at a time begin and end together, so the bars may end with the first
        with self.progress:
            yield RunWatcher(self.progress, name, updates)


class RunWatcher(RunPrinter):
    """One training run on a board: its bar moves at each update and says what is done in between."""

    def __init__(self, progress: Progress, name: str, updates: int) -> None:
        super().__init__(name, note)
        self.progress, self.total = progress, updates
        self.task: TaskID | None = None  # a run of another process has notes alone

    def another(self, name: str) -> RunWatcher:
        return RunWatcher(self.progress, name, 0)

    def show(self, state: str, completed: int | None = None) -> None:
        if self.task is None:
            self.task = self.progress.add_task(self.name, total=None, state="")
        self.progress.update(self.task, total=self.total or None, completed=completed, state=state)

    def stage(self, text: str) -> None:
        self.show(f"{text} …")
        self.progress.refresh()  # a short one would be over before the next frame

    def cost(self, cost: Cost) -> None:
        super().cost(cost)
        self.show(f"{duration(cost.seconds[0])} left, or more", cost.done)

    def update(self, at: At, row: dict[str, float]) -> None:
        self.show(self.state(at, row), at.update)
