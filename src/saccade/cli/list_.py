"""The command `list`."""

import sys
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..errors import SaccadeError
from .common_options import Json
from .completion import slot_names
from .shared import print_json, show_all, show_table, write

SLOTS = "`recipes`, or one slot: scores, normalizers, masks, positions, models …"


def list_(
    slot: Annotated[str | None, typer.Argument(help=SLOTS, autocompletion=slot_names)] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only rows that contain this (a name, a paper, a year)."),
    ] = None,
    json_: Json = False,
) -> None:
    """List recipes, or everything that a recipe can name.

    Parts are listed with their papers, recipes with what they need to run.

    Examples:
        saccade list
        saccade list recipes
        saccade list scores
        saccade list --where 2015
    """
    from ..config.index import rows

    found = rows(slot, where)
    if json_:
        print_json(found)
        return
    if not found:
        raise SaccadeError(
            f"nothing in the catalogue contains '{where}'; run `saccade list` to see it all",
            code="nothing-found",
        )
    if not sys.stdout.isatty():  # a line per entry, for grep and cut
        write("\n".join("\t".join(row.values()) for row in found))
        return
    if "slot" not in found[0]:  # recipes
        show_table(list(found[0]), [list(row.values()) for row in found])
        return
    table = Table.grid(padding=(0, 2))
    for row, before in zip(found, [{"slot": ""}, *found], strict=False):
        if row["slot"] != before["slot"]:
            table.add_row(Text(row["slot"], "bold"))
        table.add_row(
            Text(f"  {row['name']}"), Text.assemble(row["what"], "  ", (row["paper"], "dim"))
        )
    show_all(table)
