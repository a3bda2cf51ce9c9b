"""`saccade tag`"""

import sys
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Device, Json, Model, print_json, read_lines


def tag(
    model: Model,
    file: Annotated[str, typer.Argument(help=".conllu, .tsv, .jsonl or .txt (one sentence per line); - for lines on stdin.")],
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Tag the words of a file; writes CoNLL-U, with all other columns unchanged.

    Examples:
        saccade tag runs/tagger my.conllu > tagged.conllu
        saccade tag runs/tagger sentences.txt
        echo "the black cat" | saccade tag runs/tagger -
    """
    from .. import api
    from ..data.conllu import Sentence, tag_conllu
    from ..data.corpora import sentences

    system = api.load(model, device)
    column = system.recipe.data.column
    if file == "-":
        lines = read_lines(None, None, "tag")
        found = [Sentence(tuple(line.split()), None, n) for n, line in enumerate(lines, 1) if line.strip()]
        if not found:
            raise SaccadeError("stdin holds no words; give at least one sentence")
    else:
        found = sentences(file, column=column)
    tags = api.tag(system, found)
    if json_:
        for one, given in zip(found, tags, strict=True):
            print_json({"words": list(one.words), "tags": given})
        return
    for line in tag_conllu(file, zip(found, tags, strict=True), column):
        sys.stdout.write(line if line.endswith("\n") else line + "\n")
