"""Commands that use a model: translate, generate, tag, classify."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .options import Beam, Device, Input, Json, Model, Seed, Text, TopK, TopP, flag
from .shared import check_drawable, draw, keep_given, note, note_unknown, out, print_json, read_lines, write

TOGETHER = 4096  # lines that are sorted by length and decoded together: a long file's first lines do not wait for its last


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
    from ..tasks.scoring import with_copies
    from .progress import bars

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    if beam > 1 and sample:
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    search = api.searcher(beam, length_penalty, {**sample, "seed": seed} if sample else None)
    system = api.load(model, device)
    if others:
        system = api.ensemble([system, *(api.load(other, device) for other in others)])
    system.check_translatable([])  # a mistake is reported before anything is read
    lines = read_lines(text, input_file, "translate", system.inputs)
    system.check_translatable(lines)
    note_unknown(system, lines)
    with bars() as progress:
        task = progress.add_task("translating", total=len(lines), state="")
        for start in range(0, len(lines), TOGETHER):
            some, found = lines[start : start + TOGETHER], {}
            for n, one in system.translations(some, search):
                found[n] = one
                progress.advance(task)
            pairs = [Pair(line, found[n].text) for n, line in enumerate(some)]
            aligned = [one.links for one in system.align(pairs)] if with_alignment else None
            links = aligned and [with_copies(each, found[n].copied) for n, each in enumerate(aligned)]
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
    split: Annotated[str | None, typer.Option(help="Split text at each space, or into words. [default: by the model]")] = None,
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
    from ..data.lines import bare_suffix
    from ..data.words import SPLITS
    from ..tasks.tagging import Tagging

    is_text = file == "-" or bare_suffix(Path(file)) == ".txt"
    if split is not None and (split not in SPLITS or not is_text):
        raise SaccadeError(
            f"--split is '{split}'; write space or words, for a .txt file or stdin (other files have their own words)"
        )
    system = api.load(model, device)
    task, column = system.require(Tagging, "tag words"), system.recipe.data.column
    if is_text:
        lines = read_lines(None, None if file == "-" else file, "tag")
        found = [Sentence(task.words(line, split or ""), None, n) for n, line in enumerate(lines, 1) if line.strip()]
        if not found:
            raise SaccadeError(f"{'stdin' if file == '-' else file} contains no words; give at least one sentence")
        how = "at spaces" if (split or task.split) == "space" else "into words and punctuation"
        note(f"note: text is split {how}{'' if split else ', as the training data is'}; --split space or words changes it")
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
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Classify texts; words are shaded by their weight.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --out weights.png
        saccade classify runs/reviews --input texts.txt --json
    """
    from .. import api
    from ..tasks.classification import Classification
    from ..views.terminal import in_percent, shade_words

    check_drawable(out_file)
    system = api.load(model, device)
    system.require(Classification, "label a text")
    lines = read_lines(text, input_file, "classify", system.inputs)
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise SaccadeError("the lines are empty; give at least one text")
    if out_file is not None and len(lines) > 1:
        raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
    found = dict(zip(texts, system.classify(texts), strict=True))
    note_unknown(system, lines)
    for line in lines:  # line n of the output belongs to line n of the input, also where that is empty
        one = found.get(line)
        if json_ and one is not None:
            weights = list(zip(one.pieces, one.weights, strict=True))
            print_json({"text": line, "label": one.label, "probabilities": one.probabilities, "weights": weights})
        elif json_:
            print_json({"text": line, "label": None})
        elif one is None or text is None:
            sys.stdout.write(f"{one.label}\t{line}\n" if one is not None else "\n")
        else:
            likeliest = sorted(one.probabilities.items(), key=lambda pair: -pair[1])[:5]
            write(f"{one.label}   ({'  '.join(f'{name} {chance:.3f}' for name, chance in likeliest)})")
            out.print((shade_words if out.is_terminal else in_percent)(one.pieces, one.weights), soft_wrap=True, markup=False)
    if out_file is not None:
        document = api.show(system, lines[0])
        draw(document, document.sites[0], False, out_file)
        if not json_:
            write(f"{out_file}: the weights of the words")
