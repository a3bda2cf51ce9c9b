"""`saccade check`"""

from typing import Annotated

import typer

from .shared import Json, report

KINDS = "pairs, tags, labels or text; otherwise inferred from the file name (.conllu, .csv, .txt …), or pairs."


def check(
    data: Annotated[list[str], typer.Argument(help="Files, hub:NAME:SPLIT, or a generated corpus such as phrasebook:train.")],
    kind: Annotated[str | None, typer.Option("--as", help=KINDS)] = None,
    documents: Annotated[str, typer.Option("--documents", help="What one document of text is: file, line or blank.")] = "file",
    json_: Json = False,
) -> None:
    """Check data before training: counts, lengths, duplicates, empty, broken and suspicious lines.

    Ends with 2 when a line is broken, so that `saccade check … && saccade train …` stops.

    Examples:
        saccade check train.tsv
        saccade check train.en train.fr
        saccade check train.conllu
        saccade check reviews.tsv --as labels
        saccade check phrasebook:test
    """
    from ..data.check import check

    found = check(data, kind, documents)
    report(json_, found.to_dict(), "\n".join(found.lines()))
    if found.errors:
        raise typer.Exit(2)
