"""Commands that use a model: generate, tag, classify."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .image_files import classify_images
from .incoming import TOGETHER, answer_each, stdin_lines
from .options import Device, Input, Json, Model, Precision, Seed, Text, TopK, TopP, Words, as_typed, flag
from .shared import Unknown, check_drawable, draw, load, note, note_unknown, print_json, report, visible, write

if TYPE_CHECKING:
    from ..data.conllu import Sentence
    from ..system import System

PROMPT = "The beginning; without it, the model starts by itself."
EFFECT = "Also print how much the label's probability falls when a word is left out: + for the label, − against it."


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help=PROMPT, callback=as_typed)] = "",
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
        print_json(pieces.to_dict())
        return
    for piece in chain([prompt], pieces):
        write(piece, end="")
        sys.stdout.flush()
    write("")


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
    from ..data.conllu import Sentence, each_sentence, tag_conllu
    from ..data.lines import bare_suffix, open_text, strict
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
        lines = stdin_lines("tag") if file == "-" else open_text(file)
        found: Iterator[Sentence] = (
            Sentence(task.words(line, split or ""), None, n) for n, line in enumerate(lines, 1) if line.strip()
        )
    else:
        found = strict(each_sentence(file, column))
    tagged = tag_each(system, found)
    first = next(tagged, None)
    if first is None:
        raise SaccadeError(f"{'stdin' if file == '-' else file} contains no words; give at least one sentence")
    if is_text:
        how = "at spaces" if (split or task.split) == "space" else "into words and punctuation"
        note(f"note: text is split {how}{'' if split else ', as the training data is'}; --split space or words changes it")
    if json_:
        for one, given in chain([first], tagged):
            print_json({"words": list(one.words), "tags": given})
        return
    spelled = ((one, [visible(tag) for tag in given]) for one, given in chain([first], tagged))
    for line in tag_conllu(file, spelled, column):
        sys.stdout.write(line if line.endswith("\n") else line + "\n")


def tag_each(system: "System", sentences: Iterable["Sentence"]) -> Iterator[tuple["Sentence", list[str]]]:
    """Sentences with their tags, some hundred at a time: no file fills the memory."""
    source = iter(sentences)
    while some := list(islice(source, TOGETHER)):
        yield from ((one, list(given)) for one, given in zip(some, system.tag(some), strict=True))


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

    unknown = Unknown(system)

    def answer(lines: list[str], first: int) -> None:
        if out_file is not None and len(lines) > 1:
            raise SaccadeError(f"{len(lines)} texts and one picture; draw one text at a time")
        print_labels(system, lines, first, shown or json_, words, effect, json_)
        unknown.note(lines)
        if out_file is not None:
            document = api.show(system, lines[0])
            document = document.words() if words else document
            draw(document, document.sites[0], False, out_file)
            if not json_:
                write(f"{out_file}: the weights of the words")

    answer_each(text, input_file, "classify", answer, system.each_input)


def print_labels(system: "System", lines: list[str], first: int, shown: bool, words: bool, effect: bool, json_: bool) -> None:
    """The labels of the lines; with probabilities and weights where `shown`."""
    from .drawing import print_classified

    texts = [line for line in lines if line.strip()]
    if not texts and first == 1:
        raise SaccadeError("the lines are empty; give at least one text")
    found = dict(zip(texts, system.classify(texts) if texts else [], strict=True))
    effects = {line: system.task.effects(system.model, line, one.label) for line, one in found.items()} if effect else {}
    for line in lines:  # line n of the output belongs to line n of the input, also where that is empty
        one = found.get(line)
        if one is None:
            report(json_, {"text": line, "label": None}, "")
        elif shown:
            print_classified(line, one, words, effects.get(line), json_)
        else:
            write(f"{one.label}\t{line}")
    sys.stdout.flush()
