"""`saccade generate`"""

import sys
from typing import Annotated

import typer

from .shared import Device, Json, Model, Seed, TopK, TopP, note_unknown, print_json


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The beginning; without it, the model starts by itself.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="The largest number of tokens.")] = 200,
    temperature: Annotated[float, typer.Option(help="Above 1 is bolder, below it is safer, 0 takes the likeliest.")] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Continue a text; tokens are printed as they are generated.

    Examples:
        saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8
        saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
    """
    from .. import api

    system = api.load(model, device)
    pieces = api.generate(system, prompt, limit, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    note_unknown(system, [prompt] if prompt else [])
    if json_:
        print_json({"prompt": prompt, "text": "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
