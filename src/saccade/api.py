"""What a program does with saccade: build, load, fit, evaluate, decode, show. Puts the packages together."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from . import config
from .config import Recipe
from .core import record
from .core.record import sites as attention_sites
from .data.pairs import Pair
from .decoding import Ensemble, Sample
from .decoding import decode as decode_tokens
from .errors import SaccadeError
from .files import held, is_temporary, tidy, write_atomically
from .models.kinds import Seq2Seq
from .system import System, build, check_memory, check_options, load, model_files, read_config, read_json, train_and_dev
from .tasks.classification import Classification
from .tasks.language import LanguageModelling
from .tasks.objectives import HIDDEN
from .tasks.translation import Translation, searcher
from .training.checkpoints import Progress, RunFolder, learned, mean_parameters, set_parameters
from .training.distributed import check_shared, together
from .training.loop import Training, Watcher
from .training.work import Work
from .upgrade import VERSION
from .views.document import Document
from .views.document import Site as SiteView

__all__ = ["System", "average", "build", "check_options", "ensemble", "fit", "load", "searcher", "show"]
# What a system can do is a method of it, and a function here: api.decode(system, texts) is system.decode(texts).
align, classify, decode, evaluate, generate = System.align, System.classify, System.decode, System.evaluate, System.generate
tag, translations, unknown_words = System.tag, System.translations, System.unknown_words
check_translatable = System.check_translatable

# The learning rate, its warmup and the clipping are the way out when a loss became NaN.
OF_TRAINING = "updates patience evaluate_every checkpoint_every log_every average learning_rate warmup clip parallel checkpoint"
MAY_CHANGE = (*(f"training.{name}" for name in OF_TRAINING.split()), "device")


def fit(
    recipe: Recipe | Mapping[str, Any], out: str | Path, resume: bool = False, watcher: Watcher | None = None
) -> tuple[System, Progress]:
    """Trains by a recipe into a run folder; returns the best system and how far the run came."""
    made = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    path = Path(out)
    with together(config.device(made.device)) as ranks:
        ranks.lead(lambda: claim(path, made, resume))
        system, work = ranks.agree(lambda: prepared(made))
        folder = RunFolder(path, model_files(system))
        text = json.dumps({"saccade": VERSION, **made.to_dict()}, indent=2, ensure_ascii=False) + "\n"
        with ranks.led(held(path)):
            ranks.lead(lambda: tidy(path))
            # only now, when nothing of the recipe was refused: a first try with a wrong path leaves no run
            ranks.lead(lambda: write_atomically(path / "recipe.json", text.encode()))
            ranks.agree(lambda: check_shared(path / "recipe.json"))
            if watcher is not None and ranks.leads:
                for note in (*system.notes, f"{work.padding():.1%} of the tokens in batches are padding"):
                    watcher.note(note)
            higher = config.task(made).measures[made.training.watch]
            ended = Training(system.model, work, made.training, folder, watcher, ranks, made.seed, higher).run()
            best = ranks.agree(lambda: load(path / "best", made.device))
            if watcher is not None and ranks.leads:
                for name in blind_sites(best.model, work):
                    watcher.note(f"note: {name} looks at nothing: all its weights are 0; set model.normalize=relu-sum or softmax")
            return best, ended


@torch.no_grad()
def blind_sites(model: Module, work: Work) -> list[str]:
    """Attention whose weights are all 0 on the first examples, which only a normalizer without a sum of one can give."""
    if all(site.mechanism.normalize.sums_to_one for site in attention_sites(model).values()):
        return []
    batch = work.batch(work.epoch(0)[0][:8])
    with record(model) as seen:
        model(*batch.inputs)
    return [name for name, looks in seen.items() if looks.calls and not any(call.weights().any() for call in looks.calls)]


def prepared(made: Recipe) -> tuple[System, Any]:
    """An untrained system, and its work on the recipe's data."""
    train, dev = train_and_dev(made)
    system = build(made, train)
    check_memory(system.model, system.device)
    return system, system.task.work(made, train, dev, system.device)


def claim(path: Path, recipe: Recipe, resume: bool) -> None:
    """Checks that the run folder is new or empty, or contains a run that this recipe may continue."""
    mine, kept = recipe.to_dict(), path / "recipe.json"
    if os.path.exists(path) and not path.is_dir():
        raise SaccadeError(f"{path} is a file; give a folder for the run with --out")
    if os.path.exists(kept):
        if not resume:
            raise SaccadeError(f"{path} already contains a run; use --resume to continue it, or choose another --out")
        if read_json(kept).get("saccade") == 1:
            raise SaccadeError(f"{path} was started by saccade 0.1.0, which can finish it; start a new run with another --out")
        changed = differences(read_config(kept).to_dict(), mine)
        wrong = [name for name in changed if name not in MAY_CHANGE]
        if wrong:
            may = ", ".join(MAY_CHANGE)
            raise SaccadeError(
                f"{path} was started with a different {wrong[0]}; resume with the same recipe (only {may} may change)"
            )
    elif os.path.isdir(path) and not all(map(is_temporary, path.iterdir())):
        raise SaccadeError(f"{path} contains other files and no run; choose an empty or new folder with --out")


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """The dotted names under which two trees differ."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return [] if a == b else [path]
    return [name for key in sorted({*a, *b}) for name in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))]


def ensemble(systems: Sequence[System]) -> System:
    """Several systems of one vocabulary as one, whose probabilities are the mean of theirs."""
    model = Ensemble.of([system.model for system in systems]).eval()
    first = systems[0]
    for one in systems:
        if not isinstance(one.task, Translation | LanguageModelling):
            raise SaccadeError(f"a {one.recipe.task} model cannot be ensembled (no token-by-token output); use it by itself")
    for number, other in enumerate(systems[1:], 2):
        if vocabularies(other) != vocabularies(first):
            what = f"model {number} ({other.name}) has a different vocabulary than the first ({first.name})"
            raise SaccadeError(f"{what}; train them on the same data with the same vocabulary.* settings")
    return System(first.recipe, model, first.task)


def vocabularies(system: System) -> dict[str, Any]:
    """A task's tokens without the lengths of its training data, which may differ."""
    return {name: value for name, value in system.task.tokens().items() if name != "outputs"}


def average(folders: Sequence[str | Path], out: str | Path) -> System:
    """The mean of several models' parameters, written to a new model folder."""
    if not folders:
        raise SaccadeError("the mean of no models; give at least one model folder")
    if os.path.exists(out):
        raise SaccadeError(f"{out} already exists; choose a new folder with --out")
    systems = [load(folder, "cpu") for folder in folders]
    first = systems[0]
    for folder, other in zip(folders[1:], systems[1:], strict=True):
        if other.recipe.model != first.recipe.model or vocabularies(other) != vocabularies(first):
            raise SaccadeError(f"{folder} is a different model than {folders[0]}; average models of one shape and vocabulary")
    set_parameters(first.model, mean_parameters([learned(system.model) for system in systems]))
    RunFolder(Path(out).parent, model_files(first)).save(Path(out).name, first.model)
    return load(out)


@torch.no_grad()
def show(system: System, text: str, target: str | None = None, beam: int = 1) -> Document:
    """What every attention of the model looked at while it read a text, or translated it (or generated a given target)."""
    if not text.strip():
        raise SaccadeError("the text is empty; give a sentence")
    if isinstance(system.task, Translation):
        source, outcome, sites = show_translation(system, text, system.decode([text], beam)[0].text if target is None else target)
    elif target is None and system.task.needs is Seq2Seq:
        source, outcome, sites = show_denoising(system, text)
    elif target is None:
        source, outcome, sites = show_reading(system, text)
    else:
        raise SaccadeError(f"a {system.recipe.task} model generates no text; leave the target out")
    if not sites:
        raise SaccadeError(f"a {system.name} model has no attention to show; train one that attends, such as transformer")
    called = ("source", "target") if isinstance(system.task, Translation) else ("text", system.task.outcome)
    return Document(title=text, source=source, target=outcome, sites=sites, model=system.name, called=called)


def show_translation(system: System, text: str, output: str) -> tuple[list[str], list[str], list[SiteView]]:
    """All attention of a translation, that to the source first."""
    task = system.task
    source, target = [*task.source.encode(text).pieces, "<eos>"], [*task.target.encode(output).pieces, "<eos>"]
    batch = task.batch(task.numbers([Pair(text, output)]), system.device)
    return source[:-1], target[:-1], sites_between(system.model, batch.inputs, source, target)


def show_denoising(system: System, text: str) -> tuple[list[str], list[str], list[SiteView]]:
    """What is generated for each <mask> of a text, or behind its end without one, and all attention meanwhile."""
    task, words = system.task, system.task.text
    ids, _ = task.encode_hidden(text if HIDDEN in text else text + HIDDEN)
    source = torch.tensor([ids], device=system.device)
    lengths, search = torch.tensor([len(ids)], device=system.device), Sample(words.bos, words.eos, (words.pad, words.bos), 0.0)
    output = decode_tokens(system.model.eval(), source, lengths, search, [task.how.block])[0][0].tokens  # type: ignore[arg-type]
    target = [*(task.objective.spell(id) for id in output), "<eos>"]
    names, read = [task.objective.spell(id) for id in ids], torch.tensor([[words.bos, *output]], device=system.device)
    return names, target[:-1], sites_between(system.model, (source, lengths, read), names, target)


def sites_between(model: Module, inputs: tuple[Any, ...], source: list[str], target: list[str]) -> list[SiteView]:
    """All attention of an encoder–decoder, that to the source first."""
    model.eval()
    with record(model) as read:
        model.start(*inputs[:2])  # type: ignore[operator]
    with record(model) as seen:
        model(*inputs)
    sites = []
    for name, looks in sorted(seen.items(), key=lambda item: not item[1].cross):
        own = source if read[name].calls else ["<bos>", *target[:-1]]  # the decoder has not looked at anything when it starts
        rows, columns = (target, source) if looks.cross else (own, own)
        sites.append(SiteView(name, rows, columns, looks.weights()[0].float().cpu().tolist()))
    return sites


def show_reading(system: System, text: str) -> tuple[list[str], list[str], list[SiteView]]:
    """The attention inside a model that reads one text, and what its label was pooled from, where it has one."""
    with record(system.model) as seen:
        tokens, outcome = system.task.look(system.model, text)
    sites = []
    if isinstance(system.task, Classification):
        sites.append(SiteView("pool", [outcome], tokens, [[system.classify([text])[0].weights]]))
    for name, looks in seen.items():
        found = looks.calls[-1].weights()[0].float().cpu()
        if name != "pool" and found.shape[1] == found.shape[2] == len(tokens):
            sites.append(SiteView(name.removeprefix("body."), tokens, tokens, found.tolist()))
    return tokens, [outcome], sites
