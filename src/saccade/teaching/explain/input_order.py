"""Inputs in another order: self-attention gives the same outputs in that order, until positions or a mask say where each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...core import masks
from ...core.positions import sinusoid
from ...errors import SaccadeError
from ...settings import Choice
from ...views.worked_steps import How, Matrix, Step, Worked, number, numbered, quote, row, shorten
from .attention_steps import array, formula
from .worked_attention import Parts, choose_parts, compute, inputs, learned_of

MAX_DIFFERENCE = 1e-12  # sums in another order differ in their last digit
BREAKS = {
    "positions": "A vector for each position (sinusoids) is added to the inputs, at the same positions before and after.",
    "a causal mask": "Nobody sees what comes after, and what that is depends on the order.",
}
EQUIVARIANT = (
    "Self-attention is equivariant: F(P x) = P F(x). It sees a set, not a sequence; and what reads these outputs by attention is "
    "invariant: it gets the same sum."
)


def reorder(count: int) -> list[int]:
    """An order in which nothing stays where it was: the second half first."""
    start = max(1, count // 2)
    return [*range(start, count), *range(start)]


class OrderedOutputs:
    """The outputs of inputs as they are and of the same inputs in another order; `added` is added to both, where it is."""

    def __init__(
        self,
        x: Tensor,
        order: list[int],
        learned: dict[str, Tensor],
        parts: Parts,
        added: Tensor | float = 0.0,
    ) -> None:
        self.before, self.after = (
            compute(x + added, learned, parts).outputs,
            compute(x[order] + added, learned, parts).outputs,
        )
        self.gap = self.after - self.before[order]
        self.largest = float(self.gap.abs().max())


def explain_shuffle(words: Sequence[str] | None = None, parts: Parts | None = None) -> Worked:
    """F(P x) beside P F(x), and what makes them differ."""
    parts = parts or choose_parts()
    tokens, x = inputs(words, parts.dim is not None)
    if len(set(tokens)) < 2:
        raise SaccadeError(
            f"expected at least 2 different words to put into another order, got {len(set(tokens))}; give more"
        )
    order, learned = reorder(len(tokens)), learned_of(parts, words is not None)
    at = sinusoid(torch.arange(len(tokens)), x.shape[1], dtype=torch.float64)
    found = OrderedOutputs(x, order, learned, parts)
    broken = [
        OrderedOutputs(x, order, learned, parts, at),
        OrderedOutputs(x, order, learned, replace(parts, mask=Choice(masks.Causal))),
    ]
    moved = [tokens[n] for n in order]
    steps = [
        *shuffle_steps(tokens, moved, x, order, found, parts),
        *(break_step(n, moved, order, one) for n, one in enumerate(broken)),
    ]
    largest = {
        "without": found.largest,
        "positions": broken[0].largest,
        "causal": broken[1].largest,
    }
    facts = {
        "tokens": tokens,
        "order": [n + 1 for n in order],
        "x": array(x),
        "outputs": array(found.before),
    }
    facts |= {
        "shuffled": array(found.after),
        "largest_difference": largest,
        "equivariant": found.largest < MAX_DIFFERENCE,
    }
    return Worked(" ".join(tokens), steps, **facts)


def shuffle_steps(
    tokens: list[str],
    moved: list[str],
    x: Tensor,
    order: list[int],
    found: OrderedOutputs,
    parts: Parts,
) -> list[Step]:
    """Both orders, their outputs, and how they differ."""
    kept, letters, inputs_of = (
        found.largest < MAX_DIFFERENCE,
        numbered("o", found.before.shape[1]),
        numbered("x", x.shape[1]),
    )
    own = "" if parts.mask is None else f", with the mask: {formula(masks.table, parts.mask)}"
    plain: How = {"text": "{column} of {row} = {value}"}
    was: How = {"text": "{column} was input {value} before"}
    minus: How = {
        "text": "{column} of {row}: {0} after the shuffle, minus the same word's before = {value}",
        "uses": [["outputs, shuffled", "i", "j"]],
    }
    named = Matrix("order", np.array([order], dtype=np.float64) + 1, ["was input"], moved, was)
    both = [
        Matrix("x", array(x), tokens, inputs_of, plain),
        Matrix("x, shuffled", array(x[order]), moved, inputs_of, plain),
    ]
    outputs = [
        Matrix("outputs", array(found.before), tokens, letters, plain),
        Matrix("outputs, shuffled", array(found.after), moved, letters, plain),
    ]
    text = f"{shorten(' '.join(tokens), 400)} becomes {shorten(' '.join(moved), 400)}."
    compared = f"Word by word, no number differs by more than {found.largest:.0e}. {EQUIVARIANT}"
    compared = (
        compared
        if kept
        else f"They differ by up to {number(found.largest)}: this mask depends on positions, so the order matters."
    )
    return [
        Step("1. The inputs in another order", text, [named, *both]),
        Step("2. Self-attention of both", f"Each by itself{own}.", outputs),
        Step(
            "3. Each word takes its output along" if kept else "3. The outputs are others",
            compared,
            [Matrix("difference", array(found.gap), moved, letters, minus)],
        ),
    ]


def break_step(number_of: int, moved: list[str], order: list[int], found: OrderedOutputs) -> Step:
    """One thing that makes the order matter, with the numbers of the word that differs most."""
    name, why = list(BREAKS.items())[number_of]
    most = int(found.gap.abs().amax(1).argmax())
    before, after = row(found.before[order[most]].tolist()), row(found.after[most].tolist())
    text = f"{why} They now differ by up to {number(found.largest)}: the output of {quote(moved[most])} is {before} before and {after} after."
    how: How = {"text": "{column} of {row} differs by {value}"}
    letters = numbered("o", found.gap.shape[1])
    return Step(
        f"{4 + number_of}. What breaks it: {name}",
        text,
        [Matrix(f"difference with {name}", array(found.gap), moved, letters, how)],
    )
