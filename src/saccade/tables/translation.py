"""The lecture's table of translation systems (Vaswani et al. 2017, Table 2): every encoder–decoder here, both ways, and an ensemble."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import api, models
from ..errors import SaccadeError
from ..models.kinds import Seq2Seq
from .plan import COSTS, Column, Job, Study, Values, training
from .running import Context, recipe_of, train

WAYS = ("en-de", "de-en")
SIZES = {
    "tiny": {"dim": 32, "hidden": 64, "depth": 1, "heads": 2, "dropout": 0.1},
    "small": {"dim": 256, "hidden": 512, "depth": 3, "heads": 4, "dropout": 0.3},
}
WIDER = 2  # the big Transformer beside the base one
UPDATES, TOKENS = {"tiny": 100, "small": 2000}, {"tiny": 1000, "small": 8192}
# at the rate of the others norms after each part, deep recurrences and a fixed vector learn little, or nothing after a while
RATES = {"transformer-base": 0.0007, "transformer-big": 0.0004, "deep-att": 0.0005, "fixed-context": 0.001, "fixed-first": 0.001}
ENSEMBLE, MEMBERS = "ensemble", 3
# BLEU en-de and en-fr, and operations of training for each, of the systems in the lecture's table
PAPER = {
    "bytenet": (23.75, None, None, None),
    "deep-att": (None, 39.2, None, 1.0e20),
    "gnmt": (24.6, 39.92, 2.3e19, 1.4e20),
    "convs2s": (25.16, 40.46, 9.6e18, 1.5e20),
    "moe-lstm": (26.03, 40.56, 2.0e19, 1.2e20),
    "transformer-base": (27.3, 38.1, 3.3e18, 3.3e18),
    "transformer-big": (28.4, 41.8, 2.3e19, 2.3e19),
    ENSEMBLE: (26.36, 41.29, 7.7e19, 1.2e21),
}


class Translation(Study):
    """BLEU and operations of every family that translates, in both directions."""

    name, main, drawn = "translation", "en-de", ("bleu_en_de", "bleu_de_en")
    paper = (
        "Vaswani et al. 2017, Table 2; GNMT with RL; of the ensembles ConvS2S'. One lecture prints 41.0 for the big model's en–fr"
    )
    columns = (
        *COSTS[:2],
        replace(COSTS[2], paper="operations"),
        *COSTS[3:],
        Column("final_loss", "dev loss en→de", 3),
        Column("bleu_en_de", "BLEU en→de", 1, "bleu_en_de", "en-de", "bleu"),
        Column("bleu_de_en", "BLEU de→en", 1, "", "de-en", "bleu"),
    )
    paper_columns = {  # noqa: RUF012
        "bleu_en_de": "paper: BLEU en–de",
        "bleu_en_fr": "BLEU en–fr",
        "operations": "operations en–de",
        "operations_en_fr": "operations en–fr",
    }
    honest = (
        "The papers trained on 4.5 and 36 million pairs of sentences with 10¹⁸ to 10²¹ operations; here are 29,000 short ones or fewer, and "
        "every system has small sizes of its own, and some a lower learning rate. The order of systems at equal effort on short, simple sentences "
        "is what can be seen; it says little about long sentences, rare words and large data, for which several of these systems were made. "
        "The papers' other ensembles: Deep-Att + PosUnk 40.4 (en–fr, 8.0e20 operations), GNMT + RL 26.30 and 41.16 (1.8e20, 1.1e21)."
    )

    def rows(self) -> dict[str, str]:
        found = {entry.name: entry.summary for entry in models.table if entry.make.build(Seq2Seq) is not None}
        return {name: name for name in found} | {ENSEMBLE: f"ensemble of the best {MEMBERS}"}

    def in_paper(self, row: str) -> Mapping[str, float]:
        given = dict(zip(self.paper_columns, PAPER.get(row, ()), strict=False))
        return {name: value for name, value in given.items() if value is not None}

    def check(self, only: Sequence[str]) -> None:
        super().check(only)
        if set(only) == {ENSEMBLE}:
            raise SaccadeError("the row ensemble needs at least two systems; name some of them too, or leave --only out")

    def jobs(self, row: str, seeds: int) -> list[Job]:
        if row == ENSEMBLE:
            return []
        fields = {one.name for one in dataclasses.fields(models.table[row].config)}
        wide = WIDER if row == "transformer-big" else 1
        sizes = {name: value for name, value in SIZES[self.scale].items() if name in fields}
        model = {
            "family": row,
            **{name: int(wide * value) if name in ("dim", "hidden") else value for name, value in sizes.items()},
        }
        vocabulary = {"joint": True, "size": 500 if self.scale == "tiny" else 8000}
        own = {"learning_rate": RATES[row]} if row in RATES and self.scale != "tiny" else {}
        steps = training(self.scale, UPDATES[self.scale], TOKENS[self.scale], smoothing=0.1, **own)
        return [
            Job(
                row,
                way,
                seed,
                train,
                {"data": self.data[way], "vocabulary": vocabulary, "model": model, "training": steps},
                self.out,
            )
            for seed in range(seeds)
            for way in WAYS
        ]

    def closing(self, jobs: Sequence[Job]) -> list[Job]:
        found = []
        for way in WAYS:
            members = tuple(job for job in jobs if job.stage == way and job.seed == 0)
            if len(members) > 1:
                found.append(Job(ENSEMBLE, way, 0, evaluate_together, {"members": MEMBERS}, self.out, members, any_after=True))
        return found


def evaluate_together(job: Job, context: Context) -> Values:
    """The best systems of a direction by their dev loss, as one: BLEU, and what all of them cost together."""
    done: list[tuple[float, Job, Values]] = []
    for one in (one for one in job.after if one.done):
        values = json.loads(one.result.read_text(encoding="utf-8"))["values"]
        done.append((values["final_loss"], one, values))
    best = sorted(done, key=lambda row: row[0])[: job.settings["members"]]
    systems = [api.load(one.folder, recipe_of(one, context.threads).device) for _, one, _ in best]
    scores = api.ensemble(systems).evaluate(systems[0].read("test"))
    found: dict[str, Any] = {"bleu": float(scores["bleu"]), "members": [one.row for _, one, _ in best]}
    summed = ("parameters", "operations", "operations_per_update")
    return {**found, **{key: sum(values.get(key, 0.0) for _, _, values in best) for key in summed}}
