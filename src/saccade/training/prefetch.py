"""Batches in order, prefetched in another thread for GPUs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Any, NamedTuple, Self

from .distributed import Ranks
from .work import Work

# Held while a batch is made ahead.
iteration_lock = threading.Lock()
# Seconds between checks for the end of the run.
POLL_SECONDS = 0.1


class BatchPosition(NamedTuple):
    """Position of the next batch: epoch and index within it."""

    epoch: int
    batch: int


# This rank's part of a batch, its weight (0 or 1) and the next position.
Made = tuple[Any, int, BatchPosition]


class Prefetcher:
    """This rank's batches from a position on, with `count` of them prefetched. Use it in a `with`."""

    def __init__(
        self,
        work: Work,
        ranks: Ranks,
        epoch: Callable[[int], Sequence[Any]],
        spot: BatchPosition,
        count: int = 0,
    ) -> None:
        self.work, self.ranks, self.epoch, self.spot = work, ranks, epoch, spot
        self.made: Queue[Made | BaseException] = Queue(max(count, 1))
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.fill, daemon=True) if count else None
        self.each = self.batches()

    def __enter__(self) -> Self:
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()

    def next(self) -> Made:
        if self.thread is None:
            return next(self.each)
        while True:
            try:
                # The timeout lets signals be handled.
                found = self.made.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def batches(self) -> Iterator[Made]:
        """All batches from the position on, epoch after epoch."""
        epoch, at = self.spot
        while True:
            if at >= len(self.epoch(epoch)):
                epoch, at = epoch + 1, 0
            mine, counts = self.ranks.share(self.epoch(epoch)[at])
            at += 1
            yield self.work.batch(mine), counts, BatchPosition(epoch, at)

    def fill(self) -> None:
        """Body of the thread. Errors are raised in `next`."""
        while not self.over.is_set():
            found: Made | BaseException
            try:
                with iteration_lock:
                    found = next(self.each)
            except Exception as error:
                found = error
            while not self.over.is_set():
                try:
                    self.made.put(found, timeout=POLL_SECONDS)
                    break
                except Full:
                    continue
            if isinstance(found, BaseException):
                return
