"""`saccade convert`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import Json, me, out, print_json

EXAMPLES = """Examples:

    saccade convert runs/large --out models/large
"""


def convert(
    run: Annotated[Path, typer.Argument(help="A run folder, or its last/, written with training.checkpoint=sharded.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The model folder to make; new or empty.")],
    json_: Json = False,
) -> None:
    """Make a plain model folder of a run's last sharded checkpoint, in one process.

    Reading a sharded checkpoint unpickles its .metadata, which can run any program: convert only what you or people you trust have
    trained. The result has no pickle in it.
    """
    from .. import config
    from ..system import read_config
    from ..training.checkpoints import convert

    convert(run, out_folder)
    if json_:
        print_json({"out": str(out_folder)})
        return
    out.print(f"{out_folder}: a model folder made of {run}", markup=False, soft_wrap=True)
    recipe = read_config(out_folder / "config.json")
    command = config.task(recipe).usage(recipe)
    out.print(f"Use it: {me()} {command.format(model=out_folder)}", markup=False, soft_wrap=True)
