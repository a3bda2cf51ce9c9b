"""The slides' questions about the worked example, with answers computed from its live numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import scores
from ...views.worked_steps import Matrix, Step, Worked, number, quote, row
from .worked_attention import Parts, choose_parts, explain


class Question(NamedTuple):
    """A question, the answers that are right (any spelling of them; all of them where several inputs are equal), and why."""

    text: str
    answers: list[str]
    why: str

    def is_right(self, given: str) -> bool | None:
        """Whether an answer is right: a number, or the names of all inputs; None where nothing can be compared."""
        if not self.answers:
            return None

        def plain(text: str) -> str:
            names = re.findall(r"(?!\binputs?\b)\b[\w'-]+", text.casefold())
            return " ".join(names) or text.strip()

        wanted = sorted({plain(one) for one in self.answers}, key=len, reverse=True)
        left = f" {plain(given)} "
        for one in wanted:
            if f" {one} " not in left:
                return False
            left = left.replace(f" {one} ", " ")
        return not set(left.split()) - {"and"}


def questions(
    words: Sequence[str] | None = None, parts: Parts | None = None
) -> tuple[list[Question], Worked]:
    """The questions of deck 004 for its example, or for the given sentence and parts."""
    parts = parts or choose_parts()
    worked = explain(words, parts)
    named = [name for name in ("W_q", "W_k", "W_v", "W_o") if name in worked.facts]
    own = list(worked.parameters)
    why = f"{', '.join(named)}." if named else "W = I: queries, keys and values are the inputs."
    why += f" The parts have numbers of their own as well: {', '.join(own)}." if own else ""
    if parts.heads > 1 and named:
        why += f" Each of {parts.heads} heads has its own columns of the first three."
    asked = "How many weight matrices are learned in this example?"
    made = [Question(asked, [str(len(named))], why)]
    learned = [worked.facts[name] for name in named]
    alone = [np.size(worked.parameters[name]) for name in own]
    numbers = sum(map(np.size, learned)) + sum(alone)
    sizes = " + ".join([*("·".join(map(str, np.shape(one))) for one in learned), *map(str, alone)])
    why = f"{sizes or 'none'} = {numbers}."
    made.append(Question("How many numbers are learned in all?", [str(numbers)], why))
    if named:
        why = (
            "Two of the derived vectors, query and key, are compared for the weights, and the third, the value, is what is passed on: "
            "one input can look for something else than it is found by."
        )
        made.append(Question("Why do we learn the three weight matrices?", [], why))
    if parts.score.make in (scores.Dot, scores.ScaledDot):
        alike = "It grows with how alike two vectors point, and with their lengths."
        made.append(Question("Why a dot product?", [], f"{alike} {likeness(worked)}"))
    made += [one for head in range(parts.heads) for one in related(worked, head, parts.heads)]
    sums = np.asarray(worked.weights).sum(-1)
    same = np.allclose(sums, 1)
    why = "Each query shares out all its attention."
    if not same:
        why = f"This normalizer does not divide by the sum: {row(np.ravel(sums)[:6])}."
    total = [number(float(np.ravel(sums)[0]))] if same else []
    made.append(Question("What does each row of weights add up to?", total, why))
    return made, worked


def likeness(worked: Worked) -> str:
    """The cosine of the first query with the key it fits best and with the one it fits least."""
    q, k = (
        np.asarray(one)[0] if np.ndim(one) == 3 else np.asarray(one) for one in (worked.q, worked.k)
    )
    norms = np.linalg.norm(q[0]) * np.linalg.norm(k, axis=1)
    cosines = np.divide(k @ q[0], norms, out=np.zeros(len(k)), where=norms > 0)
    best, worst = int(cosines.argmax()), int(cosines.argmin())
    first, tokens = quote(worked.tokens[0]), worked.tokens
    here = f"Here the cosine of the query of {first} is {number(cosines[best])} with the key of {quote(tokens[best])}"
    return f"{here}, {number(cosines[worst])} with that of {quote(tokens[worst])}."


def related(worked: Worked, head: int, heads: int) -> list[Question]:
    """To which inputs each input is most related, by the weights of a head."""
    tokens = worked.tokens
    weights = np.asarray(worked.weights)[head] if heads > 1 else np.asarray(worked.weights)
    made = []
    for n, (token, mine) in enumerate(zip(tokens, weights, strict=True)):
        most = np.isclose(mine, mine.max()) & (mine > 0)
        best = dict.fromkeys(other for other, one in zip(tokens, most, strict=True) if one)
        shown = token if token.startswith("input ") else f"{quote(token)} (input {n + 1})"
        asked = f"To which input(s) is {shown} most related?"
        if heads > 1:
            asked = f"What does {shown} focus on most in head {head + 1}?"
        made.append(Question(asked, [*best] or ["none"], f"Its weights are {row(mine)}."))
    return made


def explain_quiz(
    words: Sequence[str] | None = None, parts: Parts | None = None, answers: bool = False
) -> Worked:
    """The questions, with answers where they are wanted, after the numbers they are about."""
    asked, worked = questions(words, parts)
    shown: list[Step] = []
    names = {"x", "W_q", "W_k", "W_v"}
    every = [one for step in worked.steps() for one in step.matrices if "score" not in one.name]
    unique: dict[str, Matrix] = {
        one.name: one for one in every if one.name.split(" of ")[0] in names
    }
    known = "Work it out by hand, or with `saccade explain`."
    if answers:
        known = "What the answers are computed from."
    shown.append(Step("The example", known, list(unique.values())))
    for n, one in enumerate(asked, 1):
        answer = " and ".join(one.answers) + ". " if one.answers else ""
        shown.append(Step(f"{n}. {one.text}", f"{answer}{one.why}" if answers else "", []))
    listed: list[dict[str, Any]] = [
        {"question": one.text, **({"answers": one.answers, "why": one.why} if answers else {})}
        for one in asked
    ]
    return Worked(f"Questions about {worked.title}", shown, tokens=worked.tokens, questions=listed)
