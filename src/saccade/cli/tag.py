"""The command `tag`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Model, takes
from .predict import Prediction, prediction
from .shared import note

FILE = ".conllu, .tsv, .jsonl or .txt (one sentence per line); - for lines on stdin."


@takes("out_file", "device", "json_")
def tag(
    model: Model,
    file: Annotated[str, typer.Argument(help=FILE)],
    split: Annotated[
        str | None,
        typer.Option(help="Split text at each space, or into words. [default: by the model]"),
    ] = None,
    **how: Any,
) -> None:
    """Tag the words of a text or a file.

    Writes CoNLL-U; all other columns stay unchanged.

    Examples:
        saccade tag runs/tagger my.conllu > tagged.conllu
        saccade tag runs/tagger sentences.txt --out tagged.jsonl
        echo "the black cat" | saccade tag runs/tagger -
    """
    from ..data.lines import bare_suffix
    from ..data.treebank_words import SPLITS

    is_text = file == "-" or bare_suffix(Path(file)) == ".txt"
    if split is not None and (split not in SPLITS or not is_text):
        raise SaccadeError(
            f"--split is '{split}'; write space or words, for a .txt file or stdin (other files have their own words)",
            code="wrong-split",
        )
    if file == "-" and sys.stdin is not None and sys.stdin.isatty():
        raise SaccadeError("nothing to tag; give a text file, or lines on stdin", code="no-inputs")
    where = None if file == "-" else file
    made = prediction(model, "tag", input_file=where, made_of=Words, **how)
    assert isinstance(made, Words)
    made.split = split if where is None or is_text else None
    made.run(None)
    if is_text:
        spaces = (split or made.task.split) == "space"
        way = "at spaces" if spaces else "into words and punctuation"
        note(
            f"note: text is split {way}{'' if split else ', as the training data is'}; --split space or words changes it"
        )


class Words(Prediction):
    """Tags of words, into which a text is split as asked for."""

    split: str | None

    def read_file(self, where: str) -> Iterator[Any]:
        from ..data.lines import open_text

        return super().read_file(where) if self.split is None else open_text(Path(where))

    def input_from(self, line: str) -> Any:
        if self.split is None:
            return super().input_from(line)
        return self.task.inputs([self.task.words(line, self.split)])[0][0]
