"""The command `explain`: what lectures work out by hand, with all numbers, from live parts and trained models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Device, Family, Json, Model, Options, as_typed, flag, option, takes
from .completion import mask_names, normalizer_names, run_folders, score_names
from .shared import keep_given, load, note, note_unknown, print_json, show_all, write

if TYPE_CHECKING:
    from ..views.worked_steps import Worked

Sentence = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT",
        help="Your own sentence, up to 30 words. [default: the lectures' worked example]",
        callback=as_typed,
    ),
]
DIM = "Width of a head: 1 gives scalar q, k and v; without a text: This is a cat, one-hot."
PARTS: Options = {
    "score": option(
        str,
        "A score by name, or {name: additive, hidden: 3}. [default: dot]",
        autocompletion=score_names,
    ),
    "normalize": option(
        str, "A normalizer by name. [default: softmax]", autocompletion=normalizer_names
    ),
    "mask": option(
        str,
        "A mask by name, such as causal or '{name: window, left: 1}'.",
        autocompletion=mask_names,
    ),
    "heads": option(int, "Divide the inputs among 1, 2 or 4 heads."),
    "dim": option(int, DIM),
    "plain": option(bool, "Learn nothing, W = I: weights are softmax(x_i·x_j).", "--plain"),
    "scaled": option(bool, "Divide the scores by √D, as Transformers do.", "--scaled"),
}
Query = Annotated[int | None, typer.Option(help="Show only this query (from 1), in detail.")]


def check_page(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise SaccadeError(
            f"cannot write an explanation into '{path}'; the name must end in .html",
            code="wrong-ending",
        )
    return path


Page = Annotated[
    Path | None,
    typer.Option("--out", help="Write a page with the origin of each number.", callback=check_page),
]


@takes(*PARTS, of=PARTS)
def attention(
    text: Sentence = None,
    query: Query = None,
    out_file: Page = None,
    json_: Json = False,
    **parts: Any,
) -> None:
    """Work self-attention out, with any score, normalizer and mask.

    Without a text, this is the lectures' example. `saccade explain` alone does the same.

    Examples:
        saccade explain
        saccade explain attention "the black cat" --score additive --mask causal --out cat.html
        saccade explain attention "the black cat" --mask '{name: window, left: 1}' --query 2
        saccade explain attention --dim 1 --heads 2
    """
    if text is not None and is_folder(text):
        raise SaccadeError(
            f"{text} is a model; write: saccade explain step {text} TEXT",
            code="model-instead-of-text",
        )
    from ..teaching.explain.worked_attention import explain

    present(explain(words_of(text), parts_of(parts), query), out_file, json_)


def step(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="TEXT", help="The sentence to translate.", callback=as_typed)
    ],
    target: Annotated[
        str | None,
        typer.Option(help="Follow this translation instead of its own.", callback=as_typed),
    ] = None,
    step: Annotated[int, typer.Option(help="Which output token, from 1.")] = 1,
    layer: Annotated[
        int | None, typer.Option(help="Which layer, from 1. [default: the last]")
    ] = None,
    head: Annotated[int | None, typer.Option(help="Which head, from 1. [default: 1]")] = None,
    out_file: Page = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Show how a trained translation model came to one output token.

    Examples:
        saccade explain step runs/demo/bahdanau "the black cat ate the mouse" --step 2
    """
    from ..teaching.explain.worked_decoder import explain_step

    system = load(model, device)
    made = explain_step(system, source, target, step, layer, head)
    note_unknown(system, [source])
    present(made, out_file, json_)


@takes(*PARTS, of=PARTS)
def order(text: Sentence = None, out_file: Page = None, json_: Json = False, **parts: Any) -> None:
    """Shuffle the inputs: see what stays the same and what breaks that.

    Examples:
        saccade explain order "the black cat"
        saccade explain order --mask causal
    """
    from ..teaching.explain.input_order import explain_shuffle

    present(explain_shuffle(words_of(text), parts_of(parts)), out_file, json_)


def lookup(
    text: Sentence = None, query: Query = None, out_file: Page = None, json_: Json = False
) -> None:
    """Look words up in a soft dictionary, from hard to the mean.

    Examples:
        saccade explain lookup "the black cat"
    """
    from ..teaching.explain.lookup import explain_lookup

    present(explain_lookup(words_of(text), query), out_file, json_)


def norm(
    name: Annotated[str, typer.Argument(metavar="NORM", help="layer, batch or rms.")],
    text: Sentence = None,
    out_file: Page = None,
    json_: Json = False,
) -> None:
    """Work a norm out on the inputs as a batch.

    Examples:
        saccade explain norm layer
        saccade explain norm batch "the black cat"
    """
    from ..teaching.explain.worked_norms import explain_norm

    present(explain_norm(name, words_of(text)), out_file, json_)


def tf_idf(
    file: Annotated[
        str, typer.Argument(help="One document per line; `lecture` is a small example.")
    ] = "lecture",
    out_file: Page = None,
    json_: Json = False,
) -> None:
    """Count tf·idf of a corpus: attention that looks at no context.

    Examples:
        saccade explain tf-idf
        saccade explain tf-idf documents.txt
    """
    from ..data.lines import one_file, open_text
    from ..teaching.explain.word_numbers import LECTURE, explain_tf_idf

    if file == "lecture" and not Path(file).exists():
        return present(explain_tf_idf(lambda: LECTURE, file), out_file, json_)
    path = one_file(file, "a text file, one document per line")
    if not path.is_file():
        raise SaccadeError(
            f"expected a file that can be read several times, got {file}; write its lines to a file first",
            code="not-a-file",
        )
    present(explain_tf_idf(lambda: open_text(path), file), out_file, json_)


def similar(
    first: Annotated[str, typer.Argument(metavar="WORD", help="A word.", callback=as_typed)],
    second: Annotated[str, typer.Argument(metavar="WORD", help="Another.", callback=as_typed)],
    model: Annotated[
        Path | None,
        typer.Option(help="Use the embedding of this model.", autocompletion=run_folders),
    ] = None,
    out_file: Page = None,
    json_: Json = False,
) -> None:
    """Compare two words: one-hot, embedding, cosine and correlation.

    Examples:
        saccade explain similar dog cat
        saccade explain similar the a --model runs/demo/bahdanau
    """
    from ..teaching.explain.word_numbers import SLIDE, SLIDE_WORDS, explain_similar, slide_vectors

    pair = (first, second)
    if model is not None or (vectors := slide_vectors(pair)) is None:
        vectors, source, size = own_vectors(pair, model)
    else:
        source, size = SLIDE, SLIDE_WORDS
    present(explain_similar(pair, vectors, source, size), out_file, json_)


@takes(*PARTS, of=PARTS)
def quiz(
    text: Sentence = None,
    answers: Annotated[bool, flag("--answers", "Print the answers.")] = False,
    out_file: Page = None,
    json_: Json = False,
    **parts: Any,
) -> None:
    """Ask the slides' questions about the example or your sentence.

    In a terminal, the questions are asked one by one.

    Examples:
        saccade explain quiz
        saccade explain quiz "the black cat" --answers
    """
    from ..teaching.explain.quiz import explain_quiz

    words, chosen = words_of(text), parts_of(parts)
    if not (answers or json_ or out_file) and is_conversation():
        return ask_all(words, chosen)
    present(explain_quiz(words, chosen, answers), out_file, json_)


explain = Family(
    "explain",
    "Explain attention step by step, with all numbers.",
    (attention, step, order, lookup, norm, tf_idf, similar, quiz),
)


def words_of(text: str | None) -> list[str] | None:
    return None if text is None else text.split()


def present(worked: Worked, out_file: Path | None, as_json: bool) -> None:
    """Prints an explanation, or writes its page."""
    if out_file is not None:
        from ..files import write_atomically
        from ..views.html_page import explained_page

        write_atomically(out_file, explained_page(worked).encode())
        note(f"written: {out_file}")
    if as_json:
        print_json(worked.to_dict())
    elif out_file is None:
        from ..views.terminal import render

        show_all(render(worked))


def is_conversation() -> bool:
    """Whether a person can be asked something."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def is_folder(text: str) -> bool:
    """Whether a text is a run or model folder, and not a word that happens to be a folder's name."""
    path = Path(text)
    try:
        return bool(text.strip()) and any(
            (path / name).exists() for name in ("recipe.json", "manifest.json", "best", "last")
        )
    except (OSError, ValueError):  # a sentence, not a path
        return False


def parts_of(options: dict[str, Any]) -> Any:
    """The parts by their names; a value may be YAML, as in recipes."""
    import yaml

    from ..teaching.explain.worked_attention import choose_parts

    found = keep_given(**options)
    for name in ("score", "normalize", "mask"):
        text = found.get(name, "")
        if text.lstrip().startswith("{"):
            try:
                found[name] = yaml.safe_load(text)
            except yaml.YAMLError:
                raise SaccadeError(
                    f"--{name} is '{text[:200]}', which cannot be read; write {{name: …, option: …}}",
                    code="bad-yaml",
                ) from None
    return choose_parts(**found)


def own_vectors(pair: tuple[str, str], model: Path | None) -> tuple[Any, str, int]:
    """The vectors of two words by a model, or by how often words of the phrasebook are neighbors; what they are, and their number."""
    from ..data.corpora import corpus
    from ..teaching.draw.word_map import PHRASEBOOK, from_counts, from_model

    if model is not None:
        known, found, size = from_model(str(model), list(dict.fromkeys(pair)))
        if unknown := [word for word in pair if word not in known]:
            raise SaccadeError(
                f"'{unknown[0]}' is not a single token of {model}; name words that it knows",
                code="unknown-word",
            )
        return found[[known.index(word) for word in pair]], f"the embedding of {model}", size
    lines = [one.source.split() for one in corpus("phrasebook:train", PHRASEBOOK)]
    vocabulary = {word for line in lines for word in line}
    if unknown := [word for word in pair if word not in vocabulary]:
        raise SaccadeError(
            f"'{unknown[0]}' has no vector here: it is not in the slide or the phrasebook; name a model with --model",
            code="unknown-word",
        )
    source = "from counts of neighbors in the phrasebook"
    return from_counts(lines, list(pair)), source, len(vocabulary)


def ask_all(words: list[str] | None, parts: Any) -> None:
    """Asks the questions one by one, compares the answers, and counts."""
    from ..teaching.explain.quiz import explain_quiz, questions
    from ..views.terminal import render
    from ..views.worked_steps import Worked

    asked, _ = questions(words, parts)
    shown = explain_quiz(words, parts)
    show_all(render(Worked(shown.title, shown.steps()[:1])))
    right = compared = 0
    for n, one in enumerate(asked, 1):
        write(f"{n}. {one.text}")
        verdict = one.is_right(
            typer.prompt("  ", default="", show_default=False, prompt_suffix="> ")
        )
        answer = " and ".join(one.answers) + ". " if one.answers else ""
        write(
            f"   {'' if verdict is None else 'Right. ' if verdict else 'Not quite: '}{answer}{one.why}\n"
        )
        right, compared = right + bool(verdict), compared + (verdict is not None)
    write(f"{right} of {compared} right")
