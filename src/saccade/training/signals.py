"""Signal handling of a run.

After Ctrl-C, SIGTERM or SIGHUP, a checkpoint is written and the process exits with 128 + the signal's number (130, 143, 129). After
SIGUSR1 or SIGXCPU, which clusters send before a time limit, a checkpoint is written and the run continues.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
SAVE_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGUSR1", "SIGXCPU") if hasattr(signal, name)
)
GRACE_SECONDS = 1.0
SAVE_ONLY = (
    0.5  # what `Signals.asked` gives for a checkpoint alone: less than the number of any signal
)


class Stopped(Exception):
    """A signal ended the run after a checkpoint. `code` is the exit code."""

    def __init__(self, number: int, update: int, how: str = "resume=True") -> None:
        name = signal.Signals(number).name
        super().__init__(
            f"stopped by {name} after update {update}; a checkpoint was written, continue with {how}"
        )
        self.code, self.at = 128 + number, (number, update)


class Signals(list[int]):
    """The signals that ask a run to end, and whether one asked for a checkpoint alone.

    A second one of the same kind ends it at once, unless `patient` or while a checkpoint is written; where it is not Ctrl-C, only after
    `GRACE_SECONDS`: those who end processes may send it to a process and to its group.
    """

    def __init__(self, note: Callable[[str], None], patient: bool) -> None:
        super().__init__()
        self.note, self.patient = note, patient
        self.saving = self.writing = False
        self.before: dict[int, Any] = {}
        self.since = 0.0

    def asked(self) -> float:
        """The signal that ends the run, `SAVE_ONLY` for a checkpoint alone, or 0. Resets the request for a checkpoint."""
        saving, self.saving = self.saving, False
        return float(max(self, default=SAVE_ONLY * saving))

    @contextmanager
    def ignore_repeats(self) -> Iterator[None]:
        """Ignores signals while the checkpoint is written."""
        self.writing = True
        try:
            yield
        finally:
            self.writing = False

    def notice(self, number: int, frame: object) -> None:
        if number in SAVE_SIGNALS:
            self.saving = True
            self.tell(
                f"{signal.Signals(number).name}: writing a checkpoint after this update, and continuing"
            )
        elif number not in self:
            self.append(number)
            self.since = time.monotonic()
            again = (
                "press Ctrl-C again"
                if number == signal.SIGINT
                else f"send {signal.Signals(number).name} again"
            )
            hint = "" if self.patient else f"; {again} to stop at once, with the last checkpoint"
            self.tell(f"stopping after this update{hint}")
        elif not (
            self.patient
            or self.writing
            or (number != signal.SIGINT and time.monotonic() - self.since < GRACE_SECONDS)
        ):
            # torchrun forwards a Ctrl-C that its processes also get from the terminal.
            signal.signal(number, self.before[number])
            signal.raise_signal(number)

    def tell(self, text: str) -> None:
        # The signal may arrive during another write, or the stream may be closed.
        with suppress(RuntimeError, OSError):
            self.note(text)


@contextmanager
def stop_on_signals(
    note: Callable[[str], None] = lambda _: None, patient: bool = False
) -> Iterator[Signals]:
    """Handles signals inside the `with`. Ignored signals (`nohup`) stay ignored."""
    found = Signals(note, patient)
    if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
        for number in (*STOP_SIGNALS, *SAVE_SIGNALS):
            if (
                number in (signal.SIGINT, signal.SIGTERM)
                or signal.getsignal(number) != signal.SIG_IGN
            ):
                found.before[number] = signal.signal(number, found.notice)
    try:
        yield found
    finally:
        for kind, handler in found.before.items():
            signal.signal(kind, handler)
