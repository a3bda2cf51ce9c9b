"""What a program does with saccade: build, load, fit, evaluate, decode, show. Puts the packages together."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import config
from .config import Recipe
from .core import record
from .data.pairs import Pair
from .decoding import Ensemble
from .errors import SaccadeError
from .files import held, write_atomically
from .fitting import adopt
from .system import System, build, check_memory, check_options, load, model_files, read_config, read_json, train_and_dev
from .tasks.classification import Classification
from .tasks.language import LanguageModelling
from .tasks.translation import Translation, searcher
from .training.checkpoints import Progress, RunFolder, learned, mean_parameters, set_parameters
from .training.distributed import check_shared, together
from .training.loop import Training, Watcher
from .training.planning import plan, use_threads
from .training.printing import Lines, audience
from .upgrade import VERSION
from .views.document import Document
from .views.document import Site as SiteView

__all__ = ["System", "average", "build", "check_options", "ensemble", "fit", "load", "searcher", "show"]
# What a system can do is a method of it, and a function here: api.decode(system, texts) is system.decode(texts).
align, classify, decode, evaluate, generate = System.align, System.classify, System.decode, System.evaluate, System.generate
tag, translations, unknown_words = System.tag, System.translations, System.unknown_words
check_translatable = System.check_translatable

# The learning rate, its warmup and the clipping are the way out when a loss became NaN.
OF_TRAINING = "updates epochs minutes patience evaluate_every checkpoint_every log_every average learning_rate warmup clip "
OF_TRAINING += "parallel checkpoint threads"
MAY_CHANGE = (*(f"training.{name}" for name in OF_TRAINING.split()), "device")


def fit(
    recipe: Recipe | Mapping[str, Any], out: str | Path, resume: bool = False, watcher: Watcher | None = None
) -> tuple[System, Progress]:
    """Trains by a recipe into a run folder; returns the best system and how far the run came. Progress is printed where a terminal or a
    notebook shows it; `watcher=Watcher()` prints nothing."""
    given = recipe if isinstance(recipe, Recipe) else config.recipe(recipe)
    path = Path(out)
    heard = watcher or (Lines(path.name, partial(print, file=there, flush=True)) if (there := audience()) else Watcher())
    with together(config.device(given.device)) as ranks:
        heard = heard if ranks.leads else Watcher()
        made = config.recipe(ranks.lead(lambda: claim(path, given, resume).to_dict()))
        heard.stage("reading the data and learning the vocabulary")
        system, work = ranks.agree(lambda: prepared(made))
        with ranks.led(held(path)):
            before = lambda: Progress(**ranks.lead(lambda: (RunFolder(path, {}).progress() or Progress()).__dict__))  # noqa: E731
            training = plan(system.recipe.training, system.model, work, ranks, before, heard)
            system = replace(system, recipe=replace(system.recipe, training=training))
            # only now, when nothing of the recipe was refused: a first try with a wrong path leaves no run
            text = json.dumps({"saccade": VERSION, **system.recipe.to_dict()}, indent=2, ensure_ascii=False) + "\n"
            ranks.lead(lambda: write_atomically(path / "recipe.json", text.encode()))
            ranks.agree(lambda: check_shared(path / "recipe.json"))
            for note in (*system.notes, f"{work.padding():.1%} of the tokens in batches are padding"):
                heard.note(note)
            higher = config.task(made).measures[training.watch]
            folder = RunFolder(path, model_files(system))
            with use_threads(training.threads):
                ended = Training(system.model, work, training, folder, heard, ranks, made.seed, higher).run()
            return ranks.agree(lambda: load(path / "best", made.device)), ended


def prepared(made: Recipe) -> tuple[System, Any]:
    """An untrained system, and its work on the recipe's data."""
    train, dev = train_and_dev(made)
    system = build(made, train)
    check_memory(system.model, system.device)
    return system, system.task.work(system.recipe, train, dev, system.device)


def claim(path: Path, recipe: Recipe, resume: bool) -> Recipe:
    """Checks that the run folder is new or empty, or contains a run that this recipe may continue; the recipe, with what it leaves open
    as it was chosen for that run."""
    kept = path / "recipe.json"
    if os.path.exists(path) and not path.is_dir():
        raise SaccadeError(f"{path} is a file; give a folder for the run with out=…")
    if os.path.exists(kept):
        if not resume:
            raise SaccadeError(f"{path} already contains a run; use resume=True to continue it, or choose another out=…")
        if read_json(kept).get("saccade") == 1:
            raise SaccadeError(f"{path} was started by saccade 0.1.0, which can finish it; start a new run with another out=…")
        begun = read_config(kept)
        recipe = adopt(recipe, begun)
        changed = differences(begun.to_dict(), recipe.to_dict())
        wrong = [name for name in changed if name not in MAY_CHANGE]
        if wrong:
            may = ", ".join(MAY_CHANGE)
            raise SaccadeError(
                f"{path} was started with a different {wrong[0]}; resume with the same recipe (only {may} may change)"
            )
    elif os.path.isdir(path) and any(path.iterdir()):
        raise SaccadeError(f"{path} contains other files and no run; choose an empty or new folder with out=…")
    return recipe


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
        if other.task.tokens() != first.task.tokens():
            what = f"model {number} ({other.name}) has a different vocabulary than the first ({first.name})"
            raise SaccadeError(f"{what}; train them on the same data with the same vocabulary.* settings")
    return System(first.recipe, model, first.task)


def average(folders: Sequence[str | Path], out: str | Path) -> System:
    """The mean of several models' parameters, written to a new model folder."""
    if not folders:
        raise SaccadeError("the mean of no models; give at least one model folder")
    if os.path.exists(out):
        raise SaccadeError(f"{out} already exists; choose a new folder with out=…")
    systems = [load(folder, "cpu") for folder in folders]
    first = systems[0]
    for folder, other in zip(folders[1:], systems[1:], strict=True):
        if other.recipe.model != first.recipe.model or other.task.tokens() != first.task.tokens():
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
    task, model = system.task, system.model.eval()
    source, target = [*task.source.encode(text).pieces, "<eos>"], [*task.target.encode(output).pieces, "<eos>"]
    batch = task.batch(task.numbers([Pair(text, output)]), system.device)
    with record(model) as read:
        model.start(*batch.inputs[:2])  # type: ignore[operator]
    with record(model) as seen:
        model(*batch.inputs)
    sites = []
    for name, looks in sorted(seen.items(), key=lambda item: not item[1].cross):
        own = source if read[name].calls else ["<bos>", *target[:-1]]  # the decoder has not looked at anything when it starts
        rows, columns = (target, source) if looks.cross else (own, own)
        sites.append(SiteView(name, rows, columns, looks.weights()[0].float().cpu().tolist()))
    return source[:-1], target[:-1], sites


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
