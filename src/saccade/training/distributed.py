"""Several processes, one training run (torchrun): rank 0 alone writes files and prints. Messages are JSON over gloo: no GPU waits."""

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
# what one rank does while the others wait: an evaluation, a checkpoint
MAX_WAIT = timedelta(hours=2)
# seconds: between beats, without one until a rank is given up, to leave by itself
BEAT, PATIENCE, GRACE = (1.0, 15.0, 5.0)
FINISHED_BEAT = 1 << 40  # more beats than any rank has
LOST_RANK = (
    "another training process died (killed, or out of memory?), so this one stops; "
    "resume the run from its last checkpoint, with any number of processes"
)
_times = itertools.count()
_closed: list[Any] = []  # groups; see `close`


class SharedError(SaccadeError):
    """An error that all ranks are about to raise, of which one per machine prints it, unless `prints` is set."""

    def __init__(self, text: str, prints: bool | None = None, *, code: str) -> None:
        super().__init__(text, code=code)
        self.prints = prints


class Ranks:
    """This process among those of a run, or alone. Of several, each method but `share` returns when all have called it."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count, self.leads = rank, count, rank == 0

    def share(self, plan: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Every `count`-th example of a batch; a rank left without one computes the batch's first, which counts zero times."""
        mine = plan[self.rank :: self.count]
        return (mine, 1) if len(mine) else (plan[:1], 0)

    def everyone(self, value: Any) -> list[Any]:
        """What every rank passes (as JSON knows it), in the order of the ranks."""
        if self.count == 1:
            return [value]
        # not dist.all_gather_object, which pickles
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
        """Σ over the ranks, number by number."""
        return [sum(each) for each in zip(*self.everyone(list(numbers)), strict=True)]

    def largest(self, number: float) -> float:
        return float(max(self.everyone(number)))

    def agree(self, do: Callable[[], T]) -> T:
        """All do it; an error of one is raised by all."""
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
        """Rank 0 does it, and all get what it returns (as JSON knows it) or the error it raised."""
        return self.everyone(self.agree(lambda: do() if self.leads else None))[0]

    @contextmanager
    def led(self, context: AbstractContextManager[Any]) -> Iterator[None]:
        """Rank 0 is within the context; when it cannot enter, no rank continues."""
        with ExitStack() as stack:
            self.lead(lambda: stack.enter_context(context) is None)
            yield


class Heartbeat:
    """Signs of life in the store that all ranks share, so that none waits for one that died: each listens for the next one."""

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
            except RuntimeError:  # the process that keeps the store died
                lost = True
            self.answered = time.monotonic()
            if lost and not self.over.wait(GRACE):
                end_process(self.first_to_print())

    def watch_store(self) -> None:
        """A call to the store of a machine that is off the network never returns."""
        while not self.over.wait(BEAT):
            if time.monotonic() - self.answered > PATIENCE + GRACE:
                end_process(prints=True)

    def first_to_print(self, lost: bool = False) -> bool:
        """Whether this rank is the first that prints why the run ends; the others need not."""
        with suppress(RuntimeError):
            self.store.add("lost", int(lost))
            return bool(self.store.add("printed", 1) == 1)
        return True


def end_process(prints: bool) -> None:
    """Ends this process, whatever its main thread waits for."""
    if prints:
        print(f"saccade: {LOST_RANK}", file=sys.stderr, flush=True)
    os._exit(2)


def processes() -> int:
    """How many processes torchrun has started; 1 without it, whatever else may have set the variable."""
    count = os.environ.get("WORLD_SIZE", "")
    return int(count) if count.isdecimal() else 1


def rank_here() -> int:
    """This process's rank, 0 when it is alone."""
    number = os.environ.get("RANK", "0")
    if processes() > 1 and not number.isdecimal():
        raise SaccadeError(
            f"expected a whole number in the environment variable RANK, got '{number}'; unset it, or use torchrun",
            code="rank-not-a-number",
        )
    return int(number) if processes() > 1 else 0


def prints(error: Exception) -> bool:
    """Whether this process prints an error: what all ranks know is printed once on each machine."""
    known = getattr(error, "prints", None)
    return (
        known if known is not None else processes() < 2 or os.environ.get("LOCAL_RANK", "0") == "0"
    )


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Within the `with`, the processes that torchrun started are the ranks of one run, each with its own GPU where there are GPUs."""
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
    except (SharedError, Stopped):  # all ranks are here
        close(heart)
        raise
    except BaseException as error:
        heart.over.set()  # without further beats, the others do not wait for a rank that leaves
        lost = is_disconnect(error)
        first = heart.first_to_print(lost)
        if lost or isinstance(error, SaccadeError):
            code = error.code if isinstance(error, SaccadeError) else "rank-lost"
            raise SharedError(LOST_RANK if lost else str(error), first, code=code) from None
        raise
    close(heart)


def connect(backend: str) -> Heartbeat:
    """Waits for the other ranks, where torchrun's variables say, and starts to beat."""
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
    # this rank ends as it should: the others must not wait for its beats
    with suppress(RuntimeError):
        heart.store.add(f"beat/{heart.rank}", FINISHED_BEAT)
    # A gloo group that is freed joins its threads while it holds Python's lock, for which one of them may wait: the process would hang
    # (seen with torch 2.13). So the group is kept until the process ends.
    _closed.append(dist.group.WORLD)
    dist.destroy_process_group()
    time.sleep(0.05)


def own_gpu(device: torch.device, local: int, there_are: int) -> int:
    """The number of this process's GPU: LOCAL_RANK."""
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
    """A file that rank 0 has written must appear here too, within some seconds."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise SaccadeError(
                f"rank {rank_here()} cannot see {path}, which rank 0 wrote; use an out=… that all machines share",
                code="folder-not-shared",
            )
        time.sleep(0.1)


def is_disconnect(error: BaseException) -> bool:
    """Whether an error comes from a connection that another rank has left."""
    named = any(word in str(error) for word in ("gloo", "Connection ", "NCCL"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and named)
