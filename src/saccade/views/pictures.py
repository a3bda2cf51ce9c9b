"""Pictures of attention and of results. Each function returns a matplotlib Figure that no global state knows about.

Weights are drawn dark on white: the darker, the more weight, and black is the greatest weight of the picture. Bahdanau's Figure 3
has it the other way round; dark on white keeps the numbers in the cells readable and survives a printer.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files import write_atomically
from . import drawing
from .document import Site
from .drawing import GRAY, MARGIN, add_axes, label, style

MOST_HEADS = 16
MOST_NUMBERED = 40  # words per side up to which every cell is large enough for its number
NARROWEST = 3.6  # inches, so that a title over one single cell is not broken into syllables
THINNEST = 0.2  # inches, so that one word against hundreds is still a strip
BAR_ROOM, GAP = 0.9, 0.18
NAME_STEP, LONGEST_NAME = 0.2, 40  # inches between two names of lines, and letters of a name
# Okabe & Ito's colors, which people with any kind of color vision can tell apart, without the yellow that white swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 1.2)))
# Neither date nor program is written: the same weights give the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def alignment(site: Site, title: str = "", head: int | None = None) -> Figure:
    """Who looked at whom: queries down the left, keys along the top (Bahdanau et al. 2015, Figure 3)."""
    longest = max(len(site.rows), len(site.columns))
    cell = 0.4 if longest <= 16 else 0.34 * min(1.0, MOST_NUMBERED / longest)
    return _panels(site, title, site.head_name(head), {"": site.head(head)}, max(0.02, cell))


def heads(site: Site, title: str = "") -> Figure:
    """All heads of a site side by side on one scale, up to 16 of them (Vaswani et al. 2017, the figures of the appendix)."""
    count = len(site.weights)
    note = f"the first {MOST_HEADS} of {count} heads" if count > MOST_HEADS else f"{count} head{'s' * (count > 1)}"
    shown = {f"head {n}": site.head(n) for n in range(min(count, MOST_HEADS))}
    return _panels(site, title, note, shown, min(0.34, 2.4 / max(len(site.rows), len(site.columns))))


def _panels(site: Site, title: str, note: str, panels: Mapping[str, np.ndarray], cell: float) -> Figure:
    """Heat maps of one scale, each with its name under it; a single one without a name gets numbers where they fit."""
    named, weights = "" not in panels, np.stack(list(panels.values()))
    low, high = min(0.0, float(weights.min())), float(weights.max()) if weights.max() > 0 else 1.0
    rows, columns = [label(token) for token in site.rows], [label(token) for token in site.columns]
    across = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}.get(len(panels), 4)  # so that few positions stay empty
    left, above, right = drawing.label_room(rows, columns, cell)
    wide, tall = max(cell * len(columns), THINNEST), max(cell * len(rows), THINNEST)
    step, down = max(wide + GAP, 0.6), tall + (0.36 if named else 0.0)
    end = MARGIN + left + (across - 1) * step + wide
    body = above + math.ceil(len(panels) / across) * down + (0.08 if named else MARGIN)
    note = " · ".join(filter(None, [site.name, note, "darker = more weight"]))
    figure, top = drawing.sheet(max(end + max(right, BAR_ROOM) + MARGIN, NARROWEST), body, title, note)
    for index, (name, values) in enumerate(panels.items()):
        y, x = divmod(index, across)
        axes = add_axes(figure, MARGIN + left + x * step, top + above + y * down, wide, tall)
        image = drawing.heat(axes, values, cell, low, high)
        if x == 0:
            drawing.name_rows(axes, rows, cell)
        if y == 0:
            drawing.name_columns(axes, columns, cell)
        if named:
            axes.set_xlabel(name, labelpad=4, **style(8, GRAY))
        elif max(values.shape) <= MOST_NUMBERED:
            drawing.write_cells(axes, values, low, high, 72 * cell * 0.27)
    height = min(tall, 1.6)
    drawing.scale_bar(figure, image, add_axes(figure, end + GAP, top + above + tall - height, 0.12, height))
    return figure


def lines(series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, title: str) -> Figure:
    """One line per name through its (x, y) points, such as BLEU against sentence length, with its name where it ends."""
    names = [label(name, LONGEST_NAME) for name in series]
    wide, tall = 5.2, max(3.1, NAME_STEP * len(series))
    name_room = max(drawing.width_of(name, 9) for name in names) + 0.55
    figure, top = drawing.sheet(MARGIN + 0.75 + wide + name_room + MARGIN, 0.1 + tall + 0.45 + MARGIN, title)
    axes = add_axes(figure, MARGIN + 0.75, top + 0.1, wide, tall)
    ends = []
    for index, points in enumerate(series.values()):
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, **_look(index), zorder=3)
        ends.append((xs[-1], ys[-1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(drawing.EDGE)
    axes.grid(color=drawing.FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GRAY, labelsize=8, length=3)
    axes.margins(x=0.03, y=0.08)
    axes.set_xlabel(drawing.drawable(x_label), **style(9))
    axes.set_ylabel(drawing.drawable(y_label), **style(9))
    _name_ends(axes, ends, names, wide, tall)
    return figure


def _look(index: int) -> dict[str, Any]:
    """How the n-th line looks: color, marker and dash have different periods, so that hundreds of lines differ."""
    look = {"linewidth": 1.8, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.8}
    kinds = {"color": COLORS, "marker": MARKERS, "linestyle": DASHES}
    return {**look, **{name: values[index % len(values)] for name, values in kinds.items()}}


def _name_ends(axes: Axes, ends: list[tuple[float, float]], names: list[str], width: float, height: float) -> None:
    """Names to the right of the plot in the order in which the lines end, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    axes.set(xlim=axes.get_xlim(), ylim=(low, high))
    order = sorted(range(len(ends)), key=lambda n: ends[n][1])
    spots = _spread([(ends[n][1] - low) / (high - low) for n in order], NAME_STEP / height)
    start, sample = 1 + 0.12 / width, 0.26 / width
    for n, spot in zip(order, spots, strict=True):
        how = {**_look(n), "markevery": [1], "transform": axes.transAxes, "clip_on": False}
        arrow = {"arrowstyle": "-", "color": how["color"], "linewidth": 0.6, "alpha": 0.55, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", xy=ends[n], xytext=(start, spot), textcoords="axes fraction", arrowprops=arrow)
        axes.plot([start, start + sample / 2, start + sample], [spot] * 3, **how)
        axes.text(start + sample + 0.07 / width, spot, names[n], transform=axes.transAxes, va="center", **style(9))


def _spread(spots: Sequence[float], step: float) -> list[float]:
    """Rising positions between 0 and 1, moved as little as needed until each is a step from the next."""
    placed: list[float] = []
    for spot in spots:
        placed.append(max(spot, placed[-1] + step) if placed else max(spot, 0.0))
    ceiling = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - step
    return placed


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes PNG, SVG or PDF by the name's ending, as a whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "saccade"}):
        figure.savefig(content, format=kind, dpi=figure.dpi, metadata=METADATA.get(kind))
    write_atomically(path, content.getvalue())
    return path
