"""The command `generate`."""

from typing import Annotated, Any

import typer

from .common_options import SAMPLING, Model, as_typed, takes
from .predict import prediction

PROMPT = "The beginning; without it, the model starts by itself."


@takes(*SAMPLING, "limit", "device", "precision", "json_")
def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help=PROMPT, callback=as_typed)] = "",
    **how: Any,
) -> None:
    """Continue a text.

    Tokens are printed as they are generated.

    Examples:
        saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8
        saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
    """
    made = prediction(model, "generate", **how)
    made.alone = True
    made.answer_group([prompt], 1)
