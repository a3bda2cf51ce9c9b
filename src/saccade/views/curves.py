"""Lines over a shared axis, told apart by color, marker and dash, each with its name where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import SaccadeError, did_you_mean
from .labels import LONGEST_NAME
from .lettering import drawable, label, style, width_of
from .sheet import FAINT, GRAY, MARGIN, Heading, place, sheet

Series = Mapping[str, Sequence[tuple[float, float]]]
Bands = Mapping[str, Sequence[tuple[float, float, float]]]

# Okabe & Ito's colors, which people with any kind of color vision can tell apart, without the yellow that white swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 1.2)))
NAME_STEP = 0.2  # inches between two names


def lines(series: Series, x_label: str, y_label: str, title: str, bands: Bands | None = None) -> Figure:
    """One line a name through its (x, y) points, as BLEU against sentence length; `bands` shade (x, low, high) around a line."""
    _check(series, bands or {})
    names = {name: label(name, LONGEST_NAME) for name in series}
    name_room = max(width_of(text, 9) for text in names.values()) + 0.55
    plot_width, plot_height = 5.2, max(3.1, NAME_STEP * len(series))
    width = MARGIN + 0.75 + plot_width + name_room + MARGIN
    heading = Heading(title, "", width)
    figure = sheet(width, heading.height + 0.1 + plot_height + 0.45 + MARGIN)
    heading.write(figure)
    axes = place(figure, MARGIN + 0.75, heading.height + 0.1, plot_width, plot_height)
    ends = {}
    for index, (name, points) in enumerate(series.items()):
        color = COLORS[index % len(COLORS)]
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, **_look(index), zorder=3)
        if bands and name in bands:
            band_xs, lows, highs = zip(*sorted(bands[name]), strict=True)
            axes.fill_between(band_xs, lows, highs, color=color, alpha=0.16, linewidth=0)
        ends[name] = (xs[-1], ys[-1])
    _dress(axes, drawable(x_label), drawable(y_label))
    _name_ends(axes, ends, names, plot_width, plot_height)
    return figure


def _look(index: int) -> dict[str, Any]:
    """How the n-th line looks: color, marker and dash have different periods, so that hundreds of lines differ."""
    return {
        "color": COLORS[index % len(COLORS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 1.8,
        "markersize": 6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
    }


def _dress(axes: Axes, x_label: str, y_label: str) -> None:
    """Quiet axes: two spines, a faint grid, gray numbers."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9a9a9a")
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GRAY, labelsize=8, length=3)
    axes.margins(x=0.03, y=0.08)
    axes.set_xlabel(x_label, **style(9))
    axes.set_ylabel(y_label, **style(9))


def _name_ends(
    axes: Axes, ends: Mapping[str, tuple[float, float]], names: Mapping[str, str], width: float, height: float
) -> None:
    """Names to the right of the plot in the order in which the lines end, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    axes.set_xlim(axes.get_xlim())
    order = sorted(ends, key=lambda name: ends[name][1])
    spots = _apart([(ends[name][1] - low) / (high - low) for name in order], NAME_STEP / height)
    index_of = {name: index for index, name in enumerate(ends)}
    start, sample = 1 + 0.12 / width, 0.26 / width
    for name, spot in zip(order, spots, strict=True):
        how = _look(index_of[name])
        axes.annotate(
            "",
            xy=ends[name],
            xytext=(start, spot),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": how["color"], "linewidth": 0.6, "alpha": 0.55, "shrinkA": 0, "shrinkB": 3},
        )
        axes.plot([start, start + sample / 2, start + sample], [spot] * 3, transform=axes.transAxes, clip_on=False,
                  **{**how, "markevery": [1]})  # fmt: skip
        axes.text(start + sample + 0.07 / width, spot, names[name], transform=axes.transAxes, va="center", **style(9))


def _apart(spots: Sequence[float], step: float) -> list[float]:
    """Rising places between 0 and 1, moved as little as needed until each is a step from the next."""
    placed: list[float] = []
    for spot in spots:
        placed.append(max(spot, placed[-1] + step) if placed else max(spot, 0.0))
    ceiling = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - step
    return placed


def _check(series: Series, bands: Bands) -> None:
    """Raises a sentence about what cannot be drawn."""
    if not series:
        raise SaccadeError("there are no lines to draw: give at least one name with its (x, y) points")
    for name, points in series.items():
        if not points:
            raise SaccadeError(f"the line '{name}' has no points: give it at least one (x, y), or leave it out")
        _check_points(f"the line '{name}'", points, 2)
    for name, rows in bands.items():
        if name not in series:
            raise SaccadeError(f"no line named '{name}' for this band{did_you_mean(name, series)}")
        if not rows:
            raise SaccadeError(f"the band of '{name}' has no points: give it at least one (x, low, high), or leave it out")
        _check_points(f"the band of '{name}'", rows, 3)


def _check_points(what: str, points: Sequence[Sequence[float]], size: int) -> None:
    """Raises when a point has not that many finite numbers."""
    for point in points:
        if len(point) != size or not all(math.isfinite(value) for value in np.asarray(point, dtype=np.float64)):
            raise SaccadeError(f"{what} has the point {tuple(point)}, but needs {size} finite numbers: leave that point out")
