"""`saccade compare`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .shared import Json, Lengths, Moses, Peers, Result, note, out, parse_peers, print_json, write

if TYPE_CHECKING:
    from ..comparing import Row

WHOLE = ("seconds", "updates", "parameters")


def compare(
    words: Annotated[list[str], typer.Argument(metavar="RECIPE… [KEY=VALUE…]", help="Recipes, and settings for all of them.")],
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, counted from the recipe's own.", min=1, max=100)] = 1,
    data: Annotated[
        str, typer.Option("--data", help="Data to judge on. [default: the recipe's test set, else its dev set]")
    ] = "",
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/compare"),
    beam: Annotated[int | None, typer.Option("--beam", help="Beam width, for recipes that generate text.")] = None,
    moses: Moses = None,
    lengths: Lengths = False,
    result: Result = None,
    peer: Peers = None,
    json_: Json = False,
) -> None:
    """Train several recipes with the same seeds and data, and compare their metrics. Finished runs are reused.

    Examples:
        saccade compare reviews-tf-idf reviews-static reviews-rnn reviews-transformer
        saccade compare mine.yaml other.yaml --seeds 3 training.updates=500 --result mine
    """
    from .. import comparing, config
    from ..results import check_name, write_result
    from ..training.stopping import Stopped
    from .progress import Board

    names = [word for word in words if "=" not in word]
    if not names:
        raise SaccadeError("no recipe was named; write saccade compare RECIPE RECIPE …")
    recipes = {Path(name).stem: config.read_recipe(name, [word for word in words if "=" in word]) for name in names}
    if len(recipes) < len(names):
        raise SaccadeError("two of these recipes have the same name; rename one of the files")
    if result is not None:
        check_name(result)
    peers, first = parse_peers(peer), next(iter(recipes.values()))
    options = {name: value for name, value in (("beam", beam), ("moses", moses), ("quarters", lengths)) if value}
    numbers = list(range(first.seed, first.seed + seeds))
    comparing.check(recipes, numbers, data, options)
    note(f"{len(recipes)} × {seeds} training runs into {out_folder}, judged on {comparing.judged_on(first, data)}")
    try:
        rows = comparing.compare(recipes, numbers, out_folder, Board().watcher, data, options)
    except Stopped as stopped:
        raise stopped.continue_with("the same command") from None
    metric = next((name for name in ("accuracy", "exact", "bleu", "perplexity") if name in rows[0].metrics), "loss")
    higher = config.task(first).measures.get(metric, metric in ("exact", "bleu"))
    if json_:
        print_json({row.name: row.metrics for row in rows})
    else:
        out.print(side_by_side(rows))
        if len(rows) > 1:
            write(f"best {metric}: {' and '.join(row.name for row in comparing.best(rows, metric, higher))}")
    if result is not None:  # last, so that the metrics are printed even where the file cannot be written
        write_result(result, comparing.for_result(rows, metric, higher), " ".join(recipes), numbers, peers)


def side_by_side(rows: "list[Row]") -> Table:
    """A line per metric, a column per recipe, so that many metrics have room."""
    table = Table("", *(row.name for row in rows), box=None, pad_edge=False, header_style="bold")
    for name in rows[0].metrics:
        if name not in WHOLE and all(name in row.metrics for row in rows):
            spread = (f" ± {row.spread(name):.2g}" if row.spread(name) else "" for row in rows)
            table.add_row(name, *(f"{row.mean(name):.5g}{more}" for row, more in zip(rows, spread, strict=True)))
    for name in WHOLE:
        table.add_row(name, *(f"{row.mean(name):,.0f}" if row.mean(name) >= 10 else f"{row.mean(name):.2g}" for row in rows))
    return table
