"""`saccade classify`"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Device, Input, Json, Model, Text, note_unknown, out, print_json, read_lines, write


def classify(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Draw one text: .png, .svg, .pdf, .html or .json.")] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Classify texts; words are shaded by their weight.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --out weights.png
        saccade classify runs/reviews --input texts.txt --json
    """
    from .. import api
    from ..views.terminal import in_percent, shade_words
    from .show import check_drawable, draw

    if out_file is not None:
        check_drawable(out_file)
    system = api.load(model, device)
    lines = read_lines(text, input_file, "classify")
    if not any(line.strip() for line in lines):
        raise SaccadeError("the lines are empty; give at least one text")
    if out_file is not None and len(lines) > 1:
        raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
    classified = iter(api.classify(system, [line for line in lines if line.strip()]))
    note_unknown(system, lines)
    for line in lines:
        found = next(classified) if line.strip() else None  # line n of the output belongs to line n of the input
        if found is None and json_:
            print_json({"text": line, "label": None})
        elif found is None:
            sys.stdout.write("\n")
        elif json_:
            weights = [[piece, weight] for piece, weight in zip(found.pieces, found.weights, strict=True)]
            print_json({"text": line, "label": found.label, "probabilities": found.probabilities, "weights": weights})
        elif text is None:
            sys.stdout.write(f"{found.label}\t{line}\n")
        else:
            likeliest = sorted(found.probabilities.items(), key=lambda pair: -pair[1])[:5]
            write(f"{found.label}   ({'  '.join(f'{name} {chance:.3f}' for name, chance in likeliest)})")
            shown = (shade_words if out.is_terminal else in_percent)(found.pieces, found.weights)
            out.print(shown, soft_wrap=True, markup=False)
    if out_file is not None:
        document = api.show(system, lines[0])
        draw(document, document.sites[0], False, out_file)
        if not json_:
            write(f"{out_file}: the weights of the words")
