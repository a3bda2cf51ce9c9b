"""Where a training stands, and the folder it is written to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SaccadeError
from ..files import Writer, broken, listed, replaced, settle, sync, verified, write_folder
from .checkpoints import learned, load_model, load_optimizer, load_sharded, states, store
from .distributed import Ranks
from .shards import METADATA, MODEL, TRAINING, gathered, read_shards, stored, write_shards


@dataclass(frozen=True)
class Progress:
    """Where a training stands; all that a resumed run must know besides parameters and optimizer."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_update: int = 0
    worse: int = 0
    done: bool = False
    figures: dict[str, float] = field(default_factory=dict)

    def files(self) -> dict[str, Writer]:
        """The file of a checkpoint that tells it."""
        text = json.dumps(self.__dict__, indent=2) + "\n"
        return {"training.json": lambda path: path.write_text(text, encoding="utf-8")}


@dataclass(frozen=True)
class RunFolder:
    """Where a run is written: `last/` and `best/` model folders and logs; `files` are the model folder's other files."""

    path: Path
    files: dict[str, Writer]

    def save(self, name: str, model: nn.Module) -> None:
        self.write(name, {"model.safetensors": learned(model)})

    def write(self, name: str, tensors: dict[str, dict[str, Tensor]], at: Progress | None = None) -> None:
        """A model folder with files of tensors; a checkpoint where it is told how far the training is."""
        stores: dict[str, Writer] = {file: partial(store, those) for file, those in tensors.items()}
        write_folder(self.path / name, {**self.files, **stores, **({} if at is None else at.files())})

    def load_last(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Fills both from the last checkpoint, which `progress` has found to be intact."""
        last = self.path / "last"
        if METADATA in listed(last):
            load_sharded(model, optimizer, last)
        else:
            load_model(model, last / "model.safetensors")
            load_optimizer(optimizer, model, last / "training.safetensors")

    def progress(self) -> Progress | None:
        """Where the last checkpoint stands, None when there is none yet."""
        last = self.path / "last"
        settle(last)
        if not last.exists():
            return None
        wrong = broken(last)
        if wrong:
            raise SaccadeError(f"{last} is no intact checkpoint: {wrong}; remove it to begin again")
        try:
            return Progress(**json.loads((last / "training.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise SaccadeError(f"{last}/training.json cannot be read ({error}); remove {last} to begin again") from None


def save_best(ranks: Ranks, folder: RunFolder, model: nn.Module) -> None:
    """The model whole in `best/`, written by rank 0."""
    parameters = gathered(learned(model), ranks.leads)
    ranks.lead(lambda: folder.write("best", {"model.safetensors": parameters}))


SaveLast = Callable[[Ranks, RunFolder, nn.Module, Optimizer, Progress], None]


def save_whole(ranks: Ranks, folder: RunFolder, model: nn.Module, optimizer: Optimizer, at: Progress) -> None:
    """All in `last/`, gathered and written by rank 0: the same files whatever number of ranks trained."""
    tensors = {
        "model.safetensors": gathered(learned(model), ranks.leads),
        "training.safetensors": gathered(states(optimizer, model), ranks.leads),
    }
    ranks.lead(lambda: folder.write("last", tensors, at))


def save_sharded(ranks: Ranks, folder: RunFolder, model: nn.Module, optimizer: Optimizer, at: Progress) -> None:
    """Each rank writes its part into `last/`, which takes the old one's place when all have."""
    tensors = {MODEL + name: tensor.detach() for name, tensor in learned(model).items()}
    tensors.update({TRAINING + name: tensor for name, tensor in states(optimizer, model).items()})
    with ExitStack() as stack:
        new = Path(ranks.lead(lambda: str(stack.enter_context(replaced(folder.path / "last")))))
        write_shards(tensors, new)
        ranks.lead(lambda: finish(stack, new, {**folder.files, **at.files()}))


def finish(stack: ExitStack, new: Path, writers: dict[str, Writer]) -> None:
    """Writes the other files, and lets the folder take its place."""
    for name, write in writers.items():
        write(new / name)
        sync(new / name)
    stack.close()


def convert(run: Path, out: Path) -> None:
    """Makes a model folder of a run's sharded `last/` checkpoint, in one process."""
    settle(run / "last")
    last = verified(run / "last" if (run / "last").is_dir() else run, "checkpoint")
    names = listed(last)
    if METADATA not in names:
        raise SaccadeError(f"{last} is no sharded checkpoint; it is a model folder already and can be used as it is")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SaccadeError(f"{out} is there already; choose a new or empty folder with --out")
    tensors = {name: torch.empty(size, dtype=kind) for name, (size, kind) in stored(last).items() if name.startswith(MODEL)}
    read_shards(tensors, last)
    copied = [name for name in names if name not in (METADATA, "training.json") and not name.endswith(".distcp")]
    writers: dict[str, Writer] = {name: partial(shutil.copyfile, last / name) for name in copied}
    writers["model.safetensors"] = lambda path: store({name.removeprefix(MODEL): one for name, one in tensors.items()}, path)
    write_folder(out, writers)
