"""The mean of several models' parameters: of a run's last evaluations, or of model folders (Junczys-Dowmunt et al. 2016)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..errors import SaccadeError
from ..files import broken, write_folder
from .checkpoints import learned, store


def mean_parameters(each: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Name → the mean over models, summed in float64; what is no floating-point number is the last one's."""
    names = set(each[0])
    if any(set(one) != names for one in each):
        raise SaccadeError("these models have different parameters; average models of one shape")
    found = {}
    for name, last in each[-1].items():
        other = next((one[name] for one in each if one[name].shape != last.shape), None)
        if other is not None:
            raise SaccadeError(
                f"'{name}' is {tuple(other.shape)} in one model and {tuple(last.shape)} in another; average models of one shape"
            )
        if last.is_floating_point():
            total = torch.stack([one[name].detach().double().cpu() for one in each]).mean(0)
            found[name] = total.to(last.dtype)
        else:
            found[name] = last.detach().cpu()
    return found


def set_parameters(model: nn.Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
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
        write_folder(self.folder / f"{update:09d}", {"model.safetensors": lambda path: store(learned(model), path)})
        for old in self.there()[: -self.count]:
            shutil.rmtree(old)

    def there(self) -> list[Path]:
        """The folders, the oldest first."""
        return sorted(path for path in self.folder.glob("*") if path.name.isdigit())

    def forget(self, update: int) -> None:
        """Lets go what a run had kept after an update from which it now goes on, and what a kill left half written."""
        for path in self.folder.glob("*"):
            if not path.name.isdigit() or int(path.name) > update or broken(path):
                shutil.rmtree(path)

    def mean(self) -> tuple[dict[str, Tensor], int]:
        """The mean of those kept, and how many they are."""
        chosen = self.there()[-self.count :]
        try:
            return mean_parameters([load_file(path / "model.safetensors") for path in chosen]), len(chosen)
        except (OSError, SafetensorError) as error:
            raise SaccadeError(
                f"{self.folder} cannot be read ({error}); set training.average=0 and go on with --resume"
            ) from None
