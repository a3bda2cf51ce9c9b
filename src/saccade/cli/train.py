"""The command `train`."""

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Json, flag
from .completion import recipe_names
from .completion import settings as complete_settings
from .shared import command_name, err, note, out, rank, report

if TYPE_CHECKING:
    from ..config.recipes import Recipe

RECIPE = "A YAML file, the name of a recipe (`saccade list recipes`), or a run's recipe.json; with --resume, a run folder."


def train(
    recipe: Annotated[str | None, typer.Argument(help=RECIPE, autocompletion=recipe_names)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings that override the recipe's.",
            autocompletion=complete_settings,
        ),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder. [default: runs/RECIPE]")
    ] = None,
    resume: Annotated[
        bool, flag("--resume", "Continue a run from its last checkpoint, by its own recipe.")
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Say what the run would do; train and write nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train a model from a recipe into a run folder.

    Ctrl-C writes a checkpoint; --resume continues from it. `torchrun --standalone --nproc-per-node 2 -m saccade train …` trains with two
    processes, with the same result as one; see docs/many-machines.md.

    Examples:
        saccade train phrasebook-bahdanau --out runs/first
        saccade train translation data.train=train.en,train.fr model.size=small training.minutes=10 --out runs/mine
        saccade train --resume runs/mine
        saccade train --resume runs/mine training.minutes=30
        saccade train runs/mine/recipe.json --out runs/again
    """
    out.quiet = err.quiet = rank() > 0
    with err.status("starting …"):
        from .. import api
        from ..config import recipes
        from ..settings import resolve
        from ..training.logs import format_metric
        from ..training.signals import Stopped
        from .progress import RunBoard

    made, folder = find_run(recipe, settings or [], out_folder, resume)
    if dry_run:
        return print_plan(made, folder, json_)
    if recipes.device(made.device).type == "cpu" and made.training.precision == "bf16":
        note(
            "note: bf16 on a CPU. If the process dies with 'Illegal instruction', set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16."
        )
    try:
        with RunBoard().watcher(folder.name, resolve(made.training.updates, 0)) as watcher:
            _, ended = api.fit(made, folder, resume, watcher)
    except Stopped as stopped:
        # else it was stopped in the training that it starts from
        begun = os.path.exists(folder / "recipe.json")
        raise Stopped(
            *stopped.at,
            f"{command_name()} train --resume {folder}" if begun else "the same command",
        ) from None
    if ended.best is None:
        raise SaccadeError(
            f"{folder}: nothing was evaluated; raise training.updates", code="nothing-evaluated"
        )
    facts = {name: value for name, value in asdict(ended).items() if name not in ("batch", "worse")}
    best = f"best dev {made.training.watch} {format_metric(made.training.watch, ended.best)} at update {ended.best_update:,}"
    report(
        json_,
        {"out": str(folder), **facts},
        f"{folder}: {ended.update:,} updates, {best}\n{usage(made, folder)}",
    )


def print_plan(made: "Recipe", folder: Path, json_: bool) -> None:
    """What a run would do: its data, sizes, settings and cost, measured on one batch."""
    from ..config.recipes import recipes_before
    from ..experiments.forecast import cost_of
    from ..system.build import prepared, usual_run
    from ..training.checkpoints import Progress
    from ..training.distributed import Ranks
    from ..training.loop import Watcher
    from ..training.run_plan import plan, use_threads

    for before in recipes_before(made):
        if not usual_run(before).is_dir():
            raise SaccadeError(
                f"it starts from the model of {before.stem}, which is not trained; dry-run that recipe first",
                code="start-missing",
            )
    system, work = prepared(made)
    settings = plan(system.recipe.training, system.model, work, Ranks(), Progress, Watcher())
    with use_threads(int(settings.threads)):
        cost = cost_of(system, work, int(settings.updates))
    facts = {
        "out": str(folder),
        "family": system.name,
        "parameters": cost.parameters,
        "updates": settings.updates,
        "batches_per_epoch": len(work.epoch(0)),
        "evaluate_every": settings.evaluate_every,
        "seconds": cost.seconds_per_update * cost.updates,
        "notes": list(system.notes),
    }
    lines = [*system.notes, f"{system.name}: {cost}", f"{folder}: nothing was trained or written"]
    report(json_, facts, "\n".join(lines))


def find_run(
    recipe: str | None, words: list[str], out_folder: Path | None, resume: bool
) -> "tuple[Recipe, Path]":
    """The recipe and the folder of a run: a new one by a recipe, or with `resume` a run by its own recipe, which words may change."""
    from ..api import differences
    from ..config import recipes
    from ..config.automatic import adopt

    if recipe is not None and "=" in recipe and not os.path.exists(recipe):
        words, recipe = [recipe, *words], None
    if recipe is None and (out_folder is None or not resume):
        raise SaccadeError(
            "no recipe was named; write `saccade train RECIPE`, or `saccade train --resume RUN` to continue a run",
            code="no-recipe",
        )
    missing = (
        recipe is not None
        and out_folder is None
        and os.sep in recipe
        and not os.path.exists(recipe)
    )
    if recipe is None or (resume and (missing or os.path.isdir(recipe))):
        folder = out_folder or Path(str(recipe))
        if recipe is not None and folder.resolve() != Path(recipe).resolve():
            raise SaccadeError(
                f"{recipe} and --out {folder} are two folders; name the one run to resume",
                code="two-folders",
            )
        if not (folder / "recipe.json").exists():
            raise SaccadeError(
                f"{folder} holds no run to resume; start one with `saccade train RECIPE --out {folder}`",
                code="not-a-run",
            )
        return recipes.read_recipe(folder / "recipe.json", words), folder
    path = Path(recipe)
    folder = out_folder or (path.parent if path.name == "recipe.json" else Path("runs") / path.stem)
    if not resume or not (folder / "recipe.json").exists():
        if resume:
            note(f"note: no run to resume in {folder}; starting a new one")
        return recipes.read_recipe(recipe, words), folder
    made = recipes.read_recipe(folder / "recipe.json", words)
    with suppress(SaccadeError):  # it may need words that were given when the run began
        if changed := differences(
            made.to_dict(), adopt(recipes.read_recipe(recipe, words), made).to_dict()
        ):
            note(
                f"note: {recipe} differs from the run's own recipe in {', '.join(changed)}; the run's own recipe is used"
            )
    return made, folder


def usage(recipe: "Recipe", folder: Path) -> str:

    return f"Use it: {command_name()} {recipe.kind.usage(recipe).format(model=folder)}"
