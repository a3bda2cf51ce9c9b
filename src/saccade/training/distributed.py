"""Distributed training with torchrun. Rank 0 writes files and prints. Messages are JSON over gloo, so no GPU waits."""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from ..errors import SaccadeError
from .signals import Stopped

T = TypeVar("T")
# Limit for work of one rank while the others wait, such as an evaluation or a checkpoint.
MAX_WAIT = timedelta(hours=2)
# Seconds between beats, until a silent rank is given up, and for leaving on its own.
BEAT, PATIENCE, GRACE = (1.0, 15.0, 5.0)
# More beats than any rank sends.
FINISHED_BEAT = 1 << 40
LOST_RANK = (
    "another training process died (killed, or out of memory?), so this one stops; "
    "resume the run from its last checkpoint, with any number of processes"
)
_times = itertools.count()
# Closed process groups; see `close`.
_closed: list[Any] = []


class SharedError(SaccadeError):
    """An error that all ranks raise. One rank per machine prints it, unless `prints` is set."""

    def __init__(self, text: str, prints: bool | None = None, *, code: str) -> None:
        super().__init__(text, code=code)
        self.prints = prints


class Ranks:
    """The ranks of a run, or a single process. All ranks must call each method except `share`."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count, self.leads = rank, count, rank == 0

    def share(self, plan: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """This rank's examples of a batch and their weight. A rank without examples gets the first one with weight 0."""
        mine = plan[self.rank :: self.count]
        return (mine, 1) if len(mine) else (plan[:1], 0)

    def everyone(self, value: Any) -> list[Any]:
        """The values of all ranks in order (JSON types)."""
        if self.count == 1:
            return [value]
        # dist.all_gather_object would pickle.
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(text)]))
        longest = max(int(size) for size in sizes)
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        dist.all_gather(texts, torch.nn.functional.pad(text, (0, longest - len(text))))
        return [
            json.loads(bytes(one[: int(size)].tolist()))
            for one, size in zip(texts, sizes, strict=True)
        ]

    def total(self, numbers: Sequence[Any]) -> list[Any]:
        """Element-wise sum over ranks."""
        return [sum(each) for each in zip(*self.everyone(list(numbers)), strict=True)]

    def largest(self, number: float) -> float:
        return float(max(self.everyone(number)))

    def agree(self, do: Callable[[], T]) -> T:
        """Runs `do` on all ranks. An error of one rank is raised by all."""
        if self.count == 1:
            return do()
        try:
            value, wrong = do(), None
        except SaccadeError as error:
            wrong = error.shell, error.code
        for sentence, code in filter(None, self.everyone(wrong)):
            raise SharedError(sentence, code=code)
        return value

    def lead(self, do: Callable[[], T]) -> T:
        """Runs `do` on rank 0. All ranks get its result (JSON types) or its error."""
        found: T = self.everyone(self.agree(lambda: do() if self.leads else None))[0]
        return found

    @contextmanager
    def led(self, context: AbstractContextManager[Any]) -> Iterator[None]:
        """Enters a context on rank 0. If that fails, all ranks stop."""
        with ExitStack() as stack:
            self.lead(lambda: stack.enter_context(context) is None)
            yield


class Heartbeat:
    """Heartbeats in the shared store. Each rank watches the next one, so none waits for a dead rank."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self.store, self.rank, self.next = store, rank, (rank + 1) % count
        self.over, self.answered = threading.Event(), time.monotonic()
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
                silent = beats < FINISHED_BEAT and time.monotonic() - since > PATIENCE
                lost = self.store.add("lost", int(silent)) > 0
            # The process with the store died.
            except RuntimeError:
                lost = True
            self.answered = time.monotonic()
            if lost and not self.over.wait(GRACE):
                end_process(self.first_to_print())

    def watch_store(self) -> None:
        """Detects a store that is off the network, whose calls never return."""
        while not self.over.wait(BEAT):
            if time.monotonic() - self.answered > PATIENCE + GRACE:
                end_process(prints=True)

    def first_to_print(self, lost: bool = False) -> bool:
        """Whether this rank is the first to print why the run ends."""
        with suppress(RuntimeError):
            self.store.add("lost", int(lost))
            return bool(self.store.add("printed", 1) == 1)
        return True


def end_process(prints: bool) -> None:
    """Ends this process even if its main thread is blocked."""
    if prints:
        print(f"saccade: {LOST_RANK}", file=sys.stderr, flush=True)
    os._exit(2)


def processes() -> int:
    """The number of torchrun processes; 1 without torchrun."""
    count = os.environ.get("WORLD_SIZE", "")
    return int(count) if count.isdecimal() else 1


def rank_here() -> int:
    """The rank of this process, 0 without torchrun."""
    number = os.environ.get("RANK", "0")
    if processes() > 1 and not number.isdecimal():
        raise SaccadeError(
            f"expected a whole number in the environment variable RANK, got '{number}'; unset it, or use torchrun",
            code="rank-not-a-number",
        )
    return int(number) if processes() > 1 else 0


def prints(error: Exception) -> bool:
    """Whether this process prints an error. Shared errors are printed once per machine."""
    known = getattr(error, "prints", None)
    return (
        known if known is not None else processes() < 2 or os.environ.get("LOCAL_RANK", "0") == "0"
    )


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Connects the torchrun processes as ranks of one run, each with its own GPU."""
    if processes() < 2:
        yield Ranks()
        return
    if dist.is_initialized():
        raise SaccadeError(
            "a process group is already open, and training opens its own; call destroy_process_group() first",
            code="process-group-open",
        )
    if device.type == "cuda":
        torch.cuda.set_device(
            own_gpu(device, int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count())
        )
    heart = connect("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    except (SharedError, Stopped):
        close(heart)
        raise
    except BaseException as error:
        # Without further beats, the others do not wait for this rank.
        heart.over.set()
        lost = is_disconnect(error)
        first = heart.first_to_print(lost)
        if lost or isinstance(error, SaccadeError):
            code = error.code if isinstance(error, SaccadeError) else "rank-lost"
            raise SharedError(LOST_RANK if lost else str(error), first, code=code) from None
        raise
    close(heart)


def connect(backend: str) -> Heartbeat:
    """Joins the process group of torchrun's environment variables and starts the heartbeat."""
    attempts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        base, rank, count = next(dist.rendezvous("env://"))
        store = dist.PrefixStore(f"saccade/{attempts}/{next(_times)}", base)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=count,
            timeout=MAX_WAIT,
        )
    except (ValueError, RuntimeError) as error:
        why = str(error).split("\n")[0][:200]
        raise SaccadeError(
            f"the training processes cannot connect ({why}); start them with torchrun",
            code="ranks-cannot-connect",
        ) from None
    return Heartbeat(store, rank, count)


def close(heart: Heartbeat) -> None:
    heart.over.set()
    # Regular end: the others must not wait for beats.
    with suppress(RuntimeError):
        heart.store.add(f"beat/{heart.rank}", FINISHED_BEAT)
    # Freeing a gloo group joins its threads while holding the GIL, which can deadlock (torch 2.13). Keep it until the process ends.
    _closed.append(dist.group.WORLD)
    dist.destroy_process_group()
    time.sleep(0.05)


def own_gpu(device: torch.device, local: int, there_are: int) -> int:
    """The GPU index of this process: LOCAL_RANK."""
    if device.index is not None:
        raise SaccadeError(
            f"device is '{device}', but each torchrun process uses its own GPU; write device=cuda",
            code="device-per-rank",
        )
    if local >= there_are:
        advice = f"start torchrun with --nproc-per-node {there_are}, or set device=cpu"
        raise SaccadeError(
            f"process {local} of this machine (counted from 0) has no GPU, there are {there_are}; {advice}",
            code="too-few-gpus",
        )
    return local


def check_shared(path: Path) -> None:
    """Checks that a file written by rank 0 appears on this machine within seconds."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise SaccadeError(
                f"rank {rank_here()} cannot see {path}, which rank 0 wrote; use an out=… that all machines share",
                code="folder-not-shared",
            )
        time.sleep(0.1)


def is_disconnect(error: BaseException) -> bool:
    """Whether an error comes from a closed connection to another rank."""
    named = any(word in str(error) for word in ("gloo", "Connection ", "NCCL"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and named)
