"""The one thread that runs models: outputs of the fast decoder flow together step by step, all else is run in batches by arrival."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import SaccadeError
from .continuous_batching import Flow, Output
from .schema import Refused
from .service_settings import Limits

log = logging.getLogger("saccade.serving")
# a new output waits this long for others while there are fewer than 1 new for 4 old ones
ENTRY_SECONDS, OLD_PER_NEW = 0.008, 4
# the last answers that give the speed; a text may wait this long at that speed
SPEED_ANSWERS, MAX_WAIT_SECONDS = 32, 3.0
ENDED = object()  # behind the last piece of a stream


@dataclass(eq=False)
class Job:
    """The work on one text and its result: an output in a flow, an item of a batch, or pieces of a stream."""

    flow: Flow | None = None
    output: Output | None = None
    finish: Callable[[Any], Any] | None = None
    key: Hashable = None  # jobs of one key are run together, by the `run` of any of them
    item: Any = None
    run: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    pieces: Iterator[str] | None = None
    streams: bool = False
    cancelled: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    outbox: Outbox = field(default_factory=lambda: Outbox())

    def __post_init__(self) -> None:
        self.came = time.monotonic()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.spoken: list[str] = []

    def cancel(self) -> None:
        """Mark the job as cancelled; the client is gone."""
        self.cancelled = True
        self.future.cancel()

    def deliver(self, result: Any) -> None:
        self.call(lambda: None if self.future.done() else self.future.set_result(result))

    def fail(self, error: BaseException) -> None:
        self.call(lambda: None if self.future.done() else self.future.set_exception(error))

    def say(self, piece: str) -> None:
        """Add a piece, and send it if the result is streamed."""
        self.spoken.append(piece)
        if self.streams:
            self.call(lambda: self.queue.put_nowait(piece))

    def end_stream(self) -> None:
        if self.streams:
            self.call(lambda: self.queue.put_nowait(ENDED))

    async def stream(self) -> AsyncIterator[str]:
        """The pieces as they come; an error of the work is raised behind them."""
        while (piece := await self.queue.get()) is not ENDED:
            yield piece
        await self.future

    def call(self, what: Callable[[], object]) -> None:
        self.outbox.append((self.loop, what))


class Outbox(deque[tuple[asyncio.AbstractEventLoop, Callable[[], object]]]):
    """Callbacks for event loops, handed over in batches: each wake-up costs the model thread a turn."""

    def hand_over(self) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Callable[[], object]]] = {}
        with contextlib.suppress(IndexError):  # empty; another thread may hand over too
            while True:
                loop, what = self.popleft()
                by_loop.setdefault(loop, []).append(what)
        for loop, some in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(call_all, some)


def call_all(some: Sequence[Callable[[], object]]) -> None:
    for what in some:
        what()


class Worker(threading.Thread):
    """Takes jobs as they come. What enters a flow waits for no more than the step that is running."""

    def __init__(
        self, limits: Limits, observe: Callable[[str, float], None] = lambda name, value: None
    ) -> None:
        super().__init__(name="saccade-worker", daemon=True)
        self.limits, self.observe = limits, observe
        self.changed = threading.Condition()
        self.inbox: deque[Job] = deque()
        self.outbox = Outbox()
        self.active: set[Job] = set()  # jobs with a waiting client
        self.answered: deque[float] = deque(maxlen=SPEED_ANSWERS)  # when the last ones left
        self.ended = False
        self.waiting: dict[Flow, deque[Job]] = {}
        self.flowing: dict[Output, Job] = {}
        self.grouped: dict[Hashable, deque[Job]] = {}
        self.speaking: list[Job] = []

    def check_room(self, more: int = 1) -> None:
        """Refuse jobs that do not fit, or would wait too long at the speed of the last answers."""
        busy, times = len(self.active), self.answered
        late = False
        if busy >= self.limits.together and len(times) == SPEED_ANSWERS:
            late = busy * (times[-1] - times[0]) / SPEED_ANSWERS > MAX_WAIT_SECONDS
        if late or busy + more > self.limits.queue:
            raise Refused(
                429,
                f"{len(self.active):,} texts are waiting already; try again in a second",
                code="busy",
                Retry_After="1",
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        """Takes all of them or none; called in the thread of the event loop."""
        self.check_room(len(jobs))
        for job in jobs:
            self.active.add(job)
            job.outbox = self.outbox
            job.future.add_done_callback(partial(self.leave, job))
        with self.changed:
            self.inbox.extend(jobs)
            self.changed.notify()

    def leave(self, job: Job, future: asyncio.Future[Any]) -> None:
        self.active.discard(job)
        self.answered.append(time.monotonic())
        if not self.active:
            self.answered.clear()  # a pause says nothing about speed
        if not future.cancelled():
            future.exception()  # marks it as retrieved

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify()

    def run(self) -> None:
        while True:
            with self.changed:
                while not (self.inbox or self.ended or self.has_work()):
                    self.changed.wait()
                if self.ended:
                    return
                new, self.inbox = self.inbox, deque()
            for job in new:
                self.sort(job)
            self.advance()

    def has_work(self) -> bool:
        return any((self.waiting, self.flowing, self.grouped, self.speaking))

    def sort(self, job: Job) -> None:
        if job.flow is not None:
            self.waiting.setdefault(job.flow, deque()).append(job)
        elif job.pieces is not None:
            self.speaking.append(job)
        else:
            self.grouped.setdefault(job.key, deque()).append(job)

    def advance(self) -> None:
        """Do one step of each kind of work."""
        for flow in list(self.waiting):
            self.enter(flow)
        for flow in {job.flow for job in self.flowing.values() if job.flow is not None}:
            self.step(flow)
        self.outbox.hand_over()
        if self.grouped:
            self.run_group(next(iter(self.grouped)))
        for job in list(self.speaking):
            self.speak(job)
        self.outbox.hand_over()

    def enter(self, flow: Flow) -> None:
        """Admit as many outputs as fit; few new ones beside many wait some milliseconds to be read together."""
        queue = self.waiting[flow]
        space = max(self.limits.together // flow.width, 1) - len(flow.outputs)
        if (
            len(queue) * OLD_PER_NEW < len(flow.outputs)
            and time.monotonic() - queue[0].came < ENTRY_SECONDS
        ):
            return
        some = [queue.popleft() for _ in range(min(space, len(queue)))]
        some = [job for job in some if not job.cancelled]
        if not queue:
            del self.waiting[flow]
        if some:
            self.enter_all(flow, some)

    def enter_all(self, flow: Flow, jobs: list[Job]) -> None:
        try:
            flow.enter([job.output for job in jobs if job.output is not None])
        except Exception as error:
            if len(jobs) > 1:  # one of them cannot be read
                for job in jobs:
                    self.enter_all(flow, [job])
                return
            self.refuse(jobs, error)
            return
        self.flowing |= {job.output: job for job in jobs if job.output is not None}

    def step(self, flow: Flow) -> None:
        self.observe("batch", len(flow.outputs))
        try:
            ended = flow.step()
        except Exception as error:
            self.refuse([self.flowing.pop(one) for one in flow.outputs], error)
            flow.retain([])
            return
        for one in ended:
            job = self.flowing.pop(one)
            if one.found is None:
                continue
            self.observe("tokens", len(one.found[0].tokens))
            try:
                assert job.finish is not None
                job.deliver(job.finish(one.found))
                job.end_stream()
            except Exception as error:
                self.refuse([job], error)

    def run_group(self, key: Hashable) -> None:
        queue = self.grouped[key]
        jobs = [queue.popleft() for _ in range(min(self.limits.together, len(queue)))]
        if not queue:
            del self.grouped[key]
        jobs = [job for job in jobs if not job.cancelled]
        if jobs:
            self.observe("batch", len(jobs))
            self.run_all(jobs)

    def run_all(self, jobs: list[Job]) -> None:
        run = jobs[0].run
        assert run is not None
        try:
            found = run([job.item for job in jobs])
        except Exception as error:
            if len(jobs) > 1:  # the others shall not pay for the one that is wrong
                for job in jobs:
                    self.run_all([job])
                return
            self.refuse(jobs, error)
            return
        for job, result in zip(jobs, found, strict=True):
            job.deliver(result)

    def speak(self, job: Job) -> None:
        assert job.pieces is not None
        assert job.finish is not None
        try:
            piece = None if job.cancelled else next(job.pieces, None)
            if piece is not None:
                job.say(piece)
                return
            job.deliver(job.finish(None))
            job.end_stream()
        except Exception as error:
            self.refuse([job], error)
        self.speaking.remove(job)

    def refuse(self, jobs: Sequence[Job], error: Exception) -> None:
        """Fail these jobs; errors other than bad input go to the log."""
        if not isinstance(error, SaccadeError | Refused):
            log.error("a batch failed", exc_info=error)
        for job in jobs:
            job.fail(error)
            job.end_stream()
        self.outbox.hand_over()
