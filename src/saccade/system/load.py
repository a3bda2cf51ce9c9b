"""Systems from model folders."""

import os
from pathlib import Path

from ..config import recipes
from ..config.upgrade import upgrade_parameter
from ..errors import SaccadeError
from ..files import read_again, verified
from ..layers.fast.int8 import to_int8
from ..training.checkpoints import load_model
from ..training.sharded import METADATA
from .model_folder import MODEL_FILES, build_stored, model_folder
from .system import System

PRECISIONS = ("float32", "bf16", "int8")


def load(folder: str | Path, device: str = "auto", precision: str = "float32") -> System:
    """The system in a model folder (or in the `best/`, else `last/`, of a run folder), checked against its manifest; to be used in 32 bits
    (`float32`), 16 (`bf16`), or on a CPU with linear layers in 8 (`int8`)."""
    if precision not in PRECISIONS:
        raise SaccadeError(
            f"expected a precision of {', '.join(PRECISIONS)}, got '{precision}'; choose one of them"
        )
    path = model_folder(Path(folder))
    return read_again(path, lambda: load_folder(path, folder, device, precision))


def load_folder(path: Path, folder: str | Path, device: str, precision: str) -> System:
    """The system in a model folder, which was asked for as `folder`."""
    if os.path.exists(path / METADATA):
        what = "a sharded checkpoint, which contains a pickle: use it only if you trust whoever wrote it"
        raise SaccadeError(
            f"{path} is {what}; make a model of it with `saccade consolidate {folder} --out FOLDER`"
        )
    verified(path, "model folder", MODEL_FILES)
    recipe, task, model = build_stored(path)
    load_model(model, path / "model.safetensors", upgrade_parameter)
    notes = (
        (f"note: {folder} has no best model yet; this is its last checkpoint",)
        if path.name == "last" != Path(folder).name
        else ()
    )
    model = model.to(
        recipes.device("cpu" if (device, precision) == ("auto", "int8") else device)
    ).eval()
    model = (
        to_int8(model)
        if precision == "int8"
        else model.bfloat16()
        if precision == "bf16"
        else model
    )
    return System(recipe, model, task, notes, folder=path)
