"""A system: a model with its recipe and its task, and what can be done with it; built fresh, or loaded from a model folder."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config import recipes
from ..config.automatic import fit_to_data
from ..config.recipes import Recipe
from ..config.upgrade import VERSION, upgrade_parameter
from ..data.bad_lines import Skipped, many
from ..data.corpora import LABELED, inputs, overlap
from ..data.findings import find_useless_labels
from ..data.pretrained import efficientnet_lite0
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..files import Writer, read_again, verified
from ..layers.fast.int8 import to_int8
from ..models import EfficientNetLite0
from ..models.builder import memory_here
from ..settings import resolve
from ..tasks.task import Task, WrongExample, from_tokens
from ..tasks.translation import Translation
from ..training.checkpoints import load_model
from ..training.logs import summary_writer
from ..training.parameters import model_tensors
from ..training.sharded import METADATA
from ..training.transfer import take_over
from ..training.work import Work
from ..views.answers import Metrics
from .model_folder import build_stored, model_folder, read_config, read_json
from .predictions import Usable, example_of, items

PRECISIONS = ("float32", "bf16", "int8")
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
CALL = 'm.evaluate("test.tsv")'
SAMPLES = 6  # dev examples that a report shows


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
        if self.own_source(where) is not None:
            return examples_of(self.recipe, where)
        found: list[Any] = self.task.read(self.recipe, where)
        return found

    def own_source(self, where: str) -> str | None:
        """What `train`, `dev` and `test` are by the recipe, which comes with the model: other data is chosen by whoever names it."""
        if where not in ("train", "dev", "test") or os.path.exists(where):
            return None
        return getattr(self.recipe.data, where) or (
            source_of(self.recipe, where) if where == "test" else self.recipe.data.train
        )

    def inputs(self, where: str) -> list[str]:
        """The texts of data that this system can translate or label, without gold targets or labels; see `corpora.inputs`."""
        return list(self.each_input(where))

    def each_input(self, where: str) -> Iterator[str]:
        """The same, as they are read."""
        return inputs(
            self.task.data, where, self.recipe.data.swap, self.recipe.data.options_of(where)
        )

    def evaluate(self, examples: str | Path | Iterable[Any], **options: Any) -> Metrics:
        """The task's metrics on examples, or on data by its path or name (`test`); options are the task's own, such as `beam` or `stride`."""
        check_options(self.recipe, options)
        where = str(examples) if isinstance(examples, str | Path) else ""
        given = (
            self.read(where)
            if where
            else [example_of(self.task, one, n) for n, one in enumerate(items(examples, CALL), 1)]
        )
        if not given:
            raise SaccadeError("there are no examples to evaluate on; give data with at least one")
        try:
            known = {"controls": self.read("train")} if options.pop("controls", False) else {}
            return Metrics(self.task.evaluate(self.model, given, **options, **known))
        except WrongExample as error:  # who read the file knows its name
            raise (SaccadeError(f"{where}, {error}") if where else error) from None


def check_options(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Raises when an evaluation of the recipe's task has no such option, or not with that value."""
    known = recipe.kind.options
    for name, value in options.items():
        if name not in known:
            # its name on the command line
            shown = {
                "quarters": "lengths",
                "max_length": "max-length",
                "length_penalty": "length-penalty",
            }.get(name, name)
            sentence = f"an evaluation of {recipe.task} has no option '{{}}'; leave it out"
            raise SaccadeError(sentence.format(name), shell=sentence.format(shown))
        if value is not None:
            known[name](value)


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
                given = vocabularies_of(read_json(first / "tokenizer.json"), made.kind)
        except (KeyError, TypeError):
            raise SaccadeError(
                f"{first}/tokenizer.json contains no vocabulary; copy the model folder again"
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
        raise SaccadeError(f"{what}; train it first: saccade train {start}")
    return model_folder(run)


def load_pretrained(model: nn.Module) -> None:
    """Gives the image encoders that begin with published weights these weights; a model folder has its own."""
    for part in model.modules():
        if isinstance(part, EfficientNetLite0) and part.pretrained:
            part.load_pretrained(efficientnet_lite0(part.weights))


def vocabularies_of(tokens: dict[str, Any], task: type[Task]) -> tuple[Vocabulary, ...]:
    """What a first model reads; where it translates and the task does too, also what it generates."""
    both = "target" in tokens and issubclass(task, Translation)
    return from_tokens(tokens, "text", "joint", "source"), *(
        (from_tokens(tokens, "target"),) if both else ()
    )


def start_from(model: nn.Module, recipe: Recipe, first: Path) -> int:
    """Takes over what another model has learned; returns how many parameters that are."""
    try:
        return len(take_over(model, first / "model.safetensors", upgrade_parameter))
    except SaccadeError as error:
        there, here = read_config(first / "config.json").model["family"], recipe.model["family"]
        raise SaccadeError(
            f"{error} (model.family is {there} there and {here} here)"
            if there != here
            else str(error)
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
        raise SaccadeError(f"{what}, and there are {there / 2**30:,.1f} GiB here; {way}")


def train_and_dev(recipe: Recipe, skipped: Skipped | None = None) -> tuple[list[Any], list[Any]]:
    """The examples of data.train and data.dev, without bad lines unless the recipe is strict; without data.dev, data.train divided."""
    task, count = recipe.kind, None if recipe.data.strict else skipped or Skipped()
    train = task.read(recipe, source_of(recipe, "train"), count)
    if recipe.data.dev:
        return train, task.read(recipe, recipe.data.dev, count)
    return task.divide(train, resolve(recipe.data.held_out, 0.0))


def examples_of(recipe: Recipe, split: str) -> list[Any]:
    """The examples of data.train or data.dev, as training uses them, or of data.test, where a bad line is an error."""
    if split != "test" and recipe.data.train:
        return train_and_dev(recipe)[split == "dev"]
    return recipe.kind.read(recipe, source_of(recipe, split))


def source_of(recipe: Recipe, split: str) -> str:
    where: str = getattr(recipe.data, split)
    if not where:
        raise SaccadeError(
            f"data.{split} is not set; name the data, such as data.{split}={split}.tsv or phrasebook:{split}"
        )
    return where


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


def spread(examples: Sequence[Any]) -> Sequence[Any]:
    """A few examples, from everywhere among them."""
    return examples[:: max(1, len(examples) // SAMPLES)][:SAMPLES]


def note_data(
    task: Task,
    recipe: Recipe,
    train: Sequence[Any],
    dev: Sequence[Any],
    work: Work,
    skipped: Skipped,
) -> list[str]:
    """What was read, held out and skipped, the sizes of the vocabularies, and what the dev examples share with those of training."""
    thing, data = task.data.thing, recipe.data
    each, judged = getattr(work, "examples", train), len(dev)
    # a picture with several captions is one
    used = len({id(getattr(one, "example", one)) for one in each})
    own = (
        f"in {data.dev}"
        if data.dev
        else f"held out of it ({resolve(data.held_out, judged / max(len(train) + judged, 1)):.3g})"
    )
    sizes = {id(vocabulary): len(vocabulary) for vocabulary, _ in task.texts([]).values()}
    vocabulary = f"; vocabulary: {' and '.join(f'{size:,}' for size in sizes.values())} tokens{' (source and target)' * (len(sizes) > 1)}"
    read = f"{many(used, thing)} to train on in {data.train}, {many(judged, thing)} {own} for dev"
    labels = f"; labels: {len(task.labels)}" if hasattr(task, "labels") else ""
    notes = [f"data: {read}{vocabulary if sizes else labels}", *skipped.notes()]
    shared = overlap(task.data, train, dev)
    if task.data is LABELED:
        tally = Counter(one.label for one in train if one.label is not None)
        notes += [
            f"warning: {finding.sentence}" for finding in find_useless_labels(tally, len(train))
        ]
    if shared:
        what = f"{shared:,} of {many(judged, f'dev {thing}')} also {'occurs' if judged == 1 else 'occur'} in the training data"
        level = "warning" if 10 * shared > judged else "note"
        notes.append(
            f"{level}: {what} (the same input), so dev metrics say less about new {'text' if sizes else thing + 's'}"
        )
    return notes


def model_files(system: System) -> dict[str, Writer]:
    """The model folder's files besides the parameters."""
    text = (
        json.dumps({"saccade": VERSION, **system.recipe.to_dict()}, indent=2, ensure_ascii=False)
        + "\n"
    )
    tokens = json.dumps(system.task.tokens(), ensure_ascii=False) + "\n"
    return {
        "config.json": lambda path: path.write_text(text, encoding="utf-8"),
        "tokenizer.json": lambda path: path.write_text(tokens, encoding="utf-8"),
    }


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
