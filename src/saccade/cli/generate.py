"""`saccade generate`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .shared import Device, Json, Model, note_unknown, print_json

EXAMPLES = """Examples:

    saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8

    saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
"""


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The beginning; without it, the model begins by itself.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="At most so many tokens.")] = 200,
    temperature: Annotated[float, typer.Option(help="Above 1 is bolder, below it is safer, 0 takes the likeliest.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the smallest set with this probability.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of sampling.")] = 0,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Go on with a text: tokens are printed as the model puts them out."""
    from .. import api

    system = api.load(model, device)
    sample = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    pieces = api.generate(system, prompt, limit, sample)
    note_unknown(system, [prompt] if prompt else [])
    if json_:
        print_json({"prompt": prompt, "text": "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
