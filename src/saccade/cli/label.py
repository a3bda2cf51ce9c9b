"""`saccade classify` and `tag`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Device, Json, Model, note_unknown, out, print_json, read_lines

CLASSIFY_EXAMPLES = """Examples:

    saccade classify runs/reviews "not a bad film"

    saccade classify runs/reviews "not a bad film" --out weights.png

    saccade classify runs/reviews --input texts.txt --json
"""
TAG_EXAMPLES = """Examples:

    saccade tag runs/tagger my.conllu > tagged.conllu

    saccade tag runs/tagger sentences.txt

    echo "the black cat" | saccade tag runs/tagger -
"""


def classify(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The text; without it and --input, lines are read from stdin.")] = None,
    input_file: Annotated[Path | None, typer.Option("--input", help="A file with one text a line (.gz and .xz too).")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Draw the weights of one text: .png, .svg, .pdf, .html or .json.")
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Give texts a label; a word is shaded by how much it counted."""
    from .. import api
    from ..views.terminal import in_percent, shaded
    from .use import check_drawable, draw

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
        if not line.strip():  # nothing has no label, and line n of the output is that of line n
            if json_:
                print_json({"text": line, "label": None})
            else:
                sys.stdout.write("\n")
            continue
        found = next(classified)
        if json_:
            weights = [[piece, weight] for piece, weight in zip(found.pieces, found.weights, strict=True)]
            print_json({"text": line, "label": found.label, "probabilities": found.probabilities, "weights": weights})
        elif text is None:
            sys.stdout.write(f"{found.label}\t{line}\n")
        else:
            chances = "  ".join(
                f"{name} {chance:.3f}" for name, chance in sorted(found.probabilities.items(), key=lambda p: -p[1])[:5]
            )
            out.print(f"{found.label}   ({chances})", markup=False, soft_wrap=True)
            show = shaded if out.is_terminal else in_percent
            out.print(show(found.pieces, found.weights), soft_wrap=True, markup=False)
    if out_file is not None:
        document = api.show(system, lines[0])
        draw(document, document.sites[0], False, out_file)
        if not json_:
            out.print(f"{out_file}: what counted", markup=False, soft_wrap=True)


def tag(
    model: Model,
    file: Annotated[
        str, typer.Argument(help=".conllu, .tsv, .jsonl or .txt (one sentence a line); - for stdin, a sentence a line.")
    ],
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Tag the words of a file; out comes CoNLL-U, with everything else as it was."""
    from .. import api
    from ..data.conllu import Sentence, read_sentences, tag_conllu, write_conllu

    system = api.load(model, device)
    column = system.recipe.data.column
    if file == "-":
        lines = read_lines(None, None, "tag")
        found = [Sentence(tuple(line.split()), None, n) for n, line in enumerate(lines, 1) if line.strip()]
        if not found:
            raise SaccadeError("stdin holds no words; give at least one sentence")
    else:
        found = read_sentences(file, column)
    tags = api.tag(system, found)
    if json_:
        for one, given in zip(found, tags, strict=True):
            print_json({"words": list(one.words), "tags": given})
        return
    lines_out = write_conllu(zip(found, tags, strict=True), column) if file == "-" else tag_conllu(file, tags, column)
    for line in lines_out:
        sys.stdout.write(line if line.endswith("\n") else line + "\n")
