"""Panels side by side on one sheet: lines and heat maps in shades of gray, readable on paper without color."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ...views.figures import (
    COLORS,
    EDGE,
    FAINT,
    GRAY,
    MARGIN,
    MARKERS,
    add_axes,
    sheet,
    style,
    width_of,
)
from ...views.figures import families as families
from ...views.figures import save as save

DASHES = ("-", "--", "-.", ":")
Table = list[list[Any]]  # its first row is the header


@dataclass
class Drawing:
    """A figure with the numbers it was drawn from, and what they say."""

    title: str
    text: str
    table: Table
    figure: Figure
    scripts: bool = False  # letters that no font here may have: a page lets the browser draw them

    def picture(self) -> bytes:
        """For a page: PNG, or SVG where the browser shall find the fonts."""
        with tempfile.TemporaryDirectory() as folder:
            return save(
                self.figure, Path(folder) / ("picture.svg" if self.scripts else "picture.png")
            ).read_bytes()


@dataclass
class Panel:
    """What every panel has: a name above it, names of its axes, and inches."""

    name: str
    x: str = ""
    y: str = ""
    wide: float = 3.0
    tall: float = 2.5

    def draw(self, axes: Axes, looks: Mapping[str, Any]) -> None:
        raise NotImplementedError


@dataclass
class Lines(Panel):
    """One line per name through its (x, y) points."""

    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    log: str = ""  # the axes with logarithms: "x", "y", "xy"

    def draw(self, axes: Axes, looks: Mapping[str, Any]) -> None:
        for name, points in self.series.items():
            axes.plot(*zip(*points, strict=True), linewidth=1.6, zorder=3, **looks[name])
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(EDGE)
        axes.grid(color=FAINT, linewidth=0.6)
        if "x" in self.log:
            axes.set_xscale("log", base=2)
            ticks = sorted({x for points in self.series.values() for x, _ in points})
            ticks = ticks[:: math.ceil(len(ticks) / 6)]
            axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.minorticks_off()
        if "y" in self.log:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(
                LogLocator(subs=(1.0,) if high / low > 1000 else (1.0, 2.0, 5.0))
            )
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_locator(NullLocator())


@dataclass
class Heat(Panel):
    """A matrix as shades: white at `low`, black at `high`; with `text`, the numbers in their cells; `names` of columns and rows."""

    values: Any = None
    low: float | None = None
    high: float | None = None
    text: bool = False
    bar: bool = False
    edges: bool = False  # a line between two cells that differ, as between windows

    def draw(self, axes: Axes, looks: Mapping[str, Any]) -> None:
        values = np.asarray(self.values, dtype=float)
        low = values.min() if self.low is None else self.low
        high = values.max() if self.high is None else self.high
        high = high if high > low else low + 1  # all values are equal: white
        image = axes.imshow(
            values, cmap="gray_r", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
        for spine in axes.spines.values():
            spine.set(color=EDGE, linewidth=0.6)
        if max(values.shape) <= 32:
            for line, count in ((axes.axvline, values.shape[1]), (axes.axhline, values.shape[0])):
                for n in range(1, count):
                    line(n - 0.5, color=FAINT, linewidth=0.4)
        for (row, column), value in np.ndenumerate(values) if self.text else ():
            ink = "white" if value > (low + high) / 2 else "#1a1a1a"
            axes.text(column, row, f"{value:g}", ha="center", va="center_baseline", **style(7, ink))
        if self.edges:
            border(axes, values)
        if self.bar:
            shown = axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02)
            shown.ax.tick_params(labelsize=7, colors=GRAY, length=2)
            shown.outline.set(color=EDGE, linewidth=0.6)


@dataclass
class Bars(Panel):
    """How many times as large as 1 something is, by name: to the right where it is more, to the left and hatched where it is less."""

    values: Mapping[str, float] = field(default_factory=dict)

    def draw(self, axes: Axes, looks: Mapping[str, Any]) -> None:
        for n, (name, value) in enumerate(self.values.items()):
            [bar] = axes.barh(
                n,
                value - 1,
                left=1,
                height=0.72,
                color=COLORS[0] if value >= 1 else COLORS[1],
                zorder=3,
            )
            bar.set_hatch("" if value >= 1 else "////")
            bar.set_edgecolor("white")
            right = value >= 1
            how: dict[str, Any] = {
                "textcoords": "offset points",
                "va": "center",
                "ha": "left" if right else "right",
            }
            axes.annotate(f"{value:.3g}", (value, n), (4 if right else -4, 0), **how, **style(8))
            axes.annotate(
                name,
                (0, n),
                (-6, 0),
                xycoords=("axes fraction", "data"),
                **{**how, "ha": "right"},
                **style(8, text=name),
            )
        axes.axvline(1, color="#1a1a1a", linewidth=1, zorder=4)
        axes.set_xscale("log")
        axes.set_xlim(min(self.values.values()) * 0.6, max(self.values.values()) * 2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(len(self.values) - 0.4, -0.6)
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(EDGE)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)


@dataclass
class Contours(Panel):
    """Lines of equal height over a square, dark where it is low, with a cross at its middle."""

    at: Any = None
    values: Any = None
    levels: Any = None

    def draw(self, axes: Axes, looks: Mapping[str, Any]) -> None:
        axes.contourf(self.at, self.at, self.values, levels=self.levels, cmap="gray", extend="both")
        if inside := [
            level for level in self.levels if self.values.min() < level < self.values.max()
        ]:
            lines = axes.contour(
                self.at, self.at, self.values, levels=inside, colors="black", linewidths=0.5
            )
            axes.clabel(lines, inside[::2], fontsize=7, fmt="%.3g", colors="black")
            for text in lines.labelTexts:
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        axes.plot([0], [0], "+", color="white", markersize=12, markeredgewidth=3.5)
        axes.plot([0], [0], "+", color="black", markersize=10, markeredgewidth=1.5)


def border(axes: Axes, values: np.ndarray) -> None:
    """Thick lines between neighbors that differ."""
    for row, column in np.argwhere(values[:, 1:] != values[:, :-1]):
        axes.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="black", linewidth=1.6)
    for row, column in np.argwhere(values[1:] != values[:-1]):
        axes.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, color="black", linewidth=1.6)


def side_by_side(
    title: str, note: str, panels: Sequence[Panel], across: int = 3, left: float = 0.62
) -> Figure:
    """Panels in rows on one sheet, with one legend for all lines below them; `left`: inches for names beside the first."""
    names = list(
        dict.fromkeys(name for panel in panels if isinstance(panel, Lines) for name in panel.series)
    )
    looks: dict[str, dict[str, Any]] = {
        name: {
            "color": COLORS[n % len(COLORS)],
            "marker": MARKERS[n % len(MARKERS)],
            "linestyle": DASHES[n % len(DASHES)],
        }
        | {"markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.4}
        for n, name in enumerate(names)
    }
    rows = [panels[n : n + across] for n in range(0, len(panels), across)]
    above, below = 0.32, 0.62
    gap = 0.95 if any(isinstance(panel, Heat) and panel.bar for panel in panels) else 0.8
    wide = (
        max(sum(panel.wide + gap for panel in row) - gap + left for row in rows) + 2 * MARGIN + 0.2
    )
    entry = max((width_of(name, 9) for name in names), default=0) + 0.75
    columns = max(1, min(len(names), int((wide - 2 * MARGIN) / max(entry, 0.1))))
    legend = 0.22 * math.ceil(len(names) / columns) + 0.1 if len(names) > 1 else 0
    body = sum(max(panel.tall for panel in row) + above + below for row in rows) + legend
    figure, top = sheet(wide, body, title, note)
    for row in rows:
        at = MARGIN + left
        for panel in row:
            axes = add_axes(figure, at, top + above, panel.wide, panel.tall)
            axes.tick_params(colors=GRAY, labelsize=8, length=3)
            panel.draw(axes, looks)
            axes.set_title(
                panel.name, loc="left", pad=6, **style(9, weight="bold", text=panel.name)
            )
            axes.set_xlabel(panel.x, **style(8, text=panel.x))
            axes.set_ylabel(panel.y, **style(8, text=panel.y))
            at += panel.wide + gap
        top += max(panel.tall for panel in row) + above + below
    if len(names) > 1:
        plotted = {
            f"{line.get_marker()}{line.get_color()}": line
            for axes in figure.axes
            for line in axes.lines
        }
        shown = [plotted[f"{look['marker']}{look['color']}"] for look in looks.values()]
        font = FontProperties(family=families("".join(names)), size=9)
        look: dict[str, Any] = {
            "loc": "lower center",
            "bbox_to_anchor": (0.5, 0.0),
            "ncols": columns,
            "frameon": False,
            "handlelength": 3,
        }
        made = figure.legend(shown, names, prop=font, borderaxespad=0.4, **look)
        for text in made.get_texts():
            text.set_parse_math(False)
    return figure


def rounded(value: float) -> str:
    """A number for a table: four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
