"""Batches in their order; on a GPU made ahead of their turn in another thread, so that updates never wait for them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Any, NamedTuple, Self

from .distributed import Ranks
from .work import Work

iteration_lock = threading.Lock()  # held while a batch is made ahead
POLL_SECONDS = 0.1  # seconds between looks at whether the run is over


class BatchPosition(NamedTuple):
    """Where the next batch is: in which epoch, and how many of its batches come before it."""

    epoch: int
    batch: int


# this rank's part of a batch, how often it counts (0 or 1), and the position after it
Made = tuple[Any, int, BatchPosition]


class Prefetcher:
    """This rank's batches from a position on, as the run asks for them, `count` of them made ahead; use it in a `with`."""

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
                found = self.made.get(timeout=POLL_SECONDS)  # a signal is handled between two waits
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def batches(self) -> Iterator[Made]:
        """All from there on, epoch after epoch."""
        epoch, at = self.spot
        while True:
            if at >= len(self.epoch(epoch)):
                epoch, at = epoch + 1, 0
            mine, counts = self.ranks.share(self.epoch(epoch)[at])
            at += 1
            yield self.work.batch(mine), counts, BatchPosition(epoch, at)

    def fill(self) -> None:
        """Runs in the thread; an error is raised where the batch is asked for."""
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
