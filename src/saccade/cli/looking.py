"""Commands that look at models, data and parts: evaluate, show, list, check."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..errors import SaccadeError
from .completion import run_folders, slot_names
from .options import (
    Beam,
    Controls,
    Device,
    Json,
    Lengths,
    MaxLength,
    Model,
    Moses,
    Peers,
    Result,
    TaskBeam,
    TaskPenalty,
    Tokenize,
    With,
    Words,
    as_typed,
    flag,
)
from .reporting import check_picture, print_metrics
from .shared import (
    ALL_SITES,
    check_drawable,
    keep_given,
    load,
    note,
    note_cut,
    note_unknown,
    print_json,
    report,
    result_writer,
    show_all,
    write,
)

if TYPE_CHECKING:
    from ..system import System
    from ..views.document import Document

HF = "or hf:PATH, a folder or the name of a cached model of Hugging Face"
Shown = Annotated[
    Path, typer.Argument(help=f"A model folder, a run folder (its best model is used), {HF}.", autocompletion=run_folders)
]
DATA = "Data to evaluate on, such as test.tsv, test.en,test.fr, test.conllu or test.txt; `dev` and `test` are the recipe's own."
WRITE = "Write a copy without bad examples: a .tsv or .jsonl file, two files clean.en,clean.fr, or .txt for text."
LONGEST = "With --write: the most words per side (characters without spaces). [default: 200 for pairs and tags]"
OUT = "A .png, .svg or .pdf picture, an .html page, or .json numbers. [default: a table in the terminal]"
SITE = "Which attention, such as decoder.2.cross. [default: that which singles out the most words]"
QUESTION = "The question about the image, for a model that answers them."
TARGET = "Look at the model generating this text instead of its own."
SENTENCE = "Your own sentence; without it, the lectures' worked example."
TEXT = "The sentence (<mask> hides a token from a model that was trained to find it), or an image for a model of pictures."
SLOTS = "`recipes`, or one slot: scores, normalizers, masks, positions, models …"
KINDS = "pairs, tags, labels, text, graphs or pictures; otherwise inferred from the file name (.conllu, .csv, .txt …), or pairs."


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help=DATA)],
    others: With = None,
    beam: TaskBeam = None,
    length_penalty: TaskPenalty = None,
    max_length: MaxLength = None,
    lengths: Lengths = False,
    moses: Moses = None,
    tokenize: Tokenize = None,
    controls: Controls = False,
    stride: Annotated[int | None, typer.Option(help="Language models: also slide a window by this many tokens.", min=1)] = None,
    memory: Annotated[int | None, typer.Option(help="Transformer-XL: also evaluate with a memory of this length.", min=1)] = None,
    confusion: Annotated[bool, flag("--confusion", "Also a confusion matrix, which few labels always get.")] = False,
    confusion_out: Annotated[Path | None, typer.Option(help="Draw the confusion matrix (.png, .svg, .pdf).")] = None,
    result: Result = None,
    peer: Peers = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Report the metrics of a model's task on data: BLEU and chrF (sacrebleu, with signatures) and the alignment error rate where
    the data has gold links; accuracy of labels and tags, with a table of classes; perplexity and bits per character.

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
    write_result = result_writer(result, peer)
    system = load(model, device, others)
    options = keep_given(beam=beam, length_penalty=length_penalty, max_length=max_length, quarters=lengths, moses=moses)
    options |= keep_given(
        tokenize=tokenize, controls=controls, stride=stride, memory=memory, confusion=confusion or confusion_out is not None
    )
    api.check_options(system.recipe, options)  # before the data is read
    note_own(system, data)
    try:
        metrics = system.evaluate(system.read(data), **options)
    except WrongExample as error:
        raise SaccadeError(f"{data}, {error}") from None
    note_cut(metrics.get("cut_outputs", 0), metrics.get("sentences", metrics.get("pictures", 0)))
    if json_:
        print_json({"model": str(model), **({"with": [*map(str, others)]} if others else {}), "data": data, **metrics})
    else:
        print_metrics(metrics)
    if confusion_out is not None:
        from ..views.curves import confusion as draw_confusion
        from ..views.pictures import save

        save(draw_confusion(**metrics["confusion"], title=f"{model} on {data}"), confusion_out)
        note(f"{confusion_out}: the confusion matrix")
    metrics.pop("confusion", None)  # too much for a result file
    write_result({**metrics, **api.costs(system)}, " + ".join(map(str, [model, *(others or [])])), [system.recipe.seed])


def note_own(system: "System", data: str) -> None:
    """Says which data is read where the model's recipe, and not the user, names it."""
    if (source := system.own_source(data)) is not None:
        note(f"note: {data} is what the model's own recipe names: {source}")


def show(
    model: Shown,
    text: Annotated[str, typer.Argument(help=TEXT, callback=as_typed)],
    question: Annotated[str | None, typer.Argument(help=QUESTION, callback=as_typed)] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help=OUT)] = None,
    target: Annotated[str | None, typer.Option(help=TARGET, callback=as_typed)] = None,
    site: Annotated[str | None, typer.Option(help=SITE)] = None,
    head: Annotated[int | None, typer.Option("--head", help="One head instead of the mean of all.")] = None,
    heads: Annotated[bool, flag("--heads", "Every head by itself instead of their mean.")] = False,
    words: Words = False,
    beam: Beam = 1,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Show what a model looks at: a table in the terminal, a picture of an alignment or of heads, or a page to explore them all. Of an
    image: where each word of a caption or a question looks, with the scan path, or maps of each layer.

    Examples:
        saccade show runs/demo/bahdanau "the black cat ate the mouse"
        saccade show runs/demo/bahdanau "the black cat ate the mouse" --out cat.png
        saccade show runs/mine "the black cat" --words --out cat.html
        saccade show hf:./my-bert "the black cat" --out cat.html
        saccade show runs/captions dog.jpg --out dog.png
        saccade show runs/questions dog.jpg "what color is the dog?" --out dog.html
    """
    from .drawing import present

    check_drawable(out_file)
    if heads and head is not None:
        raise SaccadeError("both --head and --heads were given; give one of them")
    if (heads or head is not None) and out_file is not None and out_file.suffix.lower() in ALL_SITES:
        raise SaccadeError(f"a {out_file.suffix} file has every head; leave {'--heads' if heads else '--head'} out")
    if target is not None and not target.strip():
        raise SaccadeError("the target is empty; give a text, or leave --target out")
    if question is not None and str(model).startswith("hf:"):
        way = "give one text, or run the model in Python inside `with saccade.record(model)`"
        raise SaccadeError(
            f"a model of Hugging Face is shown with one text, and a second one ({question!r:.40}) was given; {way}"
        )
    if question is not None and target is not None:
        raise SaccadeError("a second text is a question about an image; leave it out, or --target")
    system = None
    if str(model).startswith("hf:"):
        from .. import config, looking

        document = looking.show_pretrained(str(model)[3:], text, target, beam, config.device(device))
    else:
        system = load(model, device)
        document = show_with(system, text, question, target, beam)
    present(document.words() if words else document, out_file, site, head, heads, json_)
    if system is not None:
        read = [text.replace("<mask>", " ")] if document.picture is None else [one for one in (question, target) if one]
        if read:
            note_unknown(system, read)


def show_with(system: "System", text: str, question: str | None, target: str | None, beam: int) -> "Document":
    """What a model of texts or of pictures looks at; a question is only for a model that answers them, which generates no target."""
    from .. import api

    asks = system.recipe.task in ("questions", "open-questions")
    if question is not None and not asks:
        raise SaccadeError(f"a model of {system.recipe.task} answers no questions; leave the second text out")
    if target is not None and asks:
        raise SaccadeError("a model of questions takes no target; leave --target out, and give the question after the image")
    return api.show(system, text, question if asks else target, beam)


def list_(
    slot: Annotated[str | None, typer.Argument(help=SLOTS, autocompletion=slot_names)] = None,
    where: Annotated[str | None, typer.Option("--where", help="Only rows that contain this (a name, a paper, a year).")] = None,
    json_: Json = False,
) -> None:
    """List everything that can be named in a recipe, with the paper it comes from; or the recipes, with what they need to run.

    Examples:
        saccade list
        saccade list recipes
        saccade list scores
        saccade list --where 2015
    """
    from ..index import rows

    found = rows(slot, where)
    if json_:
        print_json(found)
        return
    if not found:
        raise SaccadeError(f"nothing in the catalogue contains '{where}'; run `saccade list` to see it all")
    if not sys.stdout.isatty():  # a line per entry, for grep and cut
        write("\n".join("\t".join(row.values()) for row in found))
        return
    if "slot" not in found[0]:  # recipes
        table = Table(*found[0], box=None, pad_edge=False, header_style="bold")
        for row in found:
            table.add_row(*map(Text, row.values()))
        show_all(table)
        return
    table = Table.grid(padding=(0, 2))
    for row, before in zip(found, [{"slot": ""}, *found], strict=False):
        if row["slot"] != before["slot"]:
            table.add_row(Text(row["slot"], "bold"))
        table.add_row(Text(f"  {row['name']}"), Text.assemble(row["what"], "  ", (row["paper"], "dim")))
    show_all(table)


def check(
    data: Annotated[list[str], typer.Argument(help="Files, hub:NAME:SPLIT, or a generated corpus such as phrasebook:train.")],
    kind: Annotated[str | None, typer.Option("--as", help=KINDS)] = None,
    documents: Annotated[str, typer.Option("--documents", help="What one document of text is: file, line or blank.")] = "file",
    dev: Annotated[list[str] | None, typer.Option("--dev", help="Another set: is any of it in the first? Repeatable.")] = None,
    write_to: Annotated[str | None, typer.Option("--write", help=WRITE)] = None,
    unique: Annotated[bool, flag("--unique", "With --write: without repeated examples.")] = False,
    max_length: Annotated[int | None, typer.Option(help=LONGEST, min=0)] = None,
    json_: Json = False,
) -> None:
    """Check data before training: counts, lengths, duplicates, empty, broken and suspicious lines; --write makes a clean copy.

    Ends with 2 when a line is broken, so that `saccade check … && saccade train …` stops; not with --write, which leaves it out.

    Examples:
        saccade check train.tsv
        saccade check train.en train.fr
        saccade check train.conllu
        saccade check reviews.tsv --as labels
        saccade check photos
        saccade check train.tsv --dev dev.tsv --write clean.tsv
    """
    from ..data import check, cleaning

    if write_to is None and (unique or max_length is not None):
        raise SaccadeError("--unique and --max-length are for a clean copy; add --write FILE")
    first = check.check(data, kind, documents)
    if write_to is not None:
        cleaning.check_names(first.kind, write_to)
    found = [first, *(check.check_other(first, other, documents) for other in dev or [])]
    for one in found:
        report(json_, one.to_dict(), "\n".join(one.lines()))
    if write_to is not None:
        note(cleaning.clean(first, write_to, unique, max_length, documents))
    elif any(one.errors for one in found):
        raise typer.Exit(2)
