"""`saccade train`"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import NO_VALUE, Json, err, hush, me, out, print_json

EXAMPLES = """Examples:

    saccade train phrasebook-bahdanau --out runs/first

    saccade train my.yaml model.dim=256 training.updates=5000 --out runs/mine

    saccade train my.yaml --out runs/mine --resume
"""
AVERAGE_EXAMPLES = """Examples:

    saccade average runs/a runs/b runs/c --out runs/mean
"""


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe that comes with saccade.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that differ from the recipe's.")
    ] = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar=NO_VALUE, help="Go on from the last checkpoint.")] = False,
    json_: Json = False,
) -> None:
    """Train a model by a recipe into a run folder. Ctrl-C writes a checkpoint; --resume goes on from it.

    `torchrun --standalone --nproc-per-node 2 -m saccade train …` trains on two processes as on one; see docs/many-machines.md.
    """
    from .. import api, config
    from ..training.distributed import rank_here
    from .board import Board

    if rank_here() > 0:
        hush()
    made = config.read_recipe(recipe, settings or [])
    folder = out_folder or Path("runs") / Path(recipe).stem
    if config.device(made.device).type == "cpu" and made.training.precision == "bf16":
        err.print(
            "note: bf16 on a CPU. If the process dies with 'Illegal instruction', set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 "
            "(some CPUs advertise AMX and then trap).",
            markup=False,
            soft_wrap=True,
        )
    if resume and not (folder / "recipe.json").exists():
        err.print(f"note: there is no run in {folder} to go on with; a new one begins", markup=False, soft_wrap=True)
    with Board().watcher(made.model["family"], made.training.updates) as watcher:
        _, ended = api.fit(made, folder, resume, watcher)
    if ended.best is None:
        raise SaccadeError(f"{folder}: nothing was evaluated; raise training.updates")
    facts = {
        "out": str(folder),
        **{name: value for name, value in dataclasses.asdict(ended).items() if name not in ("metrics", "batch", "worse")},
    }
    facts["figures"] = ended.metrics
    if json_:
        print_json(facts)
        return
    out.print(
        f"{folder}: {ended.update:,} updates, best dev {made.training.watch} {ended.best:.4f} at update {ended.best_update:,}",
        markup=False,
        soft_wrap=True,
    )
    out.print(f"Use it: {me()} {config.task(made).usage(made).format(model=folder)}", markup=False, soft_wrap=True)


def average(
    models: Annotated[list[Path], typer.Argument(help="Model folders of one shape and vocabulary.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The model folder to write.")],
    json_: Json = False,
) -> None:
    """Write the mean of several models' parameters as a new model folder."""
    from .. import api

    system = api.average(models, out_folder)
    facts = {"out": str(out_folder), "models": [str(model) for model in models], "family": system.name}
    if json_:
        print_json(facts)
    else:
        out.print(f"{out_folder}: the mean of {len(models)} models", markup=False, soft_wrap=True)
