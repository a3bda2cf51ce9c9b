"""The command that finds out which symmetries a layer has."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Json, flag
from .completion import slot_names
from .report import check_picture
from .shared import load, note, print_json, show_table

if TYPE_CHECKING:
    from ..teaching.symmetry.checking import Row

WHAT = "A layer (`attention`, `positions.rotary`), a slot (`mixers`), or a run folder; without it, every layer of the catalogue."
DRAWN = "Draw it: X, PX and what the layer makes of them, with A and PAPᵀ where it reads edges; of several layers, the table. .png, .svg, .pdf."


def symmetry(
    what: Annotated[str | None, typer.Argument(help=WHAT, autocompletion=slot_names)] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help=DRAWN)] = None,
    all_: Annotated[
        bool, flag("--all", "Every layer of the catalogue, as without a name.")
    ] = False,
    json_: Json = False,
) -> None:
    """Test which symmetries a layer has.

    Every symmetry (positions permuted, shifted, mirrored or repeated, grids rotated) is tried in float64 on the layer itself: f(g x) = g f(x)
    where each position has a vector (equivariant), f(g x) = f(x) where all share one (invariant). A number is the largest difference as a
    share of the largest output; up to 1e-9 counts as none.

    Examples:
        saccade symmetry attention
        saccade symmetry positions
        saccade symmetry graph-attention --out papt.png
        saccade symmetry runs/tagger
        saccade symmetry --all --out table.png
    """
    from ..teaching.symmetry import checking as checks
    from ..teaching.symmetry.moves import TOLERANCE

    check_picture(out_file)
    if all_ and what is not None:
        raise SaccadeError(
            f"--all is every layer of the catalogue, and '{what}' was named too; leave one of them out",
            code="all-and-name",
        )
    if what is not None and os.path.isdir(what):
        system = load(Path(what), "cpu")
        rows = list(checks.check_model(system.model, len(system.task.reads or ())))
        members = []
    else:
        members = [] if what is None else checks.find(what)
        rows = list(checks.check_all(members or None))
    if json_:
        for row in rows:
            print_json(row.to_dict())
    else:
        print_rows(rows)
        note(
            f"yes: equal up to {TOLERANCE:g} of the largest output; a number: by how much not; –: not for this layer"
        )
    if out_file is not None:
        from ..views.figures import save, symmetry_example, symmetry_table

        if len(members) == 1:
            figure = symmetry_example(*checks.example(*members[0]))
        else:
            names = [f"{row.slot}: {row.name}" for row in rows]
            words = [[one.word for one in row.verdicts] for row in rows]
            columns = [one.symmetry for one in rows[0].verdicts]
            legend = "yes: equivariant · inv: invariant · –: not for this layer"
            figure = symmetry_table(names, columns, words, "layer × symmetry", legend)
        save(figure, out_file)
        note(f"{out_file}: drawn")


def print_rows(rows: "list[Row]") -> None:
    words = {"equivariant": "yes"}
    cells = [
        [
            f"{one.error:.0e}" if one.word == "no" else words.get(one.word, one.word)
            for one in row.verdicts
        ]
        for row in rows
    ]
    names = [f"{row.slot}: {row.name}" for row in rows]
    show_table(
        ("layer", *(one.symmetry for one in rows[0].verdicts)),
        [(name, *each) for name, each in zip(names, cells, strict=True)],
    )
