"""`saccade train`"""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Json, command_name, err, flag, note, out, rank, report


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe that comes with saccade.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that override the recipe's.")
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, flag("--resume", "Resume from the last checkpoint.")] = False,
    json_: Json = False,
) -> None:
    """Train a model by a recipe into a run folder. Ctrl-C writes a checkpoint; --resume continues from it.

    `torchrun --standalone --nproc-per-node 2 -m saccade train …` trains on two processes as on one; see docs/many-machines.md.

    Examples:
        saccade train phrasebook-bahdanau --out runs/first
        saccade train my.yaml model.dim=256 training.updates=5000 --out runs/mine
        saccade train my.yaml --out runs/mine --resume
    """
    from .. import api, config
    from .progress import Board

    out.quiet = err.quiet = rank() > 0
    made = config.read_recipe(recipe, settings or [])
    folder = out_folder or Path("runs") / Path(recipe).stem
    if config.device(made.device).type == "cpu" and made.training.precision == "bf16":
        note("note: bf16 on a CPU. If the process dies with 'Illegal instruction', set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16.")
    if resume and not (folder / "recipe.json").exists():
        note(f"note: no run to resume in {folder}; starting a new one")
    with Board().watcher(made.model["family"], made.training.updates) as watcher:
        _, ended = api.fit(made, folder, resume, watcher)
    if ended.best is None:
        raise SaccadeError(f"{folder}: nothing was evaluated; raise training.updates")
    facts = {name: value for name, value in dataclasses.asdict(ended).items() if name not in ("batch", "worse")}
    best = f"best dev {made.training.watch} {ended.best:.4f} at update {ended.best_update:,}"
    use = f"{command_name()} {config.task(made).usage(made).format(model=folder)}"
    report(json_, {"out": str(folder), **facts}, f"{folder}: {ended.update:,} updates, {best}\nUse it: {use}")
