"""The control of language models: the loss on the dev set of the frequencies of words alone, on the same targets as the models' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...config import recipes
from ...experiments.runner import Context
from ...experiments.study import Job, Values
from ...tasks.objectives import Denoising

CONTROL = "word-frequencies"  # the row
ABOUT = (
    "Row *word frequencies*: the dev loss of a model that knows how often each token is a target in training and nothing of its context. "
    "Where spans are cut out of a text, it also knows every mark in front of a span. A row is below it if its mean plus ± is."
)


class Frequencies(nn.Module):
    """log p of each token by its count among the targets of training, at every position. The marks of cut spans, which are the tokens
    from `marks` on, are given: the row's loss is that of its words."""

    def __init__(self, counts: Tensor, marks: int) -> None:
        super().__init__()
        words = (
            counts.double().index_fill(
                0, torch.arange(marks, len(counts), device=counts.device), -1.0
            )
            + 1
        )
        self.log = nn.Parameter((words / words.sum()).log().clamp_min(-1e4), requires_grad=False)
        self.marks = marks

    def forward(self, *inputs: Any) -> Tensor:
        """B × N × V, for what is read by a decoder (the third input of a pair), asked for (of an encoder), or read."""
        asked = inputs[2] if len(inputs) > 2 else inputs[0]
        logits = self.log.expand(*asked.shape, -1)
        if self.marks == len(self.log):
            return logits
        following = F.pad(asked[:, 1:], (0, 1))
        given = F.one_hot(following, len(self.log)).double().log().clamp_min(-1e4)
        return torch.where((following >= self.marks)[..., None], given, logits)


def control(recipe: Values, out: Path, row: str = CONTROL, stage: str = "loss") -> Job:
    """The control of rows that are trained by this recipe."""
    settings = {"data": recipe["data"], "counted": recipe, "at_most": 30}
    return Job(row, stage, 0, measure_frequencies, settings, out)


def measure_frequencies(job: Job, context: Context) -> Values:
    """Counts the targets of one epoch, and judges their frequencies as a model is judged on the dev set."""
    system, work = context.prepare(recipes.recipe({**job.settings["counted"], "seed": job.seed}))
    objective = system.task.objective
    size = objective.vocab + objective.extra
    counts = torch.zeros(size, dtype=torch.long)
    for plan in work.epoch(0):
        batch = work.batch(plan)
        counts += torch.bincount(batch.target[batch.target != batch.ignore].cpu(), minlength=size)
    marks = objective.vocab if isinstance(objective, Denoising) else size
    return {"final_loss": work.evaluate(Frequencies(counts, marks).to(system.device))["loss"]}
