"""What a program does with saccade: build, load, fit, evaluate, decode, show. Puts the packages together."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .config import recipes
from .config.automatic import adopt
from .config.recipes import Recipe
from .decoding import Ensemble, searcher
from .errors import SaccadeError, with_article
from .files import LOCK, MANIFEST, held, is_temporary, tidy, write_atomically, write_once
from .recipe import LIMITS
from .settings import AUTO, fixed
from .system import run_report
from .system.build import build, load, prepared, usual_run
from .system.model_folder import read_config, read_json
from .system.system import System, check_options, model_files
from .tasks.attention_sites import blind_sites
from .tasks.task import Task
from .training.checkpoints import Progress, RunFolder, model_content
from .training.cost import summary
from .training.distributed import SharedError, check_shared, join_ranks
from .training.loop import Training, Watcher
from .training.parameters import buffers, mean_parameters, model_tensors, set_parameters
from .training.run_plan import plan, use_threads
from .training.run_printer import RunPrinter, reader_stream
from .training.signals import Stopped
from .training.work import Work

__all__ = [
    "System",
    "average",
    "build",
    "check_options",
    "ensemble",
    "fit",
    "load",
    "searcher",
    "show",
]
# What a system can do is a method of it, and a function here: api.decode(system, texts) is system.decode(texts).
align, classify, decode, evaluate = System.align, System.classify, System.decode, System.evaluate
generate = System.generate
answer, caption, predict, show = System.answer, System.caption, System.predict, System.look
tag, translate, unknown_words = System.tag, System.translate, System.unknown_words

# The learning rate, its warmup and the clipping are the way out when a loss became NaN.
OF_TRAINING = "updates epochs minutes patience evaluate_every checkpoint_every log_every average learning_rate warmup clip "
OF_TRAINING += "parallel checkpoint threads tensorboard"
MAY_CHANGE = (*(f"training.{name}" for name in OF_TRAINING.split()), "device")


def fit(
    recipe: Recipe | Mapping[str, Any],
    out: str | Path,
    resume: bool = False,
    watcher: Watcher | None = None,
    prepare: Callable[[Recipe], tuple[System, Work]] = prepared,
) -> tuple[System, Progress]:
    """Trains by a recipe into a run folder; returns the best system and how far the run came. Progress is printed where a terminal or a
    notebook shows it; `watcher=Watcher()` prints nothing. `prepare` reads the data, for who trains several models on the same."""
    given = recipe if isinstance(recipe, Recipe) else recipes.recipe(recipe)
    path = Path(out)
    heard = watcher or (
        RunPrinter(path.name, partial(print, file=there, flush=True))
        if (there := reader_stream())
        else Watcher()
    )
    train_first(given, path, resume, heard)
    with join_ranks(recipes.device(given.device)) as ranks:
        heard = heard if ranks.leads else Watcher()
        claimed = ranks.lead(lambda: claim(path, given, resume).to_dict())
        made = recipes.recipe(claimed)
        heard.stage("reading the data and learning the vocabulary")
        system, work = ranks.agree(lambda: prepare(made))
        with ranks.led(held(path)):
            # looked at again: while the data was read, another process may have begun a run here, or even finished it
            if ranks.lead(lambda: claim(path, given, resume).to_dict()) != claimed:
                raise SharedError(
                    f"another process has begun a run in {path} meanwhile; give the same command again to continue it",
                    code="run-folder-taken",
                )
            ranks.lead(lambda: tidy(path))
            before = lambda: Progress(
                **ranks.lead(lambda: (RunFolder(path, {}).progress() or Progress()).__dict__)
            )
            training = plan(system.recipe.training, system.model, work, ranks, before, heard)
            system = replace(system, recipe=replace(system.recipe, training=training))
            # only now, when nothing of the recipe was refused: a first try with a wrong path leaves no run
            text = recipes.to_json(system.recipe)
            ranks.lead(lambda: write_atomically(path / "recipe.json", text.encode()))
            ranks.agree(lambda: check_shared(path / "recipe.json"))
            ranks.lead(
                lambda: write_atomically(path / run_report.ABOUT, run_report.describe(system, work))
            )
            padding = f"{work.padding():.1%} of the tokens in batches are padding"
            for note in (*system.notes, *([padding] if system.task.texts([]) else [])):
                heard.note(note)
            higher = made.kind.measures[training.watch]
            folder = RunFolder(path, model_files(system))
            finish = partial(run_report.finish, path, work=work, show=show, note=heard.note)
            try:
                with use_threads(fixed(training.threads)):
                    ended = Training(
                        system.model, work, training, folder, heard, ranks, made.seed, higher
                    ).run()
            except Stopped:
                if ranks.leads:
                    finish(system=None)
                raise
            best = ranks.agree(lambda: load(path / "best", made.device))
            if ranks.leads:
                for name in blind_sites(best.model, work):
                    heard.note(
                        f"note: {name} looks at nothing: all its weights are 0; set model.normalize=relu-sum or softmax"
                    )
            with use_threads(fixed(training.threads)):
                ranks.lead(lambda: finish(system=best))
            return best, ended


def train_first(recipe: Recipe, path: Path, resume: bool, watcher: Watcher) -> None:
    """Trains what `start_from` names where that is a recipe, into its usual run folder; a stopped run continues by its own recipe."""
    files = recipes.recipes_before(recipe)
    if files:
        claim(path, recipe, resume)  # a wrong folder is reported before the other training
    for run, file in ((usual_run(file), file) for file in files):
        if run.resolve() == path.resolve():
            raise SaccadeError(
                f"{path} is the run of {file.stem}, which this run starts from; choose another out=…",
                code="run-folder-taken",
            )
    for run, file in ((usual_run(file), file) for file in files):
        begun, at = os.path.exists(run / "recipe.json"), RunFolder(run, {}).progress()
        # a finished run, or a model that was put there
        if (at and at.done) or (os.path.isdir(run) and not begun):
            continue
        first = replace(
            read_config(run / "recipe.json") if begun else recipes.read_recipe(file),
            device=recipe.device,
        )
        how = f"continues first in {run}" if begun else f"is trained first into {run}"
        limits = ", ".join(
            f"{name}: {value:,}"
            for name in LIMITS
            if (value := getattr(first.training, name)) not in (None, AUTO)
        )
        watcher.note(
            f"starts from the model of {file.stem}, which {how} ({limits or 'see its recipe'})"
        )
        fit(first, run, True, watcher.another(run.name))


def costs(system: System) -> dict[str, float]:
    """What the training run of a loaded system cost, as far as its folder says (see `cost.summary`)."""
    at = None
    if system.folder is not None and os.path.exists(system.folder.parent / "recipe.json"):
        # the model is intact, whatever became of the run's last checkpoint
        with suppress(SaccadeError):
            at = RunFolder(system.folder.parent, {}).progress()
    return summary(at or Progress(), system.model)


def claim(path: Path, recipe: Recipe, resume: bool) -> Recipe:
    """Checks that the run folder is new or empty, or contains a run that this recipe may continue; the recipe, with what it leaves open
    as it was chosen for that run."""
    kept = path / "recipe.json"
    if os.path.exists(path) and not path.is_dir():
        raise SaccadeError(
            f"{path} is a file; give a folder for the run with out=…", code="not-a-folder"
        )
    if os.path.exists(kept):
        if not resume:
            raise SaccadeError(
                f"{path} already contains a run; use resume=True to continue it, or choose another out=…",
                code="run-folder-taken",
            )
        if read_json(kept).get("saccade") == 1:
            raise SaccadeError(
                f"{path} was started by saccade 0.1.0, which can finish it; start a new run with another out=…",
                code="other-format",
            )
        begun = read_config(kept)
        recipe = adopt(recipe, begun)
        changed = differences(begun.to_dict(), recipe.to_dict())
        wrong = [name for name in changed if name not in MAY_CHANGE]
        if wrong:
            may = ", ".join(MAY_CHANGE)
            raise SaccadeError(
                f"{path} was started with a different {wrong[0]}; resume with the same recipe (only {may} may change)",
                code="recipe-differs",
            )
    elif os.path.isdir(path) and not all(
        one.name == LOCK or is_temporary(one) for one in path.iterdir()
    ):
        raise SaccadeError(
            f"{path} contains other files and no run; choose an empty or new folder with out=…",
            code="foreign-files",
        )
    return recipe


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """The dotted names under which two trees differ."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return [] if a == b else [path]
    return [
        name
        for key in sorted({*a, *b})
        for name in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    ]


def ensemble(systems: Sequence[System]) -> System:
    """Several systems of one vocabulary as one, whose probabilities are the mean of theirs."""
    model = Ensemble.of([system.model for system in systems]).eval()
    first = systems[0]
    for one in systems:
        check_ensembled(type(one.task), one.recipe.task)
    for number, other in enumerate(systems[1:], 2):
        if vocabularies(other) != vocabularies(first):
            what = f"model {number} ({other.name}) has a different vocabulary than the first ({first.name})"
            raise SaccadeError(
                f"{what}; train them on the same data with the same vocabulary.* settings",
                code="vocabulary-differs",
            )
    return System(first.recipe, model, first.task)


def check_ensembled(task: type[Task], name: str) -> None:
    if not task.by_token:
        raise SaccadeError(
            f"{with_article(name)} model cannot be ensembled (no token-by-token output); use it by itself",
            code="no-ensemble",
        )


def vocabularies(system: System) -> dict[str, Any]:
    """A task's tokens without the lengths of its training data, which may differ."""
    return {name: value for name, value in system.task.tokens().items() if name != "outputs"}


def average(folders: Sequence[str | Path], out: str | Path) -> System:
    """The mean of several models' parameters, written to a new model folder."""
    if not folders:
        raise SaccadeError(
            "the mean of no models; give at least one model folder", code="no-models"
        )
    if os.path.exists(out) and not os.path.exists(Path(out) / MANIFEST):
        raise SaccadeError(
            f"{out} already exists; choose a new folder with out=…", code="folder-exists"
        )
    systems = [load(folder, "cpu") for folder in folders]
    first = systems[0]
    for folder, other in zip(folders[1:], systems[1:], strict=True):
        if other.recipe.model != first.recipe.model or vocabularies(other) != vocabularies(first):
            raise SaccadeError(
                f"{folder} is a different model than {folders[0]}; average models of one shape and vocabulary",
                code="models-differ",
            )
    set_parameters(
        first.model,
        mean_parameters([model_tensors(system.model) for system in systems], buffers(first.model)),
    )
    write_once(Path(out), *model_content(model_files(first), model_tensors(first.model)))
    return load(out)
