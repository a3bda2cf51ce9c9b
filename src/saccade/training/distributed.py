"""Many processes, one training (torchrun): what ranks tell each other, and what happens when one of them goes.

A rank is one process. Rank 0 leads: it alone writes files and speaks. Counts, decisions and sentences go over gloo, as whole numbers
or JSON, so that no GPU waits for them; gradients and parameters go over nccl between GPUs.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
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
from .stopping import Stopped

T = TypeVar("T")
LONGEST = timedelta(hours=2)  # what one rank does while the others wait: an evaluation, a checkpoint
BEAT, PATIENCE, GRACE = 1.0, 15.0, 5.0  # seconds: between signs of life, without one until a rank is given up, to leave by itself
FINISHED = 1 << 40  # more signs of life than any rank gives
GONE = (
    "another process of this training has gone (killed, or out of memory?), so all of them end; "
    "go on from the last checkpoint with --resume, with any number of processes"
)
_times = itertools.count()
_kept: list[Any] = []  # groups that are closed; see `Watch.finish`


class Shared(SaccadeError):
    """A mistake that all ranks know of; one of them `speaks`."""

    def __init__(self, text: str, speaks: bool) -> None:
        super().__init__(text)
        self.speaks = speaks


class Gone(Shared):
    """A rank has left the others without a word."""


class Ranks:
    """One process alone, which has nobody to ask; `Many` asks the others."""

    rank, count = 0, 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, plan: Any) -> tuple[Any, int]:
        """This rank's part of a batch's examples, and how often they count."""
        return plan, 1

    def total(self, numbers: Sequence[Any]) -> list[Any]:
        """Σ over the ranks, number by number."""
        return list(numbers)

    def largest(self, number: float) -> float:
        """The largest of the ranks' numbers."""
        return number

    def joined(self, items: Sequence[int]) -> Sequence[int]:
        """The items of all ranks, one rank's after another's."""
        return items

    def mistake(self, text: str) -> SaccadeError:
        """The error that all ranks are about to raise."""
        return SaccadeError(text)

    def lead(self, do: Callable[[], T]) -> T:
        """Rank 0 does it, and all get what it returns (as JSON knows it) or the mistake it made."""
        return do()

    def agree(self, do: Callable[[], T]) -> T:
        """All do it; a mistake of one is a mistake of all."""
        return do()

    @contextmanager
    def led(self, context: AbstractContextManager[Any]) -> Iterator[None]:
        """Rank 0 is within the context; when it cannot enter, nobody goes on."""
        with ExitStack() as stack:
            self.lead(lambda: enter(stack, context))
            yield


def enter(stack: ExitStack, context: AbstractContextManager[Any]) -> None:
    stack.enter_context(context)


class Many(Ranks):
    """One of several processes. Each method but `share` is a meeting: it returns when every rank has called it."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    def share(self, plan: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Every `count`-th example; a rank that is left without one computes the batch's first, and counts it zero times."""
        mine = plan[self.rank :: self.count]
        return (mine, 1) if len(mine) else (plan[:1], 0)

    def total(self, numbers: Sequence[Any]) -> list[Any]:
        whole = all(isinstance(number, int) for number in numbers)
        sums = torch.tensor(numbers, dtype=torch.int64 if whole else torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def largest(self, number: float) -> float:
        found = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def joined(self, items: Sequence[int]) -> Sequence[int]:
        return [item for one in self.told(list(items)) for item in one]

    def told(self, value: Any) -> list[Any]:
        """What every rank has to say, in the order of the ranks."""
        words = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(words)]))
        longest = max(int(size) for size in sizes)
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        dist.all_gather(texts, torch.nn.functional.pad(words, (0, longest - len(words))))
        return [json.loads(bytes(text[: int(size)].tolist())) for text, size in zip(texts, sizes, strict=True)]

    def mistake(self, text: str) -> SaccadeError:
        return Shared(text, first_here())

    def lead(self, do: Callable[[], T]) -> T:
        mistake, value = attempt(do) if self.leads else (None, None)
        mistake, known = self.told([mistake, value if self.leads else None])[0]
        if mistake is not None:
            raise self.mistake(mistake)
        return value if self.leads else known  # type: ignore[return-value]

    def agree(self, do: Callable[[], T]) -> T:
        mistake, value = attempt(do)
        for one in self.told(mistake):
            if one is not None:
                raise self.mistake(one)
        return value  # type: ignore[return-value]


def attempt(do: Callable[[], T]) -> tuple[str | None, T | None]:
    """(what is wrong, None), or (None, what is returned)."""
    try:
        return None, do()
    except SaccadeError as error:
        return str(error), None


def processes() -> int:
    """How many processes torchrun has started; 1 without it, whatever else may have set the variable."""
    told = os.environ.get("WORLD_SIZE", "")
    return int(told) if told.isdecimal() else 1


def rank_here() -> int:
    """This process's rank, 0 when it is alone."""
    return int(os.environ.get("RANK", "0")) if processes() > 1 else 0


def first_here() -> bool:
    """Whether this process is the first of its machine."""
    return processes() < 2 or os.environ.get("LOCAL_RANK", "0") == "0"


def speaks(error: Exception) -> bool:
    """Whether this process says an error aloud: what all ranks know is said once on each machine."""
    return error.speaks if isinstance(error, Shared) else first_here()


@contextmanager
def together(device: torch.device) -> Iterator[Ranks]:
    """Within the `with`, the processes that torchrun started are ranks of one training; alone where there is one process.

    Each has a GPU of its own where there are GPUs: `cuda` is then cuda:LOCAL_RANK.
    """
    if processes() < 2:
        yield Ranks()
        return
    if dist.is_initialized():
        raise SaccadeError("a process group is open already, and a training opens its own; destroy_process_group() before it")
    if device.type == "cuda":
        torch.cuda.set_device(own_gpu(device, int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()))
    watch = meet("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Many(watch.rank, watch.count)
    except (Shared, Stopped):  # all ranks are here
        watch.finish()
        raise
    except BaseException as error:
        watch.over.set()  # no further sign of life: the others must not wait for a rank that leaves
        if isinstance(error, RuntimeError) and broken_off(error):
            raise watch.gone() from None
        # this rank's alone: it tells what is wrong, so that the others need not speak of one that has gone
        first = watch.first_to_speak()
        if isinstance(error, SaccadeError):
            raise Shared(str(error), first) from None
        raise
    watch.finish()


def meet(backend: str) -> Watch:
    """Waits for the other ranks, as torchrun's variables say where, and begins to watch them."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        base, rank, count = next(dist.rendezvous("env://"))
        store = dist.PrefixStore(f"saccade/{attempt}/{next(_times)}", base)
        dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=count, timeout=LONGEST)
    except (ValueError, RuntimeError) as error:
        why = str(error).split("\n")[0][:200]
        raise SaccadeError(f"the processes of this training do not meet ({why}); start them with torchrun") from None
    watch = Watch(store, rank, count)
    watch.start()
    return watch


def own_gpu(device: torch.device, local: int, there_are: int) -> int:
    """The number of this process's GPU: LOCAL_RANK."""
    if device.index is not None:
        raise SaccadeError(f"device is '{device}', and each process of torchrun has a GPU of its own; write device=cuda")
    if local >= there_are:
        raise SaccadeError(
            f"process {local} of this machine (counted from 0) has no GPU, of which there are {there_are} here; "
            f"start torchrun with --nproc-per-node {there_are}, or set device=cpu"
        )
    return local


def check_shared(path: Path) -> None:
    """A file that rank 0 has written is there for this rank too, at most some seconds later."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise SaccadeError(
                f"rank {rank_here()} sees no {path}, which rank 0 has written; give --out a folder that all machines share"
            )
        time.sleep(0.1)


def broken_off(error: RuntimeError) -> bool:
    """Whether an error comes from a connection that another rank has left."""
    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "Connection ", "NCCL"))


class Watch(threading.Thread):
    """Gives signs of life and looks for those of the next rank, so that nobody waits for a process that was killed.

    A rank that waits on a GPU or on a machine that is off the net would not notice by itself. Who notices tells all the others through
    the store; when the store does not answer, the machine that keeps it is the one that has gone.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        super().__init__(daemon=True)
        self.store, self.rank, self.count, self.next = store, rank, count, (rank + 1) % count
        self.over, self.answered = threading.Event(), time.monotonic()

    def start(self) -> None:
        super().start()
        threading.Thread(target=self.watch_store, daemon=True).start()

    def run(self) -> None:
        seen, since = -1, time.monotonic()
        while not self.over.wait(BEAT):
            try:
                self.store.add(f"beat/{self.rank}", 1)
                beat = self.store.add(f"beat/{self.next}", 0)
                if beat != seen:
                    seen, since = beat, time.monotonic()
                elif beat < FINISHED and time.monotonic() - since > PATIENCE:
                    self.store.add("gone", 1)
                lost = self.store.add("gone", 0) > 0
            except RuntimeError:  # the process that keeps the store has gone
                lost = True
            self.answered = time.monotonic()
            if lost and not self.over.wait(GRACE):
                leave(self.first_to_speak())

    def watch_store(self) -> None:
        """Ends this process when the store has not answered for too long."""
        while not self.over.wait(BEAT):
            if time.monotonic() - self.answered > PATIENCE + GRACE:
                leave(first_here())

    def gone(self) -> Gone:
        """The error for a rank that has gone, which the first rank to notice says aloud."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # torchrun sends it to the ranks that are left; they are leaving, and speak first
        with suppress(RuntimeError):
            self.store.add("gone", 1)
        return Gone(GONE, self.first_to_speak())

    def first_to_speak(self) -> bool:
        try:
            return self.store.add("said", 1) == 1
        except RuntimeError:
            return True

    def finish(self) -> None:
        """This rank is done, as all are, and the others need not look for it."""
        self.over.set()
        with suppress(RuntimeError):
            self.store.add(f"beat/{self.rank}", FINISHED)
        # When a gloo group is freed it joins its threads and lets none of them have Python's lock, for which one of them may wait to
        # free the last tensor it sent: the process would stand still (seen with torch 2.13). So the group is kept until the process ends.
        _kept.append(dist.group.WORLD)
        dist.destroy_process_group()
        time.sleep(0.05)


def leave(speaks: bool) -> None:
    """Ends this process, whatever its main thread waits for."""
    if speaks:
        print(f"saccade: {GONE}", file=sys.stderr, flush=True)
    os._exit(2)
