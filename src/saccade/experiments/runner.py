"""Runs the jobs of a table: one after another here, side by side in worker processes that stay, or on a Ray cluster."""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from .. import api
from ..config import recipes
from ..config.recipes import Recipe
from ..errors import SaccadeError
from ..settings import AUTO
from ..system.build import build, prepared
from ..system.model_folder import model_folder, vocabularies_file
from ..system.system import System
from ..training.checkpoints import Progress
from ..training.cost import summary
from ..training.logs import read_rows
from ..training.loop import Watcher
from ..training.run_printer import RunPrinter
from ..training.signals import Stopped, stop_on_signals
from ..training.work import Work
from .study import Job, Values

DIED = "its process died twice; it may need more memory than there is"
# scores on a test set that results have
TESTED = ("bleu", "gleu", "chrf", "aer", "accuracy", "perplexity", "exact")
SECONDS = 0.3  # between two signs of life of a training, and between two looks at signals


class Prepared:
    """Reads data and learns vocabularies once for rows that differ in their models alone; the last few are kept."""

    def __init__(self) -> None:
        self.kept: dict[str, Work] = {}

    def __call__(self, made: Recipe) -> tuple[System, Work]:
        same = {
            name: value
            for name, value in made.to_dict().items()
            if name not in ("model", "start_from")
        }
        if made.start_from:  # models of one table have one vocabulary
            same["vocabulary"] = vocabularies_file(model_folder(Path(made.start_from))).read_text(
                encoding="utf-8"
            )
        key = json.dumps(same, sort_keys=True)
        if key in self.kept:
            work = self.kept[key]
            return build(made, (), work.task), work  # type: ignore[attr-defined]
        system, work = prepared(made)
        self.kept = dict([*self.kept.items(), (key, work)][-3:])
        return system, work


@dataclass
class Context:
    """What a job is run with: who watches, how many threads it has, and what reads its data."""

    watcher: Watcher = field(default_factory=Watcher)
    threads: int = 1
    prepare: Prepared = field(default_factory=Prepared)


class Reports(RunPrinter):
    """Passes on how far a training is (updates, how many there are, and its loss), and its notes."""

    def __init__(self, name: str, send: Callable[..., object]) -> None:
        super().__init__(name, send)
        self.send, self.last = send, 0.0

    def another(self, name: str) -> Reports:
        return Reports(name, self.send)

    def stage(self, text: str) -> None: ...

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if time.monotonic() - self.last >= SECONDS:
            self.last = time.monotonic()
            self.send(at.update, self.total, self.state(at, row))


def recipe_of(job: Job, threads: int) -> Recipe:
    """The recipe of a job that trains, with so many threads (0: its own); one that follows another starts from its model."""
    start = {"start_from": str(job.after[0].folder)} if job.after else {}
    own = job.recipe["training"]
    training = {**own, "threads": threads or own.get("threads", AUTO), **best_rate(job)}
    return recipes.recipe({**job.recipe, **start, "seed": job.seed, "training": training})


def best_rate(job: Job) -> Values:
    """The learning rate of the training with the lowest loss among those that a job reads; nothing where it reads none."""
    found = [json.loads(one.result.read_text(encoding="utf-8"))["values"] for one in job.reads]
    worked = [values for values in found if values["final_loss"] is not None]
    if found and not worked:
        raise SaccadeError(
            f"{job.label}: no learning rate of its sweep works; the first: {found[0]['error']}",
            code="sweep-failed",
        )
    return (
        {"learning_rate": min(worked, key=lambda values: values["final_loss"])["learning_rate"]}
        if found
        else {}
    )


def try_rate(job: Job, context: Context) -> Values:
    """A training of a sweep of learning rates; one that diverges has no loss."""
    rate = {"learning_rate": job.recipe["training"]["learning_rate"]}
    try:
        return {**train(job, context), **rate}
    except SaccadeError as error:
        return {"final_loss": None, "error": str(error), **rate}


def train(job: Job, context: Context) -> Values:
    """Trains by the job's recipe, or continues; its losses on the dev set, what it watches, its scores on the test set, and its cost."""
    made = recipe_of(job, context.threads)
    system, ended = api.fit(made, job.folder, True, context.watcher, context.prepare)
    rows = [row for row in read_rows(job.folder / "log.jsonl") if "dev_loss" in row]
    losses = [row["dev_loss"] for row in rows]
    found = {
        "early_loss": losses[0],
        "final_loss": losses[-1],
        made.training.watch: ended.best,
        "seconds": ended.seconds,
    }
    found["learning_rate"] = made.training.learning_rate
    if (reach := job.settings.get("asked", {}).get("reach")) is not None:
        found["reached"] = next((row["update"] for row in rows if row["dev_loss"] <= reach), None)
    if made.data.test:
        scores = system.evaluate(system.read("test"))
        found |= {name: float(scores[name]) for name in TESTED if name in scores}
        found |= {"test_loss": float(scores["loss"])} if "loss" in scores else {}
    return {**found, **summary(ended, system.model)}


def perform(job: Job, context: Context) -> str:
    """Runs a job and writes its result; a sentence about what went wrong, or nothing."""
    try:
        job.write(job.do(job, context))
        return ""
    except SaccadeError as error:
        return error.shell
    except Stopped:
        raise
    except Exception as error:  # one row that fails must not end a table
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class Board:
    """Is called while jobs run; this one does nothing."""

    def begin(self, job: Job) -> None: ...
    def at(self, job: Job, update: int, total: int, state: str) -> None: ...
    def end(self, job: Job, error: str) -> None: ...
    def note(self, text: str) -> None: ...
    def expect(self, count: int, seconds: float, operations: float, jobs: int) -> None:
        """What the jobs to do are expected to take, one after another."""

    def hear(self, job: Job, *said: Any) -> None:
        """Something that a job sends while it runs: a note, or how far it is."""
        self.note(*said) if len(said) == 1 else self.at(job, *said)


class Queue:
    """Which job may run next: those it needs are done, and nothing that is timed has company."""

    def __init__(self, jobs: Sequence[Job], board: Board) -> None:
        # what is timed first, before others fill the machine
        self.waiting = sorted(jobs, key=lambda job: not job.alone)
        self.board = board
        self.running: list[Job] = []
        self.failed: dict[str, str] = {}  # name → why
        self.retried: set[str] = set()

    @property
    def open(self) -> bool:
        return bool(self.waiting or self.running)

    def fits(self, job: Job) -> bool:
        """Whether there is time for a job that could run now."""
        return True

    def tend(self, workers: Sequence[Worker]) -> None:
        """Is called again and again while processes work; this one does nothing."""

    def take(self) -> Job | None:
        """The next job, which then runs; None when none may start now."""
        for job in self.waiting if not any(one.alone for one in self.running) else ():
            coming = {one.name for one in (*self.waiting, *self.running)} | set(self.failed)
            before = [one for one in (*job.after, *job.reads) if not one.done or one.name in coming]
            broken = [one for one in before if one.name in self.failed]
            if broken and (not job.any_after or len(broken) == len(job.after)):
                self.running.append(job)
                self.waiting.remove(job)
                self.end(job, f"{broken[0].label} failed")
                return self.take()
            if len(broken) == len(before) and not (job.alone and self.running) and self.fits(job):
                self.waiting.remove(job)
                self.running.append(job)
                self.board.begin(job)
                return job
        return None

    def end(self, job: Job, error: str) -> None:
        self.running.remove(job)
        if error:
            self.failed[job.name] = error
        self.board.end(job, error)

    def died(self, job: Job) -> None:
        """The process of a job died: it runs again, once."""
        if job.name in self.retried:
            self.end(job, DIED)
            return
        self.retried.add(job.name)
        self.running.remove(job)
        self.waiting.insert(0, job)


class Interrupted(Stopped):
    """A signal ended a table; what was running has written a checkpoint."""

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        Exception.__init__(
            self, f"stopped by {name}; what is finished is kept, continue with the same command"
        )
        self.code, self.at = 128 + number, (number, 0)


def run_here(queue: Queue, threads: int) -> None:
    """One after another, in this process."""
    context = Context(threads=threads)
    while job := queue.take():
        context.watcher = Reports(job.label, partial(queue.board.hear, job))
        try:
            queue.end(job, perform(job, context))
        except Stopped as stopped:
            raise Interrupted(stopped.at[0]) from None
        except KeyboardInterrupt:
            raise Interrupted(signal.SIGINT) from None


def serve(connection: Connection, number: int, threads: int) -> None:
    """A worker process: runs the jobs that it is sent, and answers with how far each is, then with what went wrong, or nothing."""
    # of the terminal; whoever started this process sends SIGTERM
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    context = Context(threads=threads)
    while True:
        try:
            job = connection.recv()
            context.watcher = Reports(job.label, lambda *said: connection.send(said))
            connection.send(perform(job, context))
        except (EOFError, OSError):  # nobody is there any more
            return
        except Stopped:
            sys.exit(0)


class Worker:
    """A process that stays, so that PyTorch and the data are loaded once."""

    def __init__(self, number: int, threads: int) -> None:
        spawn = get_context("spawn")
        self.connection, there = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(there, number, threads), daemon=True)
        self.number, self.threads = number, threads
        self.job: Job | None = None
        self.until = float("inf")
        self.process.start()
        there.close()

    def send(self, job: Job) -> None:
        self.job, self.until = job, time.monotonic() + job.limit
        with suppress(OSError):  # a process that is gone is noticed when its answer is read
            self.connection.send(job)

    def receive(self, queue: Queue) -> bool:
        """Reads one answer; False when the process is gone."""
        assert self.job is not None
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            return False
        if isinstance(answer, str):
            job, self.job = self.job, None
            queue.end(job, answer)
        else:
            queue.board.hear(self.job, *answer)
        return True

    def replaced(self, kill: bool = False) -> Worker:
        """Another process instead of this one."""
        if kill:
            self.process.kill()
        self.close()
        return Worker(self.number, self.threads)

    def close(self) -> None:
        if self.job is not None:  # time is up
            self.process.kill()
        self.connection.close()
        self.process.join(timeout=10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_side_by_side(queue: Queue, count: int, threads: int) -> None:
    """In worker processes; a row whose process died is run again in another one."""
    workers = [Worker(number, threads) for number in range(min(count, len(queue.waiting)))]
    try:
        with stop_on_signals() as signals:
            while queue.open and not signals:
                for worker in workers:
                    if worker.job is None and (job := queue.take()):
                        worker.send(job)
                busy: dict[Any, Worker] = {
                    worker.connection: worker for worker in workers if worker.job is not None
                }
                for ready in wait(list(busy), SECONDS):
                    worker = busy[ready]
                    if not worker.receive(queue):
                        queue.died(worker.job)  # type: ignore[arg-type]
                        workers[workers.index(worker)] = worker.replaced()
                for worker in [
                    one
                    for one in busy.values()
                    if one.job is not None and time.monotonic() > one.until
                ]:
                    queue.end(
                        worker.job,  # type: ignore[arg-type]
                        f"it took longer than {worker.job.limit:.0f} s and was ended",  # type: ignore[union-attr]
                    )
                    workers[workers.index(worker)] = worker.replaced(kill=True)
                queue.tend(workers)
            if signals:
                for worker in workers:
                    worker.process.terminate()  # a training writes a checkpoint first
                for worker in workers:
                    worker.process.join(timeout=60)
                raise Interrupted(signals[0])
    finally:
        for worker in workers:
            worker.close()


def run(queue: Queue, count: int, threads: int, on: str) -> None:
    """Runs all jobs of a queue: `count` side by side, `here` or on `ray`."""
    if on == "ray":
        from .ray_runner import run_on_ray

        run_on_ray(queue, count, threads)
    elif count > 1:
        run_side_by_side(queue, count, threads)
    else:
        run_here(queue, threads)
