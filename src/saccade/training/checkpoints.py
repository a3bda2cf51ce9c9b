"""Run folders, checkpoints and model folders. Tensors are stored as safetensors (no pickle) or `sharded`."""

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SaccadeError
from ..files import (
    MANIFEST,
    MARK,
    Writer,
    broken,
    clear,
    listed,
    mark,
    replaced,
    report_disk,
    settle,
    verified,
    write_files,
    write_folder,
)
from ..files import write_once as write_once
from .distributed import Ranks
from .parameters import Tensors, mean_parameters, model_tensors
from .sharded import METADATA, checkpoint_library, divide_like, gather, list_parts, load_parts

# Prefixes of tensor names in a sharded checkpoint.
MODEL, TRAINING = "model/", "training/"
# Larger parameters have infinite squares.
MAX_PARAMETER = 1e18
CARRIED_FILE = "carried.safetensors"


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> Tensors:
    """The optimizer's tensors under `parameter/state`."""
    return {
        f"{name}/{key}": value
        for name, parameter in model_tensors(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def write_tensors(tensors: Tensors, path: Path) -> None:
    """Writes safetensors. A full disk raises an OSError, as for other files."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path
        )
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        raise (
            OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))
        ) from None
    # The library makes the file readable by its owner alone.
    path.chmod(mode)


def size_of(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def model_content(files: Mapping[str, Writer], tensors: Tensors) -> tuple[dict[str, Writer], int]:
    """The writers of a model folder's files and their approximate size in bytes."""
    return {**files, "model.safetensors": partial(write_tensors, tensors)}, size_of(tensors)


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, RuntimeError) as error:
        # torch raises this if the file has just disappeared.
        if isinstance(error, RuntimeError) and "unable to open file" not in str(error):
            raise
        raise SaccadeError(
            f"{path} cannot be read as safetensors ({error}); copy it again",
            code="checkpoint-damaged",
        ) from None


def check_parameters(
    sizes: Mapping[str, Sequence[int]], model: Mapping[str, Tensor], path: Path
) -> None:
    """Checks that a stored model has the names and sizes of this one."""
    for name in sorted({*sizes, *model}):
        there = tuple(sizes[name]) if name in sizes else "missing"
        here = tuple(model[name].shape) if name in model else "missing"
        if there != here:
            wrong = f"the parameters are not those of this model ('{name}' is {there} there and {here} here)"
            raise SaccadeError(
                f"{path}: {wrong}; use the recipe it was trained with", code="checkpoint-differs"
            )


def stored_sizes(path: Path) -> dict[str, list[int]]:
    """Name → size of the tensors in a file, read from its header."""
    with open_tensors(path) as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118


def is_sound(value: Tensor) -> bool:
    """Whether all values are finite and their squares too."""
    low, high = value.aminmax() if value.numel() else (value.sum(), value.sum())
    # Both are false for NaN.
    return bool(low > -MAX_PARAMETER) and bool(high < MAX_PARAMETER)


def load_model(model: nn.Module, path: Path, rename: Callable[[str], str] = str) -> None:
    """Loads parameters. All names (after `rename`) and sizes must match."""
    wanted = model_tensors(model)
    with open_tensors(path) as file, torch.no_grad():
        stored = {rename(name): name for name in file.keys()}  # noqa: SIM118
        check_parameters(
            {name: file.get_slice(own).get_shape() for name, own in stored.items()}, wanted, path
        )
        for name, tensor in wanted.items():
            value = file.get_tensor(stored[name])
            if value.is_complex() or (value.is_floating_point() and not is_sound(value)):
                raise SaccadeError(
                    f"{path}: '{name}' contains values that are no finite numbers; the model has diverged, train it again",
                    code="parameters-not-finite",
                )
            tensor.copy_(divide_like(value, tensor))


def load_sharded(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """Loads model and optimizer from a sharded checkpoint of any number of ranks."""
    parameters = model_tensors(model)
    check_parameters(
        {name: size for name, (size, _) in list_parts(folder, MODEL).items()}, parameters, folder
    )
    tensors, training = {MODEL + name: tensor.detach() for name, tensor in parameters.items()}, {}
    for key, (size, kind) in list_parts(folder, TRAINING).items():
        like = parameters[key.rpartition("/")[0]].detach() if size else torch.zeros(())
        tensors[TRAINING + key] = training[key] = torch.zeros_like(like, dtype=kind)
    load_parts(tensors, folder)
    for key, value in training.items():
        set_state(optimizer, parameters, key, value)


def set_state(
    optimizer: Optimizer, parameters: Mapping[str, Tensor], key: str, value: Tensor
) -> None:
    """Sets optimizer state. Tensors follow their parameter; numbers such as `step` stay on the CPU unless fused."""
    name, _, state = key.rpartition("/")
    parameter = parameters[name]
    device = (
        "cpu"
        if state == "step" and not optimizer.param_groups[0].get("fused")
        else parameter.device
    )
    optimizer.state[parameter][state] = (
        divide_like(value, parameter) if value.dim() else value.to(device)
    )


@dataclass(frozen=True)
class Progress:
    """The progress of a training run: everything a resumed run needs besides tensors."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_update: int = 0
    worse: int = 0
    done: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    # See `cost.summary`. Empty in runs of version 0.3.0 and before.
    costs: dict[str, float] = field(default_factory=dict, compare=False)

    def checked(self) -> "Progress":
        """Checks the type of each value and returns itself."""
        counts = ("update", "epoch", "batch", "tokens", "best_update", "worse")
        wrong = [
            name
            for name in counts
            if type(getattr(self, name)) is not int or not 0 <= getattr(self, name) < 1 << 62
        ]
        numbers = {
            **self.metrics,
            **self.costs,
            "seconds": self.seconds,
            "best": self.best or 0.0,
            "worse": self.worse,
        }
        wrong += [
            name
            for name, value in numbers.items()
            if isinstance(value, bool) or not -1e300 < value < 1e300
        ]
        if wrong or type(self.done) is not bool:
            raise ValueError(f"'{[*wrong, 'done'][0]}' is not what saccade writes")
        return self


@dataclass(frozen=True)
class RunFolder:
    """A run folder: model folders `last/` and `best/`, and logs. `files` are the other files of a model folder."""

    path: Path
    files: dict[str, Writer]

    def save(self, name: str, model: nn.Module) -> None:
        """Writes a model folder. One process must have the full model."""
        write_folder(self.path / name, *model_content(self.files, model_tensors(model)))

    def progress(self) -> Progress | None:
        """The progress of the last checkpoint, after an integrity check; None if there is none."""
        last = self.path / "last"
        settle(last)
        if not last.exists():
            return None
        if wrong := broken(last):
            raise SaccadeError(
                f"{last} is not an intact checkpoint: {wrong}; remove it to start over",
                code="checkpoint-damaged",
            )
        try:
            values = json.loads((last / "training.json").read_text(encoding="utf-8"))
            # Version 0.1.0 wrote `figures`.
            values.setdefault("metrics", values.pop("figures", {}))
            return Progress(**values).checked()
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SaccadeError(
                f"{last}/training.json cannot be read ({error}); remove {last} to start over",
                code="checkpoint-damaged",
            ) from None

    def keep(self, model: nn.Module, update: int, count: int) -> None:
        """Stores the parameters in `kept/` and removes all but the last `count`."""
        write_folder(self.path / "kept" / f"{update:09d}", *model_content({}, model_tensors(model)))
        with report_disk(self.path / "kept"):
            for old in self.kept()[:-count]:
                mark(old)
                clear(old)

    def kept(self) -> list[Path]:
        # Oldest first.
        return sorted(
            path
            for path in (self.path / "kept").glob("*")
            if re.fullmatch("[0-9]{9,18}", path.name) and path.is_dir()
        )

    def forget(self, update: int) -> None:
        """Removes stored parameters after the update that the run resumes from, and incomplete files."""
        with report_disk(self.path / "kept"):
            for path in self.kept():
                ours = {one.name for one in path.iterdir()} <= {"model.safetensors", MANIFEST, MARK}
                if ours and (int(path.name) > update or broken(path)):
                    mark(path)
        for path in (self.path / "kept").glob("*"):
            clear(path)

    def mean_kept(self, unlearned: Collection[str] = ()) -> Tensors:
        try:
            return mean_parameters(
                [load_file(path / "model.safetensors") for path in self.kept()], unlearned
            )
        except (OSError, SafetensorError) as error:
            raise SaccadeError(
                f"{self.path}/kept cannot be read ({error}); set training.average=null and pass resume=True",
                code="checkpoint-damaged",
            ) from None

    def load_last(self, model: nn.Module, optimizer: Optimizer) -> Tensors:
        """Loads model and optimizer from the last checkpoint, which `progress` has checked. Returns the carried tensors."""
        last, parameters = self.path / "last", model_tensors(model)
        if METADATA in listed(last):
            load_sharded(model, optimizer, last)
        else:
            load_model(model, last / "model.safetensors")
            with open_tensors(last / "training.safetensors") as file:
                for key in file.keys():  # noqa: SIM118
                    set_state(optimizer, parameters, key, file.get_tensor(key))
        return load_file(last / CARRIED_FILE) if CARRIED_FILE in listed(last) else {}

    def save_last(
        self,
        kind: str,
        ranks: Ranks,
        model: nn.Module,
        optimizer: Optimizer,
        at: Progress,
        carried: Tensors,
    ) -> None:
        """Writes a checkpoint to `last/`: `whole` (one file) or `sharded` (one part per rank)."""
        text = json.dumps(at.__dict__, indent=2) + "\n"
        writers: dict[str, Writer] = {
            **self.files,
            "training.json": lambda path: path.write_text(text, encoding="utf-8"),
        }
        if carried:
            writers[CARRIED_FILE] = partial(write_tensors, carried)
        size = (
            size_of(model_tensors(model))
            + size_of(optimizer_tensors(optimizer, model))
            + size_of(carried)
        )
        if kind == "whole":
            writers["model.safetensors"] = partial(
                write_tensors, gather(model_tensors(model), ranks.leads)
            )
            writers["training.safetensors"] = partial(
                write_tensors, gather(optimizer_tensors(optimizer, model), ranks.leads)
            )
            ranks.lead(lambda: write_folder(self.path / "last", writers, size))
            return
        tensors = {MODEL + name: tensor.detach() for name, tensor in model_tensors(model).items()}
        tensors.update(
            {
                TRAINING + name: tensor
                for name, tensor in optimizer_tensors(optimizer, model).items()
            }
        )
        # Only rank 0 enters the context; the others write into its folder.
        with ExitStack() as stack:
            new = Path(
                ranks.lead(lambda: str(stack.enter_context(replaced(self.path / "last", size))))
            )
            with checkpoint_library() as checkpoint:
                checkpoint.save(tensors, storage_writer=checkpoint.FileSystemWriter(new))
            ranks.lead(lambda: write_files(new, writers))
            # The new folder replaces the old one.
            ranks.lead(stack.close)


def convert(run: Path, out: Path) -> None:
    """Converts a run's sharded `last/` checkpoint to a model folder in one process."""
    settle(run / "last")
    last = verified(run / "last" if (run / "last").is_dir() else run, "checkpoint")
    names = listed(last)
    if METADATA not in names:
        raise SaccadeError(
            f"{last} is not a sharded checkpoint; it is a model folder already and can be used as it is",
            code="checkpoint-not-sharded",
        )
    if out.exists() and (
        not out.is_dir() or (any(out.iterdir()) and not (out / MANIFEST).exists())
    ):
        raise SaccadeError(
            f"{out} already exists; choose a new or empty folder with out=…", code="folder-exists"
        )
    tensors = {
        MODEL + name: torch.empty(size, dtype=kind)
        for name, (size, kind) in list_parts(last, MODEL).items()
    }
    load_parts(tensors, last)
    kept = [
        name
        for name in names
        if name not in (METADATA, "training.json", CARRIED_FILE) and not name.endswith(".distcp")
    ]
    writers: dict[str, Writer] = {name: partial(shutil.copyfile, last / name) for name in kept}
    write_once(
        out,
        *model_content(writers, {name.removeprefix(MODEL): one for name, one in tensors.items()}),
    )
