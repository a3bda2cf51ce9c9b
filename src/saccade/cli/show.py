"""The command `show`."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .common_options import Beam, Device, Json, Words, as_typed, flag
from .completion import run_folders
from .shared import ALL_SITES, load, note_unknown

HF = "or hf:PATH, a folder or the name of a cached model of Hugging Face"
Shown = Annotated[
    Path,
    typer.Argument(
        help=f"A model folder, a run folder (its best model is used), {HF}.",
        autocompletion=run_folders,
    ),
]
OUT = "A .png, .svg or .pdf picture, an .html page, or .json numbers. [default: a table in the terminal]"
SITE = "Which attention, such as decoder.2.cross. [default: that which singles out the most words]"
QUESTION = "The question about the image, for a model that answers them."
TARGET = "Look at the model generating this text instead of its own."
TEXT = "The sentence (<mask> hides a token from a model that was trained to find it), or an image for a model of pictures."


def show(
    model: Shown,
    text: Annotated[str, typer.Argument(help=TEXT, callback=as_typed)],
    question: Annotated[str | None, typer.Argument(help=QUESTION, callback=as_typed)] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help=OUT)] = None,
    target: Annotated[str | None, typer.Option(help=TARGET, callback=as_typed)] = None,
    site: Annotated[str | None, typer.Option(help=SITE)] = None,
    head: Annotated[
        int | None, typer.Option("--head", help="One head instead of the mean of all.")
    ] = None,
    heads: Annotated[bool, flag("--heads", "Every head by itself instead of their mean.")] = False,
    words: Words = False,
    beam: Beam = 1,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Show what a model attends to.

    Prints a table in the terminal, or writes a picture of an alignment or of heads, or a page to explore them all. For an image it shows
    where each word of a caption or a question looks, with the scan path, or maps of each layer.

    Examples:
        saccade show runs/demo/bahdanau "the black cat ate the mouse"
        saccade show runs/demo/bahdanau "the black cat ate the mouse" --out cat.png
        saccade show runs/mine "the black cat" --words --out cat.html
        saccade show hf:./my-bert "the black cat" --out cat.html
        saccade show runs/captions dog.jpg --out dog.png
        saccade show runs/questions dog.jpg "what color is the dog?" --out dog.html
    """
    from ..views.document import check_ending
    from .attention_output import present

    if out_file is not None:
        check_ending(out_file)
    if heads and head is not None:
        raise SaccadeError(
            "both --head and --heads were given; give one of them", code="head-and-heads"
        )
    if (
        (heads or head is not None)
        and out_file is not None
        and out_file.suffix.lower() in ALL_SITES
    ):
        raise SaccadeError(
            f"a {out_file.suffix} file has every head; leave {'--heads' if heads else '--head'} out",
            code="no-effect",
        )
    if target is not None and not target.strip():
        raise SaccadeError(
            "the target is empty; give a text, or leave --target out", code="empty-text"
        )
    if question is not None and str(model).startswith("hf:"):
        way = "give one text, or run the model in Python inside `with saccade.record(model)`"
        raise SaccadeError(
            f"a model of Hugging Face is shown with one text, and a second one ({question!r:.40}) was given; {way}",
            code="wrong-second-text",
        )
    if question is not None and target is not None:
        raise SaccadeError(
            "a second text is a question about an image; leave it out, or --target",
            code="wrong-second-text",
        )
    system = None
    if str(model).startswith("hf:"):
        from ..config import recipes
        from ..interop import foreign_models

        document = foreign_models.show_pretrained(
            str(model)[3:], text, target, beam, recipes.device(device)
        )
    else:
        system = load(model, device)
        asks = "question" in system.task.fields
        wrong = (
            "" if question is None or asks else "answers no questions; leave the second text out"
        )
        if target is not None and asks:
            wrong = "takes no target; leave --target out, and give the question after the image"
        if wrong:
            raise SaccadeError(f"a model of {system.recipe.task} {wrong}", code="wrong-second-text")
        document = system.look(text, question if asks else target, beam)
    present(document.words() if words else document, out_file, site, head, heads, json_)
    if system is not None:
        read = (
            [text.replace("<mask>", " ")]
            if document.picture is None
            else [one for one in (question, target) if one]
        )
        if read:
            note_unknown(system, read)
