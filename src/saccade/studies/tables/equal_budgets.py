"""Recurrent models and Transformers of equal size, with equal updates and with equal seconds, and how long each takes for one sentence."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import torch

from ... import api
from ...data.corpora import generate
from ...experiments.runner import Context, train
from ...experiments.study import COSTS, Column, Job, Values
from ...models.builder import Builder, NoInit
from ...models.protocols import Seq2Seq
from ...training.run_plan import use_threads
from .lecture_claims import LEARNED, PAIRS_ALONE, Claim

FAMILIES: Mapping[str, Values] = {
    "lstm": {"family": "luong", "cell": "lstm", "dropout": 0.0},
    "transformer": {"family": "transformer", "depth": 2, "heads": 4, "dropout": 0.0},
}
# × a width, which is a multiple of STEP
WIDTHS = {"lstm": {"dim": 1, "hidden": 1}, "transformer": {"dim": 1, "hidden": 4}}
STEP, WIDEST = 4, 1024


def width_for(family: str, parameters: int, vocabularies: tuple[int, int]) -> Values:
    """The settings of a family with which a model has nearest to so many parameters."""
    low, high = 1, WIDEST // STEP
    while high - low > 1:  # the number of parameters grows with the width
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if count(family, middle * STEP, vocabularies) > parameters
            else (middle, high)
        )
    best = min((low, high), key=lambda n: abs(count(family, n * STEP, vocabularies) - parameters))
    return of_width(family, best * STEP)


def of_width(family: str, width: int) -> Values:
    return {**FAMILIES[family], **{name: times * width for name, times in WIDTHS[family].items()}}


@lru_cache(maxsize=256)
def count(family: str, width: int, vocabularies: tuple[int, int]) -> int:
    """The parameters of a model, which is not allocated."""
    with torch.device("meta"), NoInit():
        model = Builder(of_width(family, width)).make(Seq2Seq, *vocabularies)
    return sum(parameter.numel() for parameter in model.parameters())


class Lstm(Claim):
    """An LSTM with attention and a Transformer at equal parameters: equal updates, equal seconds, and the time of one sentence."""

    name = "lstm"
    drawn = ("bleu", "bleu_seconds", "latency")
    budgets: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "tiny": (40_000,),
        "small": (60_000, 240_000),
    }
    minutes: ClassVar[Mapping[str, float]] = {"tiny": 0.03, "small": 0.2}
    columns = (
        *COSTS[:3],
        Column("seconds", "seconds of training", 1),
        *LEARNED[1:],
        Column("loss_seconds", "final loss, equal seconds", 3, stage="seconds", value="final_loss"),
        Column("bleu_seconds", "BLEU, equal seconds", 1, stage="seconds", value="bleu"),
        Column("updates", "updates in these seconds", 0, stage="seconds"),
        Column("latency", "milliseconds for one sentence", 1, stage="latency"),
        Column("words_per_second", "words/s, many sentences", 0, stage="latency"),
    )
    honest = PAIRS_ALONE + (
        "both families at one learning rate and a few sizes, on one core of a CPU: what is cheap here is what a small device would meet. On a "
        "GPU, whose many units a recurrence cannot use, seconds come out differently; with more data and parameters BLEU does."
    )

    def rows(self) -> dict[str, str]:
        return {
            f"{family}-{size // 1000}k": f"{family}, {size:,}"
            for size in self.budgets[self.scale]
            for family in FAMILIES
        }

    def model(self, row: str) -> Values:
        family, _, size = row.rpartition("-")
        made = generate("phrasebook", tuple(sorted(self.data["pairs"]["options"].items())))["train"]
        source, target = (
            4 + len({word for pair in made for word in getattr(pair, side).lower().split()})
            for side in ("source", "target")
        )
        return width_for(family, 1000 * int(size.removesuffix("k")), (source, target))

    def jobs(self, row: str, seeds: int) -> list[Job]:
        found = list[Job]()
        timed = {
            "minutes": self.minutes[self.scale],
            "updates": 10**6,
            "schedule": "constant",
            "evaluate_every": 50,
            "checkpoint_every": 10**6,
        }
        for job in super().jobs(row, seeds):
            own = {**job.settings, "training": {**job.settings["training"], **timed}}
            by_time = replace(job, stage="seconds", do=train_for_seconds, settings=own)
            uses = {"at_most": 20, "texts": 30 if self.scale == "tiny" else 100}
            found += [
                job,
                by_time,
                Job(row, "latency", job.seed, measure_latency, uses, self.out, (job,), alone=True),
            ]
        return found


def train_for_seconds(job: Job, context: Context) -> Values:
    """Trains for some seconds; its losses, its scores, and how many updates these were."""
    found = train(job, context)
    return {**found, "updates": found["operations"] / found["operations_per_update"]}


def measure_latency(job: Job, context: Context) -> Values:
    """The median of the milliseconds that one sentence takes by itself, and words per second of many at once, on one thread."""
    system = api.load(job.after[0].folder)
    texts = [pair.source for pair in system.read("test")][: job.settings["texts"]]
    with use_threads(1):
        system.translate(texts[0])  # libraries set themselves up
        each = []
        for text in texts:
            start = time.perf_counter()
            system.translate(text)
            each.append(time.perf_counter() - start)
        start = time.perf_counter()
        system.translate(texts)
        seconds = time.perf_counter() - start
    return {
        "latency": 1000 * statistics.median(each),
        "words_per_second": sum(len(text.split()) for text in texts) / seconds,
    }
