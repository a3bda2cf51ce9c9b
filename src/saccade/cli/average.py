"""The command `average`."""

from pathlib import Path
from typing import Annotated

import typer

from .common_options import Json, OutFolder
from .completion import run_folders
from .shared import report


def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="Model folders of one shape and vocabulary.", autocompletion=run_folders
        ),
    ],
    out_folder: OutFolder,
    json_: Json = False,
) -> None:
    """Average the parameters of several models.

    Writes a new model folder.

    Examples:
        saccade average runs/a runs/b runs/c --out runs/mean
    """
    from .. import api

    system = api.average(models, out_folder)
    facts = {
        "out": str(out_folder),
        "models": [str(model) for model in models],
        "family": system.name,
    }
    report(json_, facts, f"{out_folder}: the mean of {len(models)} models")
