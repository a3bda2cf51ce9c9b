"""Pictures of symmetries: a layer's inputs and outputs before and after a move, and the table layer × symmetry. Readable in gray."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from . import pictures
from .pictures import EDGE, GRAY, MARGIN, style, width_of

Panels = Mapping[str, NDArray[np.float64]]
SHADES = {"no": 0.0, "–": 0.12, "equivariant": 0.75, "invariant": 0.55}
MARKS = {"no": "no", "–": "–", "equivariant": "yes", "invariant": "inv"}


def moved(rows: Mapping[str, Panels], title: str, note: str) -> Figure:
    """A row of matrices for each name, all of a row with one height; positions go down, numbers or other positions across."""
    cell, gap = 0.13, 0.45
    widths = [sum(one.shape[1] * cell + gap for one in panels.values()) for panels in rows.values()]
    heights = [max(one.shape[0] for one in panels.values()) * cell + 0.5 for panels in rows.values()]
    left = max(width_of(name, 9) for name in rows) + 0.2
    figure, top = pictures.sheet(2 * MARGIN + left + max(*widths, 4.0), sum(heights), title, note)
    for (name, panels), height in zip(rows.items(), heights, strict=True):
        x = MARGIN + left
        for n, (what, values) in enumerate(panels.items()):
            axes = pictures.add_axes(figure, x, top + 0.3, values.shape[1] * cell, values.shape[0] * cell)
            axes.imshow(values, cmap="gray_r", aspect="auto", interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_color(EDGE)
            axes.annotate(what, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", va="bottom", **style(8))
            if n == 0:
                axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8, **style(9, GRAY))
            x += values.shape[1] * cell + gap
        top += height
    return figure


def table(names: Sequence[str], columns: Sequence[str], words: Sequence[Sequence[str]], title: str, note: str) -> Figure:
    """Yes, invariant or no for each layer and symmetry."""
    cell, across = 0.19, 0.85
    left = max(width_of(name, 7) for name in names) + 0.15
    wide, tall = across * len(columns), cell * len(names)
    figure, top = pictures.sheet(2 * MARGIN + left + wide, tall + 0.4, title, note)
    axes = pictures.add_axes(figure, MARGIN + left, top + 0.3, wide, tall)
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
