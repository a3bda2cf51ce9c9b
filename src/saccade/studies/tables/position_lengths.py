"""Every position encoding, trained on texts of at most L tokens and tested on longer ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ... import api
from ...config import recipes
from ...experiments.runner import Context, train
from ...experiments.study import COSTS, Column, Job, Study, Values, training
from . import recall_lengths

LENGTH, UPDATES = {"tiny": 16, "small": 64}, {"tiny": 100, "small": 1500}
SIZES = {
    "tiny": {"dim": 32, "hidden": 64, "depth": 2, "heads": 2},
    "small": {"dim": 192, "hidden": 768, "depth": 4, "heads": 6},
}
TIMES = (1, 2, 3, 4)


class Positions(Study):
    """Recall and loss of small causal models at 1 to 4 times the length they were trained on."""

    name, main, drawn = "positions", "lengths", ("loss_1", "loss_4", "recall_1", "recall_4")
    sets = ("text",)
    columns = (
        *(
            Column(f"recall_{factor:g}", f"recall at {factor:g} L (%)", 1, stage="recall")
            for factor in recall_lengths.FACTORS
        ),
        *(Column(f"loss_{times}", f"loss at {times} L", 3) for times in TIMES),
        Column("growth", "loss at 4 L − at L", 3),
        *COSTS,
    )
    honest = (
        "The lectures contradict each other about which positions extrapolate, and none gives numbers to compare with. A small model on "
        "short texts shows where an encoding breaks beyond the lengths it has seen; how gracefully a large one degrades may differ."
    )

    def rows(self) -> dict[str, str]:
        where = {"position": "in attention", "position_embedding": "at the input"}
        return {
            name: name if name == "none" else f"{name} ({where[next(iter(found))]})"
            for name, found in self.settings().items()
        }

    def settings(self) -> Mapping[str, Values]:
        """Each row's settings; learned tables are made for the longest texts, and their rows beyond L are never trained."""
        return recall_lengths.every_position(max(TIMES) * LENGTH[self.scale])

    def jobs(self, row: str, seeds: int) -> list[Job]:
        length, updates = LENGTH[self.scale], UPDATES[self.scale]
        model = {"family": "transformer-decoder", **SIZES[self.scale], **self.settings()[row]}
        recipe = {
            "task": "language-modelling",
            "data": self.data["text"],
            "vocabulary": {"size": 500 if self.scale == "tiny" else 8000},
            "language": {"block": length},
            "model": model,
            "training": training(self.scale, updates, 1024 if self.scale == "tiny" else 8192),
        }
        settings = {**SIZES[self.scale], **self.settings()[row]}
        asked = {"settings": settings, "length": length, "updates": updates}
        return [
            job
            for seed in range(seeds)
            for job in (
                Job(row, "recall", seed, recall, asked, self.out),
                Job(row, "lengths", seed, train_and_test, recipe, self.out),
            )
        ]

    def pictures(self, table: Any) -> dict[str, Any]:
        from ...views.figures import lines

        found = {}
        for stage, keys, title in (
            (
                "recall",
                {factor: f"recall_{factor:g}" for factor in recall_lengths.FACTORS},
                "recall (%)",
            ),
            ("lengths", {float(times): f"loss_{times}" for times in TIMES}, "loss"),
        ):
            series: dict[str, list[tuple[float, float]]] = {}
            for row in table.results:
                measured = {
                    factor: table.measured(row, Column(key, "", stage=stage))
                    for factor, key in keys.items()
                }
                points = [
                    (factor, statistics.fmean(values))
                    for factor, values in measured.items()
                    if values
                ]
                series |= {row: points} if points else {}
            if series:
                about = "Positions beyond the lengths of the training"
                found[f"{stage}.png"] = lines(
                    series, "tested length / longest length in training", title, about
                )
        return found


def recall(job: Job, context: Context) -> Values:
    """Recall of what stood a few positions before, at L to 4 L."""
    asked = job.settings
    return recall_lengths.train_and_test(
        asked["settings"], asked["length"], job.seed, asked["updates"], recipes.device("auto")
    )


def train_and_test(job: Job, context: Context) -> Values:
    """Trains in blocks of L tokens, and measures the loss on the dev set in blocks of L to 4 L."""
    found = train(job, context)
    system = api.load(job.folder)
    task, dev = system.task, system.read("dev")
    for times in TIMES:
        longer = type(task)(
            task.text, replace(task.how, block=times * task.how.block), task.several
        )
        found[f"loss_{times}"] = longer.evaluate(system.model, dev)["loss"]
    return {**found, "growth": found["loss_4"] - found["loss_1"]}
