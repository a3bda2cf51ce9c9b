"""The mean of several models' parameters: of a run's last evaluations, or of model folders (Junczys-Dowmunt et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..errors import SaccadeError
from ..files import write_folder
from .checkpoints import learned, store


def mean_parameters(each: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Name → the mean over models, summed in float64; what is no floating-point number is the last one's."""
    names = set(each[0])
    if any(set(one) != names for one in each):
        raise SaccadeError("these models have different parameters; average models of one shape")
    found = {}
    for name, last in each[-1].items():
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
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def there(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("[0-9]*") if path.is_dir())

    def mean(self, until: int) -> dict[str, Tensor]:
        """The mean of those kept up to an update."""
        chosen = [path for path in self.there() if int(path.name) <= until][-self.count :]
        try:
            return mean_parameters([load_file(path / "model.safetensors") for path in chosen])
        except (OSError, SafetensorError) as error:
            raise SaccadeError(
                f"{self.folder} cannot be read ({error}); set training.average=0 and go on with --resume"
            ) from None
