"""Leaving well: Ctrl-C and SIGTERM are noticed, a checkpoint is written, and the process ends with 130 or 143."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):
    """A signal ended the training after a checkpoint; `code` is the process's exit code."""

    def __init__(self, number: int, update: int, how: str = "--resume") -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} after update {update}; a checkpoint is written, go on with {how}"
        )
        self.code, self.at = 128 + number, (number, update)

    def go_on_with(self, how: str) -> Stopped:
        """The same, for a command that goes on in another way."""
        return Stopped(*self.at, how)


class Stopper:
    """Within the `with`, the first signal is kept for the loop; a second one of the same kind has its usual effect at once.

    A `patient` one takes no notice of a second: torchrun sends on a Ctrl-C that its processes have got from the terminal, and kills
    those that are still there 30 s later.
    """

    def __init__(self, patient: bool = False) -> None:
        self.signal: int | None = None
        self.patient = patient
        self._before: dict[int, Any] = {}

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if not self.patient:
            signal.signal(number, self._before[number])

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
