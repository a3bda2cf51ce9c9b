"""The command `reconstruct`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Inputs, Model, takes
from .predict import Prediction, prediction
from .shared import note

MAX_DRAWN = 12  # pictures in one drawing
PICTURES = (".png", ".svg", ".pdf")
OUT = "Draw before and after (.png, .svg, .pdf), or write numbers (.csv, .jsonl, .txt)."


@takes("noise", "input_file", "device", "json_")
def reconstruct(
    model: Model,
    inputs: Inputs = None,
    out_file: Annotated[Path | None, typer.Option("--out", help=OUT)] = None,
    **how: Any,
) -> None:
    """Reconstruct images or a text with an autoencoder.

    An autoencoder keeps a few numbers and decodes them; a denoising one removes noise. For an image the PSNR is printed, for a
    text its reconstruction.

    Examples:
        saccade reconstruct runs/shapes-autoencoder photo.png --out before-after.png
        saccade reconstruct runs/shapes-denoising photos/ --noise 0
        saccade reconstruct runs/senses-autoencoder "the dog did not cross the street because it was too tired"
    """
    drawn = out_file is not None and out_file.suffix.lower() in PICTURES
    numbers = None if drawn else out_file
    made = prediction(model, "reconstruct", made_of=Pictures, out_file=numbers, **how)
    assert isinstance(made, Pictures)
    made.picture = out_file if drawn else None
    made.run(inputs)


class Pictures(Prediction):
    """Reconstructions; those of images are drawn beside what they were made of."""

    picture: Path | None

    def check_ready(self) -> None:
        self.made = list[Any]()
        if self.picture is not None and not self.reads_images:
            raise SaccadeError(
                f"--out {self.picture} is for images, and this model reads texts; leave it out",
                code="no-picture",
            )

    def printed(self, inputs: list[Any], answers: list[Any]) -> list[tuple[str, dict[str, Any]]]:
        self.made += answers
        return super().printed(inputs, answers)

    def finish(self) -> None:
        if self.picture is not None and self.made:
            from ..views.figures import before_after, save

            save(before_after(self.made[:MAX_DRAWN]), self.picture)
            count = len(self.made)
            few = f" of the first {MAX_DRAWN} of {count:,} pictures" if count > MAX_DRAWN else ""
            note(f"{self.picture}: before and after{few}")
        super().finish()
