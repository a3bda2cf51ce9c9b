"""An explanation in steps, in which every number has its origin. `teaching/explain` computes the numbers from live parts."""

import html
import io
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .document import shorten

MAX_POWERS = 6  # of a softmax's sum that are written out
# text: a template; uses: [matrix, row, column] of the numbers it names; each further key is a word of the text
How = dict[str, Any]
Template = re.compile(r"\{([^{}]*)\}")


class Matrix(NamedTuple):
    """A matrix of a step, with names for its rows and columns, and how its numbers came about: for all of them, or per column.

    A `how` names other matrices by row and column: a number, "i" or "j" (those of the number itself), or None for all of them. In its
    text {row}, {column} and {value} are the number's own, {0} is what `uses` names first, {0·1} products and their sum, {+0} a sum,
    {e0} the sum of powers of e, {2·tanh(0+1)} the sum of products with the tanh of sums.
    """

    name: str
    matrix: np.ndarray
    row_names: list[str]
    column_names: list[str]
    how: How | list[How] | None = None


def product(left: str, right: str) -> How:
    """How each number of a matrix product came about, from a row of `left` and a column of `right`."""
    uses = [[left, "i", None], [right, None, "j"]]
    return {"text": "{column} of {row} = {0·1} = {value}", "uses": uses}


class Step(NamedTuple):
    """One step: a text and its matrices."""

    title: str
    text: str
    matrices: list[Matrix]


class Worked:
    """A worked example: its steps, and all its numbers as attributes (`worked.weights`)."""

    def __init__(self, title: str, steps: Sequence[Step], **facts: Any) -> None:
        self.title, self.facts, self._steps = title, facts, list(steps)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__dict__.get("facts", {}):
            raise AttributeError(f"no number named '{name}'")
        return self.facts[name]

    def __repr__(self) -> str:
        return (
            f"Worked({shorten(self.title, 60)!r}, {len(self._steps)} steps; print it to read them)"
        )

    def __str__(self) -> str:
        from rich.console import Console

        from .terminal import render

        page = io.StringIO()
        Console(file=page, width=110, color_system=None, force_jupyter=False).print(render(self))
        return page.getvalue()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def steps(self) -> list[Step]:
        """What is done, in order."""
        return list(self._steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything, and the steps, as plain lists and numbers for JSON; −∞ is null."""
        made = {"title": self.title, **{name: plain(value) for name, value in self.facts.items()}}
        made["steps"] = [step._asdict() for step in self._steps]
        for step in made["steps"]:
            step["matrices"] = [
                {**one._asdict(), "matrix": plain(one.matrix)} for one in step["matrices"]
            ]
        return made

    def arithmetic(self, matrix: Matrix, i: int, j: int) -> str:
        """The origin of the number at row i and column j, in the words of worked.js, or "" if it has none."""
        how = matrix.how[j] if isinstance(matrix.how, list) else matrix.how
        if how is None:
            return ""
        known = {one.name: one.matrix for step in self._steps for one in step.matrices}
        uses = [pick(known[name], row, column, i, j) for name, row, column in how.get("uses", [])]
        own = {
            "row": quote(matrix.row_names[i]),
            "column": quote(matrix.column_names[j]),
            "value": number(matrix.matrix[i, j]),
        }
        return Template.sub(lambda found: fill(found[1], uses, {**how, **own}), how["text"])


def pick(matrix: np.ndarray, row: Any, column: Any, i: int, j: int) -> Any:
    """The numbers of a matrix that a `how` names: one, or a list."""
    at = [slice(None) if one is None else {"i": i, "j": j}.get(one, one) for one in (row, column)]
    return matrix[at[0], at[1]]


def fill(wanted: str, uses: Sequence[Any], words: How) -> str:
    """What replaces one {…} of a template."""
    if wanted in words:
        return str(words[wanted])
    numbers = [np.atleast_1d(uses[int(digit)]) for digit in re.findall(r"\d", wanted)]
    if "tanh" in wanted:
        v, a, b = numbers
        return " + ".join(
            f"{number(w)}·tanh({number(x)} + {number(y)})" for w, x, y in zip(v, a, b, strict=True)
        )
    if "·" in wanted:
        return " + ".join(f"{number(a)}·{number(b)}" for a, b in zip(*numbers, strict=True))
    if wanted.startswith("e"):
        seen = [one for one in numbers[0] if one > -math.inf]
        every = " + ".join(f"e^({number(one)})" for one in seen)
        return every if len(seen) <= MAX_POWERS else f"the sum of all {len(seen)} such powers"
    if wanted.startswith("+"):
        return " + ".join(map(number, numbers[0]))
    return number(uses[int(wanted)]) if np.ndim(uses[int(wanted)]) == 0 else row(uses[int(wanted)])


def plain(value: Any) -> Any:
    """Arrays as lists, in which −∞ is None; anything else as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float) -> str:
    """A number as one would write it down: whole ones without a point, others with four digits."""
    if not math.isfinite(value):
        return "−∞"
    return f"{value + 0.0:.0f}" if value == round(value) else fixed(value)


def fixed(value: float) -> str:
    """Four digits, and no sign where they are all 0."""
    return f"{value:.4f}".replace("-0.0000", "0.0000")


def row(values: Any) -> str:
    """[1, 0, 2]"""
    return "[" + ", ".join(map(number, values)) + "]"


def quote(name: str) -> str:
    return f"'{shorten(name)}'"


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps with their numbers in their titles."""
    return [one._replace(title=f"{n}. {one.title}") for n, one in enumerate(steps, 1)]


def numbered(letter: str, count: int) -> list[str]:
    """x1, x2, x3 …"""
    return [f"{letter}{index}" for index in range(1, count + 1)]


def few(parts: Sequence[str], most: int = 5) -> str:
    """The first parts, and how many more are done the same way."""
    rest = f"; and so on for the other {len(parts) - most}" if len(parts) > most else ""
    return "; ".join(parts[:most]) + rest
