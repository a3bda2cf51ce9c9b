"""`saccade show`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError, did_you_mean
from .shared import Beam, Device, Json, Model, flag, note_unknown, report

if TYPE_CHECKING:
    from ..views.document import Document, Site

WHOLE = (".html", ".json")  # files of all sites
KINDS = (".png", ".svg", ".pdf", *WHOLE)


def show(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to look at.")],
    out_file: Annotated[Path, typer.Option("--out", help="A .png, .svg or .pdf picture, an .html page, or .json numbers.")],
    target: Annotated[str | None, typer.Option(help="Look at the model generating this text instead of its own.")] = None,
    site: Annotated[str | None, typer.Option(help="Which attention, such as decoder.2.cross. [default: the first]")] = None,
    heads: Annotated[bool, flag("--heads", "A picture of every head instead of their mean.")] = False,
    beam: Beam = 1,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Draw what a model looks at: an alignment heat map, the heads of any layer, or a page to explore them all.

    Examples:
        saccade show runs/demo/bahdanau "the black cat ate the mouse" --out cat.png
        saccade show runs/mine "the black cat" --out cat.html
    """
    from .. import api

    check_drawable(out_file)
    if target is not None and not target.strip():
        raise SaccadeError("the target is empty; give a text, or leave --target out")
    system = api.load(model, device)
    document = api.show(system, text, target, beam)
    sites = {one.name: one for one in document.sites}
    if site is not None and site not in sites:
        raise SaccadeError(f"no attention named '{site}'{did_you_mean(site, sites)}")
    note_unknown(system, [text])
    chosen = sites[site] if site is not None else document.sites[0]
    draw(document, chosen, heads, out_file)
    source, output = " ".join(document.source), " ".join(document.target)
    facts = {"out": str(out_file), "source": source, "target": output, "site": chosen.name, "sites": list(sites)}
    drawn = "all sites" if out_file.suffix.lower() in WHOLE else chosen.name
    report(json_, facts, f"{source}\n→ {output}\n{out_file}: {drawn}")


def check_drawable(out_file: Path) -> None:
    if out_file.suffix.lower() not in KINDS:
        raise SaccadeError(f"cannot draw to '{out_file}'; name a file ending in .png, .svg, .pdf, .html or .json")


def draw(document: "Document", site: "Site", heads: bool, out_file: Path) -> None:
    """A page or a document of all sites, or a picture of one, by the file's ending."""
    from ..files import write_atomically
    from ..views import pictures
    from ..views.page import attention_page

    suffix = out_file.suffix.lower()
    if suffix in WHOLE:
        write_atomically(out_file, (attention_page(document) if suffix == ".html" else document.to_json()).encode())
    else:
        pictures.save((pictures.heads if heads else pictures.alignment)(site, f"{document.model}, {site.name}"), out_file)
