"""`saccade explain`"""

from typing import Annotated

import typer

from .shared import Json, flag, out, print_json


def explain(
    text: Annotated[str | None, typer.Argument(help="Your own sentence; without it, the lectures' worked example.")] = None,
    scaled: Annotated[bool, flag("--scaled", "Divide the scores by √D, as Transformers do (the lecture does not).")] = False,
    json_: Json = False,
) -> None:
    """Self-attention worked out step by step, with all numbers: the lectures' example, or your own sentence.

    Examples:
        saccade explain
        saccade explain "the black cat"
    """
    from ..views.terminal import render
    from ..views.worked import worked_example, worked_sentence

    worked = worked_example(scaled) if text is None else worked_sentence(text.split(), scaled)
    if json_:
        print_json(worked.to_dict())
    else:
        out.print(render(worked))
