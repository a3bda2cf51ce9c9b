"""Attention in the terminal: shaded words, a small alignment table, and the worked example step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..errors import SaccadeError
from .document import Site
from .labels import shorten
from .worked import Shown, Worked

MOST_WORDS = 40
BLOCK = 8  # columns of a matrix side by side
# From gray to orange at nearly the same brightness: a terminal may be dark or light, and black letters are readable on all of it.
WEAK, STRONG = (150, 150, 150), (255, 140, 0)
FAINTEST = 0.15  # of the greatest weight; below it a word is left as it is


def shaded(tokens: Sequence[str], weights: Sequence[float]) -> Text:
    """The words in a line, each on a background that is the more orange the greater its weight is beside the greatest."""
    _check_weights(tokens, weights)
    greatest = max(weights)
    line = Text()
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        line.append(" " if index else "")
        line.append(f" {shorten(token)} ", _shade(weight, greatest))
    return line


def in_percent(tokens: Sequence[str], weights: Sequence[float]) -> str:
    """The same where there are no colors: each word with its weight in percent behind it."""
    _check_weights(tokens, weights)
    return "  ".join(f"{shorten(token)} {100 * weight:.0f}" for token, weight in zip(tokens, weights, strict=True))


def _check_weights(tokens: Sequence[str], weights: Sequence[float]) -> None:
    if not len(tokens):
        raise SaccadeError("there are no words to shade: give at least one word and its weight")
    if len(tokens) != len(weights):
        raise SaccadeError(f"there are {len(tokens)} words but {len(weights)} weights: give one weight a word")
    for token, weight in zip(tokens, weights, strict=True):
        if not math.isfinite(weight):
            raise SaccadeError(f"the weight of '{token}' is {weight}, but must be a finite number")


def heat_table(site: Site, head: int | None = None) -> Table:
    """The words that look down the left, those looked at along the top, letter under letter, and weights in percent."""
    weights = site.head(head)
    rows, columns = site.rows[:MOST_WORDS], site.columns[:MOST_WORDS]
    shown = weights[: len(rows), : len(columns)]
    caption = "percent"
    if (len(rows), len(columns)) != weights.shape:
        caption += f"; the first {len(rows)} of {len(site.rows)} × {len(columns)} of {len(site.columns)} words"
    title = " · ".join(filter(None, [site.name, site.head_name(head)]))
    table = Table(title=Text(title), caption=Text(caption), box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    for token in columns:
        table.add_column(Text("\n".join(shorten(token))), justify="right", width=3, no_wrap=True)
    for token, row in zip(rows, shown, strict=True):
        cells = [Text(f"{_percent(weight):>3}", _shade(weight, shown.max())) for weight in row]
        table.add_row(Text(shorten(token)), *cells)
    return table


def render(worked: Worked) -> Group:
    """The steps of a worked example with their matrices, for rich's print."""
    parts: list[RenderableType] = []
    for step in worked.steps():
        tables = [table for shown in step.matrices for table in _matrix_tables(shown)]
        parts += [Text(step.title, "bold"), Text(step.text)]
        parts += [Padding(Columns(tables[i : i + 3], padding=(1, 4)), (1, 0, 0, 2)) for i in range(0, len(tables), 3)]
        parts.append(Text())
    return Group(*parts)


def _matrix_tables(shown: Shown) -> list[Table]:
    """A matrix with its names, in blocks of a few columns, so that 30 words do not run out of the window."""
    whole = bool((shown.matrix == shown.matrix.round()).all())
    count = len(shown.column_names)
    tables = []
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        title = shown.name if count <= BLOCK else f"{shown.name}, columns {start + 1} to {end}"
        table = Table(title=Text(title, "bold"), title_justify="left", box=None, padding=(0, 1, 0, 0))
        table.add_column("", justify="right", style="dim", no_wrap=True)
        for name in shown.column_names[start:end]:
            table.add_column(Text(shorten(name, 8), "dim"), justify="right", no_wrap=True)
        for name, row in zip(shown.row_names, shown.matrix[:, start:end], strict=True):
            table.add_row(Text(shorten(name, 12)), *(Text(f"{value:.0f}" if whole else f"{value:.4f}") for value in row))
        tables.append(table)
    return tables


def _percent(weight: float) -> str:
    """A weight in whole percent; nothing for what rounds to zero."""
    text = f"{100 * weight:.0f}"
    return "" if text in {"0", "-0"} else text


def _shade(weight: float, greatest: float) -> Style:
    """Black on a mixture of gray and orange, or no style for a weight that is next to nothing."""
    part = weight / greatest if greatest > 0 else 0.0
    if part < FAINTEST:
        return Style()
    red, green, blue = (round(low + part * (high - low)) for low, high in zip(WEAK, STRONG, strict=True))
    return Style(color="#000000", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")
