"""The training of tasks from one text to another: by the likelihood of references, by a reward, with BLEU on the dev set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..recipe import Recipe
from ..training.losses import Batch
from .rewards import reward_of
from .task import ExampleWork
from .text_scores import bleu_metric, bleu_tokenizer

if TYPE_CHECKING:
    from .translation import Translation


class PairWork(ExampleWork):
    """Translation by the likelihood of references, or also by a reward of the model's own outputs."""

    task: Translation

    def __init__(self, task: Translation, recipe: Recipe, *given: Any) -> None:
        super().__init__(task, recipe, *given)
        self.reward = reward_of(recipe, task.target.bos, task.target.eos)
        self.only_forward = self.captures = self.reward is None

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return super().loss(model, batch) if self.reward is None else self.reward(model, batch)


class WorkWithBleu(PairWork):
    """With greedy BLEU among the metrics on the dev set."""

    def __init__(self, task: Translation, *given: Any) -> None:
        super().__init__(task, *given)
        self.tokenizer, note = bleu_tokenizer(task.tokenize, [one.pair.target for one in self.dev])
        bleu_metric(self.tokenizer)  # a missing package shows now, not after the first evaluation
        self.notes += (f"BLEU on dev: the tokenizer {self.tokenizer} {note}",) if note else ()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        pairs = [one.pair for one in self.dev]
        scored = self.task.score(self.task.outputs(model, pairs)[0], pairs, None, self.tokenizer)
        return {**super().evaluate(model), "bleu": float(scored["bleu"])}
