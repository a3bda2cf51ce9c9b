"""The command that says what each head of a model looks at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Device, Json, Model, Result
from .report import check_picture
from .shared import check_result, load, note, print_json, show_table

if TYPE_CHECKING:
    from ..system.system import System
    from ..teaching.head_scores import HeadScore

DATA = "Sentences: .conllu (with trees), .tsv, .jsonl, .txt, or a generated corpus such as senses:test. [default: the tagger's own dev set]"
ALSO = "For --result: the run of another seed; repeatable. The table is of the first."


def heads(
    model: Model,
    data: Annotated[str | None, typer.Argument(help=DATA)] = None,
    limit: Annotated[
        int, typer.Option("--limit", help="Read at most so many sentences.", min=1, max=1_000_000)
    ] = 200,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Draw the table: .png, .svg or .pdf.")
    ] = None,
    also: Annotated[list[Path] | None, typer.Option("--also", metavar="<path>", help=ALSO)] = None,
    device: Device = "auto",
    result: Result = None,
    json_: Json = False,
) -> None:
    """Score each attention head against syntax, coreference and position.

    Each score is the share of words whose largest weight falls on their head in a tree, their antecedent or their neighbor. Beside it stands
    the score of a head that looks anywhere. A head is named after the relation that it follows most beyond that.

    Examples:
        saccade heads runs/senses senses:test
        saccade heads runs/tagger data/ud-ewt/dev.conllu --limit 500
        saccade heads runs/mine sentences.txt --out heads.png
    """
    check_picture(out_file)
    if also and result is None:
        raise SaccadeError(
            "--also adds seeds to a result file; add --result NAME, or leave --also out",
            code="also-without-result",
        )
    check_result(result)
    systems = [load(path, device) for path in (model, *(also or []))]
    every = [score(one, data, limit) for one in systems]
    scores = every[0]
    if json_:
        for one in scores:
            print_json(one.to_dict())
    else:
        print_scores(scores)
        note("in %: words whose greatest weight is there (chance)")
    if out_file is not None:
        from ..views.document import Site
        from ..views.figures import heat_map, save

        names = [f"{one.site} head {one.head}" for one in scores]
        columns = list(scores[0].hits)
        values = [[one.hits[name] for name in columns] for one in scores]
        save(
            heat_map(
                Site("words whose greatest weight is there", names, columns, [values]),
                f"what each head of {model} looks at",
            ),
            out_file,
        )
        note(f"{out_file}: drawn")
    if result is not None:
        from ..experiments.results import Table

        found: dict[str, Any] = best_of(scores)
        if also:
            found = {name: [best_of(one)[name] for one in every] for name in found}
        name = Path(systems[0].recipe.data.train or "").name
        seeds = [one.recipe.seed for one in systems]
        Table(result, {result: found}, f"{name} heads", seeds).write()


def score(system: "System", data: str | None, limit: int) -> "list[HeadScore]":
    """The scores of a model's heads on some sentences, or on those of a tagger's own dev set."""
    from ..data.corpora import SENTENCES, read
    from ..teaching.head_scores import score_heads

    if data is None and "tag" not in system.task.verbs:
        raise SaccadeError(
            f"a model of {system.recipe.task} has no sentences of its own with gold; name some, such as senses:test or dev.conllu",
            code="no-gold-sentences",
        )
    recipe = system.recipe.data
    found = system.read("dev") if data is None else read(SENTENCES, data, recipe.options_of(data))
    # what an encoder looks at does not depend on the target
    look = (lambda text: system.look(text, text)) if "target" in system.task.looks else system.look
    scores = score_heads(look, found[:limit])
    note(f"{min(limit, len(found)):,} sentences")
    return scores


def best_of(scores: "list[HeadScore]") -> dict[str, object]:
    """For a result file: of each relation the share of the head that follows it most, in %, what chance would give, and which head it is."""
    best = {name: max(scores, key=lambda one: one.hits[name]) for name in scores[0].hits}
    metrics = {name: round(100 * one.hits[name], 2) for name, one in best.items()}
    chances = {f"{name}_chance": round(100 * one.chance[name], 2) for name, one in best.items()}
    return {
        **metrics,
        **chances,
        **{f"{name}_head": f"{one.site} head {one.head}" for name, one in best.items()},
    }


def print_scores(scores: "list[HeadScore]") -> None:
    columns = list(scores[0].hits)

    def share(one: "HeadScore", name: str) -> str:
        return f"{100 * one.hits[name]:.0f} ({100 * one.chance[name]:.0f})"

    rows = [
        (one.site, one.head, one.best, *(share(one, name) for name in columns)) for one in scores
    ]
    show_table(("attention", "head", "looks at", *columns), rows)
