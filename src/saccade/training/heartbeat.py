"""Signs of life between ranks, so that none waits for a process that was killed or a machine that is off the network: a rank that
waits on a GPU or on an open connection would not notice by itself."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

BEAT, PATIENCE, GRACE = 1.0, 15.0, 5.0  # seconds: between beats, without one until a rank is given up, to leave by itself
FINISHED = 1 << 40  # more beats than any rank has
LOST = (
    "another training process died (killed, or out of memory?), so this one stops; "
    "continue from the last checkpoint with --resume, with any number of processes"
)


class Heartbeat:
    """Beats in the store that all ranks share, and listens for the next rank; a rank that is lost is reported to all there."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self.store, self.rank, self.next = store, rank, (rank + 1) % count
        self.over, self.answered = threading.Event(), time.monotonic()

    def start(self) -> None:
        for target in (self.beat, self.watch_store):
            threading.Thread(target=target, daemon=True).start()

    def beat(self) -> None:
        seen, since = -1, time.monotonic()
        while not self.over.wait(BEAT):
            try:
                self.store.add(f"beat/{self.rank}", 1)
                beats = self.store.add(f"beat/{self.next}", 0)
                if beats != seen:
                    seen, since = beats, time.monotonic()
                silent = beats < FINISHED and time.monotonic() - since > PATIENCE
                lost = self.store.add("lost", int(silent)) > 0
            except RuntimeError:  # the process that keeps the store died
                lost = True
            self.answered = time.monotonic()
            if lost and not self.over.wait(GRACE):
                leave(self.first_to_print())

    def watch_store(self) -> None:
        """A call to the store of a machine that is off the network never returns."""
        while not self.over.wait(BEAT):
            if time.monotonic() - self.answered > PATIENCE + GRACE:
                leave(prints=True)

    def first_to_print(self, lost: bool = False) -> bool:
        """Whether this rank is the first that prints why the run ends; the others need not."""
        with suppress(RuntimeError):
            self.store.add("lost", int(lost))
            return bool(self.store.add("printed", 1) == 1)
        return True

    def finish(self) -> None:
        """This rank ends as it should: the others must not wait for its beats."""
        self.over.set()
        with suppress(RuntimeError):
            self.store.add(f"beat/{self.rank}", FINISHED)


def leave(prints: bool) -> None:
    """Ends this process, whatever its main thread waits for."""
    if prints:
        print(f"saccade: {LOST}", file=sys.stderr, flush=True)
    os._exit(2)
