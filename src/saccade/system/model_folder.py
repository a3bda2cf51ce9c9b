"""Model folders as they are found: whoever wrote one may be a stranger, so that everything is compared with what is really there before
it costs memory or time."""

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config import recipes
from ..config.recipes import Recipe
from ..config.upgrade import upgrade_parameter
from ..errors import SaccadeError, with_article
from ..files import HINT, MANIFEST, listed, read_plain, settle
from ..models.builder import NoInit, limit_size
from ..tasks.task import Task
from ..training.checkpoints import check_parameters, stored_sizes
from ..training.parameters import model_tensors

MODEL_FILES = ("config.json", "model.safetensors")
# Formats 1 and 2 had the old name, which is that of another file format of the library tokenizers.
VOCABULARIES, OLD_VOCABULARIES = "vocabularies.json", "tokenizer.json"
# bytes of a model folder's JSON, and how many values it may hold
LARGEST, MOST_VALUES = (16 * 2**20, 3_000_000)
# of a model in a folder: how many times the numbers it stores it may register (tied matrices are made, then exchanged), how many more that
# are computed (such as positions), and how many parts for each stored tensor
MORE, UNSTORED, PARTS = 3, 2**24, 200


def build_stored(path: Path) -> tuple[Recipe, Task, nn.Module]:
    """A model folder's recipe, task and model, whose parameters are not yet those of the folder. Before anything is allocated, what the
    settings ask for is compared with the parameters that are there."""
    sizes = stored_sizes(path / "model.safetensors")
    numbers = sum(math.prod(size) for size in sizes.values())
    most = MORE * numbers + UNSTORED, PARTS * (1 + len(sizes))
    with limit_size(*most):  # a sketch for a few words, without memory
        recipe = read_config(path / "config.json")
    vocabularies = vocabularies_file(path)
    try:
        task: Task = recipe.kind.restore(recipe, read_json(vocabularies, LARGEST + 4 * numbers))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        raise SaccadeError(
            f"{vocabularies} is not that of {with_article(recipe.task)} model; copy the model folder again",
            code="not-a-vocabulary",
        ) from None
    with limit_size(*most):
        if numbers > UNSTORED:  # large: built without memory first, to compare every size
            with torch.device("meta"), NoInit():
                names = {upgrade_parameter(name): size for name, size in sizes.items()}
                check_parameters(
                    names,
                    model_tensors(task.build(recipes.Builder(recipe.model))),
                    path / "model.safetensors",
                )
        return recipe, task, task.build(recipes.Builder(recipe.model))


def model_folder(path: Path) -> Path:
    """The model folder itself, or the best model of a run folder."""
    for inner in (path / "best", path / "last"):
        settle(inner)
        if os.path.isdir(inner) and not (path / "config.json").exists():
            return inner
    if os.path.isdir(path) and not (path / MANIFEST).exists() and (runs := runs_in(path)):
        listed = ", ".join(runs[:8]) + (" …" if len(runs) > 8 else "")
        raise SaccadeError(
            f"{path} holds the run{'s' * (len(runs) > 1)} {listed}; name one, such as {path / runs[0]}",
            code="run-not-chosen",
        )
    return path


def vocabularies_file(folder: Path) -> Path:
    """The file of a verified model folder that holds its vocabularies and labels."""
    names = listed(folder)
    if OLD_VOCABULARIES in names and VOCABULARIES not in names:
        return folder / OLD_VOCABULARIES
    if VOCABULARIES not in names:
        raise SaccadeError(
            f"{folder} is not a model folder: it has no {VOCABULARIES}; {HINT}",
            code="not-a-model-folder",
        )
    return folder / VOCABULARIES


def runs_in(folder: Path) -> list[str]:
    """The names of the run and model folders right in a folder."""
    with contextlib.suppress(OSError):
        inside = sorted(folder.iterdir())
        return [
            one.name
            for one in inside
            if any((one / name).is_file() for name in ("recipe.json", "config.json"))
        ]
    return []


def read_json(path: Path, most: int = LARGEST) -> Any:
    """The values in a file of at most so many bytes; JSON of empty lists takes twenty times its bytes, so that values are counted too."""
    try:
        raw = read_plain(path, most)
        if sum(map(raw.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise SaccadeError(
                f"{path} holds more than {MOST_VALUES:,} values; no model needs so many",
                code="too-large",
            )
        return json.loads(raw)
    except (OSError, ValueError, RecursionError):
        raise SaccadeError(
            f"{path} cannot be read as JSON; copy the model folder again", code="not-json"
        ) from None


def read_config(path: Path) -> Recipe:
    values = read_json(path)
    return recipes.recipe_of(
        {"saccade": None, **values} if isinstance(values, dict) else {"saccade": None}, path
    )
