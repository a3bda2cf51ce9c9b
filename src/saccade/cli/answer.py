"""The command `answer`."""

from typing import Annotated, Any

import typer

from .common_options import FILES, Model, takes
from .predict import prediction

QUESTION = "Questions about it; without them and --input, they are read from stdin."


@takes("beam", "length_penalty", "max_length", *FILES, "device", "json_")
def answer(
    model: Model,
    image: Annotated[str | None, typer.Argument(help="An image file.")] = None,
    questions: Annotated[list[str] | None, typer.Argument(help=QUESTION)] = None,
    **how: Any,
) -> None:
    """Answer questions about an image.

    In a terminal, without a question: type questions, one per line; Ctrl-D ends. --json also prints the probability of every answer, and
    where in the image each word of the question looked.

    Examples:
        saccade answer runs/questions picture.png "what color is the circle?"
        saccade answer runs/questions picture.png < questions.txt
        saccade answer runs/questions --input asked.tsv --json
    """
    texts = [] if image is None else [image, *(questions or ())]
    prediction(model, "answer", **how).run(texts)
