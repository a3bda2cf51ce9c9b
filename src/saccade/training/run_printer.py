"""Progress output of a training run: notes, evaluations and a status line from time to time."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from .checkpoints import Progress
from .cost import Cost, duration
from .logs import format_metric
from .loop import Watcher

# Seconds between two status lines.
PRINT_INTERVAL = 10.0


def reader_stream() -> TextIO | None:
    """The stream for progress: stdout in a notebook (which shows stderr in red), stderr in a terminal, else None."""
    interactive = sys.modules.get("IPython")
    if interactive is not None and hasattr(interactive.get_ipython(), "kernel"):
        return sys.stdout
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None


class RunPrinter(Watcher):
    """Prints lines with the run's name as prefix."""

    def __init__(self, name: str, write: Callable[[str], object]) -> None:
        self.name, self.write, self.printed = name, write, -PRINT_INTERVAL
        # Updates, and seconds per update from the estimate.
        self.total, self.expected = (0, 0.0)
        self.first: Progress | None = None

    def another(self, name: str) -> "RunPrinter":
        return RunPrinter(name, self.write)

    def stage(self, text: str) -> None:
        if self.first is None:
            self.note(f"{text} …")

    def cost(self, cost: Cost) -> None:
        self.total, self.expected = cost.done + cost.updates, cost.seconds[0] / max(cost.updates, 1)
        self.note(f"{cost}")
        if cost.seconds[0] > 1800:
            self.note(
                "for a shorter run: training.minutes=10, or a smaller model.size (tiny, small, medium)"
            )

    def update(self, at: Progress, row: dict[str, float]) -> None:
        state = self.state(at, row)
        if time.monotonic() - self.printed >= PRINT_INTERVAL:
            self.note(f"update {at.update:,} of {self.total:,}  {state}")
            self.printed = time.monotonic()

    def evaluated(self, at: Progress, metrics: dict[str, float], best: bool) -> None:
        found = "  ".join(
            f"dev {name} {format_metric(name, value)}" for name, value in metrics.items()
        )
        self.note(f"update {at.update:,}  {found}  {at.seconds:.0f} s{'  best' if best else ''}")

    def note(self, text: str) -> None:
        # Training continues if the terminal or pipe was closed.
        with suppress(OSError):
            self.write(f"{self.name}: {text}")

    def state(self, at: Progress, row: dict[str, float]) -> str:
        """The loss, the speed and the remaining time, measured since this process started training."""
        first = self.first = self.first or at
        seconds, pace, speed = at.seconds - first.seconds, self.expected, ""
        if at.update > first.update:
            pace = seconds / (at.update - first.update)
            speed = f"  {max((at.tokens - first.tokens) / max(seconds, 1e-9), 1):,.0f} tokens/s"
        return f"loss {row['loss']:.3f}{speed}  {duration(pace * (self.total - at.update))} left"
