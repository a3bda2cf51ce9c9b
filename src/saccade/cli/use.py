"""`saccade translate`, `evaluate` and `show`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .shared import NO_VALUE, Counting, Device, Json, Lengths, Model, Peers, note_unknown, out, peers_of, print_json, read_lines

if TYPE_CHECKING:
    from ..tasks.translation import Translated
    from ..views.document import Document, Site

TRANSLATE_EXAMPLES = """Examples:

    saccade translate runs/demo/bahdanau "the black cat ate the mouse" --align

    saccade translate runs/mine --input big.txt --beam 5 > big.translated.txt

    echo "the black cat" | saccade translate runs/mine
"""
EVALUATE_EXAMPLES = """Examples:

    saccade evaluate runs/demo/bahdanau phrasebook:test --lengths

    saccade evaluate runs/mine test.en,test.fr --beam 5 --json
"""
SHOW_EXAMPLES = """Examples:

    saccade show runs/demo/bahdanau "the black cat ate the mouse" --out cat.png

    saccade show runs/mine "the black cat" --out cat.html
"""
TOGETHER = 4096  # lines that are sorted by length and put out together: a long file's first lines do not wait for its last
Beam = Annotated[int, typer.Option("--beam", help="Beam width; 1 is greedy.")]


def translate(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The text; without it and --input, lines are read from stdin.")] = None,
    input_file: Annotated[Path | None, typer.Option("--input", help="A file with one sentence a line (.gz and .xz too).")] = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", help="Another model of the same vocabulary: their probabilities' mean decides.")
    ] = None,
    beam: Beam = 1,
    length_penalty: Annotated[float, typer.Option(help="Outputs are ranked by log-probability / length^this.")] = 1.0,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature in place of searching.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the smallest set with this probability.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of sampling.")] = 0,
    with_alignment: Annotated[
        bool, typer.Option("--align", metavar=NO_VALUE, help="Print the word alignment too, as source-target pairs (Pharaoh).")
    ] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Translate a text, a file or stdin; outputs come in the input's order."""
    from .. import api
    from ..data.pairs import Pair

    if beam > 1 and (temperature, top_k, top_p) != (None, None, None):
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    chosen = {
        name: value for name, value in (("temperature", temperature), ("top_k", top_k), ("top_p", top_p)) if value is not None
    }
    search = api.searcher(beam, length_penalty, {**chosen, "seed": seed} if chosen else None)
    system = api.load(model, device)
    if others:
        system = api.ensemble([system, *(api.load(other, device) for other in others)])
    lines = read_lines(text, input_file, "translate")
    api.translations(system, lines, search)  # what cannot be translated, or not by this model, is told before anything else
    note_unknown(system, lines)
    with Counting("translating", len(lines)) as counting:
        for start in range(0, len(lines), TOGETHER):
            some = lines[start : start + TOGETHER]
            found = dict(counting.over(api.translations(system, some, search)))
            pairs = [Pair(line, found[n].text) for n, line in enumerate(some)]
            links = [one.links for one in api.align(system, pairs)] if with_alignment else None
            (print_facts if json_ else print_texts)(some, found, links)


def print_facts(lines: list[str], found: dict[int, Translated], links: list[list[tuple[int, int]]] | None) -> None:
    """A JSON document for each line."""
    for n, line in enumerate(lines):
        facts = {"source": line, "translation": found[n].text, "log_prob": found[n].log_prob, "finished": found[n].finished}
        print_json({**facts, **({} if links is None else {"alignment": links[n]})})


def print_texts(lines: list[str], found: dict[int, Translated], links: list[list[tuple[int, int]]] | None) -> None:
    """A translation for each line, and its Pharaoh pairs behind a tab."""
    from ..data.pairs import format_pharaoh

    for n in range(len(lines)):
        sys.stdout.write(found[n].text + ("" if links is None else f"\t{format_pharaoh(links[n])}") + "\n")
    sys.stdout.flush()


def evaluate(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            help="What the model was trained on, such as test.tsv, test.en,test.fr, test.conllu or test.txt; dev and test are its recipe's own."
        ),
    ],
    beam: Beam = 1,
    lengths: Lengths = False,
    moses: Annotated[
        str | None, typer.Option("--moses", help="BLEU on lower-cased Moses tokens of this language too, such as de.")
    ] = None,
    stride: Annotated[
        int, typer.Option("--stride", help="Language models: a sliding window that moves by so many tokens, too.", min=0)
    ] = 0,
    result: Annotated[str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")] = None,
    peer: Peers = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """The figures of a model's task on data: BLEU and chrF (sacrebleu, with signatures) and the alignment error rate where the data
    has gold links; accuracy of labels and tags; perplexity and bits a character."""
    from .. import api
    from ..results import check_name, write_result
    from ..tasks.task import WrongExample

    api.searcher(beam)
    if result is not None:
        check_name(result)
    system = api.load(model, device)
    asked = {"beam": (beam, 1), "quarters": (lengths, False), "moses": (moses, None), "stride": (stride, 0)}
    options = {name: value for name, (value, default) in asked.items() if value != default}
    peers = peers_of(peer)
    api.check_options(system.recipe, options)
    try:
        figures = api.evaluate(system, system.read(data), **options)
    except WrongExample as error:
        raise SaccadeError(f"{data}, {error}") from None
    if json_:
        print_json({"model": str(model), "data": data, **figures})
    else:
        print_figures(figures)
    if result is not None:  # last, so that what was measured has been said even where it cannot be written
        write_result(result, figures, recipe=str(model), seeds=[system.recipe.seed], peers=peers)


def print_figures(figures: dict[str, Any]) -> None:
    width = max(16, *(len(name) + 2 for name in figures))
    for name, value in figures.items():
        if name != "by_length":
            shown = f"{value:.4f}" if isinstance(value, float) else str(value)
            out.print(f"{name:<{width}}{shown}", markup=False, soft_wrap=True)
    for row in figures.get("by_length", []):
        out.print(f"BLEU {row['bleu']:6.2f}    sentences of {row['shortest']} to {row['longest']} words", markup=False)


def show(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to look at.")],
    out_file: Annotated[
        Path,
        typer.Option("--out", help="Where to draw: .png, .svg or .pdf, .html for a page, .json for the numbers."),
    ],
    target: Annotated[str | None, typer.Option(help="Look at the model putting out this text in place of its own.")] = None,
    site: Annotated[
        str | None, typer.Option(help="Which attention, such as decoder.2.cross; a picture shows the first without it.")
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", metavar=NO_VALUE, help="A picture of every head in place of their mean.")
    ] = False,
    beam: Beam = 1,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Draw what a model looks at: an alignment heatmap, the heads of any layer, or a page to explore them all."""
    from .. import api
    from ..errors import did_you_mean

    check_drawable(out_file)
    if target is not None and not target.strip():
        raise SaccadeError("the target is empty; give a text, or leave --target out")
    system = api.load(model, device)
    document = api.show(system, text, target, beam)
    names = [one.name for one in document.sites]
    if site is not None and site not in names:
        raise SaccadeError(f"no attention named '{site}'{did_you_mean(site, names)}")
    note_unknown(system, [text])
    chosen = next(one for one in document.sites if site is None or one.name == site)
    draw(document, chosen, heads, out_file)
    suffix = out_file.suffix.lower()
    facts = {
        "out": str(out_file),
        "source": " ".join(document.source),
        "target": " ".join(document.target),
        "site": chosen.name,
        "sites": names,
    }
    if json_:
        print_json(facts)
    else:
        out.print(
            f"{facts['source']}\n→ {facts['target']}\n{out_file}: {'all sites' if suffix in ('.html', '.json') else chosen.name}",
            markup=False,
            soft_wrap=True,
        )


def check_drawable(out_file: Path) -> None:
    if out_file.suffix.lower() not in (".png", ".svg", ".pdf", ".html", ".json"):
        raise SaccadeError(f"cannot draw to '{out_file}'; name a file ending in .png, .svg, .pdf, .html or .json")


def draw(document: Document, site: Site, heads: bool, out_file: Path) -> None:
    """A page or a document of all sites, or a picture of one, by the file's ending."""
    from ..files import write_atomically
    from ..views import pictures
    from ..views.page import attention_page

    suffix = out_file.suffix.lower()
    if suffix == ".html":
        write_atomically(out_file, attention_page(document).encode())
    elif suffix == ".json":
        write_atomically(out_file, document.to_json().encode())
    else:
        title = f"{document.model}, {site.name}"
        out_file.parent.mkdir(parents=True, exist_ok=True)
        pictures.save(pictures.heads(site, title) if heads else pictures.alignment(site, title), out_file)
