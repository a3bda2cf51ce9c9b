"""Systems: built from a recipe and its data, started from the parameters of another model, or loaded from a model folder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config import recipes
from ..config.automatic import fit_to_data
from ..config.recipes import Recipe
from ..config.upgrade import upgrade_parameter
from ..data.bad_lines import Skipped
from ..data.pretrained import efficientnet_lite0
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..files import read_again, verified
from ..layers.fast.int8 import to_int8
from ..models import EfficientNetLite0
from ..models.builder import memory_here
from ..tasks.task import Task
from ..training.checkpoints import load_model
from ..training.logs import summary_writer
from ..training.parameters import model_tensors
from ..training.sharded import METADATA
from ..training.transfer import take_over
from ..training.work import Work
from .model_folder import (
    MODEL_FILES,
    build_stored,
    model_folder,
    read_config,
    read_json,
    vocabularies_file,
)
from .recipe_data import examples_of, note_data, spread, train_and_dev
from .system import System

PRECISIONS = ("float32", "bf16", "int8")


def build(
    recipe: Recipe | Mapping[str, Any],
    train: Sequence[Any] | None = None,
    learned_task: Task | None = None,
) -> System:
    """A fresh system: vocabularies made from the training examples (or those of a task that has learned them), parameters drawn by the
    recipe's seed or taken by `start_from`."""
    made = recipe if isinstance(recipe, Recipe) else recipes.recipe(recipe)
    examples = examples_of(made, "train") if train is None else train
    made, chosen = fit_to_data(made, examples)
    first: Path | None = None
    given: tuple[Vocabulary, ...] = ()
    if made.start_from:
        first = verified(starting_folder(made.start_from), "model folder", MODEL_FILES)
        try:
            if made.kind.has_text:
                given = made.kind.vocabularies(read_json(vocabularies_file(first)))
        except (KeyError, TypeError):
            raise SaccadeError(
                f"{vocabularies_file(first)} contains no vocabulary; copy the model folder again",
                code="not-a-vocabulary",
            ) from None
    task = learned_task or made.kind.learn(made, examples, *given)
    torch.manual_seed(made.seed)
    model = task.build(recipes.Builder(made.model))
    task.prepare(model, examples)
    load_pretrained(model)
    notes = (*chosen, *note_unknown(task, examples))
    if first:
        taken = start_from(model, made, first)
        what = "parameters and the vocabulary" if given else "parameters"
        notes = (
            f"{taken} of {len(model_tensors(model))} {what} are those of {made.start_from}",
            *notes,
        )
    return System(made, model.to(recipes.device(made.device)), task, notes)


def usual_run(recipe_file: Path) -> Path:
    """The run folder of a recipe, unless another is given."""
    return Path("runs") / recipe_file.stem


def starting_folder(start: str) -> Path:
    """The model folder that `start_from` names, or that of the recipe's run."""
    file = recipes.recipe_file(start)
    run = Path(start) if file is None else usual_run(file)
    if file is not None and not os.path.isdir(run):
        what = f"start_from is the recipe {file.stem}, which has no run in {run}"
        raise SaccadeError(
            f"{what}; train it first: saccade train {start}", code="start-from-missing"
        )
    return model_folder(run)


def load_pretrained(model: nn.Module) -> None:
    """Gives the image encoders that begin with published weights these weights; a model folder has its own."""
    for part in model.modules():
        if isinstance(part, EfficientNetLite0) and part.pretrained:
            part.load_pretrained(efficientnet_lite0(part.weights))


def start_from(model: nn.Module, recipe: Recipe, first: Path) -> int:
    """Takes over what another model has learned; returns how many parameters that are."""
    try:
        return len(take_over(model, first / "model.safetensors", upgrade_parameter))
    except SaccadeError as error:
        there, here = read_config(first / "config.json").model["family"], recipe.model["family"]
        raise SaccadeError(
            f"{error} (model.family is {there} there and {here} here)"
            if there != here
            else str(error),
            code="start-from-does-not-fit",
        ) from None


def note_unknown(task: Task, examples: Sequence[Any]) -> tuple[str, ...]:
    """Notes how much of the examples the vocabulary lacks, where that is more than a little."""
    shares = {
        side: vocabulary.unknown_share(lines)
        for side, (vocabulary, lines) in task.texts(examples[:2000]).items()
    }
    sentence = (
        "note: {:.0%} of the {} in the training data is not in the vocabulary and read as <unk>"
    )
    return tuple(sentence.format(share, side) for side, share in shares.items() if share > 0.02)


def check_memory(model: nn.Module, device: torch.device) -> None:
    """Parameters, gradients and the optimizer's two states must fit the device."""
    need = 4 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    there = memory_here()
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    if need > there:
        what = f"training this model takes at least {need / 2**30:,.1f} GiB (parameters, gradients, optimizer)"
        way = "choose smaller model.* sizes, or more processes with training.parallel=fsdp"
        raise SaccadeError(
            f"{what}, and there are {there / 2**30:,.1f} GiB here; {way}", code="model-too-large"
        )


def prepared(made: Recipe) -> tuple[System, Work]:
    """An untrained system, and its work on the recipe's data."""
    if made.training.tensorboard:
        summary_writer()  # a missing package is reported before the data is read
    skipped = Skipped()
    train, dev = train_and_dev(made, skipped)
    system = build(made, train)
    check_memory(system.model, system.device)
    # the recipe as it was fitted to the data
    work: Work = system.task.work(system.recipe, train, dev, system.device)
    work.counts, work.some = {"train": len(train), "dev": len(dev)}, spread(dev)
    skipped.merge(getattr(work, "skipped", Skipped()))
    return replace(
        system,
        notes=(
            *note_data(system.task, made, train, dev, work, skipped),
            *work.notes,
            *system.notes,
        ),
    ), work


def load(folder: str | Path, device: str = "auto", precision: str = "float32") -> System:
    """The system in a model folder (or in the `best/`, else `last/`, of a run folder), checked against its manifest; to be used in 32 bits
    (`float32`), 16 (`bf16`), or on a CPU with linear layers in 8 (`int8`)."""
    if precision not in PRECISIONS:
        raise SaccadeError(
            f"expected a precision of {', '.join(PRECISIONS)}, got '{precision}'; choose one of them",
            code="unknown-precision",
        )
    path = model_folder(Path(folder))
    return read_again(path, lambda: load_folder(path, folder, device, precision))


def load_folder(path: Path, folder: str | Path, device: str, precision: str) -> System:
    """The system in a model folder, which was asked for as `folder`."""
    if os.path.exists(path / METADATA):
        what = "a sharded checkpoint, which contains a pickle: use it only if you trust whoever wrote it"
        raise SaccadeError(
            f"{path} is {what}; make a model of it with `saccade consolidate {folder} --out FOLDER`",
            code="sharded-folder",
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
