"""A training in a process of its own, watched from here: small models on a CPU gain nothing from a second thread, so that two of
them side by side are done in the time of the longer one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from ..errors import SaccadeError
from .checkpoints import Progress
from .cost import Cost
from .loop import Watcher
from .stopping import Stopped


class Relay(Watcher):
    """Hands on what it is told through a queue."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def cost(self, cost: Cost) -> None:
        self.queue.put(("cost", (cost,)))

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update % 5 == 0:
            self.queue.put(("update", (at, row)))

    def evaluated(self, at: Progress, figures: dict[str, float], best: bool) -> None:
        self.queue.put(("evaluated", (at, figures, best)))

    def note(self, text: str) -> None:
        self.queue.put(("note", (text,)))


class Beside:
    """Within the `with`, `work(relay, *arguments)` runs in another process with one thread; `result()` waits for what it returns.

    `work` must be a function of a module; what it is told by the training reaches `watcher` here.
    """

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], watcher: Watcher) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share torch's threads, which do not survive it
        self.queue, self.watcher = context.Queue(), watcher
        self.process = context.Process(target=run_beside, args=(work, arguments, self.queue), daemon=True)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.answer: tuple[str, Any] = ("error", "the process beside this one ended without a word; is there enough memory?")

    def __enter__(self) -> Beside:
        self.process.start()
        self.listener.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and self.process.is_alive():
            self.process.terminate()
        self.process.join(timeout=30)

    def _listen(self) -> None:
        while True:
            try:
                what, values = self.queue.get(timeout=1)
            except Exception:  # an empty queue, or one whose writer died: the process tells which
                if not self.process.is_alive():
                    return
                continue
            if what in ("result", "error"):
                self.answer = (what, values)
                return
            getattr(self.watcher, what)(*values)

    def result(self) -> Any:
        self.listener.join()
        what, value = self.answer
        if what == "error":
            raise SaccadeError(str(value))
        return value


def run_beside(work: Callable[..., Any], arguments: tuple[Any, ...], queue: Any) -> None:
    """The other process: one thread, and it ends with the one that started it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the one that was started by the user decides
    watch_parent()
    try:
        queue.put(("result", work(Relay(queue), *arguments)))
    except (SaccadeError, Stopped) as error:
        queue.put(("error", str(error)))


def watch_parent() -> None:
    """Ends this process soon after the one that started it was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
