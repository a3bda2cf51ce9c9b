"""Commands that look at models, data and parts: evaluate, show, explain, list, check."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..errors import SaccadeError
from .options import Beam, Device, Json, Lengths, Model, Moses, Peers, Result, TaskBeam, Words, flag
from .shared import ALL_SITES, check_drawable, keep_given, note_unknown, out, print_json, report, result_writer, write

DATA = "Data to evaluate on, such as test.tsv, test.en,test.fr, test.conllu or test.txt; `dev` and `test` are the recipe's own."
OUT = "A .png, .svg or .pdf picture, an .html page, or .json numbers. [default: a table in the terminal]"
SITE = "Which attention, such as decoder.2.cross. [default: that which singles out the most words]"
KINDS = "pairs, tags, labels or text; otherwise inferred from the file name (.conllu, .csv, .txt …), or pairs."


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help=DATA)],
    beam: TaskBeam = None,
    lengths: Lengths = False,
    moses: Moses = None,
    stride: Annotated[int | None, typer.Option(help="Language models: also slide a window by this many tokens.", min=1)] = None,
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
    from ..tasks.task import WrongExample

    write_result = result_writer(result, peer)
    system = api.load(model, device)
    options = keep_given(beam=beam, quarters=lengths, moses=moses, stride=stride)
    api.check_options(system.recipe, options)  # before the data is read
    try:
        metrics = system.evaluate(system.read(data), **options)
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
    write_result(metrics, str(model), [system.recipe.seed])


def show(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to look at.")],
    out_file: Annotated[Path | None, typer.Option("--out", help=OUT)] = None,
    target: Annotated[str | None, typer.Option(help="Look at the model generating this text instead of its own.")] = None,
    site: Annotated[str | None, typer.Option(help=SITE)] = None,
    head: Annotated[int | None, typer.Option("--head", help="One head instead of the mean of all.")] = None,
    heads: Annotated[bool, flag("--heads", "Every head by itself instead of their mean.")] = False,
    words: Words = False,
    beam: Beam = 1,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Show what a model looks at: a table in the terminal, a picture of an alignment or of heads, or a page to explore them all.

    Examples:
        saccade show runs/demo/bahdanau "the black cat ate the mouse"
        saccade show runs/demo/bahdanau "the black cat ate the mouse" --out cat.png
        saccade show runs/mine "the black cat" --words --out cat.html
    """
    from .. import api
    from .drawing import present

    check_drawable(out_file)
    if heads and head is not None:
        raise SaccadeError("both --head and --heads were given; give one of them")
    if (heads or head is not None) and out_file is not None and out_file.suffix.lower() in ALL_SITES:
        raise SaccadeError(f"a {out_file.suffix} file has every head; leave {'--heads' if heads else '--head'} out")
    if target is not None and not target.strip():
        raise SaccadeError("the target is empty; give a text, or leave --target out")
    system = api.load(model, device)
    document = api.show(system, text, target, beam)
    present(document.words() if words else document, out_file, site, head, heads, json_)
    note_unknown(system, [text])


def explain(
    text: Annotated[str | None, typer.Argument(help="Your own sentence; without it, the lectures' worked example.")] = None,
    scaled: Annotated[bool, flag("--scaled", "Divide the scores by √D, as Transformers do (the lecture does not).")] = False,
    json_: Json = False,
) -> None:
    """Self-attention worked out step by step, with all numbers: the lectures' example, or your own sentence.

    Examples:
        saccade explain
        saccade explain "the black cat"
    """
    from ..views.terminal import render
    from ..views.worked import worked_example, worked_sentence

    worked = worked_example(scaled) if text is None else worked_sentence(text.split(), scaled)
    if json_:
        print_json(worked.to_dict())
    else:
        out.print(render(worked))


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
    for row, before in zip(found, [{"slot": ""}, *found], strict=False):
        table.add_row(row["slot"] if row["slot"] != before["slot"] else "", row["name"], row["what"], row["paper"])
    out.print(table)


def check(
    data: Annotated[list[str], typer.Argument(help="Files, hub:NAME:SPLIT, or a generated corpus such as phrasebook:train.")],
    kind: Annotated[str | None, typer.Option("--as", help=KINDS)] = None,
    documents: Annotated[str, typer.Option("--documents", help="What one document of text is: file, line or blank.")] = "file",
    json_: Json = False,
) -> None:
    """Check data before training: counts, lengths, duplicates, empty, broken and suspicious lines.

    Ends with 2 when a line is broken, so that `saccade check … && saccade train …` stops.

    Examples:
        saccade check train.tsv
        saccade check train.en train.fr
        saccade check train.conllu
        saccade check reviews.tsv --as labels
        saccade check phrasebook:test
    """
    from ..data.check import check

    found = check(data, kind, documents)
    report(json_, found.to_dict(), "\n".join(found.lines()))
    if found.errors:
        raise typer.Exit(2)
