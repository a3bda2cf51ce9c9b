"""Text to text: translation whose outputs are also compared as a whole, by further metrics, and with controls."""

from collections.abc import Sequence
from math import exp
from typing import Any, Self

from torch import nn

from ..data.paired import overlapping
from ..data.pairs import Pair
from ..data.vocabulary import Vocabulary
from ..recipe import Recipe
from .metrics import Exact, TextMetric, all_sums, chosen, score_all, unigram_loss
from .task import Each, ExampleTask, table
from .translation import FOR_PAIRS, Pairs, Scores, Translation


@table.add("text-to-text", paper="Raffel et al. 2020")
class TextToText(Translation):
    """Any text to any text (summaries, dialogue, parses, code): as translation, judged also by how many outputs are entirely correct."""

    alike = False
    settings = (*ExampleTask.settings, *FOR_PAIRS, "data.pairs", "data.metrics")
    options = Translation.options | {"controls": bool}
    metrics_of_texts: Sequence[TextMetric] = (Exact(),)

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.pairs,)

    @classmethod
    def divide(cls, examples: list[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
        """Of dialogues the end is held out: elsewhere each target would be a source of the training data."""
        train, held_out = super().divide(examples, share)
        if not overlapping(examples):
            return train, held_out
        return examples[: len(train)], examples[len(train) :]

    @classmethod
    def learn(
        cls,
        recipe: Recipe,
        train: Pairs,
        given: Vocabulary | None = None,
        target: Vocabulary | None = None,
    ) -> Self:
        made = super().learn(recipe, train, given, target).judged_by(recipe)
        # a missing package shows now, not after the training
        score_all(made.metrics_of_texts, ["a"], [Pair("a", "a")])
        return made

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return super().restore(recipe, tokens).judged_by(recipe)

    def judged_by(self, recipe: Recipe) -> Self:
        self.metrics_of_texts = (Exact(), *chosen(recipe.data.metrics))
        return self

    def score(
        self, outputs: Sequence[str], pairs: Pairs, moses: str | None = None, tokenizer: str = "13a"
    ) -> Scores:
        return {
            **score_all(self.metrics_of_texts, outputs, pairs),
            **super().score(outputs, pairs, moses, tokenizer),
        }

    def per_example(self, model: nn.Module, examples: Pairs, *given: Any, **options: Any) -> Each:
        each = super().per_example(model, examples, *given, **options)
        outputs = [output for *_, output in each.rows]
        return Each(each.rows, {**each.sums, **all_sums(self.metrics_of_texts, outputs, examples)})

    def evaluate(
        self,
        model: nn.Module,
        examples: Pairs,
        beam: int = 1,
        *,
        controls: Pairs | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The metrics of translation, exact matches, perplexity and what `data.metrics` names; those of controls, given the training pairs."""
        found = super().evaluate(model, examples, beam, **options)
        found["perplexity"] = exp(found["loss"])
        if controls is not None:
            search, _ = self.split({"beam": beam, **options})
            found |= self.judge_controls(model, examples, controls, search)
        return found

    def judge_controls(
        self, model: nn.Module, pairs: Pairs, train: Pairs, search: dict[str, Any]
    ) -> dict[str, float]:
        """The metrics of three kinds of controls: outputs made by rules (see `metrics`), those of the model when it reads another example's
        source (`other_source`), and the perplexity of a model of token frequencies (`unigram`)."""
        half = len(pairs) // 2
        moved = [
            Pair(far.source, one.target, one.line)
            for one, far in zip(pairs, [*pairs[half:], *pairs[:half]], strict=True)
        ]
        texts = {"other_source": self.outputs(model, moved, **search)[0]}
        for metric in self.metrics_of_texts[1:] or self.metrics_of_texts:
            texts |= metric.controls(train, pairs)
        found = {
            f"{name}_{control}": value
            for control, outputs in texts.items()
            for name, value in score_all(self.metrics_of_texts, outputs, pairs).items()
        }
        known, asked = (
            self.target.encode_ids([one.target for one in side]) for side in (train, pairs)
        )
        found["perplexity_unigram"] = exp(
            unigram_loss(known, asked, len(self.target), self.target.eos)
        )
        return {
            **found,
            "perplexity_other_source": exp(self.metrics(model, self.numbers(moved))["loss"]),
        }
