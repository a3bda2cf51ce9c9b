"""Pictures of attention and of results. Each function returns a matplotlib Figure that no global state knows about.

Weights are drawn dark on white: the darker, the more weight, and black is the greatest weight of the picture. Bahdanau's Figure 3
has it the other way round; dark on white keeps the numbers in the cells readable and survives a printer.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..errors import SaccadeError
from .curves import lines
from .document import Site
from .labels import LONGEST_NAME
from .lettering import label, style, width_of
from .sheet import (
    GRAY,
    MARGIN,
    TILT,
    Heading,
    heat,
    label_room,
    label_size,
    name_columns,
    name_rows,
    place,
    rule,
    scale_bar,
    sheet,
    write_cells,
)

__all__ = ["alignment", "heads", "lines", "numbers", "save"]

MOST_HEADS = 16
MOST_NUMBERED = 40  # words a side up to which every cell is large enough for its number
NARROWEST = 3.6  # inches, so that a title over one single cell is not broken into syllables
THINNEST = 0.2  # inches, so that one word against hundreds is still a strip
BAR_ROOM = 0.9
WIDEST_FLAT = 1.7  # inches; wider names of columns lean over
# Neither date nor program is written: the same figures give the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def alignment(site: Site, title: str = "", head: int | None = None) -> Figure:
    """Who looked at whom: the words that look down the left, those looked at along the top (Bahdanau et al. 2015, Figure 3)."""
    weights = site.head(head)
    rows, columns = [label(token) for token in site.rows], [label(token) for token in site.columns]
    cell = _cell(max(weights.shape))
    left, above, right = label_room(rows, columns, label_size(cell))
    grid_width, grid_height = max(cell * len(columns), THINNEST), max(cell * len(rows), THINNEST)
    width = max(MARGIN + left + grid_width + max(right, BAR_ROOM) + MARGIN, NARROWEST)
    heading = Heading(title, " · ".join(filter(None, [site.name, site.head_name(head), "darker = more weight"])), width)
    top = heading.height + above
    figure = sheet(width, top + grid_height + MARGIN)
    heading.write(figure)
    axes = place(figure, MARGIN + left, top, grid_width, grid_height)
    image = heat(axes, weights, "gray_r", *_scale(weights))
    rule(axes, weights.shape, cell)
    name_rows(axes, rows, cell)
    name_columns(axes, columns, cell)
    if max(weights.shape) <= MOST_NUMBERED:
        write_cells(axes, image, [[_short_number(weight) for weight in row] for row in weights], 72 * cell * 0.27)
    bar_height = min(grid_height, 1.6)
    scale_bar(figure, image, place(figure, MARGIN + left + grid_width + 0.18, top + grid_height - bar_height, 0.12, bar_height))
    return figure


def heads(site: Site, title: str = "") -> Figure:
    """All heads of a site side by side on one scale, up to 16 of them (Vaswani et al. 2017, the figures of the appendix)."""
    site.check()
    weights = np.asarray(site.weights, dtype=np.float64)[:MOST_HEADS]
    rows, columns = [label(token) for token in site.rows], [label(token) for token in site.columns]
    across = _heads_across(len(weights))
    down = math.ceil(len(weights) / across)
    cell = min(0.34, 2.4 / max(weights.shape[1:]))
    left, above, right = label_room(rows, columns, label_size(cell))
    panel_width, panel_height = max(cell * len(columns), THINNEST), max(cell * len(rows), THINNEST)
    step_across, step_down = max(panel_width + 0.18, 0.6), panel_height + 0.36
    width = max(MARGIN + left + across * step_across + max(right, BAR_ROOM) + MARGIN, NARROWEST)
    heading = Heading(title, f"{site.name} · {_head_count(site.heads)} · darker = more weight", width)
    top = heading.height + above
    figure = sheet(width, top + down * step_down + 0.08)
    heading.write(figure)
    for index, head in enumerate(weights):
        y, x = divmod(index, across)
        axes = place(figure, MARGIN + left + x * step_across, top + y * step_down, panel_width, panel_height)
        image = heat(axes, head, "gray_r", *_scale(weights))
        rule(axes, head.shape, cell)
        if x == 0:
            name_rows(axes, rows, cell)
        if y == 0:
            name_columns(axes, columns, cell)
        axes.set_xlabel(f"head {index}", labelpad=4, **style(8, GRAY))
    scale_bar(figure, image, place(figure, MARGIN + left + across * step_across, top, 0.12, min(panel_height, 1.6)))
    return figure


def numbers(matrix: Sequence[Sequence[float]], row_names: Sequence[str], column_names: Sequence[str], title: str = "") -> Figure:
    """A small table as a picture: every number in a cell that it shades; orange and purple tell the signs where there are two."""
    values = _checked(matrix, row_names, column_names)
    rows, columns = ([label(name, LONGEST_NAME) for name in names] for names in (row_names, column_names))
    decimals = _decimals(values)
    texts = [[f"{value:.{decimals}f}" for value in row] for row in values]
    widest_name = max(width_of(name, 10) for name in columns)
    cell_height, cell_width = 0.38, max(0.55, max(width_of(text, 9) for row in texts for text in row) + 0.2)
    left, above, right = label_room(rows, columns, 10)
    flat = widest_name <= WIDEST_FLAT
    if flat:
        cell_width, above, right = max(cell_width, widest_name + 0.16), 0.3, 0.0
    width = max(MARGIN + left + cell_width * len(columns) + right + MARGIN, NARROWEST)
    heading = Heading(title, "", width)
    figure = sheet(width, heading.height + above + cell_height * len(rows) + MARGIN)
    heading.write(figure)
    axes = place(figure, MARGIN + left, heading.height + above, cell_width * len(columns), cell_height * len(rows))
    image = heat(axes, values, *_colors(values))
    rule(axes, values.shape, cell_height, "white")
    name_rows(axes, rows, cell_height)
    name_columns(axes, columns, cell_height, tilt=0 if flat else TILT)
    write_cells(axes, image, texts, 9)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes PNG, SVG or PDF by the name's ending: to a temporary name first, so that no reader ever meets half a picture."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in METADATA:
        raise SaccadeError(f"a picture cannot be written as '{path.name}': the name must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise SaccadeError(f"there is no folder '{path.parent}' for the picture '{path.name}': make it first, or choose another")
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file, matplotlib.rc_context({"svg.hashsalt": "saccade"}):
            figure.savefig(file, format=kind, dpi=figure.dpi, metadata=METADATA[kind])
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise SaccadeError(
            f"the picture '{path}' cannot be written ({why}): choose a file in a folder you may write to"
        ) from None
    return path


def _cell(longest: int) -> float:
    """The side of a cell in inches: comfortable for a sentence, smaller for a page of words, never under 3 pixels."""
    if longest <= MOST_NUMBERED:
        return 0.4 if longest <= 16 else 0.34
    return max(0.02, 0.34 * MOST_NUMBERED / longest)


def _scale(weights: np.ndarray) -> tuple[float, float]:
    """White is 0 and black the greatest weight; below 0 only for a mechanism that has such weights."""
    return min(0.0, float(weights.min())), float(weights.max()) if weights.max() > 0 else 1.0


def _short_number(weight: float) -> str:
    """A weight with two digits and without what everyone knows: .87; nothing for what rounds to zero."""
    text = f"{weight:.2f}"
    if float(text) == 0:
        return ""
    return text.replace("0.", ".", 1) if abs(weight) < 0.995 else f"{weight:.3g}"[:4]


def _heads_across(count: int) -> int:
    """How many small pictures stand in a row, so that few places stay empty."""
    return {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}.get(count, 4)


def _head_count(count: int) -> str:
    """How the heading says how many heads are shown, and how many are not."""
    if count > MOST_HEADS:
        return f"the first {MOST_HEADS} of {count} heads"
    return "1 head" if count == 1 else f"{count} heads"


def _checked(matrix: Sequence[Sequence[float]], row_names: Sequence[str], column_names: Sequence[str]) -> np.ndarray:
    """The matrix as an array, or a sentence about what does not fit."""
    if not len(row_names) or not len(column_names):
        raise SaccadeError("a table needs at least one row name and one column name, so that there is a number to show")
    try:
        values = np.asarray(matrix, dtype=np.float64)
    except (ValueError, TypeError):
        raise SaccadeError("the rows of a table must be numbers and equally long: fill what is missing first") from None
    if values.shape != (len(row_names), len(column_names)):
        shape = " × ".join(map(str, values.shape)) or "a single number"
        raise SaccadeError(
            f"the table is {shape}, but its names say {len(row_names)} × {len(column_names)}: one name a row and column"
        )
    if not np.isfinite(values).all():
        y, x = np.argwhere(~np.isfinite(values))[0]
        raise SaccadeError(
            f"the number at '{row_names[y]}', '{column_names[x]}' is {values[y, x]}, but must be finite: leave it out"
        )
    return values


def _decimals(values: np.ndarray) -> int:
    """One number of decimals for the whole table, so that a column can be compared at a glance."""
    if (values == np.round(values)).all():
        return 0
    return int(np.clip(3 - math.floor(math.log10(float(np.abs(values).max()))), 1, 4))


def _colors(values: np.ndarray) -> tuple[str, float, float]:
    """A color map and its ends: pale to blue, or purple through white to orange where signs differ."""
    low, high = float(values.min()), float(values.max())
    if low < 0:
        greatest = max(-low, high)
        return "PuOr_r", -1.2 * greatest, 1.2 * greatest
    return "Blues", low - 0.2 * (high - low or 1.0), high + 0.2 * (high - low or 1.0)
