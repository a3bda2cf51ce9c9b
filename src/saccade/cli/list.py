"""`saccade list`"""

from typing import Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .shared import Json, out, print_json


def list_(
    slot: Annotated[str | None, typer.Argument(help="One slot: scores, normalizers, masks, positions, models …")] = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows that contain this (a name, a paper, a year).")] = None,
    json_: Json = False,
) -> None:
    """List everything that can be named in a recipe, with the paper it comes from.

    Examples:
        saccade list
        saccade list scores
        saccade list --where 2015
    """
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
