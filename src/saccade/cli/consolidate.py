"""The command `consolidate`."""

from pathlib import Path
from typing import Annotated

import typer

from .common_options import Json, OutFolder
from .completion import run_folders
from .shared import report
from .train import usage

SHARDED = "A run folder, or its last/, written with training.checkpoint=sharded."


def consolidate(
    run: Annotated[Path, typer.Argument(help=SHARDED, autocompletion=run_folders)],
    out_folder: OutFolder,
    json_: Json = False,
) -> None:
    """Make one model folder of a sharded checkpoint.

    One process is enough.

    Examples:
        saccade consolidate runs/large --out models/large
    """
    from ..system.model_folder import read_config
    from ..training.checkpoints import convert

    convert(run, out_folder)
    use = usage(read_config(out_folder / "config.json"), out_folder)
    report(json_, {"out": str(out_folder)}, f"{out_folder}: a model folder made of {run}\n{use}")
