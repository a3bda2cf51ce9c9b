"""`saccade average`"""

from pathlib import Path
from typing import Annotated

import typer

from .shared import Json, report


def average(
    models: Annotated[list[Path], typer.Argument(help="Model folders of one shape and vocabulary.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The model folder to write.")],
    json_: Json = False,
) -> None:
    """Write the mean of several models' parameters as a new model folder.

    Examples:
        saccade average runs/a runs/b runs/c --out runs/mean
    """
    from .. import api

    system = api.average(models, out_folder)
    facts = {"out": str(out_folder), "models": [str(model) for model in models], "family": system.name}
    report(json_, facts, f"{out_folder}: the mean of {len(models)} models")
