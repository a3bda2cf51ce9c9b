"""The command `reconstruct`, and how images are read and labeled."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..data.lines import open_text
from ..errors import SaccadeError
from .common_options import Device, Json, Model
from .input_stream import answer_each
from .report import check_picture
from .shared import load, note, print_json, write

if TYPE_CHECKING:
    from ..data.image_examples import Picture
    from ..system.system import System

MOST_DRAWN = 12  # pictures in one drawing
NOISE = "How much noise to add to what is read (pixels are 0 to 1). [default: as in training]"


def find_images(paths: Sequence[str]) -> "tuple[list[Picture], bool]":
    """The images of files and folders, and whether some path holds none, which is said on stderr."""
    from ..data.archives import pictures_in

    found, missing = list[Any](), False
    for path in paths:
        try:
            found += pictures_in(path) if path.strip() else []
        except SaccadeError as error:
            if len(paths) == 1:
                raise
            note(f"saccade: {error.shell}")
            missing = True
    return found, missing


def answer_images(
    images: "Sequence[Picture]",
    work: Callable[..., list[Any]],
    tell: Callable[[str, Any], object],
    json_: bool,
) -> int:
    """Tells of each image what `work` answered, in their order; of one that cannot be read why. How many there were of these."""
    wrong = dict[int, str]()
    answers = iter(work(images, wrong))
    for n, image in enumerate(images):
        if n not in wrong:
            tell(image.name, next(answers))
            continue
        note(f"saccade: {wrong[n]}")
        if json_:
            print_json({"image": image.name, "error": wrong[n]})
    sys.stdout.flush()
    return len(wrong)


def end_with_unread(unread: int, count: int, missing: bool = False) -> None:
    """Ends with 2 where images could not be read, or some path held none; each was named before."""
    if unread and count > 1:
        note(f"saccade: {unread:,} of {count:,} images could not be read")
    if unread or missing:
        raise typer.Exit(2)


def classify_images(
    system: "System", path: str | None, input_file: str | None, json_: bool
) -> None:
    """The label of each image of a file or a folder; paths may also come from a file or stdin, one per line."""
    from ..data.image_examples import decode_each

    count = unread = 0
    missing = False

    def tell(name: str, one: Any) -> None:
        if json_:
            # equal weights are a mean of positions, not attention
            attends = float(one.weights.max()) > float(one.weights.min())
            print_json(
                {"image": name, **one.to_dict("label", "probabilities", *["weights"] * attends)}
            )
        elif path is not None and not Path(path).is_dir():
            likeliest = sorted(one.probabilities.items(), key=lambda pair: -pair[1])[:5]
            write(
                f"{one.label}   ({'  '.join(f'{label} {100 * chance:.1f} %' for label, chance in likeliest)})"
            )
        else:
            write(f"{one.label}\t{name}")

    def answer(lines: list[str], first: int) -> None:
        nonlocal count, unread, missing
        images, absent = find_images(lines)
        unread += answer_images(
            images,
            lambda found, wrong: system.predict(decode_each(found, system.task.image_size, wrong)),
            tell,
            json_,
        )
        count, missing = count + len(images), missing or absent

    answer_each(path, input_file, "classify", answer, lambda file: list(open_text(file)))
    end_with_unread(unread, count, missing)


def reconstruct(
    model: Model,
    given: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="An image file or a folder of images; or a text, for a model of texts.",
        ),
    ],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Draw before and after: .png, .svg or .pdf.")
    ] = None,
    noise: Annotated[float | None, typer.Option(help=NOISE, min=0, max=10)] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Reconstruct images or a text with an autoencoder.

    An autoencoder keeps a few numbers and decodes them; a denoising one removes noise. For an image the PSNR is printed, for a
    text its reconstruction.

    Examples:
        saccade reconstruct runs/shapes-autoencoder photo.png --out before-after.png
        saccade reconstruct runs/shapes-denoising photos/ --noise 0
        saccade reconstruct runs/senses-autoencoder "the dog did not cross the street because it was too tired"
    """
    from ..data.image_examples import decode_each

    check_picture(out_file)
    system = load(model, device)
    system.require("reconstruct")
    if "text" in system.task.fields:
        if out_file is not None or noise is not None:
            raise SaccadeError(
                "--out and --noise are for pictures, and this model reads texts; leave them out"
            )
        made_again = system.reconstruct(given)
        print_json({"text": given, **made_again.to_dict("text", "log_prob")}) if json_ else write(
            made_again.text
        )
        return
    images, _ = find_images([given])
    made = list[Any]()

    def tell(name: str, one: Any) -> None:
        made.append(one)
        if json_:
            print_json({"image": name, **one.to_dict("error", "psnr")})
        else:
            write(f"PSNR {one.psnr:.1f} dB\t{name}")

    unread = answer_images(
        images,
        lambda found, wrong: system.predict(
            decode_each(found, system.task.image_size, wrong), noise=noise
        ),
        tell,
        json_,
    )
    if out_file is not None and made:
        from ..views.figures import before_after, save

        save(before_after(made[:MOST_DRAWN]), out_file)
        few = (
            f" of the first {MOST_DRAWN} of {len(made):,} pictures"
            if len(made) > MOST_DRAWN
            else ""
        )
        note(f"{out_file}: before and after{few}")
    end_with_unread(unread, len(images))
