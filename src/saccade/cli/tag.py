"""The command `tag`."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Device, Json, Model
from .input_stream import TOGETHER, stdin_lines
from .shared import load, note, print_json, visible

if TYPE_CHECKING:
    from ..data.conllu import Sentence
    from ..system.system import System


def tag(
    model: Model,
    file: Annotated[
        str,
        typer.Argument(
            help=".conllu, .tsv, .jsonl or .txt (one sentence per line); - for lines on stdin."
        ),
    ],
    split: Annotated[
        str | None,
        typer.Option(help="Split text at each space, or into words. [default: by the model]"),
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Tag the words of a text or a file.

    Writes CoNLL-U; all other columns stay unchanged.

    Examples:
        saccade tag runs/tagger my.conllu > tagged.conllu
        saccade tag runs/tagger sentences.txt
        echo "the black cat" | saccade tag runs/tagger -
    """
    from ..data.conllu import Sentence, each_sentence, tag_conllu
    from ..data.lines import bare_suffix, open_text, strict
    from ..data.treebank_words import SPLITS

    is_text = file == "-" or bare_suffix(Path(file)) == ".txt"
    if split is not None and (split not in SPLITS or not is_text):
        raise SaccadeError(
            f"--split is '{split}'; write space or words, for a .txt file or stdin (other files have their own words)"
        )
    system = load(model, device)
    task, column = system.require("tag"), system.recipe.data.column
    if is_text:
        lines = stdin_lines("tag") if file == "-" else open_text(file)
        found: Iterator[Sentence] = (
            Sentence(task.words(line, split or ""), None, n)
            for n, line in enumerate(lines, 1)
            if line.strip()
        )
    else:
        found = strict(each_sentence(file, column))
    tagged = tag_each(system, found)
    first = next(tagged, None)
    if first is None:
        raise SaccadeError(
            f"{'stdin' if file == '-' else file} contains no words; give at least one sentence"
        )
    if is_text:
        how = "at spaces" if (split or task.split) == "space" else "into words and punctuation"
        note(
            f"note: text is split {how}{'' if split else ', as the training data is'}; --split space or words changes it"
        )
    if json_:
        for one, given in chain([first], tagged):
            print_json({"words": list(one.words), "tags": given})
        return
    spelled = ((one, [visible(tag) for tag in given]) for one, given in chain([first], tagged))
    for line in tag_conllu(file, spelled, column):
        sys.stdout.write(line if line.endswith("\n") else line + "\n")


def tag_each(
    system: "System", sentences: Iterable["Sentence"]
) -> Iterator[tuple["Sentence", list[str]]]:
    """Sentences with their tags, some hundred at a time: no file fills the memory."""
    source = iter(sentences)
    while some := list(islice(source, TOGETHER)):
        yield from ((one, list(given)) for one, given in zip(some, system.tag(some), strict=True))
