"""Commands that use a model: translate, generate, tag, classify."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError, did_you_mean
from .image_files import classify_images
from .incoming import answer_each
from .options import Beam, Device, Input, Json, MaxLength, Model, Precision, Seed, Text, TopK, TopP, With, Words, flag
from .shared import check_drawable, draw, keep_given, load, note, note_cut, note_unknown, print_json, read_lines, report, write
from .stepwise import print_given, print_steps

if TYPE_CHECKING:
    from ..bulk import How
    from ..system import System

STEPS = (
    "Print every step instead: the beginnings that the search had, and the likeliest tokens to follow; what was taken has a *."
)
GIVEN = "Translate nothing: how likely is this translation, token by token, and which source word does each look at?"
ON = "here, or ray: on the cluster of RAY_ADDRESS, or on one started on this machine (the extra `cluster`)."
KEEP = "Write to this file; until it is whole, finished parts are in FILE.parts, with which the same command continues."
EFFECT = "Also print how much the label's probability falls when a word is left out: + for the label, − against it."


def translate(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    others: With = None,
    beam: Beam = 1,
    length_penalty: Annotated[float, typer.Option(help="Outputs are ranked by log-probability / length^this.")] = 1.0,
    length_rule: Annotated[
        str, typer.Option(help="What length counts as: `power`, or `gnmt` for (5 + length) / 6. With a beam.")
    ] = "power",
    coverage_penalty: Annotated[
        float, typer.Option(help="Rank outputs lower that left out a part of the source: β of Wu et al. 2016. With a beam.")
    ] = 0.0,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    max_length: MaxLength = None,
    with_alignment: Annotated[bool, flag("--align", "Also print the word alignment as source-target pairs (Pharaoh).")] = False,
    with_steps: Annotated[bool, flag("--steps", STEPS)] = False,
    candidates: Annotated[int, typer.Option(help="With --steps: how many tokens of each step to show.", min=1, max=1000)] = 5,
    given: Annotated[str | None, typer.Option("--given", metavar="<text>", help=GIVEN)] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help=KEEP)] = None,
    on: Annotated[str, typer.Option("--on", help=ON)] = "here",
    jobs: Annotated[int, typer.Option("--jobs", help="With --on ray: parts at a time.", min=1, max=10_000)] = 2,
    device: Device = "auto",
    precision: Precision = "float32",
    json_: Json = False,
) -> None:
    """Translate a text, a file or stdin; outputs come in the input's order, those of stdin as its lines come.

    In a terminal, without a text: type sentences, one per line; Ctrl-D ends.

    Examples:
        saccade translate runs/demo/bahdanau "the black cat ate the mouse" --align
        saccade translate runs/mine "the black cat" --steps --beam 3
        saccade translate runs/mine "the black cat" --given "le chat noir" --align
        saccade translate runs/mine --input big.txt --beam 5 > big.translated.txt
        saccade translate runs/mine --input big.txt --out big.translated.txt --on ray --jobs 8
        echo "the black cat" | saccade translate runs/mine
        saccade translate runs/mine
    """
    from ..bulk import How

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    if beam > 1 and sample:
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    check_shown(with_steps, given, with_alignment, candidates, bool(sample) or beam > 1)
    drawn = tuple({**sample, "seed": seed}.items()) if sample else None
    search: dict[str, object] = {"beam": beam, "length_penalty": length_penalty, "sample": drawn}
    search |= {"length_rule": length_rule, "coverage_penalty": coverage_penalty}
    folders = str(model), tuple(map(str, others or ()))
    how = How(*folders, device, precision, tuple(search.items()), max_length, with_alignment, json_)
    make_search = how.make_search()  # a mistake is reported before anything is read
    check_parts(on, out_file, input_file)
    system = load(model, device, others, precision)
    system.check_translatable([])

    def answer(lines: list[str], first: int) -> None:
        system.check_translatable(lines, first)
        if given is not None:
            return print_given(system, lines, given, with_alignment, json_)
        note_unknown(system, lines)
        if with_steps:
            return print_steps(system, lines, make_search, candidates, max_length, json_)
        print_translations(system, lines, how, on, jobs, out_file)

    answer_each(text, input_file, "translate", answer, system.inputs)


def check_shown(steps: bool, given: str | None, align: bool, candidates: int, searched: bool) -> None:
    """Raises where options exclude each other: a given translation is not searched for, and has no steps."""
    if given is not None and (steps or searched):
        raise SaccadeError("--given is a translation whose probability is asked for; leave out --steps, --beam and sampling")
    if steps and align:
        raise SaccadeError("--steps prints the candidates of each step, not the alignment; leave --align out")
    if candidates != 5 and not steps:
        raise SaccadeError("--candidates is for --steps; add it, or leave --candidates out")


def check_parts(on: str, out_file: Path | None, input_file: str | None) -> None:
    """What --on and --out need."""
    if on not in ("here", "ray"):
        raise SaccadeError(f"no way to run named '{on}'{did_you_mean(on, ('here', 'ray'))}")
    if (on == "ray" or out_file is not None) and input_file is None:
        raise SaccadeError(f"{'--on ray' if on == 'ray' else '--out'} is for many lines in a file; give --input FILE")
    if out_file is not None and out_file.exists():
        raise SaccadeError(f"{out_file} exists already; remove it, or choose another --out")


def print_translations(system: "System", lines: list[str], how: "How", on: str, jobs: int, out_file: Path | None) -> None:
    """Translations in the order of the lines, on stdout or into a file, with a bar on stderr."""
    from ..bulk import kept, translate_all
    from ..files import write_atomically
    from .progress import bars

    progress, cut, whole = bars(), 0, list[str]()
    progress.disable |= len(lines) == 1  # nothing to wait for
    folder = None if out_file is None else out_file.with_name(out_file.name + ".parts")
    with kept(folder, how, lines) as keep, progress:
        task = progress.add_task("translating", total=len(lines), state="")
        for done in translate_all(lines, how, system, on, jobs, keep, partial(progress.advance, task)):
            cut += done["cut"]
            if out_file is not None:
                whole += done["lines"]
                continue
            progress.stop()  # a bar and outputs would be mixed in a terminal
            sys.stdout.write("".join(f"{line}\n" for line in done["lines"]))
            sys.stdout.flush()
            progress.start()
        if out_file is not None and keep is not None:
            write_atomically(out_file, "".join(f"{line}\n" for line in whole).encode())
            keep.remove()
    if out_file is not None:
        note(f"{out_file}: {len(lines):,} lines")
    note_cut(cut, len(lines))


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The beginning; without it, the model starts by itself.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="The largest number of tokens.")] = 200,
    temperature: Annotated[float, typer.Option(help="Above 1 is bolder, below it is safer, 0 takes the likeliest.")] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "float32",
    json_: Json = False,
) -> None:
    """Continue a text; tokens are printed as they are generated.

    Examples:
        saccade generate runs/shakespeare "ROMEO:" --limit 500 --temperature 0.8
        saccade generate runs/shakespeare --seed 3 --top-p 0.9 --json
    """

    system = load(model, device, precision=precision)
    pieces = system.generate(prompt, limit, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    note_unknown(system, [prompt] if prompt else [])
    if json_:
        print_json({"prompt": prompt, "text": pieces.text})
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
    system = load(model, device)
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
    words: Words = False,
    effect: Annotated[bool, flag("--effect", EFFECT)] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Classify texts; words are shaded by their weight. In a terminal, without a text: type texts, one per line; Ctrl-D ends.

    A model of pictures classifies an image file or a folder of images: instead of a text, give the path.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --effect
        saccade classify runs/reviews "not a bad film" --out weights.png
        saccade classify runs/reviews --input texts.txt --json
        saccade classify runs/shapes-vit photo.png
        saccade classify runs/shapes-vit photos/ --json
    """
    from .. import api
    from ..tasks.classification import Classification
    from ..tasks.image_classification import ImageClassification

    check_drawable(out_file)
    system = load(model, device)
    if isinstance(system.task, ImageClassification):
        asked = next((name for name, given in (("out", out_file), ("words", words), ("effect", effect)) if given), None)
        if asked:
            raise SaccadeError(f"--{asked} is for models of texts, and this one reads images; leave it out")
        classify_images(system, text, input_file, json_)
        return
    system.require(Classification, "label a text")  # a mistake is reported before anything else
    shown = text is not None or (input_file is None and sys.stdin is not None and sys.stdin.isatty())
    if not (shown or json_) and (effect or (words and out_file is None)):
        raise SaccadeError(f"lines are printed without weights; leave {'--effect' if effect else '--words'} out, or use --json")

    def answer(lines: list[str], first: int) -> None:
        if out_file is not None and len(lines) > 1:
            raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
        print_labels(system, lines, first, shown or json_, words, effect, json_)
        if out_file is not None:
            document = api.show(system, lines[0])
            document = document.words() if words else document
            draw(document, document.sites[0], False, out_file)
            if not json_:
                write(f"{out_file}: the weights of the words")

    answer_each(text, input_file, "classify", answer, system.inputs)


def print_labels(system: "System", lines: list[str], first: int, shown: bool, words: bool, effect: bool, json_: bool) -> None:
    """The labels of the lines; with probabilities and weights where `shown`."""
    from .drawing import print_classified

    texts = [line for line in lines if line.strip()]
    if not texts and first == 1:
        raise SaccadeError("the lines are empty; give at least one text")
    found = dict(zip(texts, system.classify(texts) if texts else [], strict=True))
    effects = {line: system.task.effects(system.model, line, one.label) for line, one in found.items()} if effect else {}
    note_unknown(system, lines)
    for line in lines:  # line n of the output belongs to line n of the input, also where that is empty
        one = found.get(line)
        if one is None:
            report(json_, {"text": line, "label": None}, "")
        elif shown:
            print_classified(line, one, words, effects.get(line), json_)
        else:
            sys.stdout.write(f"{one.label}\t{line}\n")
    sys.stdout.flush()
