"""Text to text: translation whose outputs are also compared as a whole."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from .task import Each, percent_of, table
from .translation import Pairs, Scores, Translation


@table.add("text-to-text", paper="Raffel et al. 2020")
class TextToText(Translation):
    """Any text to any text (summaries, dialogue, brackets, code): as translation, judged also by how many outputs are entirely correct."""

    alike = False

    def score(self, outputs: Sequence[str], pairs: Pairs, moses: str | None = None, tokenizer: str = "13a") -> Scores:
        right = sum(output.strip() == pair.target.strip() for output, pair in zip(outputs, pairs, strict=True))
        return {"exact": 100 * right / max(len(pairs), 1), **super().score(outputs, pairs, moses, tokenizer)}

    def per_example(self, model: nn.Module, examples: Pairs, *given: Any, **options: Any) -> Each:
        each = super().per_example(model, examples, *given, **options)
        right = np.array([[output.strip() == reference.strip(), 1] for _, reference, output in each.rows], dtype=np.float64)
        return Each(each.rows, {**each.sums, "exact": (right, percent_of)})
