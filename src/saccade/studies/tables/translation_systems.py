"""The lecture's table of translation systems (Vaswani et al. 2017, Table 2): every encoder–decoder here, half as wide and half as deep as
in its paper, into two languages, with PosUnk, the refinement by reward, and the ensemble of each system's seeds."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from ... import api
from ...experiments.runner import Context, recipe_of, train
from ...experiments.study import (
    COSTS,
    Column,
    Job,
    Study,
    Values,
    load_yaml,
    training,
    why_generated,
)
from ...models.builder import Builder, NoInit
from ...models.protocols import Seq2Seq
from .lecture_claims import SENTENCES, WORDS

WAYS = ("en-de", "en-fr")
MEMBERS = 3  # of an ensemble: models of one system with so many seeds
REWARD, OF_REWARD = "gnmt-reward", "gnmt"  # a row that starts from the model of another
POSUNK = "deep-att"  # the row with a vocabulary of words, of which some are unknown
SHALLOW = 2  # layers that are not halved
# Sizes of the papers. At scale small every width, depth and number of heads is half of it.
PAPERS: Mapping[str, Values] = {
    "fixed-first": {
        "cell": "lstm",
        "first_state": "mlp",
        "bidirectional": False,
        "dim": 1000,
        "hidden": 1000,
        "depth": 4,
    },
    "fixed-context": {"dim": 620, "hidden": 1000},
    "bahdanau": {"dim": 620, "hidden": 1000},
    "luong": {"cell": "lstm", "bidirectional": False, "dim": 1000, "hidden": 1000, "depth": 4},
    "gnmt": {"dim": 1024, "hidden": 1024, "depth": 8},
    "deep-att": {"dim": 256, "hidden": 512, "depth": 9, "decoder_depth": 7},
    "moe-lstm": {"dim": 512, "hidden": 2048, "lstm_width": 2048, "depth": 2},
    "transformer": {"dim": 512, "hidden": 2048, "depth": 6, "heads": 8, "shared": True},
    "transformer-base": {"dim": 512, "hidden": 2048, "depth": 6, "heads": 8},
    "transformer-big": {"dim": 1024, "hidden": 4096, "depth": 6, "heads": 16},
    "convs2s": {"dim": 768, "hidden": 768, "depth": 15},
    "bytenet": {"dim": 1600, "hidden": 800, "depth": 30},
}
# of 2,048 in the paper; an output still reads 4
EXPERTS = {"feedforward": {"name": "noisy-experts", "count": 32, "top": 4}}
TINY: Mapping[str, Values] = {
    "deep-att": {"dim": 32, "decoder_depth": 2},
    "moe-lstm": {"lstm_width": 64},
    "transformer": {"hidden": 256, "heads": 4, "shared": False},
    "transformer-base": {"hidden": 256, "heads": 4, "shared": False},
    "transformer-big": {"dim": 128, "hidden": 512, "heads": 8, "shared": False},
    "bytenet": {"dim": 128, "depth": 5},
}
# learning rate, updates of warm-up, updates, at scale tiny and at scale small. Of the Transformers with norms after each part the rate is
# the paper's (width · warm-up)^−½.
RATES = {
    "fixed-first": ((0.004, 25, 600), (0.001, 200, 2500)),
    "fixed-context": ((0.008, 25, 2000), (0.001, 200, 2500)),
    "bahdanau": ((0.008, 25, 250), (0.001, 200, 2500)),
    "luong": ((0.008, 25, 250), (0.001, 200, 2500)),
    "gnmt": ((0.016, 50, 2000), (0.001, 400, 2500)),
    "deep-att": ((0.012, 50, 2000), (0.0007, 400, 2500)),
    "moe-lstm": ((0.012, 50, 700), (0.001, 400, 2000)),
    "transformer": ((0.004, 25, 250), (0.002, 500, 6000)),
    "transformer-base": ((0.003, 60, 1000), (0.0016, 1500, 6000)),
    "transformer-big": ((0.002, 60, 250), (0.0011, 1500, 6000)),
    "convs2s": ((0.004, 25, 250), (0.002, 200, 4000)),
    "bytenet": ((0.008, 25, 2000), (0.002, 200, 4000)),
}
TRAINING = {
    scale: {row: rates[at] for row, rates in RATES.items()}
    for at, scale in enumerate(("tiny", "small"))
}
TOKENS = {"tiny": 700, "small": 8192}
REFINED = {"tiny": (0.001, 10, 40), "small": (0.0002, 20, 300)}
SAMPLED = (
    4  # times fewer tokens in a batch of the refinement, which draws 15 outputs of each sentence
)
# words or pieces of both languages, for the papers' numbers of parameters; of ByteNet characters
VOCABULARIES = {
    "fixed-first": (160_000, 80_000),
    "fixed-context": (15_000, 15_000),
    "bahdanau": (30_000, 30_000),
    "luong": (50_000, 50_000),
    "gnmt": (32_000, 32_000),
    "deep-att": (160_000, 80_000),
    "moe-lstm": (32_000, 32_000),
    "transformer-base": (37_000, 37_000),
    "transformer-big": (37_000, 37_000),
    "convs2s": (40_000, 40_000),
    "bytenet": (323, 323),
}
# BLEU en-de and en-fr, operations of training for each, and of ensembles BLEU again, in the lecture's table
PAPER = {
    "bytenet": (23.75, None, None, None),
    "deep-att": (None, 39.2, None, 1.0e20, None, 40.4),
    REWARD: (24.6, 39.92, 2.3e19, 1.4e20, 26.30, 41.16),
    "convs2s": (25.16, 40.46, 9.6e18, 1.5e20, 26.36, 41.29),
    "moe-lstm": (26.03, 40.56, 2.0e19, 1.2e20),
    "transformer-base": (27.3, 38.1, 3.3e18, 3.3e18),
    "transformer-big": (28.4, 41.8, 2.3e19, 2.3e19),
}


def ensemble_of(way: str) -> str:
    """The stage of ensembles."""
    return f"{way}-ensemble"


def by_way(
    key: str, title: str, value: str, paper: bool = False, ensemble: bool = False
) -> Iterator[Column]:
    """A column for each pair of languages."""
    for way in WAYS:
        name, stage = f"{key}_{way.replace('-', '_')}", ensemble_of(way) if ensemble else way
        heading = title.format(way.replace("-", "→"))
        yield Column(name, heading, 1, name if paper else "", stage, value)


class Translation(Study):
    """BLEU and operations of every family that translates, into German and French, alone and as ensembles."""

    name, main, drawn = "translation", "en-de", ("bleu_en_de", "bleu_en_fr")
    paper = (
        "Vaswani et al. 2017, Table 2, and the ensembles of the same table; parameters are counted on the models here at the sizes and with the "
        "vocabularies of the papers. One lecture prints 41.0 for the big model's en–fr"
    )
    columns = (
        *COSTS[:2],
        replace(COSTS[2], paper="operations"),
        *COSTS[3:],
        Column("final_loss", "dev loss en→de", 3),
        *by_way("bleu", "BLEU {}", "bleu", paper=True),
        *by_way("gleu", "GLEU {}", "gleu"),
        *by_way("plain_bleu", "BLEU {} without PosUnk", "plain_bleu"),
        *by_way("alone", "BLEU {}, mean of an ensemble's models", "bleu_alone", ensemble=True),
        *by_way("together", "BLEU {}, ensemble", "bleu", paper=True, ensemble=True),
    )
    paper_columns = {  # noqa: RUF012
        "bleu_en_de": "paper: BLEU en–de",
        "bleu_en_fr": "paper: BLEU en–fr",
        "operations": "paper: operations en–de",
        "operations_en_fr": "paper: operations en–fr",
        "together_en_de": "paper: ensemble en–de",
        "together_en_fr": "paper: ensemble en–fr",
        "parameters": "paper: parameters",
    }
    honest = (
        "Every system has half the width, half the layers and half the heads of its paper, so that the parameters between the embeddings are "
        "about an eighth of the paper's and the ratios between systems are kept; the mixture has 32 experts instead of 2,048. Each has a learning "
        "rate and a warm-up of its own. The papers trained on 4.5 and 36 million pairs; here are 29,000 short ones, so that a large model has "
        "little to gain, and long sentences, rare words and large data, for which several of these systems were made, are not seen. "
        "Only Deep-Att reads whole words, 8,000 of each language, since PosUnk needs unknown words; the others have 8,000 pieces. "
        f"An ensemble are {MEMBERS} seeds of one system."
    )

    @cached_property
    def found(self) -> tuple[dict[str, Values], str]:
        read = {way: load_yaml(f"multi30k-{way}")["data"] for way in WAYS}
        if not (why := why_generated(self.scale, read)):
            return read, "Multi30k"
        pairs = {split: f"phrasebook:{split}" for split in SENTENCES}
        made = {
            way: {**pairs, "options": {**SENTENCES, "to": way.partition("-")[2]}} for way in WAYS
        }
        return made, f"sentences of the phrasebook, {why}"

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS[:1] if self.scale == "tiny" else WAYS

    def rows(self) -> dict[str, str]:
        titles = {
            POSUNK: "deep-att + PosUnk",
            "moe-lstm": "moe-lstm, 32 experts" if self.scale == "small" else "moe-lstm",
        }
        return {name: titles.get(name, name) for name in PAPERS} | {REWARD: "gnmt + RL"}

    def in_paper(self, row: str) -> Mapping[str, float]:
        given = dict(zip(self.paper_columns, PAPER.get(row, ()), strict=False))
        given |= {"parameters": count_paper(row)} if row in VOCABULARIES else {}
        return {name: value for name, value in given.items() if value is not None}

    def model(self, row: str) -> Values:
        """A family at this scale."""
        if self.scale == "tiny":
            known = {
                name: value
                for name, value in PAPERS[row].items()
                if not isinstance(value, int) or isinstance(value, bool)
            }
            depth = {"depth": 2} if "depth" in PAPERS[row] else {}
            sizes = {"dim": 64, "hidden": 64, **depth, "dropout": 0.0, **TINY.get(row, {})}
            return {"family": row, **known, **sizes}
        halved = {name: half(name, value) for name, value in PAPERS[row].items()}
        return {"family": row, **halved, "dropout": 0.3, **(EXPERTS if row == "moe-lstm" else {})}

    def vocabulary(self, row: str) -> Values:
        if self.scale == "tiny":
            return WORDS
        whole = {"kind": "words", "split": "punctuation", "size": 8000}
        return whole if row == POSUNK else {"joint": True, "size": 8000}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        of = OF_REWARD if row == REWARD else row
        rate, warmup, updates = REFINED[self.scale] if row == REWARD else TRAINING[self.scale][row]
        smoothing = 0.0 if self.scale == "tiny" or row == REWARD else 0.1
        how: Values = {"learning_rate": rate, "warmup": warmup, "smoothing": smoothing}
        how |= (
            {"reward": "gleu", "watch": "bleu"}
            if row == REWARD
            else {"average": 4 if self.scale == "small" else 0}
        )
        tokens = TOKENS[self.scale] // (SAMPLED if row == REWARD else 1)
        settings: Values = {
            "model": self.model(of),
            "training": training(self.scale, updates, tokens, **how),
        }
        settings |= {} if row == REWARD else {"vocabulary": self.vocabulary(row)}
        started = self.jobs(of, seeds) if row == REWARD else []
        before = {(job.stage, job.seed): (job,) for job in started}
        return [
            Job(row, way, seed, train_and_copy, {"data": self.data[way], **settings}, self.out, of)
            for way in self.ways
            for seed in range(seeds)
            for of in (before.get((way, seed), ()),)
        ]

    def plan(self, only: Sequence[str], seeds: int) -> list[Job]:
        """With the models that a refinement starts from."""
        chosen = [*dict.fromkeys(only or self.rows())]
        if REWARD in chosen and OF_REWARD not in chosen:
            chosen.insert(chosen.index(REWARD), OF_REWARD)
        return super().plan(chosen, seeds)

    def closing(self, jobs: Sequence[Job]) -> list[Job]:
        """The ensembles: one for each MEMBERS seeds of a system."""
        found = []
        for row, way in dict.fromkeys((job.row, job.stage) for job in jobs):
            members = sorted(
                (job for job in jobs if (job.row, job.stage) == (row, way)),
                key=lambda job: job.seed,
            )
            groups = [
                tuple(members[first : first + MEMBERS]) for first in range(0, len(members), MEMBERS)
            ]
            found += [
                Job(row, ensemble_of(way), number, evaluate_together, {}, self.out, group)
                for number, group in enumerate(groups)
                if len(group) > 1
            ]
        return found


@lru_cache
def count_paper(row: str) -> int:
    """The parameters of a paper's model with the paper's vocabularies, which is not allocated."""
    experts = (
        {"feedforward": {**EXPERTS["feedforward"], "count": 2048}} if row == "moe-lstm" else {}
    )
    with torch.device("meta"), NoInit():
        model = Builder({"family": row, **PAPERS[row], **experts}).make(Seq2Seq, *VOCABULARIES[row])
    return sum(parameter.numel() for parameter in model.parameters())


def half(name: str, value: Any) -> Any:
    """Half of a width, depth or number of heads of a paper, rounded up; the depth of a shallow system stays."""
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or (name == "depth" and value <= SHALLOW)
    ):
        return value
    return (value + 1) // 2


def train_and_copy(job: Job, context: Context) -> Values:
    """Trains; of the row with unknown words BLEU without their replacement too."""
    found = train(job, context)
    if job.row != POSUNK:
        return found
    system = api.load(job.folder, recipe_of(job, context.threads).device)
    plain = system.evaluate(system.read("test"), copy_unknown=False)
    return {**found, "plain_bleu": float(plain["bleu"])}


def evaluate_together(job: Job, context: Context) -> Values:
    """The BLEU of one system's seeds as an ensemble, and the mean of what each of them reaches alone."""
    systems = [api.load(one.folder, recipe_of(one, context.threads).device) for one in job.after]
    scores = api.ensemble(systems).evaluate(systems[0].read("test"))
    alone = [
        json.loads(one.result.read_text(encoding="utf-8"))["values"]["bleu"] for one in job.after
    ]
    return {"bleu": float(scores["bleu"]), "bleu_alone": statistics.fmean(alone)}
