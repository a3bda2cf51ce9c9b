"""The command `answer`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Device, Json, Model
from .input_stream import answer_each
from .shared import load, note_unknown, print_json, write

if TYPE_CHECKING:
    from ..system.system import System
    from ..views.answers import Answered

QUESTION = "The question; without it and --input, questions are read from stdin, one per line."
ASKED = "A file of image<TAB>question lines, or data as for training, whose answers are left out."


def answer(
    model: Model,
    image: Annotated[Path | None, typer.Argument(help="An image file.")] = None,
    question: Annotated[str | None, typer.Argument(help=QUESTION)] = None,
    input_file: Annotated[str | None, typer.Option("--input", help=ASKED)] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Answer questions about an image.

    In a terminal, without a question: type questions, one per line; Ctrl-D ends. --json also prints the probability of every answer, and
    where in the image each word of the question looked.

    Examples:
        saccade answer runs/questions picture.png "what color is the circle?"
        saccade answer runs/questions picture.png < questions.txt
        saccade answer runs/questions --input asked.tsv --json
    """
    from ..data import corpora
    from ..data.image_decoding import read_image

    if (image is None) == (input_file is None):
        wrong = "no image was given" if image is None else "both an image and --input were given"
        raise SaccadeError(f"{wrong}; give an image and a question, or --input FILE")
    system = load(model, device)
    # a mistake is reported before anything else
    system.require("answer")
    if image is None:
        where = str(input_file)  # its images are beside it, wherever those of the training data are
        asked = [
            (one.image, one.question)
            for one in corpora.read(system.task.data, where, system.recipe.data.options_of(where))
        ]
        note_unknown(system, [text for _, text in asked])
        print_answers(system.answer(asked), json_, False)
        return
    read_image(image)  # before anybody types a question about it
    shown = question is not None or (sys.stdin is not None and sys.stdin.isatty())

    def respond(lines: list[str], first: int) -> None:
        print_lines(system, image, lines, first, json_, shown)

    if question is not None and not question.strip():
        raise SaccadeError(
            "the question is empty; ask something, such as 'what color is the shape?'"
        )
    answer_each(question, None, "ask", respond, lambda path: [])


def print_lines(
    system: "System", image: Path, lines: list[str], first: int, json_: bool, shown: bool
) -> None:
    """Answers to the questions on lines, one for each; an empty line has an empty answer."""
    asked = [line for line in lines if line.strip()]
    if not asked and first == 1:
        raise SaccadeError("the lines are empty; give at least one question")
    note_unknown(system, asked)
    found = dict(zip(asked, system.answer(image, asked), strict=True))
    for line in lines:
        if line in found:
            print_answers([found[line]], json_, shown)
        elif json_:
            print_json({"question": line, "answer": None})
        else:
            write("")
    sys.stdout.flush()


def print_answers(found: list["Answered"], json_: bool, shown: bool) -> None:
    """Answers as lines of text, with the likeliest ones where `shown`, or as JSON."""
    for one in found:
        likeliest = sorted(one.probabilities.items(), key=lambda pair: -pair[1])[:5]
        if json_:
            facts = one.to_dict()
            print_json(
                {"image": facts.pop("name"), **facts, "weights": one.weights.round(4).tolist()}
            )
        elif shown:
            several = [f"{name} {100 * chance:.1f} %" for name, chance in likeliest]
            write(
                f"{one.answer}   ({'  '.join(several) if len(several) > 1 else f'{100 * likeliest[0][1]:.1f} %'})"
            )
        else:
            write(f"{one.answer}\t{one.question}")
