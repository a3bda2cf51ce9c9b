"""`saccade explain`, `list` and `check`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .shared import NO_VALUE, Json, out, print_json

EXPLAIN_EXAMPLES = """Examples:

    saccade explain

    saccade explain "the black cat"
"""
LIST_EXAMPLES = """Examples:

    saccade list

    saccade list scores

    saccade list --where 2015
"""
CHECK_EXAMPLES = """Examples:

    saccade check train.tsv

    saccade check train.en train.fr

    saccade check train.conllu

    saccade check reviews.tsv --as labels

    saccade check phrasebook:test
"""


def explain(
    text: Annotated[str | None, typer.Argument(help="Your own sentence; without it, the lectures' worked example.")] = None,
    scaled: Annotated[
        bool,
        typer.Option("--scaled", metavar=NO_VALUE, help="Divide the scores by √D, as Transformers do (the lecture does not)."),
    ] = False,
    json_: Json = False,
) -> None:
    """Self-attention worked out step by step, with all numbers: the lectures' example, or your own sentence."""
    from ..views.terminal import render
    from ..views.worked import worked_example, worked_sentence

    worked = worked_example(scaled) if text is None else worked_sentence(text.split(), scaled=scaled)
    if json_:
        print_json(worked.to_dict())
    else:
        out.print(render(worked))


def list_(
    slot: Annotated[str | None, typer.Argument(help="One slot: scores, normalizers, masks, positions, models …")] = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows that contain this (a name, a paper, a year).")] = None,
    json_: Json = False,
) -> None:
    """Everything that can be named in a recipe, with the paper it comes from."""
    from ..catalogue import rows

    found = rows(slot, where)
    if json_:
        print_json(found)
        return
    if not found:
        raise SaccadeError(f"nothing in the catalogue contains '{where}'; run `saccade list` to see it all")
    table = Table("slot", "name", "what", "paper", box=None, pad_edge=False, header_style="bold")
    before = ""
    for row in found:
        table.add_row(row["slot"] if row["slot"] != before else "", row["name"], row["what"], row["paper"])
        before = row["slot"]
    out.print(table)


def check(
    data: Annotated[list[str], typer.Argument(help="Files, hub:NAME:SPLIT, or a generated corpus such as phrasebook:train.")],
    kind: Annotated[
        str | None,
        typer.Option("--as", help="pairs, tags, labels or text; else told by the name (.conllu, .csv, .txt …), or pairs."),
    ] = None,
    documents: Annotated[str, typer.Option("--documents", help="What one document of text is: file, line or blank.")] = "file",
    json_: Json = False,
) -> None:
    """Look at data before a training is wasted on it: counts, lengths, duplicates, empty, broken and suspicious lines.

    Ends with 2 when a line is broken, so that `saccade check … && saccade train …` stops.
    """
    from ..data.check import check as look_at

    report = look_at(data, kind, documents)
    if json_:
        print_json(report.to_dict())
    else:
        out.print("\n".join(report.lines()), markup=False, soft_wrap=True)
    if report.errors:
        raise typer.Exit(2)
