"""The command `explain`: what lectures work out by hand, with all numbers, from live parts and trained models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Device, Json, as_typed, flag
from .completion import mask_names, normalizer_names, run_folders, score_names
from .shared import load, note, note_unknown, print_json, show_all, write

if TYPE_CHECKING:
    from ..system.system import System
    from ..views.worked_steps import Worked

TEXT = "Your own sentence, up to 30 words; without it, the lectures' worked example. Or a model, and its source after it."
TARGET = "A model's translation to follow instead of its own."
SOURCE = "After a trained translation model: the sentence of which it generates an output word."
SCORE = "A score by name, or {name: additive, hidden: 3}. [default: dot]"
NORMALIZE = "A normalizer by name. [default: softmax]"
MASK = "A mask by name, such as causal or '{name: window, left: 1}'."
LOOKUP = (
    "Attention as a soft dictionary of the sentence's words, from hard to the mean, by temperature."
)
NORM = "A norm worked out on the inputs as a batch: layer, batch or rms."
TF_IDF = (
    "tf·idf of a corpus, one document per line; `lecture` is a small one about David and Beckham."
)
SIMILAR = "Two words: one-hot against embedding, cosine and correlation; with a model before, its own embeddings."
DIM = "Width of a head: --dim 1 is the lectures' scalar q, k and v; without a sentence: This is a cat, one-hot."
QUIZ = "The slides' questions about the example or your sentence; in a terminal they are asked one by one."
# what goes with each way to explain, besides --out and --json
PARTS = ("text", "score", "normalize", "mask", "heads", "dim", "plain", "scaled")
WITH: dict[str, tuple[str, ...]] = {
    "lookup": ("text", "query"),
    "shuffle": PARTS,
    "norm": ("text",),
    "tf-idf": (),
    "similar": ("model",),
    "quiz": (*PARTS, "answers"),
    "model": ("source", "target", "step", "layer", "head", "similar"),
    "": (*PARTS, "query"),
}
ModelOrText = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEXT|MODEL]", help=TEXT, autocompletion=run_folders, callback=as_typed
    ),
]


def explain(
    text: ModelOrText = None,
    source: Annotated[str | None, typer.Argument(help=SOURCE, callback=as_typed)] = None,
    score: Annotated[
        str | None, typer.Option("--score", help=SCORE, autocompletion=score_names)
    ] = None,
    normalize: Annotated[
        str | None, typer.Option("--normalize", help=NORMALIZE, autocompletion=normalizer_names)
    ] = None,
    mask: Annotated[
        str | None, typer.Option("--mask", help=MASK, autocompletion=mask_names)
    ] = None,
    heads: Annotated[
        int | None, typer.Option("--heads", help="Divide the inputs among 1, 2 or 4 heads.")
    ] = None,
    dim: Annotated[int | None, typer.Option("--dim", help=DIM)] = None,
    query: Annotated[
        int | None, typer.Option("--query", help="Only this query (from 1), in detail.")
    ] = None,
    plain: Annotated[
        bool, flag("--plain", "Nothing learned, W = I: weights are softmax(x_i·x_j).")
    ] = False,
    scaled: Annotated[
        bool,
        flag("--scaled", "Divide the scores by √D, as Transformers do (the lecture does not)."),
    ] = False,
    lookup: Annotated[bool, flag("--lookup", LOOKUP)] = False,
    shuffle: Annotated[
        bool, flag("--shuffle", "The inputs in another order: what stays, and what breaks it.")
    ] = False,
    norm: Annotated[str | None, typer.Option("--norm", help=NORM)] = None,
    tf_idf: Annotated[str | None, typer.Option("--tf-idf", metavar="FILE", help=TF_IDF)] = None,
    similar: Annotated[
        tuple[str, str] | None, typer.Option("--similar", metavar="WORD WORD", help=SIMILAR)
    ] = None,
    quiz: Annotated[bool, flag("--quiz", QUIZ)] = False,
    answers: Annotated[bool, flag("--answers", "With --quiz: print the answers.")] = False,
    target: Annotated[str | None, typer.Option("--target", help=TARGET, callback=as_typed)] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", help="Which output token of a model, from 1. [default: 1]"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", help="Which layer of a model, from 1. [default: the last]"),
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", help="Which head of a model, from 1. [default: 1]")
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", help="One offline .html page in which each number says what made it."
        ),
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Explain attention step by step, with all numbers.

    Without a text, the lectures' example; else your own sentence, with any score, normalizer and mask. Also: a soft dictionary,
    order, norms, tf·idf, similarity, the slides' questions, and how a trained translation model came to one output word.

    Examples:
        saccade explain
        saccade explain "the black cat" --score additive --mask causal --out cat.html
        saccade explain "the black cat" --mask '{name: window, left: 1}' --query 2
        saccade explain --dim 1 --heads 2
        saccade explain --lookup
        saccade explain --norm layer
        saccade explain --tf-idf documents.txt
        saccade explain --quiz --answers
        saccade explain runs/demo/bahdanau "the black cat ate the mouse" --step 2
    """
    options = {
        "score": score, "normalize": normalize, "mask": mask, "heads": heads, "dim": dim, "query": query, "plain": plain, "scaled": scaled,
        "lookup": lookup, "shuffle": shuffle, "norm": norm, "tf-idf": tf_idf, "similar": similar, "quiz": quiz, "answers": answers,
        "target": target, "step": step, "layer": layer, "head": head, "source": source,
    }  # fmt: skip
    answer(text, options, out_file, device, json_)


def answer(
    text: str | None, options: dict[str, Any], out_file: Path | None, device: str, as_json: bool
) -> None:
    """Prints the explanation that was asked for, or writes its page."""
    chosen = {
        name: value for name, value in options.items() if value is not None and value is not False
    }
    if text is not None:
        chosen["model" if chosen.keys() & {"source", "similar"} or is_folder(text) else "text"] = (
            text
        )
    way = check_given(chosen)
    if out_file is not None and out_file.suffix.lower() not in (".html", ".htm"):
        raise SaccadeError(
            f"cannot write an explanation into '{out_file}'; the name must end in .html"
        )
    if (
        way == "quiz"
        and "answers" not in chosen
        and not (as_json or out_file)
        and is_conversation()
    ):
        ask_all(chosen)
        return
    worked = make(way, chosen, device)
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
    """Whether a first argument is a run or model folder, and not a word that happens to be a folder's name."""
    path = Path(text)
    try:
        return bool(text.strip()) and any(
            (path / name).exists() for name in ("recipe.json", "manifest.json", "best", "last")
        )
    except (OSError, ValueError):  # a sentence, not a path
        return False


def check_given(chosen: dict[str, Any]) -> str:
    """The one way to explain that was asked for; raises where an option does not go with it."""
    name = lambda one: one if one in ("text", "model", "source") else f"--{one}"
    ways = [one for one in WITH if one in chosen]
    way = "similar" if set(ways) == {"similar", "model"} else ways[0] if ways else ""
    if len(ways) > 1 and way != "similar":
        raise SaccadeError(
            f"both {name(ways[0])} and {name(ways[1])} were given, which are explained one at a time; leave one of them out"
        )
    wrong = next((one for one in chosen if one not in (*WITH[way], *ways)), None)
    if wrong is None:
        return way
    if wrong in ("answers", "target", "step", "layer", "head"):
        needs = (
            "--quiz"
            if wrong == "answers"
            else 'a model and a source before it, such as runs/demo/bahdanau "the black cat"'
        )
        raise SaccadeError(f"--{wrong} goes with {needs}; add that, or leave --{wrong} out")
    about = {"model": "a model's own step", "": "self-attention by hand"}.get(way, f"--{way}")
    raise SaccadeError(
        f"{about} has no use for {'a sentence' if wrong == 'text' else name(wrong)}; leave it out"
    )


def parts_of(chosen: dict[str, Any]) -> Any:
    """The parts by their names; a value may be YAML, as in recipes."""
    import yaml

    from ..teaching.explain.worked_attention import choose_parts

    found = {name: chosen[name] for name in PARTS[1:] if name in chosen}
    for name in ("score", "normalize", "mask"):
        text = found.get(name)
        if isinstance(text, str) and text.lstrip().startswith("{"):
            try:
                found[name] = yaml.safe_load(text)
            except yaml.YAMLError:
                raise SaccadeError(
                    f"--{name} is '{text[:200]}', which cannot be read; write {{name: …, option: …}}"
                ) from None
    return choose_parts(**found)


def make(way: str, chosen: dict[str, Any], device: str) -> Worked:
    """The explanation that was asked for."""
    from ..teaching.explain import input_order, lookup, quiz, worked_attention, worked_norms

    words = chosen["text"].split() if "text" in chosen else None
    if way == "model":
        return explain_model(chosen, device)
    if way == "similar":
        return explain_words(chosen)
    if way == "tf-idf":
        return explain_corpus(chosen["tf-idf"])
    if way == "norm":
        return worked_norms.explain_norm(chosen["norm"], words)
    if way == "lookup":
        return lookup.explain_lookup(words, chosen.get("query"))
    if way == "shuffle":
        return input_order.explain_shuffle(words, parts_of(chosen))
    if way == "quiz":
        return quiz.explain_quiz(words, parts_of(chosen), "answers" in chosen)
    return worked_attention.explain(words, parts_of(chosen), chosen.get("query"))


def explain_model(chosen: dict[str, Any], device: str) -> Worked:
    """How a trained model came to one output word."""
    from ..teaching.explain.worked_decoder import explain_step

    if "source" not in chosen:
        raise SaccadeError(
            f"{chosen['model']} is a model; give the sentence that it reads after it, or --similar WORD WORD"
        )
    system: System = load(Path(chosen["model"]), device)
    source, target = chosen["source"], chosen.get("target")
    made = explain_step(
        system, source, target, chosen.get("step", 1), chosen.get("layer"), chosen.get("head")
    )
    note_unknown(system, [source])
    return made


def explain_words(chosen: dict[str, Any]) -> Worked:
    """Two words by the slide's vectors, by a model's, or by how often words of the phrasebook are neighbors."""
    from ..teaching.explain.word_numbers import SLIDE, SLIDE_WORDS, explain_similar, slide_vectors

    pair = chosen["similar"]
    if "model" not in chosen and (vectors := slide_vectors(pair)) is not None:
        return explain_similar(pair, vectors, SLIDE, SLIDE_WORDS)
    from ..data.corpora import corpus
    from ..teaching.draw.word_map import PHRASEBOOK, from_counts, from_model

    if "model" in chosen:
        known, found, size = from_model(chosen["model"], list(dict.fromkeys(pair)))
        if unknown := [word for word in pair if word not in known]:
            raise SaccadeError(
                f"'{unknown[0]}' is not a single token of {chosen['model']}; name words that it knows"
            )
        return explain_similar(
            pair,
            found[[known.index(word) for word in pair]],
            f"the embedding of {chosen['model']}",
            size,
        )
    lines = [one.source.split() for one in corpus("phrasebook:train", PHRASEBOOK)]
    vocabulary = {word for line in lines for word in line}
    if unknown := [word for word in pair if word not in vocabulary]:
        raise SaccadeError(
            f"'{unknown[0]}' has no vector here: it is not in the slide or the phrasebook; name a model before --similar"
        )
    return explain_similar(
        pair,
        from_counts(lines, list(pair)),
        "from counts of neighbors in the phrasebook",
        len(vocabulary),
    )


def explain_corpus(where: str) -> Worked:
    from ..data.lines import one_file, open_text
    from ..teaching.explain.word_numbers import LECTURE, explain_tf_idf

    if where == "lecture" and not Path(where).exists():
        return explain_tf_idf(lambda: LECTURE, "lecture")
    path = one_file(where, "a text file, one document per line")
    if not path.is_file():
        raise SaccadeError(
            f"expected a file that can be read several times, got {where}; write its lines to a file first"
        )
    return explain_tf_idf(lambda: open_text(path), str(where))


def ask_all(chosen: dict[str, Any]) -> None:
    """Asks the questions one by one, compares the answers, and counts."""
    from ..teaching.explain.quiz import explain_quiz, questions
    from ..views.terminal import render
    from ..views.worked_steps import Worked

    words = chosen["text"].split() if "text" in chosen else None
    asked, _ = questions(words, parts_of(chosen))
    shown = explain_quiz(words, parts_of(chosen))
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
