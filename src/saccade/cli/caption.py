"""The command `caption`."""

from typing import Any

from .common_options import FILES, SAMPLING, Inputs, Model, takes
from .predict import prediction


@takes("beam", "length_penalty", "max_length", *SAMPLING, *FILES, "device", "json_")
def caption(model: Model, images: Inputs = None, **how: Any) -> None:
    """Describe an image, a folder of images or data.

    Prints one line per image: its name, a tab and the caption. Images that cannot be read are reported, and the exit code is then 2.

    Examples:
        saccade caption runs/mine picture.png --beam 5
        saccade caption runs/mine photos/ > captions.tsv
        saccade caption runs/mine --input shapes:test --json
    """
    prediction(model, "caption", **how).run(images)
