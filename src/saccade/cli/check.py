"""The command `check`."""

from typing import Annotated

import typer

from ..errors import SaccadeError
from .common_options import Json, flag
from .shared import note, report

WRITE = "Write a copy without bad examples: a .tsv or .jsonl file, two files clean.en,clean.fr, or .txt for text."
LONGEST = "With --write: the most words per side (characters without spaces). [default: 200 for pairs and tags]"
KINDS = "pairs, tags, labels, text, graphs or pictures; otherwise inferred from the file name (.conllu, .csv, .txt …), or pairs."


def check(
    data: Annotated[
        list[str],
        typer.Argument(
            help="Files, hub:NAME:SPLIT, or a generated corpus such as phrasebook:train."
        ),
    ],
    kind: Annotated[str | None, typer.Option("--as", help=KINDS)] = None,
    documents: Annotated[
        str, typer.Option("--documents", help="What one document of text is: file, line or blank.")
    ] = "file",
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", help="Another set: is any of it in the first? Repeatable."),
    ] = None,
    write_to: Annotated[str | None, typer.Option("--write", help=WRITE)] = None,
    unique: Annotated[bool, flag("--unique", "With --write: without repeated examples.")] = False,
    max_length: Annotated[int | None, typer.Option(help=LONGEST, min=0)] = None,
    json_: Json = False,
) -> None:
    """Check data before training.

    Reports counts, lengths, duplicates, and empty, broken and suspicious lines. --write makes a clean copy.
    The exit code is 2 if a line is broken, so that `saccade check … && saccade train …` stops; not with --write, which leaves it out.

    Examples:
        saccade check train.tsv
        saccade check train.en train.fr
        saccade check train.conllu
        saccade check reviews.tsv --as labels
        saccade check photos
        saccade check train.tsv --dev dev.tsv --write clean.tsv
    """
    from ..data import cleaning
    from ..data import findings as check

    if write_to is None and (unique or max_length is not None):
        raise SaccadeError(
            "--unique and --max-length are for a clean copy; add --write FILE", code="needs-write"
        )
    first = check.check(data, kind, documents)
    if write_to is not None:
        cleaning.check_names(first.kind, write_to)
    found = [first, *(check.check_other(first, other, documents) for other in dev or [])]
    for one in found:
        report(json_, one.to_dict(), "\n".join(one.lines()))
    if write_to is not None:
        note(cleaning.clean(first, write_to, unique, max_length, documents))
    elif any(one.errors for one in found):
        raise typer.Exit(2)
