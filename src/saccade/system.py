"""A system: a model with its recipe and its task, and what can be done with it; built fresh, or loaded from a model folder."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import config
from .config import Recipe
from .errors import SaccadeError
from .files import Writer, settle, verified
from .tasks.task import Task, WrongExample, from_tokens
from .training.checkpoints import learned, load_model
from .training.sharded import METADATA
from .training.transfer import take_over
from .upgrade import VERSION, upgrade_config, upgrade_parameter
from .using import Usable, example_of, items
from .views.results import Metrics

MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
CALL = 'm.evaluate("test.tsv")'


@dataclass(frozen=True, repr=False)
class System(Usable):
    """A model with its recipe and its task: what a model folder contains."""

    recipe: Recipe
    model: nn.Module
    task: Any
    notes: tuple[str, ...] = ()  # what somebody who trains it should know
    folder: Path | None = None  # where it was loaded from

    def read(self, where: str) -> list[Any]:
        """Examples as this system's recipe would read them; `train`, `dev` and `test` are its own."""
        if where in ("train", "dev", "test") and not os.path.exists(where):
            return examples_of(self.recipe, where)
        found: list[Any] = self.task.read(self.recipe, where)
        return found

    def evaluate(self, examples: str | Path | Iterable[Any], **options: Any) -> Metrics:
        """The task's metrics on examples, or on data by its path or name (`test`); options are the task's own, such as `beam` or `stride`."""
        check_options(self.recipe, options)
        where = str(examples) if isinstance(examples, str | Path) else ""
        given = self.read(where) if where else [example_of(self.task, one, n) for n, one in enumerate(items(examples, CALL), 1)]
        if not given:
            raise SaccadeError("there are no examples to evaluate on; give data with at least one")
        try:
            return Metrics(self.task.evaluate(self.model, given, **options))
        except WrongExample as error:  # who read the file knows its name
            raise (SaccadeError(f"{where}, {error}") if where else error) from None


def check_options(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Raises when an evaluation of the recipe's task has no such option, or not with that value."""
    known = config.task(recipe).options
    for name, value in options.items():
        if name not in known:
            shown = {"quarters": "lengths"}.get(name, name)  # its name on the command line
            sentence = f"an evaluation of {recipe.task} has no option '{{}}'; leave it out"
            raise SaccadeError(sentence.format(name), shell=sentence.format(shown))
        if value is not None:
            known[name](value)


def build(recipe: Recipe | Mapping[str, Any], train: Sequence[Any] | None = None) -> System:
    """A fresh system: vocabularies made from the training examples, parameters drawn by the recipe's seed or taken by `start_from`."""
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    examples = examples_of(made, "train") if train is None else train
    first, given = None, None
    if made.start_from:
        first = verified(model_folder(Path(made.start_from)), "model folder", MODEL_FILES)
        try:
            given = from_tokens(read_json(first / "tokenizer.json"), "text", "joint", "source")
        except (KeyError, TypeError):
            raise SaccadeError(f"{first}/tokenizer.json contains no vocabulary; copy the model folder again") from None
    task = config.task(made).learn(made, examples, given)
    torch.manual_seed(made.seed)
    model = task.build(config.Builder(made.model))
    task.prepare(model, examples)
    notes = note_unknown(task, examples)
    if first:
        taken = start_from(model, made, first)
        notes = (f"{taken} of {len(learned(model))} parameters and the vocabulary are those of {made.start_from}", *notes)
    return System(made, model.to(config.device(made.device)), task, notes)


def start_from(model: nn.Module, recipe: Recipe, first: Path) -> int:
    """Takes over what another model has learned; returns how many parameters that are."""
    try:
        return len(take_over(model, first / "model.safetensors", upgrade_parameter))
    except SaccadeError as error:
        there, here = read_config(first / "config.json").model["family"], recipe.model["family"]
        raise SaccadeError(f"{error} (that is a {there} model, this one a {here})" if there != here else str(error)) from None


def note_unknown(task: Task, examples: Sequence[Any]) -> tuple[str, ...]:
    """Notes how much of the examples the vocabulary lacks, where that is more than a little."""
    shares = {side: vocabulary.unknown_share(lines) for side, (vocabulary, lines) in task.texts(examples[:2000]).items()}
    sentence = "note: {:.0%} of the {} in the training data is not in the vocabulary and read as <unk>"
    return tuple(sentence.format(share, side) for side, share in shares.items() if share > 0.02)


def check_memory(model: nn.Module, device: torch.device) -> None:
    """Parameters, gradients and the optimizer's two states must fit the device."""
    need = 4 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    if need > there:
        what = f"training this model takes at least {need / 2**30:,.1f} GiB (parameters, gradients, optimizer)"
        way = "choose smaller model.* sizes, or more processes with training.parallel=fsdp"
        raise SaccadeError(f"{what}, and there are {there / 2**30:,.1f} GiB here; {way}")


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
        raise SaccadeError(f"data.{split} is not set; name the data, such as data.{split}={split}.tsv or phrasebook:{split}")
    return task.read(recipe, where)


def model_files(system: System) -> dict[str, Writer]:
    """The model folder's files besides the parameters."""
    text = json.dumps({"saccade": VERSION, **system.recipe.to_dict()}, indent=2, ensure_ascii=False) + "\n"
    tokens = json.dumps(system.task.tokens(), ensure_ascii=False) + "\n"
    return {
        "config.json": lambda path: path.write_text(text, encoding="utf-8"),
        "tokenizer.json": lambda path: path.write_text(tokens, encoding="utf-8"),
    }


def load(folder: str | Path, device: str = "auto") -> System:
    """The system in a model folder (or in the `best/`, else `last/`, of a run folder), checked against its manifest."""
    path = model_folder(Path(folder))
    if os.path.exists(path / METADATA):
        raise SaccadeError(f"{path} is a sharded checkpoint; make a model of it with `saccade convert {folder} --out FOLDER`")
    verified(path, "model folder", MODEL_FILES)
    recipe = read_config(path / "config.json")
    try:
        task: Task = config.task(recipe).restore(recipe, read_json(path / "tokenizer.json"))
    except (KeyError, TypeError, AttributeError):
        raise SaccadeError(f"{path}/tokenizer.json is not that of a {recipe.task} model; copy the model folder again") from None
    model = task.build(config.Builder(recipe.model))
    load_model(model, path / "model.safetensors", upgrade_parameter)
    return System(recipe, model.to(config.device(device)).eval(), task, folder=path)


def model_folder(path: Path) -> Path:
    """The model folder itself, or the best model of a run folder."""
    for inner in (path / "best", path / "last"):
        settle(inner)
        if os.path.isdir(inner) and not (path / "config.json").exists():
            return inner
    return path


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise SaccadeError(f"{path} cannot be read as JSON; copy the model folder again") from None


def read_config(path: Path) -> Recipe:
    values = read_json(path)
    version = values.pop("saccade", None) if isinstance(values, dict) else None
    if version not in (1, VERSION):
        raise SaccadeError(f"{path} has format {version!r}, expected 1 or {VERSION}; use the version of saccade that wrote it")
    return config.recipe(upgrade_config(values), strict=False) if version == 1 else config.recipe(values)
