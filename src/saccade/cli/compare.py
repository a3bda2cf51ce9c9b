"""`saccade compare`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from ..training.stopping import Stopped
from .shared import Json, Lengths, Peers, err, out, peers_of, print_json

if TYPE_CHECKING:
    from ..comparing import Row

EXAMPLES = """Examples:

    saccade compare reviews-tf-idf reviews-static reviews-rnn reviews-transformer

    saccade compare mine.yaml other.yaml --seeds 3 training.updates=500 --result mine
"""
WHOLE = ("seconds", "updates", "parameters")


def compare(
    words: Annotated[list[str], typer.Argument(metavar="RECIPE… [KEY=VALUE…]", help="Recipes, and settings for all of them.")],
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, counted from the recipe's own.", min=1, max=100)] = 1,
    data: Annotated[
        str, typer.Option("--data", help="Judge on this data. [default: the recipe's test set, else its dev set]")
    ] = "",
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/compare"),
    beam: Annotated[int | None, typer.Option("--beam", help="Beam width, for recipes that put out text.")] = None,
    moses: Annotated[str | None, typer.Option("--moses", help="BLEU on lower-cased Moses tokens of this language too.")] = None,
    lengths: Lengths = False,
    result: Annotated[str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")] = None,
    peer: Peers = None,
    json_: Json = False,
) -> None:
    """Train several recipes with the same seeds and data, and set their figures side by side. What is done already is kept."""
    from .. import comparing, config
    from ..results import check_name, write_result
    from .board import Board

    names = [word for word in words if "=" not in word]
    if not names:
        raise SaccadeError("no recipe was named; write saccade compare RECIPE RECIPE …")
    recipes = {Path(name).stem: config.read_recipe(name, [word for word in words if "=" in word]) for name in names}
    if len(recipes) < len(names):
        raise SaccadeError("two of these recipes have one name; rename one of the files")
    if result is not None:
        check_name(result)
    peers = peers_of(peer)
    first = next(iter(recipes.values()))
    options = {name: value for name, value in (("beam", beam), ("moses", moses), ("quarters", lengths or None)) if value}
    numbers = list(range(first.seed, first.seed + seeds))
    comparing.check(recipes, numbers, data, options)
    judged = comparing.judged_on(first, data)
    err.print(f"{len(recipes)} × {seeds} trainings into {out_folder}, judged on {judged}", markup=False, soft_wrap=True)
    try:
        rows = comparing.compare(recipes, numbers, out_folder, Board().watcher, data, options)
    except Stopped as stopped:
        raise stopped.continue_with("the same command") from None
    measures = config.task(first).measures
    figure = next((name for name in ("accuracy", "exact", "bleu", "perplexity") if name in rows[0].figures), "loss")
    higher = measures.get(figure, figure in ("exact", "bleu"))
    if json_:
        print_json({row.name: row.figures for row in rows})
    else:
        out.print(side_by_side(rows))
        if len(rows) > 1:
            first_ones = " and ".join(row.name for row in comparing.best(rows, figure, higher))
            out.print(f"best {figure}: {first_ones}", markup=False)
    if result is not None:  # last, so that what was measured has been said even where it cannot be written
        write_result(result, comparing.as_figures(rows, figure, higher), " ".join(recipes), numbers, peers)


def side_by_side(rows: list[Row]) -> Table:
    """A line a figure, a column a recipe, so that many figures have room."""
    table = Table("", *(row.name for row in rows), box=None, pad_edge=False, header_style="bold")
    names = [name for name in rows[0].figures if name not in WHOLE and all(name in row.figures for row in rows)]
    for name in names:
        spread = (f" ± {row.spread(name):.2g}" if row.spread(name) else "" for row in rows)
        table.add_row(name, *(f"{row.mean(name):.5g}{more}" for row, more in zip(rows, spread, strict=True)))
    for name in WHOLE:
        table.add_row(name, *(f"{row.mean(name):,.0f}" if row.mean(name) >= 10 else f"{row.mean(name):.2g}" for row in rows))
    return table
