"""A system: a model with its recipe and its task, and what can be done with it; built fresh, or loaded from a model folder."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from . import config
from .config import Recipe
from .data.conllu import Sentence
from .data.corpora import inputs, overlap
from .data.pairs import Pair
from .data.skipping import Skipped, many
from .errors import SaccadeError
from .files import Writer, settle, verified
from .tasks.classification import Classification, Classified
from .tasks.language import LanguageModelling
from .tasks.tagging import Tagging
from .tasks.task import Task, device_of, from_tokens
from .tasks.translation import Aligned, MakeSearch, Translated, Translation, searcher
from .training.checkpoints import learned, load_model
from .training.sharded import METADATA
from .training.transfer import take_over
from .training.work import Work
from .upgrade import VERSION, upgrade_config, upgrade_parameter

MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
LONGEST = 50_000  # characters of a text to translate
T = TypeVar("T", bound=Task)


@dataclass(frozen=True)
class System:
    """A model with its recipe and its task: what a model folder contains."""

    recipe: Recipe
    model: nn.Module
    task: Any
    notes: tuple[str, ...] = ()  # what somebody who trains it should know

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    @property
    def name(self) -> str:
        return str(self.recipe.model["family"])

    def read(self, where: str) -> list[Any]:
        """Examples as this system's recipe would read them; `train`, `dev` and `test` are its own."""
        if where in ("train", "dev", "test") and not os.path.exists(where):
            return examples_of(self.recipe, where)
        found: list[Any] = self.task.read(self.recipe, where)
        return found

    def inputs(self, where: str) -> list[str]:
        """The texts of data that this system can translate or label, without gold targets or labels; see `corpora.inputs`."""
        return inputs(self.task.data, where, self.recipe.data.swap, self.recipe.data.options(where))

    def require(self, kind: type[T], what: str) -> T:
        """The task, if it is of this kind."""
        if not isinstance(self.task, kind):
            usage = self.task.usage(self.recipe).format(model="MODEL")
            raise SaccadeError(f"a {self.recipe.task} model cannot {what}; use `saccade {usage}`")
        return self.task

    def check_translatable(self, texts: Sequence[str]) -> Translation:
        """The task, if it is translation and each text a sentence: a whole book would take hours, and all memory."""
        for n, size in enumerate(map(len, texts), 1):
            if size > LONGEST:
                raise SaccadeError(f"line {n} has {size:,} characters, more than {LONGEST:,}; put one sentence on each line")
        return self.require(Translation, "translate")

    def translations(self, texts: Sequence[str], search: MakeSearch) -> Iterator[tuple[int, Translated]]:
        """Translations as they come, each with the number of its text."""
        return self.check_translatable(texts).translate(self.model, texts, search)

    def decode(
        self, texts: Sequence[str], beam: int = 1, length_penalty: float = 1.0, sample: Mapping[str, Any] | None = None
    ) -> list[Translated]:
        """Translations of texts, in their order."""
        found = dict(self.translations(texts, searcher(beam, length_penalty, sample)))
        return [found[n] for n in range(len(texts))]

    def align(self, pairs: Sequence[Pair]) -> list[Aligned]:
        """Where the model looks while it generates given targets."""
        return self.require(Translation, "align words").align(self.model, pairs)

    def generate(self, prompt: str = "", limit: int = 200, sample: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Continues a prompt, piece by piece as the model generates them; `sample` has temperature, top_k, top_p and seed."""
        if not 1 <= limit <= 1_000_000:
            raise SaccadeError(f"a limit of {limit} tokens; give 1 to 1,000,000")
        return self.require(LanguageModelling, "continue a text").generate(self.model, prompt, limit, sample or {})

    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """Each text's label, the probability of each label, and how much each piece counted."""
        return self.require(Classification, "label a text").classify(self.model, texts)

    def tag(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        return self.require(Tagging, "tag words").tag(self.model, sentences)

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """The pieces of the texts that the model has never seen and reads as <unk>, each once, in order."""
        unk, encoded = self.task.reads.unk, self.task.reads.encode_batch(list(texts))
        return list(dict.fromkeys(piece for one in encoded for id, piece in zip(one.ids, one.pieces, strict=True) if id == unk))

    def evaluate(self, examples: Sequence[Any], **options: Any) -> dict[str, Any]:
        """The task's metrics on examples; options are its own: `beam`, `quarters` and `moses` for generated texts, `stride` for language."""
        if not examples:
            raise SaccadeError("there are no examples to evaluate on; give data with at least one")
        check_options(self.recipe, options)
        found: dict[str, Any] = self.task.evaluate(self.model, examples, **options)
        return found


def check_options(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Raises when an evaluation of the recipe's task has no such option, or not with that value."""
    known = config.task(recipe).options
    for name, value in options.items():
        if name not in known:
            shown = {"quarters": "lengths"}.get(name, name)  # its name on the command line
            raise SaccadeError(f"an evaluation of {recipe.task} has no option '{shown}'; leave it out")
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


def train_and_dev(recipe: Recipe, skipped: Skipped | None = None) -> tuple[list[Any], list[Any]]:
    """The examples of data.train and data.dev, without bad lines unless the recipe is strict; without data.dev, data.train divided."""
    task, count = config.task(recipe), None if recipe.data.strict else skipped or Skipped()
    train = task.read(recipe, source_of(recipe, "train"), count)
    if recipe.data.dev:
        return train, task.read(recipe, recipe.data.dev, count)
    return task.divide(train, recipe.data.held_out)


def examples_of(recipe: Recipe, split: str) -> list[Any]:
    """The examples of data.train or data.dev, as training uses them, or of data.test, where a bad line is an error."""
    if split != "test" and recipe.data.train:
        return train_and_dev(recipe)[split == "dev"]
    return config.task(recipe).read(recipe, source_of(recipe, split))


def source_of(recipe: Recipe, split: str) -> str:
    where: str = getattr(recipe.data, split)
    if not where:
        raise SaccadeError(f"data.{split} is not set; name the data, such as data.{split}={split}.tsv or phrasebook:{split}")
    return where


def prepared(made: Recipe) -> tuple[System, Work]:
    """An untrained system, and its work on the recipe's data."""
    skipped = Skipped()
    train, dev = train_and_dev(made, skipped)
    system = build(made, train)
    check_memory(system.model, system.device)
    work: Work = system.task.work(made, train, dev, system.device)
    skipped.merge(getattr(work, "skipped", Skipped()))
    return replace(system, notes=(*note_data(system.task, made, train, dev, work, skipped), *work.notes, *system.notes)), work


def note_data(task: Task, recipe: Recipe, train: Sequence[Any], dev: Sequence[Any], work: Work, skipped: Skipped) -> list[str]:
    """What was read, held out and skipped, the sizes of the vocabularies, and what the dev examples share with those of training."""
    thing, data = task.data.thing, recipe.data
    used, judged = len(getattr(work, "examples", train)), len(dev)
    own = f"in {data.dev}" if data.dev else f"held out of it ({data.held_out:.3g})"
    sizes = {id(vocabulary): len(vocabulary) for vocabulary, _ in task.texts([]).values()}
    vocabulary = f"{' and '.join(f'{size:,}' for size in sizes.values())} tokens{' (source and target)' * (len(sizes) > 1)}"
    read = f"{many(used, thing)} to train on in {data.train}, {many(judged, thing)} {own} for dev"
    notes = [f"data: {read}; vocabulary: {vocabulary}", *skipped.notes()]
    shared = overlap(task.data, train, dev)
    if shared:
        what = f"{shared:,} of {many(judged, f'dev {thing}')} also {'occurs' if judged == 1 else 'occur'} in the training data"
        level = "warning" if 10 * shared > judged else "note"
        notes.append(f"{level}: {what} (the same input), so dev metrics say less about new text")
    return notes


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
    return System(recipe, model.to(config.device(device)).eval(), task)


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
