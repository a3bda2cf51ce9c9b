"""The command `classify`."""

from __future__ import annotations

from typing import Annotated, Any

from ..errors import SaccadeError
from .common_options import FILES, Inputs, Model, Words, flag, takes
from .predict import Prediction, prediction

EFFECT = "Also print by how much the label's probability falls without each word."


@takes(*FILES, "device", "json_")
def classify(
    model: Model,
    inputs: Inputs = None,
    words: Words = False,
    effect: Annotated[bool, flag("--effect", EFFECT)] = False,
    **how: Any,
) -> None:
    """Classify texts or images.

    The words of a single text are shaded by their weight. In a terminal, without a text: type texts, one per line; Ctrl-D ends.

    Examples:
        saccade classify runs/reviews "not a bad film"
        saccade classify runs/reviews "not a bad film" --effect
        saccade classify runs/reviews --input reviews.csv --out labeled.csv
        saccade classify runs/reviews --input texts.txt --json
        saccade classify runs/shapes-vit photo.png
        saccade classify runs/shapes-vit photos/ --json
    """
    made = prediction(model, "classify", made_of=Labels, **how)
    assert isinstance(made, Labels)
    made.asked = {"words": words, "effect": effect}
    made.run(inputs)


class Labels(Prediction):
    """Labels, with weights of whole words or effects of words where they are asked for."""

    asked: dict[str, bool]

    def check_ready(self) -> None:
        asked = next((name for name, value in self.asked.items() if value), None)
        if asked and self.reads_images:
            raise SaccadeError(
                f"--{asked} is for models of texts, and this one reads images; leave it out",
                code="reads-images",
            )
        if asked and not (self.alone or self.as_json):
            raise SaccadeError(
                f"lines are printed without weights; leave --{asked} out, or use --json",
                code="lines-without-weights",
            )

    def printed(self, inputs: list[Any], answers: list[Any]) -> list[tuple[str, dict[str, Any]]]:
        from ..views.document import Site
        from ..views.selection import in_words

        made = super().printed(inputs, answers)
        for text, one, (_, row) in zip(inputs, answers, made, strict=True):
            if one is not None and self.asked["words"]:
                site = in_words(Site("pool", [one.label], one.pieces, [[one.weights]]))
                weights = site.weights[0][0]
                row["weights"] = [
                    [word, float(weight)]
                    for word, weight in zip(site.columns, weights, strict=True)
                ]
            if one is not None and self.asked["effect"]:
                row["effects"] = self.task.effects(self.system.model, text, one.label)
        return made
