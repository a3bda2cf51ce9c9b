"""Commands that use a model on pictures: caption, answer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .image_files import answer_images, end_with_unread
from .incoming import answer_each
from .options import Beam, Device, Json, LengthPenalty, MaxLength, Model, Seed, TopK, TopP
from .shared import keep_given, load, note_cut, note_unknown, print_json, write

if TYPE_CHECKING:
    from ..data.pictures import Picture
    from ..decoding import MakeSearch
    from ..system import System
    from ..views.results import Answered, Caption

DATA = "Data as for training (test.jsonl, shapes:test), whose captions, answers or labels are left out."
Image = Annotated[str | None, typer.Argument(help="An image file, or a folder of them (in the order of names).")]
PictureData = Annotated[str | None, typer.Option("--input", help=DATA)]
QUESTION = "The question; without it and --input, questions are read from stdin, one per line."
ASKED = "A file of image<TAB>question lines, or data as for training, whose answers are left out."
TOGETHER = 64  # pictures that are answered at once


def caption(
    model: Model,
    image: Image = None,
    data: PictureData = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 1.0,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    max_length: MaxLength = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Describe an image, or each image of a folder or of data: one line per image, its name, a tab and the caption.

    Images that cannot be read are reported at the end, and the command then ends with 2.

    Examples:
        saccade caption runs/mine picture.png --beam 5
        saccade caption runs/mine photos/ > captions.tsv
        saccade caption runs/mine --input shapes:test --json
    """
    from .. import api
    from ..tasks.captioning import Captioning

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    if beam > 1 and sample:
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    search = api.searcher(beam, length_penalty, sample={**sample, "seed": seed} if sample else None)
    system = load(model, device)
    system.require(Captioning, "describe a picture")  # a mistake is reported before anything is read
    pictures, alone = find_pictures(system, image, data, "describe")
    print_captions(system, pictures, alone, search, max_length, json_)


def find_pictures(system: "System", image: str | None, data: str | None, verb: str) -> tuple[list["Picture"], bool]:
    """What to work on: one image, those of a folder, or those of data; and whether it is one image by itself."""
    from ..seeing import pictures_of

    if image is not None and data is not None:
        raise SaccadeError("both an image and --input were given; give one of them")
    if data is not None:
        return [one.image for one in system.read(data)], False
    if not image:
        raise SaccadeError(f"nothing to {verb}; give an image, a folder of images, or --input DATA")
    return pictures_of(image, f"saccade {verb}")


def print_captions(
    system: "System", pictures: Sequence["Picture"], alone: bool, search: "MakeSearch", max_length: int | None, json_: bool
) -> None:
    """Captions on stdout in the order of the pictures, with a bar on stderr; what could not be read is reported at the end."""
    from ..data.corpora import on_one_line
    from ..data.pictures import decode_each
    from .progress import bars

    progress, cut, unread = bars(), 0, 0
    progress.disable |= len(pictures) == 1  # nothing to wait for

    def work(images: Sequence["Picture"], wrong: dict[int, str]) -> list["Caption"]:
        found = list(system.captions(decode_each(images, system.task.image_size, wrong), search, max_length))
        progress.stop()  # a bar and outputs would be mixed in a terminal
        return found

    def tell(image: str, one: "Caption") -> None:
        nonlocal cut
        cut += not one.finished
        if json_:
            print_json({"image": image, "caption": one.text, **one.to_dict("log_prob", "finished", "alternatives")})
        else:
            name = "" if alone else on_one_line(image).replace("\t", " ") + "\t"
            write(f"{name}{one.text}")

    with progress:
        task = progress.add_task("describing", total=len(pictures), state="")
        for start in range(0, len(pictures), TOGETHER):
            part = pictures[start : start + TOGETHER]
            unread += answer_images(part, work, tell, json_)
            progress.start()
            progress.advance(task, len(part))
    note_cut(cut, len(pictures))
    end_with_unread(unread, len(pictures))


def answer(
    model: Model,
    image: Annotated[Path | None, typer.Argument(help="An image file.")] = None,
    question: Annotated[str | None, typer.Argument(help=QUESTION)] = None,
    input_file: Annotated[str | None, typer.Option("--input", help=ASKED)] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Answer questions about a picture. In a terminal, without a question: type questions, one per line; Ctrl-D ends.

    --json also prints the probability of every answer, and where in the picture each word of the question looked.

    Examples:
        saccade answer runs/questions picture.png "what color is the circle?"
        saccade answer runs/questions picture.png < questions.txt
        saccade answer runs/questions --input asked.tsv --json
    """
    from ..data import corpora
    from ..data.images import read_image
    from ..tasks.open_questions import ANSWERING

    if (image is None) == (input_file is None):
        wrong = "no image was given" if image is None else "both an image and --input were given"
        raise SaccadeError(f"{wrong}; give an image and a question, or --input FILE")
    system = load(model, device)
    system.require(ANSWERING, "answer a question about a picture")  # a mistake is reported before anything else
    if image is None:
        where = str(input_file)  # its images are beside it, wherever those of the training data are
        asked = [(one.image, one.question) for one in corpora.read(system.task.data, where, system.recipe.data.options(where))]
        note_unknown(system, [text for _, text in asked])
        print_answers(system.answer(asked), json_, False)
        return
    read_image(image)  # before anybody types a question about it
    shown = question is not None or (sys.stdin is not None and sys.stdin.isatty())

    def respond(lines: list[str], first: int) -> None:
        print_lines(system, image, lines, first, json_, shown)

    if question is not None and not question.strip():
        raise SaccadeError("the question is empty; ask something, such as 'what color is the shape?'")
    answer_each(question, None, "ask", respond, lambda path: [])


def print_lines(system: "System", image: Path, lines: list[str], first: int, json_: bool, shown: bool) -> None:
    """Answers to the questions on lines, one for each; an empty line has an empty answer."""
    asked = [line for line in lines if line.strip()]
    if not asked and first == 1:
        raise SaccadeError("the lines are empty; give at least one question")
    note_unknown(system, asked)
    found = dict(zip(asked, system.answer(image, asked), strict=True))
    for line in lines:
        if line in found:
            print_answers([found[line]], json_, shown)
        elif json_:
            print_json({"question": line, "answer": None})
        else:
            write("")
    sys.stdout.flush()


def print_answers(found: list["Answered"], json_: bool, shown: bool) -> None:
    """Answers as lines of text, with the likeliest ones where `shown`, or as JSON."""
    for one in found:
        likeliest = sorted(one.probabilities.items(), key=lambda pair: -pair[1])[:5]
        if json_:
            facts = one.to_dict()
            print_json({"image": facts.pop("name"), **facts, "weights": one.weights.round(4).tolist()})
        elif shown:
            several = [f"{name} {100 * chance:.1f} %" for name, chance in likeliest]
            write(f"{one.answer}   ({'  '.join(several) if len(several) > 1 else f'{100 * likeliest[0][1]:.1f} %'})")
        else:
            write(f"{one.answer}\t{one.question}")
