"""The table of Narang et al. 2021: modifications of a Transformer, pretrained, fine-tuned and trained to translate."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...experiments.runner import train, try_rate
from ...experiments.study import COSTS, SWEEP, Column, Job, Study, Values, training
from ...models.modifications import BASELINE as BASE
from ...models.modifications import table as modifications
from .frequencies import ABOUT, CONTROL, control

BASELINE, BASELINE_SEEDS = "vanilla", 5  # the paper's ± is that of five runs of its baseline
# at scale small all factors of the paper's rows (2/3, 3/2 …) give whole numbers, so that parameters match as they do there
SIZES = {
    "tiny": {"dim": 48, "hidden": 192, "depth": 2, "heads": 6},
    "small": {"dim": 192, "hidden": 768, "depth": 6, "heads": 6},
}
UPDATES = {
    "tiny": {"loss": 160, "sst2": 160, "bleu": 400},
    "small": {"loss": 1200, "sst2": 250, "bleu": 1200},
}
VOCABULARY = {"tiny": {"loss": 500, "bleu": 500}, "small": {"loss": 1000, "bleu": 4000}}
PLAIN = {"stack": "plain"}
TOKENS = {"tiny": 1024, "small": 8192}
RATES = {"tiny": (0.002, 0.008), "small": (0.0005, 0.001, 0.002, 0.004, 0.008)}
SHORT = 4  # how many times fewer updates a training takes that tries a learning rate


def kind_of(row: str) -> str:
    """What a row's residual connections are, by which its learning rate is chosen: those of its block, where it has one of its own."""
    settings = {**BASE, **modifications[row].settings}
    residual = settings["residual"]
    name, how = (residual["name"], residual) if isinstance(residual, dict) else (residual, {})
    block = settings.get("block", name + "-normed" * bool(how.get("normed")))
    return str(block["name"] if isinstance(block, dict) else block)


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
    sets = ("text", "labels", "en-de")
    paper = "Narang et al. 2021, 'Do Transformer Modifications Transfer Across Implementations and Applications?'"
    columns = (
        *COSTS,
        Column("learning_rate", "learning rate", None),
        Column("early_loss", "early loss", 3, "early"),
        Column("final_loss", "final loss", 3, "final"),
        Column("accuracy", "sentiment accuracy", 1, "sglue", "sst2"),
        Column("bleu_learning_rate", "learning rate of BLEU", None, "", "bleu", "learning_rate"),
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
    about_control = ABOUT
    about_sweep = (
        f"Rows with one kind of residual connections share a learning rate: the one with the lowest loss on the dev set in trainings {SHORT} "
        "times shorter, one seed each, of the first row of the kind. In bold what was chosen; fine-tuning has one rate for all."
    )

    def rows(self) -> dict[str, str]:
        return {entry.name: entry.make.title for entry in modifications} | {
            CONTROL: "Word frequencies"
        }

    def in_paper(self, row: str) -> Mapping[str, float]:
        return {} if row == CONTROL else modifications[row].paper

    def control(self, row: str) -> str:
        return "" if row == CONTROL else CONTROL

    def jobs(self, row: str, seeds: int) -> list[Job]:
        if row == CONTROL:
            return []
        count = max(seeds, BASELINE_SEEDS) if row == BASELINE and self.scale != "tiny" else seeds
        return [job for seed in range(count) for job in self.stages(row, seed)]

    def closing(self, jobs: Sequence[Job]) -> list[Job]:
        how = {"model": self.model(BASELINE), "training": self.training("loss")}
        return [control({**self.recipe("loss"), **how}, self.out)]

    def stages(self, row: str, seed: int) -> list[Job]:
        def job(stage: str) -> Job:
            settings = {
                **self.recipe(stage),
                "model": self.model(row),
                "training": self.training(stage),
            }
            return Job(
                row, stage, seed, train, settings, self.out, reads=self.sweep(kind_of(row), stage)
            )

        first = job("loss")
        how: Values = {
            "watch": "accuracy",
            "learning_rate": 0.002 if self.scale == "tiny" else 0.0005,
        }
        settings = {
            **self.recipe("sst2"),
            "model": self.model(row, **alone(row)),
            "training": self.training("sst2", **how),
        }
        return [first, Job(row, "sst2", seed, train, settings, self.out, (first,)), job("bleu")]

    def sweep(self, kind: str, stage: str) -> tuple[Job, ...]:
        """Short trainings that try learning rates, of the first row of a kind."""
        row = next(row for row in modifications.names() if kind_of(row) == kind)
        updates = UPDATES[self.scale][stage] // SHORT
        settings = {**self.recipe(stage), "model": self.model(row)}
        tried = {
            rate: {**settings, "training": self.training(stage, updates, learning_rate=rate)}
            for rate in RATES[self.scale]
        }
        return tuple(
            Job(kind, f"{stage}{SWEEP}{rate:g}", 0, try_rate, of, self.out)
            for rate, of in tried.items()
        )

    def model(self, row: str, **changed: Any) -> Values:
        return {"family": "transformer", "modification": row, **SIZES[self.scale], **changed}

    def training(self, stage: str, updates: int = 0, **how: Any) -> Values:
        smoothing = {"smoothing": 0.1} if stage == "bleu" else {}
        updates = updates or UPDATES[self.scale][stage]
        return training(self.scale, updates, TOKENS[self.scale], **smoothing, **how)

    def recipe(self, stage: str) -> Values:
        """What the models of a stage read and learn."""
        size = {"size": VOCABULARY[self.scale].get(stage, 0)}
        if stage == "bleu":
            return {"data": self.data["en-de"], "vocabulary": {**size, "joint": True}}
        if stage == "sst2":
            return {"task": "classification", "data": self.data["labels"]}
        language = {"objective": "denoising", "block": 64 if self.scale == "tiny" else 128}
        text = {
            "task": "language-modelling",
            "data": self.data["text"],
            "vocabulary": {**size, "lowercase": True},
        }
        return {**text, "language": language}
