"""Starts the ranks of a training, as torchrun does, for the tests: run as a program it imports once, keeps the store, and forks."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from saccade.core.auxiliary_losses import add_loss
from saccade.errors import SaccadeError
from saccade.layers.block import Block
from saccade.tasks.task import ExampleWork
from saccade.training import checkpoints

RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "options": {"train": 60, "dev": 6, "test": 4},
    },
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {
        "family": "transformer",
        "dim": 16,
        "hidden": 16,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
    },
    "training": {
        "updates": 6,
        "tokens": 200,
        "learning_rate": 0.01,
        "warmup": 4,
        "evaluate_every": 3,
        "log_every": 1,
    },
    "device": "cpu",
}


def prank_nan(rank: int) -> None:
    """One sentence has a loss that is not a number."""
    plain = ExampleWork.loss
    bad = ExampleWork.loss = lambda self, model, batch: (
        plain(self, model, batch) * (float("nan") if 7 in batch.lines else 1)
    )  # type: ignore[assignment,method-assign]
    assert bad is not plain


def prank_alone(rank: int) -> None:
    """Rank 1 alone makes a mistake, in the middle of an update."""

    def loss(self: Any, model: Any, batch: Any) -> Any:
        raise SaccadeError("a mistake of rank 1 alone; mend it")

    if rank == 1:
        ExampleWork.loss = loss  # type: ignore[method-assign]


def prank_defect(rank: int) -> None:
    """Rank 0 alone meets a defect, in the middle of an update."""

    def loss(self: Any, model: Any, batch: Any) -> Any:
        raise ZeroDivisionError("a defect")

    if rank == 0:
        ExampleWork.loss = loss  # type: ignore[method-assign]


def prank_disk(rank: int) -> None:
    """Rank 0 cannot write a checkpoint."""

    def write(target: Path, writers: Any, size: int) -> None:
        if target.name != "last":
            return real(target, writers, size)
        raise SaccadeError(
            "cannot write last: No space left on device; choose another path or free some disk space"
        )

    real = checkpoints.write_folder
    if rank == 0:
        checkpoints.write_folder = write


def prank_costs(rank: int) -> None:
    """Every block leaves a cost for each row, of what it computes for the row's first position."""
    plain = Block.forward

    def forward(self: Any, *given: Any, **more: Any) -> Any:
        x = plain(self, *given, **more)
        return add_loss(x, "size", x[:, 0].abs().mean(-1))

    Block.forward = forward  # type: ignore[method-assign]


PRANKS = {
    "costs": prank_costs,
    "nan": prank_nan,
    "alone": prank_alone,
    "defect": prank_defect,
    "disk": prank_disk,
}


def serve() -> None:
    """The program: for each line of JSON on stdin some ranks run a command; how they ended goes to stdout."""
    torch.set_num_threads(1)
    for name in (
        "saccade.cli",
        "torch.distributed.checkpoint",
        "torch.distributed.fsdp",
        "torch.distributed.tensor",
    ):
        importlib.import_module(name)  # once, and not in each rank
    for line in sys.stdin:
        print(json.dumps(launch(**json.loads(line))), flush=True)


def launch(
    words: list[str], count: int, out: str, at: int, send: list[int], prank: str
) -> dict[str, Any]:
    """Runs ranks; once the log in `out` has `at` rows, a signal is sent to a rank. Codes, texts, seconds since the signal."""
    log = Path(out) / "log.jsonl"
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    children = [start(words, rank, count, store.port, out, prank) for rank in range(count)]
    codes: dict[int, int] = {}
    sent, until = 0.0, time.monotonic() + 240
    while len(codes) < count and time.monotonic() < until:
        for rank, child in enumerate(children):
            if rank not in codes and (done := os.waitpid(child, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(done[1])
        if send and not sent and log.exists() and log.read_text().count("\n") >= at:
            os.kill(children[send[0]], send[1])
            sent = time.monotonic()
        if sent and send[1] == signal.SIGSTOP and len(codes) == count - 1:
            os.kill(children[send[0]], signal.SIGKILL)
        time.sleep(0.01)
    hung = [rank for rank in range(count) if rank not in codes]
    for rank in hung:
        os.kill(children[rank], signal.SIGKILL)
        os.waitpid(children[rank], 0)
    texts = {
        stream: [Path(f"{out}.{rank}.{stream}").read_text() for rank in range(count)]
        for stream in ("out", "err")
    }
    return {
        "codes": [codes.get(rank) for rank in range(count)],
        "hung": hung,
        "seconds": time.monotonic() - sent,
        **texts,
    }


def start(words: list[str], rank: int, count: int, port: int, out: str, prank: str) -> int:
    """One rank, in the surroundings that torchrun makes."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        for number, stream in ((1, "out"), (2, "err")):
            os.dup2(
                os.open(f"{out}.{rank}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number
            )
        if count > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1"
            )
            os.environ.update(MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
        if prank:
            PRANKS[prank](rank)
        from saccade.cli import run

        code = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if code == 70:
            traceback.print_exc()
        os._exit(code)


@dataclass
class Launcher:
    """Hands trainings to the program, and keeps those of one process, which many are compared with."""

    process: subprocess.Popen[str]
    root: Path

    def __call__(
        self,
        out: Path,
        *settings: str,
        count: int = 2,
        resume: bool = False,
        at: int = 3,
        send: tuple[int, int] | None = None,
        prank: str = "",
    ) -> SimpleNamespace:
        recipe = self.root / "recipe.json"
        recipe.write_text(json.dumps(RECIPE))
        words = [
            "train",
            str(recipe),
            *settings,
            "--out",
            str(out),
            "--json",
            *(["--resume"] if resume else []),
        ]
        task = {
            "words": words,
            "count": count,
            "out": str(out),
            "at": at,
            "send": list(send or ()),
            "prank": prank,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return SimpleNamespace(**json.loads(self.process.stdout.readline()))

    def alone(self, *settings: str) -> Path:
        """The run of one process with these settings."""
        out = self.root / f"alone-{'-'.join(settings).replace('/', '')}"
        if not out.exists():
            ended = self(out, *settings, count=1)
            assert ended.codes == [0], ended.err
        return out


if __name__ == "__main__":
    serve()
