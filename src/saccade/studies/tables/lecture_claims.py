"""Claims of the lectures, measured on sentences of the phrasebook: heads, what each part is for, norms, scores, soft and hard attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from ...core import masks
from ...experiments import study
from ...experiments.runner import Context, train
from ...experiments.study import COSTS, Column, Job, Study, Values, training

SENTENCES = {"train": 4000, "dev": 100, "test": 150}  # of the phrasebook at scale small
TO = "de"  # a grammar with few words and the verb at the end: what attention is for shows within minutes
WORDS = {"kind": "words", "split": "punctuation", "lowercase": True}
ABOUT = "generated sets that come with saccade, as at every table of a claim: "
WIDTHS = {"dim": 64, "hidden": 256, "depth": 2, "heads": 4}
TRANSFORMER: Mapping[str, Values] = {
    "tiny": {"family": "transformer", "dim": 32, "hidden": 64, "depth": 1, "heads": 2},
    "small": {"family": "transformer", **WIDTHS, "dropout": 0.0},
}
RECURRENT: Mapping[str, Values] = {
    "tiny": {"dim": 32, "hidden": 32},
    "small": {"dim": 64, "hidden": 64, "dropout": 0.0},
}
UPDATES, TOKENS = {"tiny": 60, "small": 250}, {"tiny": 500, "small": 700}
# tried on one row each, and 0.008 for recurrent models
RATES = {"transformer": 0.004, "convs2s": 0.004}
PAIRS_ALONE = "Short sentences of a small grammar, models of some hundred thousand parameters, 250 updates at scale small: "
LEARNED = (
    Column("early_loss", "early loss", 3),
    Column("final_loss", "final loss", 3),
    Column("bleu", "BLEU", 1),
)


class Claim(Study):
    """Rows that differ in what a claim is about, trained alike on the same sentences; each has its settings over those of all."""

    main = "train"
    drawn: ClassVar[tuple[str, ...]] = ("final_loss", "bleu")
    columns: ClassVar[tuple[Column, ...]] = (*LEARNED, *COSTS[:4])
    variants: ClassVar[Mapping[str, Values]]  # row → model settings
    made_of: ClassVar[str] = "sentences of the phrasebook (en–de)"

    @cached_property
    def found(self) -> tuple[dict[str, Values], str]:
        sizes = study.SENTENCES if self.scale == "tiny" else SENTENCES
        pairs = {split: f"phrasebook:{split}" for split in ("train", "dev", "test")} | {
            "options": {**sizes, "to": TO}
        }
        return {"pairs": pairs}, ABOUT + self.made_of

    def rows(self) -> dict[str, str]:
        return {row: row.replace("-", " ") for row in self.variants}

    def model(self, row: str) -> Values:
        return {**TRANSFORMER[self.scale], **self.variants[row]}

    def translator(self, model: Values, **how: Any) -> Values:
        """The recipe of a translator."""
        how = {"learning_rate": RATES.get(model["family"], 0.008), **how}
        steps = training(self.scale, UPDATES[self.scale], TOKENS[self.scale], **how)
        return {"data": self.data["pairs"], "vocabulary": WORDS, "model": model, "training": steps}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        return [
            Job(row, self.main, seed, train, self.translator(self.model(row)), self.out)
            for seed in range(seeds)
        ]


class Heads(Claim):
    """The same model with more and narrower heads: parameters and operations stay what they are."""

    name = "heads"
    counts: ClassVar[Mapping[str, tuple[int, ...]]] = {"tiny": (1, 4), "small": (1, 2, 4, 8, 16)}
    honest = PAIRS_ALONE + (
        "they show whether several heads learn faster than one at equal parameters, and what very narrow heads lose; a large model "
        "can hold many more relations than these sentences have."
    )

    def rows(self) -> dict[str, str]:
        return {str(count): f"{count} head{'s' * (count > 1)}" for count in self.counts[self.scale]}

    def model(self, row: str) -> Values:
        return {**TRANSFORMER[self.scale], "heads": int(row)}


class Barriers(Claim):
    """A Transformer without each of the parts that make a stack of self-attention a translator."""

    name = "barriers"
    columns = (*LEARNED[:2], Column("test_loss", "loss in use", 3), LEARNED[2], *COSTS[:4])
    drawn = ("final_loss", "test_loss", "bleu")
    unmasked = "no-causal-mask"
    variants: ClassVar[Mapping[str, Values]] = {
        "whole": {},
        "no-mlp": {"feedforward": "none"},
        "no-residual": {"residual": "none"},
        "no-norm": {"norm": "none"},
        "no-position": {"position_embedding": "none"},
        unmasked: {},
    }
    honest = PAIRS_ALONE + (
        "a part whose loss is barely missed here may be indispensable in a deep model (norms and residuals above all). Without the causal "
        "mask the losses on the dev set are of a model that sees the word it is asked for; `loss in use` is that of the same model when, "
        "as in translating, the words to come are not there yet."
    )

    def jobs(self, row: str, seeds: int) -> list[Job]:
        do = train_unmasked if row == self.unmasked else train
        return [replace(job, do=do) for job in super().jobs(row, seeds)]


def train_unmasked(job: Job, context: Context) -> Values:
    """Trains a decoder that sees the words to come, and uses it as any other: word by word."""

    def prepare(made: Any) -> Any:
        system, work = context.prepare(made)
        system.model.visible = masks.full()  # type: ignore[assignment]
        return system, work

    return train(job, replace(context, prepare=prepare))  # type: ignore[arg-type]


class Norms(Claim):
    """Every norm of the catalogue, before each part and after it, in a model of two blocks and in a deep one."""

    name = "norms"
    deep: ClassVar[Mapping[str, Values]] = {
        "tiny": {"dim": 16, "hidden": 16, "depth": 3},
        "small": {"dim": 32, "hidden": 64, "depth": 8},
    }
    columns = (
        *LEARNED,
        Column("deep_loss", "final loss, deep", 3, stage="deep", value="final_loss"),
        Column("deep_bleu", "BLEU, deep", 1, stage="deep", value="bleu"),
        *COSTS[:4],
    )
    drawn = ("final_loss", "bleu", "deep_loss")
    variants: ClassVar[Mapping[str, Values]] = {
        f"{norm}-{where}": {"norm": norm, "residual": residual}
        for residual, where in (("pre-norm", "before"), ("post-norm", "after"))
        for norm in ("layer", "rms", "batch", "none")
    }
    honest = PAIRS_ALONE + (
        "they show whether a norm trains at all, and how fast at one learning rate; `deep` are eight narrow blocks instead of two. Without "
        "a norm, before and after are the same model. Batch norm sees other tokens of its batch in training, later words of the same "
        "sentence too, and norms by running means in use: where its loss in training is low and its BLEU is not, that is why."
    )

    def jobs(self, row: str, seeds: int) -> list[Job]:
        plain = super().jobs(row, seeds)
        recipe = self.translator({**self.model(row), **self.deep[self.scale]})
        return [one for job in plain for one in (job, replace(job, stage="deep", settings=recipe))]


class Scores(Claim):
    """How a recurrent decoder compares its state with the source, by widths (Britz et al. 2017: additive against multiplicative)."""

    name = "scores"
    columns = (*LEARNED, Column("aer", "alignment error", 3), *COSTS[:4])
    widths: ClassVar[Mapping[str, tuple[int, ...]]] = {"tiny": (8,), "small": (8, 32, 128)}
    honest = PAIRS_ALONE + (
        "Britz et al. compared widths of 128 to 1,024 on millions of pairs, and found additive scores slightly better than multiplicative "
        "ones and the width of little effect. Here the order of scores and the cost of a width can be seen, on one kind of data."
    )

    def rows(self) -> dict[str, str]:
        widths = self.widths[self.scale]
        named = {
            f"{score}-{width}": f"{score}, width {width}"
            for score in ("reduced-rank", "additive")
            for width in widths
        }
        return {"dot": "dot", "bilinear": "bilinear", **named}

    def model(self, row: str) -> Values:
        score, _, width = row.rpartition("-") if row[-1].isdigit() else (row, "", "")
        option = {"reduced-rank": "rank", "additive": "hidden"}.get(score)
        chosen = {"name": score, **({option: int(width)} if option else {})}
        return {"family": "bahdanau", **RECURRENT[self.scale], "score": chosen}


class Hard(Claim):
    """Soft against hard attention: weights for all positions and plain gradients, or one sampled position and REINFORCE."""

    name = "hard"
    reach = 0.5  # dev loss
    columns = (
        *LEARNED,
        Column("aer", "alignment error", 3),
        Column("reached", f"updates to a dev loss of {reach:g}", 0),
        Column("seconds", "seconds", 1),
        *COSTS[:4],
    )
    variants: ClassVar[Mapping[str, Values]] = {
        "soft": {"normalize": "softmax"},
        "sparse": {"normalize": "sparsemax"},
        "hard": {"normalize": "hard"},
        "hard-alone": {"normalize": {"name": "hard", "soft": 0.0, "warmup": 0}},
    }
    honest = PAIRS_ALONE + (
        "how much harder sampled attention is to learn can be seen, not how it ends after long training. `hard` reads softly in half of "
        "the rows, and in more at first; `hard alone` samples everywhere from the first update. What a read costs in use is measured by "
        "`benchmarks/hard.py` (`hard.json`): the scores of all positions are computed in both."
    )

    def rows(self) -> dict[str, str]:
        return {**super().rows(), "hard": "hard, with soft rows", "hard-alone": "hard alone"}

    def model(self, row: str) -> Values:
        return {"family": "bahdanau", **RECURRENT[self.scale], **self.variants[row]}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        asked = {"asked": {"reach": self.reach}}
        return [
            replace(job, settings={**job.settings, **asked}) for job in super().jobs(row, seeds)
        ]
