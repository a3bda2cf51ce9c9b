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
from ...views.document import shorten
from ...views.worked_steps import How, Matrix, Step, Worked, in_order, number, numbered, quote, row
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
        self.before = compute(x + added, learned, parts).outputs
        self.after = compute(x[order] + added, learned, parts).outputs
        self.gap = self.after - self.before[order]
        self.largest = float(self.gap.abs().max())


def explain_shuffle(words: Sequence[str] | None = None, parts: Parts | None = None) -> Worked:
    """F(P x) beside P F(x), and what makes them differ."""
    parts = parts or choose_parts()
    tokens, x = inputs(words, parts.dim is not None)
    if len(set(tokens)) < 2:
        raise SaccadeError(
            f"expected at least 2 different words to put into another order, got {len(set(tokens))}; give more",
            code="too-few-words",
        )
    order, learned = reorder(len(tokens)), learned_of(parts, words is not None)
    at = sinusoid(torch.arange(len(tokens)), x.shape[1], dtype=torch.float64)
    found = OrderedOutputs(x, order, learned, parts)
    causal = replace(parts, mask=Choice(masks.Causal))
    broken = [
        OrderedOutputs(x, order, learned, parts, at),
        OrderedOutputs(x, order, learned, causal),
    ]
    moved = [tokens[n] for n in order]
    steps = [
        *shuffle_steps(tokens, moved, x, order, found, parts),
        *(break_step(n, moved, order, one) for n, one in enumerate(broken)),
    ]
    largest = [one.largest for one in (found, *broken)]
    facts = {"tokens": tokens, "order": [n + 1 for n in order], "x": array(x)}
    facts |= {"outputs": array(found.before), "shuffled": array(found.after)}
    facts["largest_difference"] = dict(
        zip(("without", "positions", "causal"), largest, strict=True)
    )
    facts["equivariant"] = found.largest < MAX_DIFFERENCE
    return Worked(" ".join(tokens), in_order(steps), **facts)


def shuffle_steps(
    tokens: list[str],
    moved: list[str],
    x: Tensor,
    order: list[int],
    found: OrderedOutputs,
    parts: Parts,
) -> list[Step]:
    """Both orders, their outputs, and how they differ."""
    kept, letters = found.largest < MAX_DIFFERENCE, numbered("o", found.before.shape[1])
    inputs_of = numbered("x", x.shape[1])
    own = "" if parts.mask is None else f", with the mask: {formula(masks.table, parts.mask)}"
    plain: How = {"text": "{column} of {row} = {value}"}
    was: How = {"text": "{column} was input {value} before"}
    rule = "{column} of {row}: {0} after the shuffle, minus the same word's before = {value}"
    minus: How = {"text": rule, "uses": [["outputs, shuffled", "i", "j"]]}
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
    if not kept:
        compared = f"They differ by up to {number(found.largest)}: this mask depends on positions, so the order matters."
    title = "Each word takes its output along" if kept else "The outputs are others"
    gap = Matrix("difference", array(found.gap), moved, letters, minus)
    return [
        Step("The inputs in another order", text, [named, *both]),
        Step("Self-attention of both", f"Each by itself{own}.", outputs),
        Step(title, compared, [gap]),
    ]


def break_step(number_of: int, moved: list[str], order: list[int], found: OrderedOutputs) -> Step:
    """A part that makes the order matter, with the numbers of the word that differs most."""
    name, why = list(BREAKS.items())[number_of]
    most = int(found.gap.abs().amax(1).argmax())
    before, after = row(found.before[order[most]].tolist()), row(found.after[most].tolist())
    text = f"{why} They now differ by up to {number(found.largest)}: the output of {quote(moved[most])} is {before} before and {after} after."
    how: How = {"text": "{column} of {row} differs by {value}"}
    letters = numbered("o", found.gap.shape[1])
    gap = Matrix(f"difference with {name}", array(found.gap), moved, letters, how)
    return Step(f"What breaks it: {name}", text, [gap])
