"""`saccade evaluate`"""

from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Beam, Device, Json, Lengths, Model, Moses, Peers, Result, parse_peers, print_json, write

DATA = "Data to evaluate on, such as test.tsv, test.en,test.fr, test.conllu or test.txt; `dev` and `test` are the recipe's own."


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help=DATA)],
    beam: Beam = 1,
    lengths: Lengths = False,
    moses: Moses = None,
    stride: Annotated[int, typer.Option("--stride", help="Language models: also slide a window by this many tokens.", min=0)] = 0,
    result: Result = None,
    peer: Peers = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Report the metrics of a model's task on data: BLEU and chrF (sacrebleu, with signatures) and the alignment error rate where
    the data has gold links; accuracy of labels and tags; perplexity and bits per character.

    Examples:
        saccade evaluate runs/demo/bahdanau phrasebook:test --lengths
        saccade evaluate runs/mine test.en,test.fr --beam 5 --json
    """
    from .. import api
    from ..results import check_name, write_result
    from ..tasks.task import WrongExample

    api.searcher(beam)
    if result is not None:
        check_name(result)
    peers = parse_peers(peer)
    system = api.load(model, device)
    asked = {"beam": (beam, 1), "quarters": (lengths, False), "moses": (moses, None), "stride": (stride, 0)}
    options = {name: value for name, (value, default) in asked.items() if value != default}
    api.check_options(system.recipe, options)
    try:
        metrics = api.evaluate(system, system.read(data), **options)
    except WrongExample as error:
        raise SaccadeError(f"{data}, {error}") from None
    if json_:
        print_json({"model": str(model), "data": data, **metrics})
    else:
        width = max(16, *(len(name) + 2 for name in metrics))
        for name, value in metrics.items():
            if name != "by_length":
                write(f"{name:<{width}}{f'{value:.4f}' if isinstance(value, float) else value}")
        for row in metrics.get("by_length", []):
            write(f"BLEU {row['bleu']:6.2f}    sentences of {row['shortest']} to {row['longest']} words")
    if result is not None:  # last, so that the metrics are printed even where the file cannot be written
        write_result(result, metrics, recipe=str(model), seeds=[system.recipe.seed], peers=peers)
