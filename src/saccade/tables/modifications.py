"""The table of Narang et al. 2021: modifications of a Transformer, pretrained, fine-tuned and trained to translate."""

from collections.abc import Mapping
from typing import Any

from ..models.modifications import table as modifications
from .plan import COSTS, Column, Job, Study, Values, training
from .running import train

BASELINE, BASELINE_SEEDS = "vanilla", 5  # the paper's ± is that of five runs of its baseline
# at scale small all factors of the paper's rows (2/3, 3/2 …) give whole numbers, so that parameters match as they do there
SIZES = {"tiny": {"dim": 48, "hidden": 192, "depth": 2, "heads": 6}, "small": {"dim": 192, "hidden": 768, "depth": 6, "heads": 6}}
UPDATES = {"tiny": {"loss": 160, "sst2": 160, "bleu": 400}, "small": {"loss": 800, "sst2": 250, "bleu": 1000}}
PLAIN = {"stack": "plain"}
TOKENS = {"tiny": 1024, "small": 8192}


def alone(row: str) -> Values:
    """What a row means to its encoder alone, where its settings are about both stacks."""
    changed: dict[str, Values] = {
        "encoder-sharing": {"stack": "shared"},
        "decoder-sharing": PLAIN,
        "transparent-attention": PLAIN,
        "product-key-memory": {"feedforward": "mlp"},  # the memory is in the decoder
    }
    return changed.get(row, {})


class Modifications(Study):
    """Loss by span denoising, accuracy after fine-tuning that model's encoder on sentiment, and BLEU of a translator."""

    name, main, drawn = "modifications", "loss", ("final_loss", "accuracy", "bleu")
    paper = "Narang et al. 2021, 'Do Transformer Modifications Transfer Across Implementations and Applications?'"
    columns = (
        *COSTS,
        Column("early_loss", "early loss", 3, "early"),
        Column("final_loss", "final loss", 3, "final"),
        Column("accuracy", "sentiment accuracy", 1, "sglue", "sst2"),
        Column("bleu", "BLEU", 1, "wmt", "bleu"),
    )
    paper_columns = {  # noqa: RUF012
        "parameters": "paper: parameters (M)",
        "operations": "operations (T)",
        "steps": "steps/s",
        "early": "early loss",
        "early_spread": "± of it",
        "final": "final loss",
        "sglue": "SuperGLUE",
        "xsum": "XSum",
        "webq": "WebQuestions",
        "wmt": "WMT En–De",
    }
    honest = (
        "The paper's models have 223 million parameters and read 65,536 tokens in each of 524,288 steps of pretraining; these here have a "
        "few million or less and read for about a minute. They can show what a modification costs, and which ones learn much slower or "
        "not at all; differences smaller than the ± of the baseline say nothing, and what only pays after long training cannot be seen."
    )

    def rows(self) -> dict[str, str]:
        return {entry.name: entry.make.title for entry in modifications}

    def in_paper(self, row: str) -> Mapping[str, float]:
        return modifications[row].paper

    def jobs(self, row: str, seeds: int) -> list[Job]:
        count = max(seeds, BASELINE_SEEDS) if row == BASELINE and self.scale != "tiny" else seeds
        return [job for seed in range(count) for job in self.stages(row, seed)]

    def stages(self, row: str, seed: int) -> list[Job]:
        def job(stage: str, recipe: Values, after: tuple[Job, ...] = (), **how: Any) -> Job:
            steps = training(self.scale, UPDATES[self.scale][stage], TOKENS[self.scale], **how)
            model = {
                "family": "transformer",
                "modification": row,
                **SIZES[self.scale],
                **(alone(row) if after else {}),
            }
            return Job(row, stage, seed, train, {**recipe, "model": model, "training": steps}, self.out, after)

        size = {"size": 500 if self.scale == "tiny" else 8000}
        language = {"objective": "denoising", "block": 64 if self.scale == "tiny" else 128}
        text = {"task": "language-modelling", "data": self.data["text"], "vocabulary": {**size, "lowercase": True}}
        first = job("loss", {**text, "language": language})
        labels = {"task": "classification", "data": self.data["labels"]}
        second = job("sst2", labels, (first,), watch="accuracy", learning_rate=0.002 if self.scale == "tiny" else 0.0005)
        pairs = {"data": self.data["en-de"], "vocabulary": {**size, "joint": True}}
        return [first, second, job("bleu", pairs, smoothing=0.1)]
