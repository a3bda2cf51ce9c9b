"""Tasks by families on one footing, and pairs of sentences with and without pretraining, on generated sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from ...experiments.runner import Context, train
from ...experiments.study import COSTS, Column, Job, Values, training
from .lecture_claims import ABOUT, TO, WORDS, Claim

IMAGES = {"image_encoder": {"family": "cnn", "dim": 16, "depths": [1, 1], "stem_stride": 2}}
SIZE = {"dim": 64, "hidden": 128, "depth": 2, "heads": 4}
ENCODERS: Mapping[str, Values] = {  # about as many parameters each
    "rnn": {"family": "rnn-encoder", "dim": 64, "hidden": 48, "depth": 1, "dropout": 0.1},
    "transformer": {"family": "transformer-encoder", **SIZE},
}
SEQ2SEQ: Mapping[str, Values] = {
    "rnn": {"family": "bahdanau", "dim": 64, "hidden": 64, "dropout": 0.0},
    "transformer": {"family": "transformer", **SIZE, "dropout": 0.0},
}
DROPPED = ("dropout", "embedding_dropout", "input_dropout", "layer_dropout", "weight_dropout")
UNDROPPED = dict.fromkeys((*DROPPED, "size_penalty", "change_penalty"), 0.0)
WRITERS: Mapping[str, Values] = {
    "rnn": {"family": "rnn-decoder", "dim": 64, "hidden": 64, "depth": 2, **UNDROPPED},
    "transformer": {"family": "transformer-decoder", **SIZE, "dropout": 0.0},
}
# task → the recipe's task, the corpus, the models of both families, the metric, tokens per update
TASKS: Mapping[str, tuple[str, str, Mapping[str, Values], str, int]] = {
    "translation": ("translation", "phrasebook", SEQ2SEQ, "bleu", 1000),
    "tagging": ("tagging", "phrasebook", ENCODERS, "accuracy", 1000),
    "senses": ("tagging", "senses", ENCODERS, "accuracy", 1000),
    "sentiment": ("classification", "reviews", ENCODERS, "accuracy", 1500),
    "entailment": ("classification", "entailment", ENCODERS, "accuracy", 1500),
    "language": ("language-modelling", "phrasebook", WRITERS, "perplexity", 1500),
    "captions": ("captioning", "shapes", SEQ2SEQ, "bleu", 200),
}
SIZES = {
    "tiny": {"train": 60, "dev": 6, "test": 6},
    "small": {"train": 3000, "dev": 150, "test": 300},
}
PICTURES = {
    "tiny": {"train": 20, "dev": 4, "test": 4, "size": 32},
    "small": {"train": 2000, "dev": 60, "test": 100, "size": 32},
}
UPDATES, RATE = {"tiny": 30, "small": 250}, 0.004
TOKENS = 600  # of pairs of statements


class Tasks(Claim):
    """Each task had its own architecture, and now all have Transformers: a recurrent model and a Transformer for each task."""

    name, drawn = "tasks", ("score",)
    made_of = "phrasebook, senses, reviews, entailment and shapes"
    columns = (
        Column("metric", "metric"),
        Column("score", "score", 1),
        Column("final_loss", "final loss", 3),
        Column("seconds", "seconds", 1),
        *COSTS[:4],
    )
    honest = (
        "Generated sets, models of about equal size, equal updates and one learning rate for all: where both families come near what can be "
        "reached, the claim is that one architecture suffices, not that it is better. BLEU and accuracies are in percent, perplexity is better "
        "where it is lower. In captions both read the picture with the same small CNN."
    )

    def rows(self) -> dict[str, str]:
        return {
            f"{task}-{family}": f"{task}, {family}"
            for task in TASKS
            for family in ("rnn", "transformer")
        }

    def jobs(self, row: str, seeds: int) -> list[Job]:
        name, _, family = row.rpartition("-")
        task, corpus, families, metric, tokens = TASKS[name]
        sizes: Values = {
            **(PICTURES if corpus == "shapes" else SIZES)[self.scale],
            **({"to": TO} if task == "translation" else {}),
        }
        recipe: Values = {
            "task": task,
            "data": {
                **{split: f"{corpus}:{split}" for split in ("train", "dev", "test")},
                "options": sizes,
            },
            "vocabulary": WORDS,
            "model": {**families[family], **(IMAGES if corpus == "shapes" else {})},
            "training": training(self.scale, UPDATES[self.scale], tokens, learning_rate=RATE),
            "asked": {"metric": metric},
        }
        recipe |= {"language": {"block": 64}} if task == "language-modelling" else {}
        return [
            Job(row, self.main, seed, train_and_name, recipe, self.out) for seed in range(seeds)
        ]


def train_and_name(job: Job, context: Context) -> Values:
    """Trains, and names the metric of the task and its value on the test set."""
    found, metric = train(job, context), job.settings["asked"]["metric"]
    return {**found, "metric": metric, "score": found[metric]}


class Entailment(Claim):
    """Pairs of statements, from scratch and after a masked language model of unlabeled ones, with few labels and with many."""

    name, main, drawn = "entailment", "labels", ("accuracy",)
    made_of = "pairs of statements about pets (entailment)"
    columns = (
        Column("accuracy", "accuracy", 1),
        Column("test_loss", "loss on the test set", 3),
        Column("final_loss", "final dev loss", 3),
        Column("masked_loss", "loss of the masked model", 3, stage="masked", value="final_loss"),
        Column("seconds", "seconds", 1),
        Column("seconds_masked", "seconds of pretraining", 1, stage="masked", value="seconds"),
        *COSTS[:4],
    )
    few: ClassVar[Mapping[str, int]] = {"tiny": 30, "small": 500}
    many: ClassVar[Mapping[str, int]] = {"tiny": 60, "small": 4000}
    counts: ClassVar[Mapping[str, Values]] = {
        "tiny": {"dev": 6, "test": 6},
        "small": {"dev": 200, "test": 500},
    }
    # of pretraining, with labels
    updates: ClassVar[Mapping[str, tuple[int, int]]] = {"tiny": (30, 30), "small": (1000, 1000)}
    honest = (
        "Statements of a small grammar, whose labels follow by logic; a guess is right once in three. The masked model reads the same kind of "
        "pairs without labels, so that what it can bring is what words mean (a poodle is a dog), not knowledge of a larger world."
    )

    @cached_property
    def found(self) -> tuple[dict[str, Values], str]:
        return {}, ABOUT + self.made_of

    def rows(self) -> dict[str, str]:
        models = {
            "rnn": "LSTM from scratch",
            "scratch": "Transformer from scratch",
            "pretrained": "Transformer, pretrained",
        }
        counts = {"few": self.few[self.scale], "many": self.many[self.scale]}
        named = {
            f"{name}-{size}": f"{title}, {count:,} labels"
            for size, count in counts.items()
            for name, title in models.items()
        }
        return {"masked": "masked language model, no labels", **named}

    def texts(self, count: int) -> Values:
        """The recipe's data with so many training texts; the dev and the test part are the same for each number."""
        splits = ("train", "dev", "test")
        return {
            **{name: f"entailment:{name}" for name in splits},
            "options": {"train": count, **self.counts[self.scale]},
        }

    def pretraining(self, seed: int) -> Job:
        """A masked language model of all texts; the rows that start from it share it."""
        texts = {
            key: value for key, value in self.texts(self.many[self.scale]).items() if key != "test"
        }
        masked: Values = {
            "task": "language-modelling",
            "data": texts,
            "vocabulary": {"kind": "words"},
            "language": {"objective": "masked", "block": 64, "share": 0.25},
            "model": ENCODERS["transformer"],
            "training": training(
                self.scale, self.updates[self.scale][0], TOKENS, learning_rate=RATE
            ),
        }
        return Job("masked", "masked", seed, train, masked, self.out)

    def jobs(self, row: str, seeds: int) -> list[Job]:
        if row == "masked":
            return [self.pretraining(seed) for seed in range(seeds)]
        name, _, size = row.rpartition("-")
        updates = self.updates[self.scale][1]
        labeled: Values = {
            "task": "classification",
            "data": self.texts((self.few if size == "few" else self.many)[self.scale]),
            "model": ENCODERS["rnn" if name == "rnn" else "transformer"],
            "training": training(self.scale, updates, TOKENS, learning_rate=RATE, watch="accuracy"),
        }
        found = list[Job]()
        for seed in range(seeds):
            before = (self.pretraining(seed),) if name == "pretrained" else ()
            own = {} if before else {"vocabulary": {"kind": "words"}}
            found += [
                *before,
                Job(row, self.main, seed, train, {**labeled, **own}, self.out, before),
            ]
        return found

    def plan(self, only: Sequence[str], seeds: int) -> list[Job]:
        """A masked model is trained once, for both numbers of labels."""
        return list({job.name: job for job in super().plan(only, seeds)}.values())
