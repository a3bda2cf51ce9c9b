"""The command `classify`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Device, Input, Json, Model, Text, Words, flag
from .input_stream import answer_each
from .reconstruct import classify_images
from .shared import Unknown, check_drawable, draw, load, report, write

if TYPE_CHECKING:
    from ..system.system import System

EFFECT = "Also print how much the label's probability falls when a word is left out: + for the label, − against it."


def classify(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Draw one text: .png, .svg, .pdf, .html or .json.")
    ] = None,
    words: Words = False,
    effect: Annotated[bool, flag("--effect", EFFECT)] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Classify texts or images.

    Words are shaded by their weight. In a terminal, without a text: type texts, one per line; Ctrl-D ends.
    A model of images takes an image file or a folder of images instead of a text.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --effect
        saccade classify runs/reviews "not a bad film" --out weights.png
        saccade classify runs/reviews --input texts.txt --json
        saccade classify runs/shapes-vit photo.png
        saccade classify runs/shapes-vit photos/ --json
    """
    from .. import api

    check_drawable(out_file)
    system = load(model, device)
    if "classify" in system.task.verbs and "image" in system.task.fields:
        asked = next(
            (
                name
                for name, given in (("out", out_file), ("words", words), ("effect", effect))
                if given
            ),
            None,
        )
        if asked:
            raise SaccadeError(
                f"--{asked} is for models of texts, and this one reads images; leave it out"
            )
        classify_images(system, text, input_file, json_)
        return
    system.require("classify")  # a mistake is reported before anything else
    shown = text is not None or (
        input_file is None and sys.stdin is not None and sys.stdin.isatty()
    )
    if not (shown or json_) and (effect or (words and out_file is None)):
        raise SaccadeError(
            f"lines are printed without weights; leave {'--effect' if effect else '--words'} out, or use --json"
        )

    unknown = Unknown(system)

    def answer(lines: list[str], first: int) -> None:
        if out_file is not None and len(lines) > 1:
            raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
        print_labels(system, lines, first, shown or json_, words, effect, json_)
        unknown.note(lines)
        if out_file is not None:
            document = api.show(system, lines[0])
            document = document.words() if words else document
            draw(document, document.sites[0], False, out_file)
            if not json_:
                write(f"{out_file}: the weights of the words")

    answer_each(text, input_file, "classify", answer, system.each_input)


def print_labels(
    system: "System",
    lines: list[str],
    first: int,
    shown: bool,
    words: bool,
    effect: bool,
    json_: bool,
) -> None:
    """The labels of the lines; with probabilities and weights where `shown`."""
    from .attention_output import print_classified

    texts = [line for line in lines if line.strip()]
    if not texts and first == 1:
        raise SaccadeError("the lines are empty; give at least one text")
    found = dict(zip(texts, system.classify(texts) if texts else [], strict=True))
    effects = (
        {line: system.task.effects(system.model, line, one.label) for line, one in found.items()}
        if effect
        else {}
    )
    # line n of the output belongs to line n of the input, also where that is empty
    for line in lines:
        one = found.get(line)
        if one is None:
            report(json_, {"text": line, "label": None}, "")
        elif shown:
            print_classified(line, one, words, effects.get(line), json_)
        else:
            write(f"{one.label}\t{line}")
    sys.stdout.flush()
