"""Parameters and optimizer states to and from safetensors. No pickle is ever read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SaccadeError


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Name → tensor of all that is learned or kept; what is shared stands under its first name alone."""
    model = getattr(model, "_orig_mod", model)
    kept = dict(model.named_parameters())
    persistent = model.state_dict(keep_vars=True)
    kept.update({name: buffer for name, buffer in model.named_buffers() if name in persistent})
    return kept


def save_model(model: nn.Module, path: Path) -> None:
    store(learned(model), path)


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
            wanted[name].copy_(tensor)


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


def save_optimizer(optimizer: Optimizer, model: nn.Module, path: Path) -> None:
    """The optimizer's tensors under `parameter/state`."""
    states = {}
    for name, parameter in learned(model).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            states[f"{name}/{key}"] = value
    store(states, path)


def load_optimizer(optimizer: Optimizer, model: nn.Module, path: Path) -> None:
    parameters = learned(model)
    try:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                name, _, state = key.rpartition("/")
                if name not in parameters:
                    raise SaccadeError(
                        f"{path}: state of an unknown parameter '{name}'; resume with the recipe the run began with"
                    )
                parameter, value = parameters[name], file.get_tensor(key)
                if value.dim() and value.shape != parameter.shape:  # a number, such as `step`, has no dimension
                    raise SaccadeError(
                        f"{path}: '{key}' is {tuple(value.shape)}, the parameter is {tuple(parameter.shape)}; "
                        "resume with the recipe the run began with"
                    )
                where = "cpu" if state == "step" and not optimizer.param_groups[0].get("fused") else parameter.device
                optimizer.state[parameter][state] = value.to(where)
    except (SafetensorError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as safetensors ({error}); remove the run folder and begin again") from None
