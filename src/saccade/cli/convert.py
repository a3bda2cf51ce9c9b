"""`saccade convert`"""

from pathlib import Path
from typing import Annotated

import typer

from .shared import Json, command_name, report


def convert(
    run: Annotated[Path, typer.Argument(help="A run folder, or its last/, written with training.checkpoint=sharded.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The model folder to write; new or empty.")],
    json_: Json = False,
) -> None:
    """Make a plain model folder of a run's last sharded checkpoint, in one process.

    Reading a sharded checkpoint unpickles its .metadata, which can run any program: convert only what you or people you trust have
    trained. The result has no pickle in it.

    Examples:
        saccade convert runs/large --out models/large
    """
    from .. import config
    from ..system import read_config
    from ..training.checkpoints import convert

    convert(run, out_folder)
    recipe = read_config(out_folder / "config.json")
    use = f"{command_name()} {config.task(recipe).usage(recipe).format(model=out_folder)}"
    report(json_, {"out": str(out_folder)}, f"{out_folder}: a model folder made of {run}\nUse it: {use}")
