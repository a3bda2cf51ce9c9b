"""Commands that use a model: translate, generate, tag, classify."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .options import Beam, Device, Input, Json, Model, Seed, Text, TopK, TopP, Words, flag
from .shared import check_drawable, draw, keep_given, note_unknown, print_json, read_lines, report, write

TOGETHER = 4096  # lines that are sorted by length and decoded together: a long file's first lines do not wait for its last
EFFECT = "Also print how much the label's probability falls when a word is left out: + for the label, − against it."


def translate(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", help="Add a model with the same vocabulary: an ensemble.")
    ] = None,
    beam: Beam = 1,
    length_penalty: Annotated[float, typer.Option(help="Outputs are ranked by log-probability / length^this.")] = 1.0,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    with_alignment: Annotated[bool, flag("--align", "Also print the word alignment as source-target pairs (Pharaoh).")] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Translate a text, a file or stdin; outputs come in the input's order.

    Examples:
        saccade translate runs/demo/bahdanau "the black cat ate the mouse" --align
        saccade translate runs/mine --input big.txt --beam 5 > big.translated.txt
        echo "the black cat" | saccade translate runs/mine
    """
    from .. import api
    from ..data.pairs import Pair, format_pharaoh
    from .progress import bars

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    if beam > 1 and sample:
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    search = api.searcher(beam, length_penalty, {**sample, "seed": seed} if sample else None)
    system = api.load(model, device)
    if others:
        system = api.ensemble([system, *(api.load(other, device) for other in others)])
    lines = read_lines(text, input_file, "translate")
    system.check_translatable(lines)  # a mistake is reported before anything else
    note_unknown(system, lines)
    with bars() as progress:
        task = progress.add_task("translating", total=len(lines), state="")
        for start in range(0, len(lines), TOGETHER):
            some, found = lines[start : start + TOGETHER], {}
            for n, one in system.translations(some, search):
                found[n] = one
                progress.advance(task)
            pairs = [Pair(line, found[n].text) for n, line in enumerate(some)]
            links = [one.links for one in system.align(pairs)] if with_alignment else None
            for n, pair in enumerate(pairs):
                if json_:
                    facts = {"translation": pair.target, "log_prob": found[n].log_prob, "finished": found[n].finished}
                    print_json({"source": pair.source, **facts, **({} if links is None else {"alignment": links[n]})})
                else:
                    sys.stdout.write(pair.target + ("" if links is None else f"\t{format_pharaoh(links[n])}") + "\n")
            sys.stdout.flush()


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The beginning; without it, the model starts by itself.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="The largest number of tokens.")] = 200,
    temperature: Annotated[float, typer.Option(help="Above 1 is bolder, below it is safer, 0 takes the likeliest.")] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Continue a text; tokens are printed as they are generated.

    Examples:
        saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8
        saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
    """
    from .. import api

    system = api.load(model, device)
    pieces = system.generate(prompt, limit, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    note_unknown(system, [prompt] if prompt else [])
    if json_:
        print_json({"prompt": prompt, "text": "".join(pieces)})
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def tag(
    model: Model,
    file: Annotated[str, typer.Argument(help=".conllu, .tsv, .jsonl or .txt (one sentence per line); - for lines on stdin.")],
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Tag the words of a file; writes CoNLL-U, with all other columns unchanged.

    Examples:
        saccade tag runs/tagger my.conllu > tagged.conllu
        saccade tag runs/tagger sentences.txt
        echo "the black cat" | saccade tag runs/tagger -
    """
    from .. import api
    from ..data.conllu import Sentence, tag_conllu
    from ..data.corpora import sentences

    system = api.load(model, device)
    column = system.recipe.data.column
    if file == "-":
        lines = read_lines(None, None, "tag")
        found = [Sentence(tuple(line.split()), None, n) for n, line in enumerate(lines, 1) if line.strip()]
        if not found:
            raise SaccadeError("stdin contains no words; give at least one sentence")
    else:
        found = sentences(file, None, column)
    tags = system.tag(found)
    if json_:
        for one, given in zip(found, tags, strict=True):
            print_json({"words": list(one.words), "tags": given})
        return
    for line in tag_conllu(file, zip(found, tags, strict=True), column):
        sys.stdout.write(line if line.endswith("\n") else line + "\n")


def classify(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Draw one text: .png, .svg, .pdf, .html or .json.")] = None,
    words: Words = False,
    effect: Annotated[bool, flag("--effect", EFFECT)] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Classify texts; words are shaded by their weight.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --effect
        saccade classify runs/reviews "not a bad film" --out weights.png
        saccade classify runs/reviews --input texts.txt --json
    """
    from .. import api
    from .drawing import print_classified

    check_drawable(out_file)
    system = api.load(model, device)
    lines = read_lines(text, input_file, "classify")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise SaccadeError("the lines are empty; give at least one text")
    if out_file is not None and len(lines) > 1:
        raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
    if text is None and not json_ and (effect or (words and out_file is None)):
        raise SaccadeError(f"lines are printed without weights; leave {'--effect' if effect else '--words'} out, or use --json")
    found = dict(zip(texts, system.classify(texts), strict=True))
    effects = {line: system.task.effects(system.model, line, one.label) for line, one in found.items()} if effect else {}
    note_unknown(system, lines)
    for line in lines:  # line n of the output belongs to line n of the input, also where that is empty
        one = found.get(line)
        if one is None:
            report(json_, {"text": line, "label": None}, "")
        elif json_ or text is not None:
            print_classified(line, one, words, effects.get(line), json_)
        else:
            sys.stdout.write(f"{one.label}\t{line}\n")
    if out_file is not None:
        document = api.show(system, lines[0])
        document = document.words() if words else document
        draw(document, document.sites[0], False, out_file)
        if not json_:
            write(f"{out_file}: the weights of the words")
