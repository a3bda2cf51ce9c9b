"""The command `generate`."""

import sys
from itertools import chain
from typing import Annotated

import typer

from .common_options import Device, Json, Model, Precision, Seed, TopK, TopP, as_typed
from .shared import load, note_unknown, print_json, write

PROMPT = "The beginning; without it, the model starts by itself."


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help=PROMPT, callback=as_typed)] = "",
    limit: Annotated[int, typer.Option("--limit", help="The largest number of tokens.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="Above 1 is bolder, below it is safer, 0 takes the likeliest.")
    ] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "float32",
    json_: Json = False,
) -> None:
    """Continue a text.

    Tokens are printed as they are generated.

    Examples:
        saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8
        saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
    """

    system = load(model, device, precision=precision)
    pieces = system.generate(
        prompt, limit, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    note_unknown(system, [prompt] if prompt else [])
    if json_:
        print_json(pieces.to_dict())
        return
    for piece in chain([prompt], pieces):
        write(piece, end="")
        sys.stdout.flush()
    write("")
