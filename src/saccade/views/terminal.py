"""Attention in the terminal: shaded words, a table of weights, and the worked example step by step."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .document import Site, shorten
from .selection import is_flat, shade_range
from .worked_steps import Matrix, Worked, fixed, number

COLUMNS_PER_BLOCK = 8  # columns of a matrix side by side
# From gray to orange at nearly the same brightness: a terminal may be dark or light, and black letters are readable on all of it.
WEAK, STRONG, AGAINST = (150, 150, 150), (255, 140, 0), (90, 170, 255)
# signs of the longer side of a map, each twice as wide; from no weight to the greatest
MAX_MAP_SIGNS, SIGNS = (16, "·░▒▓█")
MIN_SHADE = 0.15  # of the full shade; below it a word is left as it is


def shade(part: float) -> Style:
    """The background of a word or a cell: none at 0, orange at 1, blue at −1."""
    if abs(part) < MIN_SHADE:
        return Style()
    strong = STRONG if part > 0 else AGAINST
    red, green, blue = (
        round(low + min(abs(part), 1.0) * (high - low))
        for low, high in zip(WEAK, strong, strict=True)
    )
    return Style(color="#000000", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def shade_words(tokens: Sequence[str], weights: Sequence[float]) -> Text:
    """The words in a line, each with its weight in percent on a background that is the more orange the further it is above the mean."""
    low, high = shade_range(np.asarray([weights]))
    flat = is_flat(weights)
    parts = [0.0 if flat else max(0.0, weight - low) / (high - low) for weight in weights]
    return _chips(tokens, [f"{100 * weight:.0f}" for weight in weights], parts)


def shade_effects(words: Sequence[str], effects: Sequence[float]) -> Text:
    """The words in a line, each with its signed effect in points, orange for the label and blue against it."""
    most = max(map(abs, effects)) or 1.0
    numbers = [f"{100 * effect:+.1f}" for effect in effects]
    return _chips(words, numbers, [effect / most for effect in effects])


def _chips(words: Sequence[str], numbers: Sequence[str], parts: Sequence[float]) -> Text:
    found = zip(words, numbers, parts, strict=True)
    return Text(" ").join(
        Text(f" {shorten(word)} {number} ", shade(part)) for word, number, part in found
    )


def heat_table(site: Site, weights: NDArray[np.floating], width: int | None = None) -> Text:
    """One head's weights, or a mean of heads, in percent: rows look at columns; folded where there is a width."""
    low, high = shade_range(weights)
    rows = [shorten(token, 14) for token in site.rows]
    columns = [shorten(token, 8) for token in site.columns]
    left, sizes = max(map(cell_len, rows)) + 1, [max(3, cell_len(name)) + 1 for name in columns]
    table, start = Text(), 0
    while start < len(columns):
        end = start + 1
        while end < len(columns) and (width is None or left + sum(sizes[start : end + 1]) <= width):
            end += 1
        room: Callable[[int], str] = lambda n: " " * (sizes[n] - 1 - cell_len(columns[n]))
        heads = [room(n) + columns[n] for n in range(start, end)]
        table.append(f"{' ' * left}{' '.join(heads)} \n", "bold")
        for name, row in zip(rows, weights, strict=True):
            table.append(name + " " * (left - cell_len(name)))
            for size, weight in zip(sizes[start:end], row[start:end], strict=True):
                shown = f"{100 * weight:.0f}" if abs(weight) >= 0.005 else "·"
                table.append(f"{shown:>{size - 1}} ", shade(max(0.0, weight - low) / (high - low)))
            table.append("\n")
        start = end
    table.rstrip()
    return table


def picture_maps(site: Site, weights: NDArray[np.floating], width: int | None = None) -> Text:
    """For each word a small map of the picture, darker signs for more weight, and its strongest position; as many side by side as fit."""
    assert site.grid is not None, "a map needs a grid"
    rows, columns = site.grid
    every = max(
        1, -(-max(rows, columns) // MAX_MAP_SIGNS)
    )  # positions that share a sign of the map
    words = zip(site.rows, weights, strict=True)
    blocks = [_map_lines(word, row.reshape(rows, columns), every) for word, row in words]
    size = max(cell_len(line) for lines in blocks for line in lines) + 3
    across = max(1, (width or 100) // size)
    text = Text()
    for start in range(0, len(blocks), across):
        some = blocks[start : start + across]
        for n, lines in enumerate(zip(*some, strict=True)):
            line = "".join(line + " " * (size - cell_len(line)) for line in lines).rstrip()
            text.append(line + "\n", "bold" if n == 0 else "")
        text.append("\n")
    text.rstrip()
    return text


def _map_lines(word: str, weights: NDArray[np.floating], every: int) -> list[str]:
    """The word, its strongest position, and the map, line by line; a sign has the greatest weight of the positions that share it."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    best = f"row {row + 1}, column {column + 1}: {100 * weights.max():.0f} %"
    padded = np.pad(weights, [(0, -size % every) for size in weights.shape])
    small = padded.reshape(padded.shape[0] // every, every, -1, every).max((1, 3))
    levels = np.minimum(len(SIGNS) * small / (weights.max() or 1.0), len(SIGNS) - 1).astype(int)
    signs = [[SIGNS[level] * 2 for level in line] for line in levels]
    return [shorten(word, 22), best, *("".join(line) for line in signs)]


def render(worked: Worked) -> Group:
    """The steps of a worked example with their matrices, for rich's print."""
    parts: list[RenderableType] = []
    for step in worked.steps():
        tables = [table for matrix in step.matrices for table in _tables(matrix)]
        parts += [Text(step.title, "bold"), Text(step.text)]
        parts += [
            Padding(Columns(tables[i : i + 3], padding=(1, 4)), (1, 0, 0, 2))
            for i in range(0, len(tables), 3)
        ]
        parts.append(Text())
    return Group(*parts)


def _tables(shown: Matrix) -> list[Table]:
    """A matrix with its names, in blocks of a few columns, so that 30 words do not run out of the window."""
    # columns of a kind of their own
    whole = (shown.matrix == shown.matrix.round()).all(0 if isinstance(shown.how, list) else None)
    whole = np.broadcast_to(whole, shown.matrix.shape[1:])
    count = len(shown.column_names)
    tables = []
    for start in range(0, count, COLUMNS_PER_BLOCK):
        end = min(start + COLUMNS_PER_BLOCK, count)
        title = (
            shown.name
            if count <= COLUMNS_PER_BLOCK
            else f"{shown.name}, columns {start + 1} to {end}"
        )
        table = Table(
            title=Text(title, "bold"), title_justify="left", box=None, padding=(0, 1, 0, 0)
        )
        table.add_column("", justify="right", style="dim", no_wrap=True)
        for name in shown.column_names[start:end]:
            table.add_column(Text(shorten(name, 8), "dim"), justify="right", no_wrap=True)
        write = lambda one, plain: Text((number if plain or one == -np.inf else fixed)(one))
        for name, row in zip(shown.row_names, shown.matrix[:, start:end], strict=True):
            table.add_row(Text(shorten(name, 12)), *map(write, row, whole[start:end]))
        tables.append(table)
    return tables
