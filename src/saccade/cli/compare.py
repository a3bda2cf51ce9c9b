"""The command `compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import SCORING, WAYS, Jobs, Json, On, Peers, Result, Seeds, Vary, flag, takes
from .completion import recipes_and_settings
from .report import check_picture, report_comparison
from .shared import check_name, check_result, keep_given, note

if TYPE_CHECKING:
    from ..config.recipes import Recipe


@takes(*SCORING)
def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE… [KEY=VALUE…]",
            help="Recipes, and settings for all of them.",
            autocompletion=recipes_and_settings,
        ),
    ],
    vary: Vary = None,
    seeds: Seeds = 1,
    data: Annotated[
        str,
        typer.Option(
            "--data", help="Data to judge on. [default: the recipe's test set, else its dev set]"
        ),
    ] = "",
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path(
        "runs/compare"
    ),
    ensemble: Annotated[
        bool,
        flag("--ensemble", "Also score all the models together: the mean of their probabilities."),
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="The picture to draw. [default: OUT/compare.png]")
    ] = None,
    table_file: Annotated[
        Path | None,
        typer.Option("--table", help="Also write the table to this file (.md, .tex, .csv)."),
    ] = None,
    jobs: Jobs = 1,
    on: On = "here",
    result: Result = None,
    peer: Peers = None,
    json_: Json = False,
    **asked: Any,
) -> None:
    """Train recipes with the same seeds and data, and compare their metrics.

    A winner is named only where the difference is significant (p < 0.05). Writes a picture and a page (OUT/report.html). Finished runs are
    reused. A recipe that has changed gets new folders; the old runs stay.

    Examples:
        saccade compare reviews-tf-idf reviews-static reviews-rnn reviews-transformer
        saccade compare mine.yaml other.yaml --seeds 3 training.updates=500 --jobs 2 --table mine.tex
        saccade compare phrasebook-bahdanau --vary model.score=dot,bilinear,additive --vary model.dim=64,128
        saccade compare phrasebook-transformer --vary "model.mask=full,{name: window, left: 3}" --seeds 2 --ensemble
    """
    from ..experiments import comparison
    from ..experiments.results import check_table_path
    from .progress import JobBoard

    check_picture(picture)
    check_table_path(table_file)
    check_name("way to run", on, WAYS)
    recipes = named_recipes(words, vary or [])
    peers, first = check_result(result, peer), next(iter(recipes.values()))
    options = keep_given(quarters=asked.pop("lengths"), **asked)
    numbers = list(range(first.seed, first.seed + seeds))
    comparison.check(recipes, numbers, data, options)
    if ensemble:
        comparison.check_ensemble(recipes, numbers)
    judged_on = (
        data or first.data.test or first.data.dev or f"what is held out of {first.data.train}"
    )
    note(f"{len(recipes)} × {seeds} training runs into {out_folder}, judged on {judged_on}")
    with JobBoard("trainings", len(recipes) * seeds) as board:
        table = comparison.compare(recipes, numbers, out_folder, board, data, options, jobs, on)
    if ensemble:
        comparison.add_ensemble(table, first.device, data, options)
    report_comparison(table, first.kind.measures, judged_on, out_folder, picture, json_)
    if table_file is not None:
        table.save(table_file, () if table_file.suffix.lower() == ".csv" else table.telling())
        note(f"{table_file}: the comparison as a table")
    if result is not None:
        described = [
            *(Path(word).stem for word in words if "=" not in word),
            *(f"--vary {word}" for word in vary or []),
        ]
        table.name, table.recipe, table.peers = result, " ".join(described), peers
        table.write()


def named_recipes(words: list[str], varied: list[str]) -> "dict[str, Recipe]":
    """The recipes among the words by their names, each with the settings among them, and once for each row of what is varied."""
    from ..experiments.grid import vary

    names = [word for word in words if "=" not in word]
    if not names:
        raise SaccadeError(
            "no recipe was named; write saccade compare RECIPE RECIPE …", code="no-recipe"
        )
    recipes = {Path(name).stem: name for name in names}
    if len(recipes) < len(names):
        raise SaccadeError(
            "two of these recipes have the same name; rename one of the files",
            code="duplicate-name",
        )
    return vary(recipes, varied, [word for word in words if "=" in word])
