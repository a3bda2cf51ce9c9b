"""Attention in the terminal: shaded words, and the worked example step by step."""

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .document import shorten
from .worked import Matrix, Worked

BLOCK = 8  # columns of a matrix side by side
# From gray to orange at nearly the same brightness: a terminal may be dark or light, and black letters are readable on all of it.
WEAK, STRONG = (150, 150, 150), (255, 140, 0)
FAINTEST = 0.15  # of the greatest weight; below it a word is left as it is


def shade_words(tokens: Sequence[str], weights: Sequence[float]) -> Text:
    """The words in a line, each on a background that is the more orange the closer its weight is to the greatest."""
    words = []
    for token, weight in zip(tokens, weights, strict=True):
        part, style = weight / (max(weights) or 1.0), Style()
        if part >= FAINTEST:
            red, green, blue = (round(low + part * (high - low)) for low, high in zip(WEAK, STRONG, strict=True))
            style = Style(color="#000000", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")
        words.append(Text(f" {shorten(token)} ", style))
    return Text(" ").join(words)


def in_percent(tokens: Sequence[str], weights: Sequence[float]) -> str:
    """The same where there are no colors: each word with its weight in percent after it."""
    return "  ".join(f"{shorten(token)} {100 * weight:.0f}" for token, weight in zip(tokens, weights, strict=True))


def render(worked: Worked) -> Group:
    """The steps of a worked example with their matrices, for rich's print."""
    parts: list[RenderableType] = []
    for step in worked.steps():
        tables = [table for matrix in step.matrices for table in _tables(matrix)]
        parts += [Text(step.title, "bold"), Text(step.text)]
        parts += [Padding(Columns(tables[i : i + 3], padding=(1, 4)), (1, 0, 0, 2)) for i in range(0, len(tables), 3)]
        parts.append(Text())
    return Group(*parts)


def _tables(shown: Matrix) -> list[Table]:
    """A matrix with its names, in blocks of a few columns, so that 30 words do not run out of the window."""
    digits = 0 if (shown.matrix == shown.matrix.round()).all() else 4
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
            table.add_row(Text(shorten(name, 12)), *(Text(f"{value:.{digits}f}") for value in row))
        tables.append(table)
    return tables
