"""Run folders, checkpoints and model folders: tensors in safetensors, which contain no pickle, or in parts (`sharded`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ..files import Writer, broken, listed, replaced, settle, sync, verified, write_folder
from .distributed import Ranks
from .sharded import METADATA, divide_like, gather, list_parts, read_parts, write_parts

Tensors = dict[str, Tensor]
MODEL, TRAINING = "model/", "training/"  # how the names of tensors in a sharded checkpoint begin
CARRIED = "carried.safetensors"
SAME_RECIPE = "use the recipe it was trained with"


def learned(model: nn.Module) -> Tensors:
    """Name → tensor of all that is learned or kept; a shared tensor is listed once, under its first name."""
    model = getattr(model, "_orig_mod", model)
    kept = dict(model.named_parameters())
    persistent = model.state_dict(keep_vars=True)
    kept.update({name: buffer for name, buffer in model.named_buffers() if name in persistent})
    return kept


def states(optimizer: Optimizer, model: nn.Module) -> Tensors:
    """The optimizer's tensors under `parameter/state`."""
    return {
        f"{name}/{key}": value
        for name, parameter in learned(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def store(tensors: Tensors, path: Path) -> None:
    """Writes safetensors; a full disk is an OSError, as for other files."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(mode)  # the library makes it readable by its owner alone


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """An open file of safetensors."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as safetensors ({error}); copy it again") from None


def check_parameters(sizes: Mapping[str, Sequence[int]], model: Mapping[str, Tensor], path: Path) -> None:
    """Raises unless a stored model has the names and sizes of this one."""
    odd = sorted(set(sizes) ^ set(model))
    if odd:
        raise SaccadeError(f"{path}: the parameters are not those of this model ('{odd[0]}' is only in one); {SAME_RECIPE}")
    for name, size in sizes.items():
        if tuple(size) != tuple(model[name].shape):
            raise SaccadeError(f"{path}: '{name}' is {tuple(size)}, the model expects {tuple(model[name].shape)}; {SAME_RECIPE}")


def load_model(model: nn.Module, path: Path, rename: Callable[[str], str] = str) -> None:
    """Fills the model; every name (as `rename` gives it) and size must be the model's."""
    wanted = learned(model)
    with open_tensors(path) as file, torch.no_grad():
        stored = {rename(name): name for name in file.keys()}  # noqa: SIM118
        check_parameters({name: file.get_slice(own).get_shape() for name, own in stored.items()}, wanted, path)
        for name, tensor in wanted.items():
            tensor.copy_(divide_like(file.get_tensor(stored[name]), tensor))


def load_optimizer(optimizer: Optimizer, model: nn.Module, path: Path) -> None:
    parameters = learned(model)
    with open_tensors(path) as file:
        for key in file.keys():  # noqa: SIM118
            value = file.get_tensor(key)
            set_state(optimizer, *find_owner(key, value.shape, parameters, path), value)


def load_sharded(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """Fills both from a checkpoint that any number of ranks wrote together."""
    parameters, found = learned(model), list_parts(folder)
    sizes = {name.removeprefix(MODEL): size for name, (size, _) in found.items() if name.startswith(MODEL)}
    check_parameters(sizes, parameters, folder)
    tensors, owners = {MODEL + name: tensor.detach() for name, tensor in parameters.items()}, {}
    for name, (size, kind) in found.items():
        if name.startswith(TRAINING):
            owners[name] = find_owner(name.removeprefix(TRAINING), size, parameters, folder)
            tensors[name] = torch.zeros_like(owners[name][0].detach(), dtype=kind) if size else torch.zeros((), dtype=kind)
    read_parts(tensors, folder)
    for name, owner in owners.items():
        set_state(optimizer, *owner, tensors[name])


def find_owner(key: str, size: torch.Size, parameters: Mapping[str, Tensor], path: Path) -> tuple[Tensor, str]:
    """The parameter and the name of its state under the key `parameter/state`; it is a number or has the parameter's size."""
    name, _, state = key.rpartition("/")
    if name not in parameters:
        raise SaccadeError(f"{path}: state of an unknown parameter '{name}'; {SAME_RECIPE}")
    if size and size != parameters[name].shape:
        raise SaccadeError(f"{path}: '{key}' is {tuple(size)}, the parameter is {tuple(parameters[name].shape)}; {SAME_RECIPE}")
    return parameters[name], state


def set_state(optimizer: Optimizer, parameter: Tensor, state: str, value: Tensor) -> None:
    """A tensor goes where its parameter is, a number (such as `step`) to every rank, on the CPU unless the optimizer is fused."""
    if value.dim():
        value = divide_like(value, parameter)
    else:
        value = value.to("cpu" if state == "step" and not optimizer.param_groups[0].get("fused") else parameter.device)
    optimizer.state[parameter][state] = value


@dataclass(frozen=True)
class Progress:
    """How far a training run is: all that a resumed one must know besides tensors."""

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


@dataclass(frozen=True)
class RunFolder:
    """Where a run is written: `last/` and `best/` model folders and logs; `files` are a model folder's other files."""

    path: Path
    files: dict[str, Writer]

    def save(self, name: str, model: nn.Module) -> None:
        """A model folder, written by one process that has the whole model."""
        self.write(name, {"model.safetensors": learned(model)})

    def write(self, name: str, tensors: dict[str, Tensors], at: Progress | None = None) -> None:
        write_folder(self.path / name, self.writers(tensors, at))

    def writers(self, tensors: dict[str, Tensors], at: Progress | None) -> dict[str, Writer]:
        """What writes each file of a model folder or, with its progress, of a checkpoint."""
        found: dict[str, Writer] = dict(self.files)
        found.update({file: partial(store, those) for file, those in tensors.items()})
        if at is not None:
            text = json.dumps(at.__dict__, indent=2) + "\n"
            found["training.json"] = lambda path: path.write_text(text, encoding="utf-8")
        return found

    def progress(self) -> Progress | None:
        """Of the last checkpoint, once it is found to be intact; None when there is none yet."""
        last = self.path / "last"
        settle(last)
        if not last.exists():
            return None
        wrong = broken(last)
        if wrong:
            raise SaccadeError(f"{last} is not an intact checkpoint: {wrong}; remove it to start over")
        try:
            values = json.loads((last / "training.json").read_text(encoding="utf-8"))
            values.setdefault("metrics", values.pop("figures", {}))  # as version 0.1.0 wrote it
            return Progress(**values)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SaccadeError(f"{last}/training.json cannot be read ({error}); remove {last} to start over") from None

    def load_last(self, model: nn.Module, optimizer: Optimizer) -> Tensors:
        """Fills both from the last checkpoint, which `progress` has found to be intact; returns what was carried between updates."""
        last = self.path / "last"
        if METADATA in listed(last):
            load_sharded(model, optimizer, last)
        else:
            load_model(model, last / "model.safetensors")
            load_optimizer(optimizer, model, last / "training.safetensors")
        if CARRIED not in listed(last):
            return {}
        with open_tensors(last / CARRIED) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def save_last(self, kind: str, ranks: Ranks, model: nn.Module, optimizer: Optimizer, at: Progress, carried: Tensors) -> None:
        """A checkpoint in `last/`: `whole`, the same files for any number of ranks, or `sharded`, each rank its part."""
        files = {CARRIED: carried} if carried else {}
        if kind == "whole":
            files["model.safetensors"] = gather(learned(model), ranks.leads)
            files["training.safetensors"] = gather(states(optimizer, model), ranks.leads)
            ranks.lead(lambda: self.write("last", files, at))
            return
        tensors = {MODEL + name: tensor.detach() for name, tensor in learned(model).items()}
        tensors.update({TRAINING + name: tensor for name, tensor in states(optimizer, model).items()})
        with ExitStack() as stack:  # rank 0 alone is in the context; the others write into its folder
            new = Path(ranks.lead(lambda: str(stack.enter_context(replaced(self.path / "last")))))
            write_parts(tensors, new)
            ranks.lead(lambda: finish(stack, new, self.writers(files, at)))


def finish(stack: ExitStack, new: Path, writers: dict[str, Writer]) -> None:
    """Writes the other files, and lets the new folder replace the old one."""
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
        raise SaccadeError(f"{last} is not a sharded checkpoint; it is a model folder already and can be used as it is")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SaccadeError(f"{out} already exists; choose a new or empty folder with --out")
    tensors = {name: torch.empty(size, dtype=kind) for name, (size, kind) in list_parts(last).items() if name.startswith(MODEL)}
    read_parts(tensors, last)
    kept = [name for name in names if name not in (METADATA, "training.json", CARRIED) and not name.endswith(".distcp")]
    writers: dict[str, Writer] = {name: partial(shutil.copyfile, last / name) for name in kept}
    writers["model.safetensors"] = partial(store, {name.removeprefix(MODEL): one for name, one in tensors.items()})
    write_folder(out, writers)


def mean_parameters(each: Sequence[Tensors]) -> Tensors:
    """Name → the mean over models, summed in float64 (Junczys-Dowmunt et al. 2016); whole numbers are those of the last model."""
    sizes = [{name: tensor.shape for name, tensor in one.items()} for one in each]
    odd = next((name for one in sizes for name in sorted({*one, *sizes[-1]}) if one.get(name) != sizes[-1].get(name)), None)
    if odd is not None:
        raise SaccadeError(f"these models differ in the size of '{odd}', or one lacks it; average models of the same shape")
    found = {}
    for name, last in each[-1].items():
        mean = torch.stack([one[name].detach().double().cpu() for one in each]).mean(0)
        found[name] = mean.to(last.dtype) if last.is_floating_point() else last.detach().cpu()
    return found


def set_parameters(model: nn.Module, values: Tensors) -> Tensors:
    """Puts these values into the model; returns what was there before."""
    wanted = learned(model)
    before = {name: tensor.detach().cpu().clone() for name, tensor in wanted.items()}
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(values[name])
    return before


class Kept:
    """The parameters of a run's last `count` evaluations, in `kept/`."""

    def __init__(self, run: Path, count: int) -> None:
        self.folder, self.count = run / "kept", count

    def add(self, model: nn.Module, update: int) -> None:
        write_folder(self.folder / f"{update:09d}", {"model.safetensors": partial(store, learned(model))})
        for old in self.folders()[: -self.count]:
            shutil.rmtree(old)

    def folders(self) -> list[Path]:
        """The oldest first."""
        return sorted(path for path in self.folder.glob("*") if path.name.isdigit())

    def forget(self, update: int) -> None:
        """Removes what was kept after an update from which the run now resumes, and what a kill left half written."""
        for path in self.folder.glob("*"):
            if not path.name.isdigit() or int(path.name) > update or broken(path):
                shutil.rmtree(path)

    def mean(self) -> tuple[Tensors, int]:
        """The mean of those kept, and how many they are."""
        chosen = self.folders()[-self.count :]
        try:
            return mean_parameters([load_file(path / "model.safetensors") for path in chosen]), len(chosen)
        except (OSError, SafetensorError) as error:
            raise SaccadeError(f"{self.folder} cannot be read ({error}); set training.average=0 and use --resume") from None
