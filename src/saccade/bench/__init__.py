"""The command `saccade bench`: saccade beside its peers in one run. Each module has `plan(scale, device)`: what is measured, and against whom."""

from importlib import import_module
from typing import TYPE_CHECKING

import torch

from ..errors import SaccadeError

if TYPE_CHECKING:
    from .measuring import Plan

MODULES = {"attention": "attention", "train": "training", "decode": "decoding", "length": "length", "backends": "backends"}


def plan_of(kind: str, scale: str, device: torch.device) -> "Plan":
    """What `saccade bench KIND` measures."""
    try:
        module = import_module(f".{MODULES[kind]}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{MODULES[kind]}":
            raise
        raise SaccadeError(f"expected a measurement of {kind}, and this installation has none; choose another") from None
    found: Plan = module.plan(scale, device)
    return found
