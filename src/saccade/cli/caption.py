"""The command `caption`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Beam, Device, Json, LengthPenalty, MaxLength, Model, Seed, TopK, TopP
from .reconstruct import answer_images, end_with_unread
from .shared import keep_given, load, note_cut, print_json, write

if TYPE_CHECKING:
    from ..data.image_examples import Picture
    from ..system.system import System
    from ..views.answers import Caption

DATA = "Data as for training (test.jsonl, shapes:test), whose captions, answers or labels are left out."
Image = Annotated[
    str | None, typer.Argument(help="An image file, or a folder of them (in the order of names).")
]
PictureData = Annotated[str | None, typer.Option("--input", help=DATA)]
TOGETHER = 64  # pictures that are answered at once


def caption(
    model: Model,
    image: Image = None,
    data: PictureData = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 1.0,
    temperature: Annotated[
        float | None, typer.Option(help="Sample at this temperature instead of searching.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    max_length: MaxLength = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Describe an image, a folder of images or data.

    Prints one line per image: its name, a tab and the caption. Images that cannot be read are reported at the end, and the exit code is then
    2.

    Examples:
        saccade caption runs/mine picture.png --beam 5
        saccade caption runs/mine photos/ > captions.tsv
        saccade caption runs/mine --input shapes:test --json
    """
    from .. import api

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    if beam > 1 and sample:
        raise SaccadeError(
            "a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p"
        )
    options: dict[str, object] = {
        "beam": beam,
        "length_penalty": length_penalty,
        "max_length": max_length,
    }
    options |= {**sample, "seed": seed} if sample else {}
    api.searcher(beam, length_penalty, sample={**sample, "seed": seed} if sample else None)
    system = load(model, device)
    # a mistake is reported before anything is read
    system.require("caption")
    pictures, alone = find_pictures(system, image, data, "describe")
    print_captions(system, pictures, alone, options, json_)


def find_pictures(
    system: "System", image: str | None, data: str | None, verb: str
) -> tuple[list["Picture"], bool]:
    """What to work on: one image, those of a folder, or those of data; and whether it is one image by itself."""
    from ..tasks.image_batches import pictures_of

    if image is not None and data is not None:
        raise SaccadeError("both an image and --input were given; give one of them")
    if data is not None:
        return [one.image for one in system.read(data)], False
    if not image:
        raise SaccadeError(f"nothing to {verb}; give an image, a folder of images, or --input DATA")
    return pictures_of(image, f"saccade {verb}")


def print_captions(
    system: "System",
    pictures: Sequence["Picture"],
    alone: bool,
    options: dict[str, object],
    json_: bool,
) -> None:
    """Captions on stdout in the order of the pictures, with a bar on stderr; what could not be read is reported at the end."""
    from ..data.corpora import on_one_line
    from ..data.image_examples import decode_each
    from .progress import bars

    progress, cut, unread = bars(), 0, 0
    progress.disable |= len(pictures) == 1  # nothing to wait for

    def work(images: Sequence["Picture"], wrong: dict[int, str]) -> list["Caption"]:
        found = system.predict(decode_each(images, system.task.image_size, wrong), **options)
        progress.stop()  # a bar and outputs would be mixed in a terminal
        return found

    def tell(image: str, one: "Caption") -> None:
        nonlocal cut
        cut += not one.finished
        if json_:
            print_json(
                {
                    "image": image,
                    "caption": one.text,
                    **one.to_dict("log_prob", "finished", "alternatives"),
                }
            )
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
