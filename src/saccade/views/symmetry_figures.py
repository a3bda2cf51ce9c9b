"""Pictures of symmetries: a layer's inputs and outputs before and after a move, and the table layer × symmetry. Readable in gray."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from . import figures
from .figures import EDGE, GRAY, MARGIN, style, width_of

Panels = Mapping[str, NDArray[np.float64]]
SHADES = {"no": 0.0, "–": 0.12, "equivariant": 0.75, "invariant": 0.55}
MARKS = {"no": "no", "–": "–", "equivariant": "yes", "invariant": "inv"}


def moved(rows: Mapping[str, Panels], title: str, note: str) -> Figure:
    """A row of matrices for each name, all of a row with one height; positions go down, numbers or other positions across. A row with fewer
    matrices has them below the last of the others, with which they are to be compared."""
    count = max(map(len, rows.values()))
    cell, gap = (
        (
            0.13
            if max(one.size for panels in rows.values() for one in panels.values()) > 40
            else 0.26
        ),
        0.45,
    )
    inches = [0.0] * count
    for panels in rows.values():
        for n, (what, values) in enumerate(panels.items(), count - len(panels)):
            inches[n] = max(inches[n], values.shape[1] * cell, width_of(what, 8))
    heights = [
        max(one.shape[0] for one in panels.values()) * cell + 0.5 for panels in rows.values()
    ]
    left = max(width_of(name, 9) for name in rows) + 0.25
    figure, top = figures.sheet(
        2 * MARGIN + left + max(sum(inches) + gap * (count - 1), 4.0), sum(heights), title, note
    )
    for (name, panels), height in zip(rows.items(), heights, strict=True):
        for n, (what, values) in enumerate(panels.items(), count - len(panels)):
            x = MARGIN + left + sum(inches[:n]) + gap * n
            axes = figures.add_axes(
                figure, x, top + 0.3, values.shape[1] * cell, values.shape[0] * cell
            )
            axes.imshow(values, cmap="gray_r", aspect="auto", interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_color(EDGE)
            axes.annotate(
                what,
                (0, 1),
                (0, 4),
                xycoords="axes fraction",
                textcoords="offset points",
                va="bottom",
                **style(8),
            )
            if n == count - len(panels):
                offset = (-72 * (x - MARGIN - left) - 10, 0)
                middle: Any = {
                    "xycoords": "axes fraction",
                    "textcoords": "offset points",
                    "ha": "right",
                    "va": "center",
                }
                axes.annotate(name, (0, 0.5), offset, **middle, **style(9, GRAY))
        top += height
    return figure


def table(
    names: Sequence[str],
    columns: Sequence[str],
    words: Sequence[Sequence[str]],
    title: str,
    note: str,
) -> Figure:
    """Yes, invariant or no for each layer and symmetry."""
    cell, across = 0.19, 0.85
    left = max(width_of(name, 7) for name in names) + 0.15
    wide, tall = across * len(columns), cell * len(names)
    figure, top = figures.sheet(2 * MARGIN + left + wide, tall + 0.4, title, note)
    axes = figures.add_axes(figure, MARGIN + left, top + 0.3, wide, tall)
    values = np.array([[SHADES[word] for word in row] for row in words])
    axes.imshow(values, cmap="gray_r", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for (down, over), value in np.ndenumerate(values):
        ink = "white" if value > 0.5 else "#1a1a1a"
        axes.text(over, down, MARKS[words[down][over]], ha="center", va="center", **style(6, ink))
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, **style(7))
    axes.set_yticks(range(len(names)), names, **style(7))
    axes.tick_params(length=0)
    axes.spines[:].set_color(EDGE)
    return figure
