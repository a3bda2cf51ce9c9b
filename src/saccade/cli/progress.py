"""Progress on stderr: of training runs, and of long outputs."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from ..training.checkpoints import Progress as At
from ..training.cost import Cost
from ..training.logs import shown as shown_metric
from ..training.loop import Watcher
from .shared import err, note


def bars() -> Progress:
    """Live bars in a terminal, nothing elsewhere."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[state]}", TimeElapsedColumn())
    disable = err.quiet or not err.is_terminal
    return Progress(*columns, "left", TimeRemainingColumn(), console=err, transient=True, disable=disable)


class Board:
    """Shows training runs on stderr: a live bar for each in a terminal, a line at each evaluation everywhere."""

    def __init__(self) -> None:
        self.progress = bars()

    @contextmanager
    def watcher(self, name: str, updates: int) -> Iterator[Watcher]:
        with self.progress:  # two runs at a time begin and end together, so the bars may end with the first
            yield RunWatcher(self.progress, name, updates)


class RunWatcher(Watcher):
    """One training run on a board."""

    def __init__(self, progress: Progress, name: str, updates: int) -> None:
        self.progress, self.name, self.updates = progress, name, updates
        self.task: TaskID | None = None

    def cost(self, cost: Cost) -> None:
        self.note(f"{cost}")
        self.task = self.progress.add_task(self.name, total=self.updates, state="")

    def update(self, at: At, row: dict[str, float]) -> None:
        if self.task is None or (at.update % 5 and at.update < self.updates):
            return
        speed = at.tokens / max(at.seconds, 1e-9)
        self.progress.update(self.task, completed=at.update, state=f"loss {row['loss']:.3f}  {speed:,.0f} tokens/s")

    def evaluated(self, at: At, metrics: dict[str, float], best: bool) -> None:
        shown = "  ".join(f"dev {name} {shown_metric(name, value)}" for name, value in metrics.items())
        self.note(f"update {at.update:,}  {shown}  {at.seconds:.0f} s{'  best' if best else ''}")

    def note(self, text: str) -> None:
        note(f"{self.name}: {text}")
