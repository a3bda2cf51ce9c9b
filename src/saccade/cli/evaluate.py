"""The command `evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import (
    OPTIONS,
    SCORING,
    Device,
    Json,
    Model,
    Options,
    Peers,
    Result,
    With,
    option,
    takes,
)
from .report import check_picture, print_metrics
from .shared import check_result, keep_given, load, note, note_cut, print_json

if TYPE_CHECKING:
    from ..system.system import System

DATA = "Data to evaluate on, such as test.tsv, test.en,test.fr, test.conllu or test.txt; `dev` and `test` are the recipe's own."


# what the evaluations of some tasks can be asked for beside `SCORING`
ASKED: Options = {
    "stride": option(int, "Also slide a window by this many tokens (language models).", min=1),
    "memory": option(int, "Also evaluate with a memory of this length (Transformer-XL).", min=1),
    "confusion": option(
        bool, "Also print a confusion matrix, which few labels always get.", "--confusion"
    ),
}


@takes(*SCORING, "max_length", *ASKED, of=OPTIONS | ASKED)
def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help=DATA)],
    others: With = None,
    confusion_out: Annotated[
        Path | None, typer.Option(help="Draw the confusion matrix (.png, .svg, .pdf).")
    ] = None,
    result: Result = None,
    peer: Peers = None,
    device: Device = "auto",
    json_: Json = False,
    **asked: Any,
) -> None:
    """Report a model's metrics on data.

    Translation: BLEU and chrF (sacrebleu, with signatures), and the alignment error rate where the data has gold links. Labels and tags:
    accuracy, with a table of classes. Language models: perplexity and bits per character.

    Examples:
        saccade evaluate runs/demo/bahdanau phrasebook:test --lengths
        saccade evaluate runs/mine test.en,test.fr --beam 5 --json
        saccade evaluate runs/first phrasebook:test --with runs/second --with runs/third
        saccade evaluate runs/captions dev --beam 5 --length-penalty 0.7
        saccade evaluate runs/labels test.tsv --confusion-out confusion.png
    """
    from .. import api
    from ..tasks.task import WrongExample

    check_picture(confusion_out)
    peers = check_result(result, peer)
    system = load(model, device, others)
    asked["confusion"] = asked["confusion"] or confusion_out is not None
    options = keep_given(quarters=asked.pop("lengths"), **asked)
    api.check_options(system.recipe, options)  # before the data is read
    note_own(system, data)
    try:
        metrics = system.evaluate(system.read(data), **options)
    except WrongExample as error:
        raise SaccadeError(f"{data}, {error}", code=error.code) from None
    note_cut(metrics.get("cut_outputs", 0), metrics.get("sentences", metrics.get("pictures", 0)))
    if json_:
        print_json(
            {
                "model": str(model),
                **({"with": [*map(str, others)]} if others else {}),
                "data": data,
                **metrics,
            }
        )
    else:
        print_metrics(metrics)
    if confusion_out is not None:
        from ..views.figures import confusion as draw_confusion
        from ..views.figures import save

        save(draw_confusion(**metrics["confusion"], title=f"{model} on {data}"), confusion_out)
        note(f"{confusion_out}: the confusion matrix")
    metrics.pop("confusion", None)  # too much for a result file
    if result is not None:
        from ..experiments.results import Table

        rows = {result: {**metrics, **api.costs(system)}}
        models = " + ".join(map(str, [model, *(others or [])]))
        Table(result, rows, models, [system.recipe.seed], peers).write()


def note_own(system: "System", data: str) -> None:
    """Says which data is read where the model's recipe, and not the user, names it."""
    if (source := system.own_source(data)) is not None:
        note(f"note: {data} is what the model's own recipe names: {source}")
