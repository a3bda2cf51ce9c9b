"""Stopping cleanly: after Ctrl-C or SIGTERM a checkpoint is written, and the process exits with 130 or 143."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stopped(Exception):
    """A signal ended the run after a checkpoint; `code` is the process's exit code."""

    def __init__(self, number: int, update: int, how: str = "--resume") -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} after update {update}; a checkpoint was written, continue with {how}")
        self.code, self.at = 128 + number, (number, update)

    def continue_with(self, how: str) -> Stopped:
        """The same, for a command that continues in another way."""
        return Stopped(*self.at, how)


class Stopper:
    """Within the `with`, the first signal is kept for the loop; a second one of the same kind has its usual effect at once.

    A `patient` one ignores a second: torchrun forwards a Ctrl-C that its processes also got from the terminal, and kills those that
    are still there 30 s later.
    """

    def __init__(self, patient: bool = False) -> None:
        self.signal: int | None = None
        self.patient = patient
        self._before: dict[int, Any] = {}

    def _notice(self, number: int, frame: object) -> None:
        self.signal = number
        if not self.patient:
            signal.signal(number, self._before[number])

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
