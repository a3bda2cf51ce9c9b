"""Parameters and optimizer states to and from safetensors, which have no pickle in them, and from checkpoints in parts (`shards`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SaccadeError
from .shards import MODEL, TRAINING, placed, read_shards, stored


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Name → tensor of all that is learned or kept; what is shared stands under its first name alone."""
    model = getattr(model, "_orig_mod", model)
    kept = dict(model.named_parameters())
    persistent = model.state_dict(keep_vars=True)
    kept.update({name: buffer for name, buffer in model.named_buffers() if name in persistent})
    return kept


def store(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes safetensors, readable by whom files are readable here; a full disk is an OSError, as everywhere."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(mode)  # the library makes it readable by its owner alone


def load_model(model: nn.Module, path: Path) -> None:
    """Fills the model; every name and shape must be the model's."""
    wanted = learned(model)
    with torch.no_grad():
        for name, tensor in read(path, set(wanted)):
            if tensor.shape != wanted[name].shape:
                raise SaccadeError(
                    f"{path}: '{name}' is {tuple(tensor.shape)}, the model wants {tuple(wanted[name].shape)}; use the config it was written with"
                )
            wanted[name].copy_(placed(tensor, wanted[name]))


def read(path: Path, names: set[str]) -> Iterable[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            stored = set(file.keys())
            if stored != names:
                odd = sorted(stored ^ names)[0]
                raise SaccadeError(
                    f"{path}: the parameters are not this model's ('{odd}' is on one side alone); use the config it was written with"
                )
            for name in sorted(stored):
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as safetensors ({error}); copy it again") from None


def states(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors under `parameter/state`."""
    return {
        f"{name}/{key}": value
        for name, parameter in learned(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: Optimizer, model: nn.Module, path: Path) -> None:
    parameters = learned(model)
    try:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                value = file.get_tensor(key)
                put_state(optimizer, parameters, key, value, path)
    except (SafetensorError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as safetensors ({error}); remove the run folder and begin again") from None


def put_state(optimizer: Optimizer, parameters: dict[str, Tensor], key: str, value: Tensor, path: Path) -> None:
    """One tensor of the optimizer, by its name `parameter/state`, to where its parameter is."""
    parameter, state = owner(parameters, key, value.shape, path)
    if value.dim():
        value = placed(value, parameter)
    else:  # a number, such as `step`, is on every rank
        value = value.to("cpu" if state == "step" and not optimizer.param_groups[0].get("fused") else parameter.device)
    optimizer.state[parameter][state] = value


def owner(parameters: dict[str, Tensor], key: str, shape: torch.Size, path: Path) -> tuple[Tensor, str]:
    """The parameter and the name of the state under a key; its shape must be the parameter's, or a number's."""
    name, _, state = key.rpartition("/")
    if name not in parameters:
        raise SaccadeError(f"{path}: state of an unknown parameter '{name}'; resume with the recipe the run began with")
    if shape and shape != parameters[name].shape:
        raise SaccadeError(
            f"{path}: '{key}' is {tuple(shape)}, the parameter is {tuple(parameters[name].shape)}; "
            "resume with the recipe the run began with"
        )
    return parameters[name], state


def load_sharded(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    """Fills model and optimizer from a checkpoint that ranks wrote together, however many; its manifest was checked before."""
    parameters, found = learned(model), stored(folder)
    there = {name.removeprefix(MODEL) for name in found if name.startswith(MODEL)}
    if there != set(parameters):
        odd = sorted(there ^ set(parameters))[0]
        raise SaccadeError(
            f"{folder}: the parameters are not this model's ('{odd}' is on one side alone); resume with the recipe the run began with"
        )
    tensors = {}
    for name, (shape, kind) in found.items():
        if name.startswith(MODEL):
            tensors[name] = parameters[name.removeprefix(MODEL)].detach()
            if shape != tensors[name].shape:
                raise SaccadeError(
                    f"{folder}: '{name}' is {tuple(shape)}, the model wants {tuple(tensors[name].shape)}; resume with the recipe the run began with"
                )
        else:
            parameter, _ = owner(parameters, name.removeprefix(TRAINING), shape, folder)
            tensors[name] = torch.zeros_like(parameter.detach(), dtype=kind) if shape else torch.zeros((), dtype=kind)
    read_shards(tensors, folder)
    for name, value in tensors.items():
        if name.startswith(TRAINING):
            put_state(optimizer, parameters, name.removeprefix(TRAINING), value, folder)
