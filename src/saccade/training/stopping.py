"""Stopping cleanly: after Ctrl-C or SIGTERM a checkpoint is written, and the process exits with 130 or 143."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Stopped(Exception):
    """A signal ended the run after a checkpoint; `code` is the process's exit code."""

    def __init__(self, number: int, update: int, how: str = "resume=True") -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} after update {update}; a checkpoint was written, continue with {how}")
        self.code, self.at = 128 + number, (number, update)


@contextmanager
def stopper(note: Callable[[str], None] = lambda _: None, patient: bool = False) -> Iterator[list[int]]:
    """Within the `with`, signals are noted and put into the list; a second one of the same kind has its usual effect at once, unless
    `patient`."""
    found: list[int] = []
    before: dict[int, Any] = {}

    def notice(number: int, frame: object) -> None:
        found.append(number)
        again = "press Ctrl-C again" if number == signal.SIGINT else f"send {signal.Signals(number).name} again"
        with suppress(RuntimeError, OSError):  # the signal came in the middle of another line, or nobody reads it
            note("stopping after this update" + ("" if patient else f"; {again} to stop at once, with the last checkpoint"))
        if not patient:  # torchrun forwards a Ctrl-C that its processes also got from the terminal
            signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, notice)
    try:
        yield found
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
