"""A system: a model with its recipe and its task; built fresh, or loaded from a model folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import config
from .config import Recipe
from .data.vocabulary import Vocabulary
from .errors import SaccadeError
from .files import Writer, settle, verified
from .tasks.task import Task, from_tokens
from .training.checkpoints import learned, load_model
from .training.sharded import METADATA
from .training.transfer import take_over

MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")


@dataclass(frozen=True)
class System:
    """A model with its recipe and its task: what a model folder holds."""

    recipe: Recipe
    model: nn.Module
    task: Any
    notes: tuple[str, ...] = ()  # what somebody who trains it should know

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def name(self) -> str:
        return str(self.recipe.model["family"])

    def read(self, where: str) -> list[Any]:
        """Examples as this system's recipe would read them; `train`, `dev` and `test` are its own."""
        if where in ("train", "dev", "test") and not os.path.exists(where):
            return examples_of(self.recipe, where)
        found: list[Any] = self.task.read(self.recipe, where)
        return found


def build(recipe: Recipe | Mapping[str, Any], train: Sequence[Any] | None = None) -> System:
    """A fresh, untrained system: vocabularies made from the training examples, parameters drawn by the recipe's seed.

    With `start_from`, the vocabulary and the encoder or decoder of that model folder are taken over.
    """
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    kind = config.task(made)
    examples = examples_of(made, "train") if train is None else train
    first = verified(model_folder(Path(made.start_from)), "model folder", MODEL_FILES) if made.start_from else None
    given = vocabulary_of(first) if first else None
    task = kind.learn(made, examples, given)
    torch.manual_seed(made.seed)
    model = task.build(config.Builder(made.model))
    task.prepare(model, examples)
    notes = unknown_notes(task, examples)
    if first:
        taken = started(model, made, first)
        notes = (f"{taken} of {len(learned(model))} parameters and the vocabulary are those of {made.start_from}", *notes)
    return System(made, model.to(config.device(made.device)), task, notes)


def started(model: nn.Module, recipe: Recipe, first: Path) -> int:
    """Takes over what another model has learned; returns how many parameters that are."""
    try:
        return len(take_over(model, first / "model.safetensors"))
    except SaccadeError as error:
        there, here = read_config(first / "config.json").model["family"], recipe.model["family"]
        raise SaccadeError(f"{error} (that is a {there} model, this one a {here})" if there != here else str(error)) from None


def unknown_notes(task: Task, examples: Sequence[Any]) -> tuple[str, ...]:
    """Says how much of the examples the vocabulary lacks, where that is more than a little."""
    found = []
    for side, (vocabulary, lines) in task.texts(examples[:2000]).items():
        share = vocabulary.unknown_share(lines)
        if share > 0.02:
            found.append(f"note: {share:.0%} of the {side} in the training data is not in the vocabulary and read as <unk>")
    return tuple(found)


def check_memory(model: nn.Module, device: torch.device) -> None:
    """Parameters, gradients and the optimizer's two states must fit the device."""
    need = 4 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    else:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > there:
        raise SaccadeError(
            f"training this model takes at least {need / 2**30:,.1f} GiB (parameters, gradients, optimizer), and there are "
            f"{there / 2**30:,.1f} GiB here; choose smaller model.* sizes, or more processes with training.parallel=fsdp"
        )


def train_and_dev(recipe: Recipe) -> tuple[list[Any], list[Any]]:
    """The examples of data.train and data.dev; without data.dev, data.train divided, which is read once."""
    if recipe.data.train and not recipe.data.dev:
        task = config.task(recipe)
        return task.divide(task.read(recipe, recipe.data.train), recipe.data.held_out)
    return examples_of(recipe, "train"), examples_of(recipe, "dev")


def examples_of(recipe: Recipe, split: str) -> list[Any]:
    """The examples of data.train, data.dev or data.test."""
    where, task = getattr(recipe.data, split), config.task(recipe)
    if not recipe.data.dev and recipe.data.train and split in ("train", "dev"):
        return train_and_dev(recipe)[split == "dev"]
    if not where:
        raise SaccadeError(
            f"data.{split} is not set; name the data, such as data.{split}={split}.tsv, {split}.en,{split}.fr or phrasebook:{split}"
        )
    return task.read(recipe, where)


def vocabulary_of(folder: Path) -> Vocabulary:
    """The vocabulary in which a model reads."""
    try:
        return from_tokens(read_tokens(folder), "text", "joint", "source")
    except KeyError:
        raise SaccadeError(f"{folder}/tokenizer.json holds no vocabulary; copy the model folder again") from None


def model_files(system: System) -> dict[str, Writer]:
    """The model folder's files besides the parameters."""
    text = json.dumps({"saccade": 1, **system.recipe.to_dict()}, indent=2, ensure_ascii=False) + "\n"
    tokens = json.dumps(system.task.tokens(), ensure_ascii=False) + "\n"
    return {
        "config.json": lambda path: path.write_text(text, encoding="utf-8"),
        "tokenizer.json": lambda path: path.write_text(tokens, encoding="utf-8"),
    }


def load(folder: str | Path, device: str = "auto") -> System:
    """The system in a model folder (or in the `best/`, else `last/`, of a run folder), checked against its manifest."""
    path = model_folder(Path(folder))
    if os.path.exists(path / METADATA):
        raise SaccadeError(
            f"{path} is a sharded checkpoint; make a model folder of it with `saccade convert {folder} --out FOLDER`"
        )
    verified(path, "model folder", MODEL_FILES)
    recipe = read_config(path / "config.json")
    try:
        task: Task = config.task(recipe).restore(recipe, read_tokens(path))
    except (KeyError, TypeError, AttributeError):
        raise SaccadeError(
            f"{path}/tokenizer.json cannot be read as that of a {recipe.task} model; copy the model folder again"
        ) from None
    model = task.build(config.Builder(recipe.model))
    load_model(model, path / "model.safetensors")
    return System(recipe, model.to(config.device(device)).eval(), task)


def read_tokens(folder: Path) -> dict[str, Any]:
    try:
        tokens = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        tokens = None
    if not isinstance(tokens, dict):
        raise SaccadeError(f"{folder}/tokenizer.json cannot be read; copy the model folder again")
    return tokens


def model_folder(path: Path) -> Path:
    """A run folder stands for its best model."""
    for inner in (path / "best", path / "last"):
        settle(inner)
        if os.path.isdir(inner) and not (path / "config.json").exists():
            return inner
    return path


def read_config(path: Path) -> Recipe:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise SaccadeError(f"{path} cannot be read as JSON; copy the model folder again") from None
    if not isinstance(values, dict) or values.pop("saccade", None) != 1:
        raise SaccadeError(f"{path} was not written by this version of saccade; use the version that wrote it")
    return config.recipe(values)
